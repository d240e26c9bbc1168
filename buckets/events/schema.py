"""The shape of an event, declared by the user: which fields are the id, the time, the attributes and the measures."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from buckets.events.clock_times import TimeUnit, checked_format
from buckets.events.csv_format import PLAIN_CSV, CsvFormat
from buckets.events.derived_fields import (
    derived_type,
    extreme_columns,
    field_kinds,
    named_in,
    one_spelling,
    readable,
    renamed_sql,
)
from buckets.events.field_paths import array_path
from buckets.expressions.expression import ELEMENTS, is_array
from buckets.moment import moment_ms
from buckets.stores.location import location
from buckets.time_zone import check_zone
from buckets.validation import Checked, Location
from buckets.yaml_file import load_model

FieldName = Annotated[str, Field(min_length=1, max_length=200)]
MADE_ID = "event_id"  # What an id that is made is called where its name is left out
ROW_IDS = "event_id: {row: true} is for files and Python tables; take event_id: {hash: [FIELD]}, or name a field"
"""The remedy if rows have no stable number."""


class EventId(Checked):
    """The field that identifies an event, or how its id is made where the data have none.

    Attributes:
        field: the name of the field, or of the id that is made; that is called `event_id` if this is left out.
        hash: makes the id from the values of these fields: two events that agree in all of them are one.
        row: makes the id from the name of the file and the number of the row; for files and Python tables.
    """

    field: FieldName
    hash: Annotated[tuple[FieldName, ...], Field(max_length=100)] = ()
    row: bool = False

    @model_validator(mode="before")
    @classmethod
    def _may_be_a_name(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"field": value}
        if not isinstance(value, dict):
            return value
        is_made = value.get("hash") or value.get("row")
        if not is_made and "field" not in value and value.keys() <= cls.model_fields.keys():
            message = "names no field; write one, or {hash: [FIELD]} or {row: true} where events have no id"
            raise ValueError(message)
        return {"field": MADE_ID} | value if is_made else value

    def _faults(self) -> Iterator[str]:
        if self.hash and self.row:
            yield "is made of fields (hash) or of a place (row); leave one of them out"
        for name in self.hash:
            if self.hash.count(name) > 1:
                yield f"hash: {name!r} is there twice"

    @property
    def is_made(self) -> bool:
        """Whether the data have no id, and one is made when they are read."""
        return bool(self.hash) or self.row

    @property
    def text(self) -> str:
        """The field and, if its values are generated, how, in words."""
        made = f" (hash of {', '.join(self.hash)})" if self.hash else " (file and row)" if self.row else ""
        return f"{self.field}{made}"


AttributeType = Literal["string", "long", "boolean"]
Rounding = Literal["half_even"]
LARGEST_SCALE = 18
MOST_APART = 12
"""By how much scales may differ: values of all rules share a column of 38 digits, the largest integer has 19, and an
average six more than its measure."""
ALERT_SCORE = "alert_score"
"""A measure of alerts only, when they are events of rules over alerts: small integers, whatever other scales are."""
KEY = "key"
OF_KEY, OF_HEADERS, OF_ENVELOPE = "key.", "headers.", "envelope."
KeyFormat = Literal["text", "json", "json_sr", "avro", "protobuf"]  # How the keys of messages are written


def _is_origin(value: str) -> str:
    if value != KEY and not any(value.startswith(of) and value != of for of in (OF_KEY, OF_HEADERS, OF_ENVELOPE)):
        message = f"must be {KEY}, {OF_KEY}PATH, {OF_HEADERS}NAME or {OF_ENVELOPE}PATH, not {value!r}"
        raise ValueError(message)
    if is_array(value) and not value.startswith(OF_HEADERS):
        message = f"{value!r} leads into a list, and only the value of a message has arrays"
        raise ValueError(message)
    return value


def _is_list_of_records(value: str) -> str:
    outer, _, inner = value.partition(ELEMENTS)
    if ELEMENTS not in value or inner or (outer and "" in outer.split(".")):
        message = f'must be "[]" for one array, or the path of a list, as in Records[], a.b[], a[0].b[], not {value!r}'
        raise ValueError(message)
    return value


Origin = Annotated[str, Field(max_length=200), AfterValidator(_is_origin)]
RecordList = Annotated[
    str,
    BeforeValidator(lambda value: ELEMENTS if value == [] else value),  # YAML reads it so without quotes.
    Field(max_length=200),
    AfterValidator(_is_list_of_records),
]

BrokerTime = Literal["create_time", "log_append_time"]


class EventTime(Checked):
    """The field that holds an event's time, its unit, and the range of times that are accepted.

    Attributes:
        field: the name of the field.
        broker: takes the time from the broker's timestamp of a message, not from a field: `create_time`, when its
            producer made it, or `log_append_time`, when the broker took it. Then `field` names the time, by default
            with that same word.
        unit: seconds (s), milliseconds (ms), microseconds (us) or nanoseconds (ns) since 1970-01-01T00:00:00Z, or text
            in ISO 8601 (iso8601). A column of dates or timestamps needs none.
        format: how texts are written, in the codes of Python's `strptime`, as in `%d/%m/%Y %H:%M`; instead of a unit.
        zone: the time zone of texts and timestamps that have none, as in `Europe/Berlin`; left out: UTC, which is
            reported.
        earliest: the first time that is accepted. Writing it also says that times in 1970 are meant.
        latest: the first time that is too far ahead.
    """

    field: FieldName
    broker: BrokerTime | None = None
    unit: TimeUnit = "ms"
    format: Annotated[str, Field(min_length=1, max_length=100), AfterValidator(checked_format)] | None = None
    zone: Annotated[str, AfterValidator(check_zone)] | None = None
    earliest: datetime = datetime(1900, 1, 1, tzinfo=UTC)
    latest: datetime = datetime(2200, 1, 1, tzinfo=UTC)

    @model_validator(mode="before")
    @classmethod
    def _with_what_follows(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        named = {"field": value["broker"]} if value.get("broker") else {}
        return named | ({"unit": "iso8601"} if value.get("format") else {}) | value

    def _faults(self) -> Iterator[str]:
        if self.format is not None and self.unit != "iso8601":
            yield f"format: says how texts are written, and unit {self.unit} counts; leave one of them out"
        if self.broker is not None and self.unit != "ms":
            yield f"unit: the time of a broker is in ms, not {self.unit}; leave it out"
        if self.broker is not None and self.zone is not None:
            yield f"zone: the time of a broker is in UTC, not in {self.zone}; leave it out"
        if self.earliest_ms >= self.latest_ms:
            yield f"earliest {self.earliest} is not before latest {self.latest}, so no event would be accepted"

    @property
    def earliest_ms(self) -> int:
        """The first time that is accepted, in ms since the epoch."""
        return moment_ms(self.earliest)

    @property
    def latest_ms(self) -> int:
        """The first time that is too far ahead, in ms since the epoch."""
        return moment_ms(self.latest)

    @property
    def limits(self) -> str:
        """The days of these two, for people."""
        return f"{self.earliest:%Y-%m-%d} to {self.latest:%Y-%m-%d}"


class Measure(Checked):
    """A decimal field.

    Attributes:
        scale: how many digits it has after the point, 0 to 18. Its values are integers of 64 bits in these digits: at
            scale 2 up to 92,233,720,368,547,758.07, at scale 18 up to 9.22.
        round: what is done with a value that has more digits: `half_even` rounds it to the nearest, a tie to the even
            one; rounded values are counted. Left out, such a value makes its event a dead letter.
    """

    scale: int = Field(ge=0, le=LARGEST_SCALE)
    round: Rounding | None = None

    @model_serializer(mode="wrap")
    def _without_what_it_lacks(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit `round` if nothing is rounded, so that a schema stays as it was written."""
        written: dict[str, Any] = write(self)
        return {name: value for name, value in written.items() if value is not None}


class EventSchema(Checked):
    """Names and types of the fields of one kind of event.

    Attributes:
        name: what the kind of event is called.
        version: the version of the schema, as its author numbers it.
        identity: the field that identifies an event: its name alone, or a mapping where the data have no id.
        event_time: the field that says when it happened: its name alone, or a mapping.
        attributes: fields that rules group by and filter on, each with its type.
        measures: decimal fields that rules aggregate.
        arrays: lists inside of events that conditions look into, each with the type of its elements. `tags[]` is a list
            of values, `items[].sku` what the objects of a list have at a path.
        origins: where fields lie that are not in the value of a message: `key`, `key.` and the path to a field in one
            that is an object, `headers.` and the name of one, or `envelope.` and the path to what the source's envelope
            has beside the event.
        aliases: by field, the names that it had before, as in `{payer: [payerId]}`. Events that still have such a name
            are read under the new one. Where an event has both, the new one counts, and an old one is not looked at;
            of several old ones the first of the list that has a value counts. Rules in force and their state follow.
        derive: fields that are computed from others when an event is read, each by an expression in SQL, as in
            `{bin: "substring(pan, 1, 6)"}`. A number with digits after the point is a measure, and anything else is an
            attribute: a text, a whole number, or what is true or false.
        csv: how files of CSV are written; other sources pass over it.
        records: where the events are in JSON files that hold one value, and not one object a line: `Records[]`, the
            list of that name in an object, `a.b[]`, one further inside, or `"[]"`, an array. Such a file is read whole,
            and has up to 256 MB.
    """

    name: str = "event"
    version: int = 1
    identity: EventId = Field(alias="event_id")
    event_time: EventTime
    attributes: dict[FieldName, AttributeType] = Field(default_factory=dict)
    measures: dict[FieldName, Measure] = Field(default_factory=dict)
    arrays: dict[FieldName, AttributeType] = Field(default_factory=dict)
    origins: dict[FieldName, Origin] = Field(default_factory=dict)
    aliases: dict[FieldName, Annotated[tuple[FieldName, ...], Field(max_length=20)]] = Field(default_factory=dict)
    derive: dict[FieldName, str] = Field(default_factory=dict)
    csv: CsvFormat = PLAIN_CSV
    records: RecordList | None = None

    @field_validator("event_time", mode="before")
    @classmethod
    def _time_may_be_a_name(cls, value: object) -> object:
        return {"field": value} if isinstance(value, str) else value

    @field_validator("derive")
    @classmethod
    def _typed(cls, derive: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        """Add derived fields to attributes and measures, ordered so that each depends only on earlier ones."""
        declared = info.data
        if not derive or not {"identity", "event_time", "attributes", "measures", "arrays"} <= declared.keys():
            return derive
        attributes, measures, arrays = (declared[role] for role in ("attributes", "measures", "arrays"))
        time, left, ordered = declared["event_time"].field, dict(derive), dict[str, str]()
        while left:
            name = next((name for name, text in left.items() if named_in(text).isdisjoint(left)), None)
            if name is None:
                first, *others = left
                needs = f"and {', '.join(others)} need each other" if others else "needs itself"
                raise _fault_of(first, f"{needs}; begin with fields that events have")
            if name in (declared["identity"].field, time, *attributes, *measures, *arrays):
                raise _fault_of(name, "is another field of the schema; give the derived one another name")
            if is_array(name):
                raise _fault_of(name, "is one value, and [] in a name is for arrays; give it another name")
            ordered[name] = left.pop(name)
            columns = extreme_columns(attributes, measures, arrays)
            columns[time] = pa.array([declared["event_time"].earliest_ms, 0, 1, declared["event_time"].latest_ms - 1])
            kinds = field_kinds(attributes, measures, arrays, time)
            try:
                found = derived_type(ordered[name], kinds, readable(columns, _scales(attributes, measures), time))
            except ValueError as error:
                raise _fault_of(name, str(error)) from None
            if isinstance(found, str):
                attributes[name] = found
                continue
            most = min([LARGEST_SCALE, *(measure.scale + MOST_APART for measure in measures.values())])
            if found > most:
                digits = f"has {found} digits after the point, and with the measures of this schema it may have {most}"
                raise _fault_of(name, f"{digits}; write round({ordered[name]}, {most})")
            measures[name] = Measure(scale=found)
        return ordered

    def _faults(self) -> Iterator[str | tuple[Location, str]]:
        return chain(self._faults_of_fields(), self._faults_of_origins(), self._faults_of_aliases())

    def _faults_of_fields(self) -> Iterator[str]:
        names = self.field_names
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield f"field {name!r} is declared twice; give each field one role"
        for name in (self.event_id, self.event_time.field) if self.csv.header else ():
            is_made = name == self.event_id and self.identity.is_made
            if name not in self.declared(self.csv.header) and name not in self.beside_value and not is_made:
                yield f"csv.header: has no column {name!r}, without which no row is an event"
        for name, measure in self.measures.items():
            if self.largest_scale - measure.scale > MOST_APART and name != ALERT_SCORE:
                yield (
                    f"measures: {name!r} has a scale of {measure.scale} and another measure one of "
                    f"{self.largest_scale}, and the values of rules, which share a column, have room for scales that "
                    f"differ by up to {MOST_APART}; give it one of {self.largest_scale - MOST_APART}"
                )
        for name in self.identity.hash:
            if name == self.event_id or name not in names:
                yield f"event_id: hash: {name!r} is not a field of the schema; declare it as an attribute or a measure"
        if self.identity.is_made and self.event_id in self.origins:
            yield f"origins: {self.event_id!r} is an id that is made, and comes from nowhere else; leave it out"
        for name in self.arrays:
            if array_path(name) is None:
                yield f"arrays: {name!r} names no array; write one [] behind the list, as in tags[] or items[].sku"
        for name in names:
            if is_array(name) and name not in self.arrays:
                yield f"{name!r} has [] in its name, as arrays have, which stand under `arrays`"

    def _faults_of_origins(self) -> Iterator[str]:
        for name in self.origins:
            if name not in self.field_names:
                yield f"origins: {name!r} is not a field of the schema; declare it as an attribute or a measure"
            if self.event_time.broker is not None and name == self.event_time.field:
                yield f"origins: {name!r} is the time of the broker, and comes from nowhere else; leave it out"
            if name in self.arrays:
                yield f"origins: {name!r} is an array, and lies in the value of a message; leave it out"
        inside = next((origin for origin in self.origins.values() if origin.startswith(OF_KEY)), None)
        if inside is not None and KEY in self.origins.values():
            yield f"origins: {KEY} is a key that is one value, and {inside} lies in one that is an object; take one"

    def _faults_of_aliases(self) -> Iterator[tuple[Location, str]]:
        made = (self.event_id,) if self.identity.is_made else ()
        for name, aliases in self.aliases.items():
            at = ("aliases", name)
            if name not in self.field_names:
                yield at, f"aliases: {name!r} is not a field of the schema; declare it under its new name"
            if name in (*made, *self.beside_value):
                reason = "does not lie in the value of an event, which alone has names; leave it out"
                yield at, f"aliases: {name!r} {reason}"
            for index, alias in enumerate(aliases):
                here = (*at, index)
                if alias in self.all_fields:
                    reason = "is another field of the schema; an old name belongs to one field alone"
                    yield here, f"aliases: {alias!r} {reason}"
                if [*chain(*self.aliases.values())].count(alias) > 1:
                    yield here, f"aliases: {alias!r} is there twice; an old name belongs to one field alone"
                if is_array(alias) != (name in self.arrays):
                    yield here, f"aliases: {alias!r} and {name!r} must both lead into a list, or neither"

    @model_serializer(mode="wrap")
    def _without_what_it_lacks(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Serialise it as in a file, without default values."""
        written: dict[str, Any] = write(self)
        usual = {name for name in ("arrays", "origins", "aliases", "derive", "records") if not getattr(self, name)}
        usual |= set() if self.csv != PLAIN_CSV else {"csv"}
        named = {"event_id" if name == "identity" else name: value for name, value in written.items()}
        for role in ("attributes", "measures"):
            named[role] = {name: value for name, value in named[role].items() if name not in self.derive}
        if "event_id" in named and not self.identity.is_made:
            named["event_id"] = self.event_id
        return {name: value for name, value in named.items() if name not in usual}

    @property
    def event_id(self) -> str:
        """The field that identifies an event, in the data or generated."""
        return self.identity.field

    @property
    def with_written_ids(self) -> "EventSchema":
        """The same schema for events that already have their generated ids, as in tests, without CSV headers."""
        if not self.identity.is_made:
            return self
        without_header = self.csv.model_copy(update={"header": ()})
        return self.model_copy(update={"identity": EventId(field=self.event_id), "csv": without_header})

    @property
    def field_names(self) -> list[str]:
        """All fields that are read: id, time, attributes, measures, arrays; not derived ones."""
        return [name for name in self.all_fields if name not in self.derive]

    def read_for(self, names: Iterable[str]) -> set[str]:
        """Return the fields to read for some fields, with derived ones replaced by their inputs."""
        needed = set(names)
        for name in reversed(self.derive):
            needed |= named_in(self.derive[name]) if name in needed else set()
        return needed - self.derive.keys()

    @property
    def all_fields(self) -> list[str]:
        """All fields, including derived ones."""
        return [self.event_id, self.event_time.field, *self.other_fields]

    @property
    def all_names(self) -> list[str]:
        """All names under which fields are read: the current and the earlier ones."""
        return [*self.field_names, *self.new_names]

    @property
    def other_fields(self) -> list[str]:
        """All fields except id and time, including derived ones."""
        return [*self.attributes, *self.measures, *self.arrays]

    @property
    def new_names(self) -> dict[str, str]:
        """The current name of a field by each of its earlier names."""
        return {alias: name for name, aliases in self.aliases.items() for alias in aliases}

    def names_in(self, then: "EventSchema") -> dict[str, str]:
        """Return by each name, current or earlier, of a field its name in another event schema, if that differs."""
        names: dict[str, str] = {}
        for name in self.aliases:
            own = next((spelling for spelling in self.spellings(name) if spelling in then.field_names), name)
            names |= {spelling: own for spelling in self.spellings(name) if spelling != own}
        return names

    def spellings(self, name: str) -> tuple[str, ...]:
        """Return the current name of a field, and its earlier ones."""
        return (name, *self.aliases.get(name, ()))

    def newer_names(self, name: str) -> tuple[str, ...]:
        """Return the names of the same field that take precedence over this one; empty for its current name."""
        spellings = self.spellings(self.new_names.get(name, name))
        return spellings[: spellings.index(name)]

    @property
    def id_names(self) -> list[str]:
        """The fields that make up an id, under all their names; empty if ids are made from rows."""
        names = () if self.identity.row else self.identity.hash or (self.event_id,)
        return [spelling for name in names for spelling in self.spellings(name)]

    def declared(self, names: Iterable[str]) -> set[str]:
        """Return the declared fields among names, also by their earlier names."""
        return {self.new_names.get(name, name) for name in names}.intersection(self.field_names)

    def renamed(self, names: Mapping[str, str]) -> "EventSchema":
        """Return the schema with fields renamed by `names` (old to new)."""

        def new(name: str) -> str:
            return names.get(name, name)

        def of(fields: Mapping[str, Any]) -> dict[str, Any]:
            return {new(name): value for name, value in fields.items()}

        hashed = tuple(map(new, self.identity.hash))
        others = {name: tuple(alias for alias in old if alias != name) for name, old in of(self.aliases).items()}
        return self.model_copy(
            update={
                "identity": self.identity.model_copy(update={"field": new(self.event_id), "hash": hashed}),
                "aliases": {name: old for name, old in others.items() if old},
                "event_time": self.event_time.model_copy(update={"field": new(self.event_time.field)}),
                **{role: of(getattr(self, role)) for role in ("attributes", "measures", "arrays", "origins")},
                "derive": {name: renamed_sql(text, names) for name, text in self.derive.items()},
            }
        )

    def is_time(self, name: str) -> bool:
        """Return whether a name is a current or earlier name of the event time."""
        return name in self.spellings(self.event_time.field)

    def holds_text(self, name: str) -> bool:
        """Return whether a field holds text, or is an array of texts, so that true and false are not valid values."""
        kinds = (self.attributes.get(name), self.arrays.get(name))
        return name in self.spellings(self.event_id) or ("string" in kinds and not self.is_time(name))

    @property
    def beside_value(self) -> dict[str, str]:
        """The fields outside the value of a message, and their origins."""
        of_broker = {} if self.event_time.broker is None else {self.event_time.field: self.event_time.broker}
        return of_broker | self.origins

    @property
    def roles(self) -> dict[str, str]:
        """A description of each field, except id and time."""
        attributes = {name: f"a {kind} attribute" for name, kind in self.attributes.items()}
        arrays = {name: f"an array of {kind}" for name, kind in self.arrays.items()}
        measures = {name: f"a measure of scale {measure.scale}" for name, measure in self.measures.items()}
        roles = attributes | measures | arrays
        return roles | {name: f"{roles[name]} derived from {one_spelling(text)}" for name, text in self.derive.items()}

    @property
    def scales(self) -> dict[str, int]:
        """The digits after the point of numeric fields; whole numbers have none."""
        return _scales(self.attributes, self.measures)

    @property
    def largest_scale(self) -> int:
        """The largest scale of any measure."""
        return max((measure.scale for measure in self.measures.values()), default=0)


def _scales(attributes: Mapping[str, str], measures: Mapping[str, Measure]) -> dict[str, int]:
    longs = (name for name, kind in attributes.items() if kind == "long")
    return dict.fromkeys(longs, 0) | {name: measure.scale for name, measure in measures.items()}


def _fault_of(derived: str, text: str) -> PydanticCustomError:
    return PydanticCustomError("value_error", "{text}", {"text": f"{derived}: {text}", "at": (derived,)})


def load_event_schema(path: Path) -> EventSchema:
    """Read an event schema from YAML.

    Raises:
        BucketsError: the file cannot be read, or is not a valid schema; says which line and field.
    """
    return load_model(location(str(path)), EventSchema, "event schema")
