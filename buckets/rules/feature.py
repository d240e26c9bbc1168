"""A feature: what is computed over a window of a group's tracks, to be named in the condition of a rule."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import (
    ConfigDict,
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    Tag,
    ValidationInfo,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)

from buckets.aggregates.aggregate import Aggregate, FieldKind, ValueKind
from buckets.aggregates.component import COUNT, PAIRS, PERCENTILE, PERIODS, RANK, SUM, ColumnKind, Component
from buckets.aggregates.over_periods import OVER_PERIODS, OverPeriods
from buckets.aggregates.registry import AGGREGATES, Function, ShortFunction
from buckets.arrays import Int64s
from buckets.duration import DurationMs, format_duration
from buckets.events.schema import ALERT_SCORE, AttributeType, EventId, EventSchema, EventTime, Measure
from buckets.expressions.expression import Expression, digits_after_point
from buckets.numbers.fixed_point import parse_decimal
from buckets.printable import capitalised, counted, short_line
from buckets.rules.condition import SqlFilter
from buckets.rules.filter import Filter, FilterField, describe_filter, names_this, split_filter, window_fields
from buckets.rules.periods import UTC, Periods
from buckets.rules.role import counted_field, grouping_fault, has_roles
from buckets.rules.steps import MOST_STEPS, StepField, check_step, step_filter, steps_in_words
from buckets.time_zone import LONGEST_PERIODS_MS, check_zone, period_starts_ms
from buckets.validation import A_FIELD, OF_EACH_PERIOD, Checked


@dataclass(frozen=True)
class Track:
    """A column of a timeline."""

    kind: ColumnKind  # what is kept of a field
    of: str | None  # the field; None where only events are counted
    where: Filter = ()  # which events count; empty for all

    @property
    def name(self) -> str:
        """What tells tracks apart: of plain values, the field; of all else a text that is no name of a measure."""
        if self.kind == "value" and not self.where:
            return self.of or ""
        filtered = f" where {describe_filter(self.where)}" if self.where else ""
        return f"{self.kind}({self.of or ''}){filtered}"


Counted = Literal["events", "alerts"]  # What a rule counts
MOST_LAST = 1_000_000  # So many last events a window may hold


_TOO_SHORT: Final[Mapping[str, str]] = {
    "length_ms": "a window is at least 1ms long",
    "offset_ms": "an offset is at least 1ms; leave it out for a window that ends with its event",
    "session_ms": "the events of a session may be at least 1ms apart",
}
"""By the durations of a window, what is said of one that is none."""


def holds_texts(track: Track, schema: EventSchema) -> bool:
    """Return whether a track holds texts themselves."""
    name = schema.new_names.get(track.of or "", track.of or "")
    return track.kind == "value" and schema.attributes.get(name) == "string"


class Window(Checked):
    """How far a window reaches back from its event, whether it holds an event exactly that old, and where it ends.

    Attributes:
        length_ms: how long it is; of one that begins with a period of the calendar, how long that is at the most.
        this: the period of the calendar with which it begins; None for one of a length.
        zone: by whose clocks.
        left: whether it holds an event at its very beginning.
        exclude: `current` for one without its own event; None for one that holds it.
        offset_ms: how long before its event it ends, and holds an event of that very time; 0 for none.
        last: how many events it holds at most, its last ones that the feature counts, by time and arrival; 0 for any
            number. Its length is written `within` then.
        session_ms: of one that holds the events of a session, how far apart two that follow each other may be; 0 for
            others. Its length is written `within` then.
    """

    model_config = ConfigDict(populate_by_name=True)

    length_ms: DurationMs = Field(alias="length")
    this: Literal["day", "week", "month"] | None = None
    zone: str = UTC
    left: Literal["closed", "open"] = "closed"
    exclude: Literal["current"] | None = None
    offset_ms: DurationMs = Field(alias="offset", default=0)
    last: int = Field(default=0, ge=1, le=MOST_LAST)
    session_ms: DurationMs = Field(alias="session", default=0)

    @model_validator(mode="before")
    @classmethod
    def _length_of_last_events(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or not {"last", "session", "within"} & data.keys():
            return data
        of_last, of_session = ({name, "within"} for name in ("last", "session"))
        if data.keys() - {"exclude"} not in (of_last, of_session) or isinstance(data.get("last"), bool):
            message = (
                "a window of the last events or of a session has `last`, how many, or `session`, how far apart they "
                "may be, `within`, up to which age they count, and at most `exclude` beside them; write {last: 10, "
                "within: 30d} or {session: 30m, within: 24h}"
            )
            raise ValueError(message)
        return {"length": data["within"], **{name: data[name] for name in data.keys() - {"within"}}}

    @model_validator(mode="before")
    @classmethod
    def _length_of_a_period(cls, value: Any) -> Any:
        if not isinstance(value, Mapping) or value.get("this") is None:
            if isinstance(value, Mapping) and "zone" in value:
                message = "`zone` goes with `this`, as in {this: day, zone: Europe/Berlin}"
                raise ValueError(message)
            return value
        beside = next((name for name in ("length", "length_ms", "left", "offset", "offset_ms") if name in value), None)
        if beside is not None:
            message = f"a window that begins with this {value['this']} has no `{beside}`; leave it out"
            raise ValueError(message)
        return {**value, "length": f"{LONGEST_PERIODS_MS.get(value['this'], 1)}ms"}

    _is_known = field_validator("zone", mode="after")(check_zone)

    @field_validator(*_TOO_SHORT, mode="after")
    @classmethod
    def _longer_than_nothing(cls, value: int, info: ValidationInfo) -> int:
        if value <= 0:
            raise ValueError(_TOO_SHORT[info.field_name or ""])
        return value

    def _faults(self) -> Iterator[str]:
        if self.exclude is not None and self.offset_ms:
            yield "a window with an `offset` ends before its event, and never holds it; leave out `exclude`"
        if self.this is not None:
            period_starts_ms(self.this, self.zone)

    @model_serializer(mode="wrap")
    def _what_is_said(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        without = {"this", "zone"} if self.this is None else {"length_ms", "length", "left"}
        without |= {"exclude"} if self.exclude is None else set()
        without |= set() if self.offset_ms else {"offset_ms", "offset"}
        without |= set() if self.last else {"last"}
        without |= set() if self.session_ms else {"session_ms", "session"}
        written: dict[str, Any] = write(self)
        if self.last or self.session_ms:
            without |= {"length_ms", "length", "left"}
            written["within"] = format_duration(self.length_ms)
        return {name: value for name, value in written.items() if name not in without}

    @property
    def holds_its_event(self) -> bool:
        """Whether its own event is in it."""
        return self.exclude is None and not self.offset_ms

    @property
    def is_plain(self) -> bool:
        """Whether it has a length alone, and ends with its event."""
        return self.holds_its_event and self.this is None and not self.needs_raw_events

    @property
    def needs_raw_events(self) -> bool:
        """Whether single events say where it begins, so that it has to lie in the tail."""
        return bool(self.last or self.session_ms)

    @property
    def calendar(self) -> tuple[str, str] | None:
        """The period of a calendar and the zone that say where it begins; None where these do not."""
        return None if self.this is None else (self.this, self.zone)

    @property
    def period_steps(self) -> tuple[int, int, int]:
        """Of one of whole periods, how many days or steps it holds, how many make a period, and how long a step is."""
        return 0, 0, 0

    @property
    def begins_ms(self) -> int:
        """How long before its event it begins."""
        return self.offset_ms + self.length_ms

    @property
    def reach_ms(self) -> int:
        """How much older than its event an event of the window may be."""
        return self.begins_ms - (self.left == "open")

    def starts_ms(self, times_ms: Int64s) -> Int64s:
        """Return when the windows of events at such times begin: int64 `(events,)`."""
        if self.this is None:
            return times_ms - self.begins_ms
        starts_ms = period_starts_ms(self.this, self.zone)
        known_ms = starts_ms[np.maximum(np.searchsorted(starts_ms, times_ms, side="right") - 1, 0)]
        return np.where(known_ms <= times_ms, np.maximum(known_ms, times_ms - self.reach_ms), times_ms - self.reach_ms)

    def ends_ms(self, times_ms: Int64s) -> Int64s:
        """Return until when the windows of events at such times hold others: int64 `(events,)`."""
        return times_ms - self.offset_ms

    def counted_borders_ms(self, time_ms: int, others_ms: Int64s) -> list[int]:
        """Return the borders of its periods, of a window of such; nothing for others."""
        return []

    @property
    def text(self) -> str:
        """Return it as a brief text: `30d`, `30d before`, `24h until 7d before`, `this day in Europe/Berlin`."""
        length = format_duration(self.length_ms) if self.this is None else f"this {self.this} in {self.zone}"
        length = f"last {self.last} within {length}" if self.last else length
        length = f"session {format_duration(self.session_ms)} within {length}" if self.session_ms else length
        if self.offset_ms:
            return f"{length} until {format_duration(self.offset_ms)} before"
        return length if self.exclude is None else f"{length} before"

    def words_over(self, counted: Counted) -> str:
        """Return it in a sentence about events or alerts."""
        return self.words.replace("event", counted.removesuffix("s"))

    @property
    def words(self) -> str:
        """Return it in a sentence: `the last 30d`, `the last 30d before the event`, `this month in UTC`."""
        length = format_duration(self.length_ms)
        if self.session_ms:
            length = f"{length}, as far as events are up to {format_duration(self.session_ms)} apart"
        if self.last:
            length = f"{'event' if self.last == 1 else counted(self.last, 'event')} within {length}"
        if self.offset_ms:
            return f"the {length} until {format_duration(self.offset_ms)} before the event"
        over = f"the last {length}" if self.this is None else f"this {self.this} in {self.zone}"
        return over if self.exclude is None else f"{over} before the event"


class PeriodsWindow(Window):
    """The whole periods before the one in which the event lies; what is written of it is its length."""

    periods: Periods

    @property
    def calendar(self) -> tuple[str, str] | None:
        """The days of a zone; None for steps of a fixed length."""
        return ("day", self.periods.zone) if self.periods.are_days else None

    @property
    def period_steps(self) -> tuple[int, int, int]:
        """How many days or steps it holds, how many make a period, and how long a step is, 0 for days."""
        step_ms = self.periods.step_ms
        return self.length_ms // step_ms, self.periods.every_ms // step_ms, 0 if self.periods.are_days else step_ms

    @property
    def holds_its_event(self) -> bool:
        """It ends before its event."""
        return False

    @property
    def begins_ms(self) -> int:
        """How long before its event it begins, at most."""
        return self.periods.reach_ms(self.length_ms)

    def starts_ms(self, times_ms: Int64s) -> Int64s:
        """Return when the windows of events at such times begin: int64 `(events,)`."""
        return self.periods.begin_ms(times_ms, self.length_ms)

    def ends_ms(self, times_ms: Int64s) -> Int64s:
        """Return the last millisecond before the periods of events at such times: int64 `(events,)`."""
        return self.periods.begin_ms(times_ms) - 1

    def counted_borders_ms(self, time_ms: int, others_ms: Int64s) -> list[int]:
        """Return when its periods begin, from that of the first of some events on, and when the last one ends."""
        before_ms, at = range(self.length_ms, -1, -self.periods.every_ms), np.array([time_ms])
        borders_ms = [int(self.periods.begin_ms(at, each_ms)[0]) for each_ms in before_ms]
        first_ms = int(others_ms.min()) if len(others_ms) else borders_ms[-1]
        return borders_ms[bisect_right(borders_ms, first_ms) - 1 :]

    @property
    def text(self) -> str:
        """Return it as a brief text: `30d before this day in Europe/Berlin`, `24h before this period of 1h`."""
        zone = self.periods.zone if self.periods.are_days else None
        own = f"day in {zone}" if zone else f"period of {self.periods.every_text}"
        return f"{format_duration(self.length_ms)} before this {own}"

    @property
    def words(self) -> str:
        """Return it in a sentence."""
        return f"the {self.text}"


@dataclass(frozen=True)
class Part:
    """An operation over a window of a group's events."""

    operation: int  # what the kernel computes, one of `buckets.aggregates.component`
    column: Track | None  # of which track; None for a count
    second: Track | None  # a second track, where pairs of values are counted
    counted: Track | None  # a track that says which events count; None where all do
    window: Window  # how far back it reaches
    on_trial: bool  # whether only rules on trial need it
    parameter: int = 0  # of a percentile, which one it is in hundredths of a per cent; 0 for all else
    paired: SqlFilter | None = None  # what events of the window have to be to the event itself; None for anything
    over: Component | None = None  # of a window of periods, what is computed of these values; None for other windows
    steps: tuple[Track, ...] = ()  # of a sequence, which events are its steps; those of `second` must not come between

    @property
    def is_listed(self) -> bool:
        """Whether it is computed of the events of the window one by one, outside of the kernel."""
        return self.paired is not None or self.operation > PERIODS

    @property
    def tracks(self) -> tuple[Track, ...]:
        """What it reads."""
        compared = () if self.paired is None else (Track("value", name) for name in window_fields(self.paired))
        tracks = self.column, self.second, self.counted, *compared, *self.steps
        return tuple(track for track in tracks if track is not None)


ALERT_ID = "alert_id"
ALERT_RULE = "alert_rule"
ALERT_SEVERITY = "alert_severity"
ALERT_FIELDS = (ALERT_ID, ALERT_RULE, ALERT_SEVERITY, ALERT_SCORE)
"""The fields that an alert has beside those of its event."""


def alert_schema(schema: EventSchema) -> EventSchema:
    """Return the event schema of alerts on events; ValueError if events have a field that only alerts may have."""
    taken = next((name for name in schema.all_fields if name in ALERT_FIELDS), None)
    if taken is not None:
        message = (
            f"event schema {schema.name!r} has a field {taken!r}, which alerts as events have themselves; rename the "
            "field to have rules over alerts"
        )
        raise ValueError(message)
    strings: dict[str, AttributeType] = {ALERT_RULE: "string", ALERT_SEVERITY: "string"}
    time = schema.event_time
    return EventSchema(
        name=f"alerts of {schema.name}",
        version=schema.version,
        event_id=EventId(field=ALERT_ID),
        event_time=EventTime(field=time.field, unit="ms", earliest=time.earliest, latest=time.latest),
        attributes={schema.event_id: "string", **schema.attributes, **strings},
        measures={**schema.measures, ALERT_SCORE: Measure(scale=0)},
        arrays=schema.arrays,
    )


def schema_on(counted: Counted, schema: EventSchema) -> EventSchema:
    """Return the event schema of what a rule counts; ValueError as `alert_schema`."""
    return alert_schema(schema) if counted == "alerts" else schema


_P_NEEDED = "write a number above 0 and up to 100 with at most two digits after the point"


_ANOTHER_TIMELINE = (
    "the timeline of another field's value, nor among alerts; group by fields without AS, and leave out `on`"
)
_SEQUENCE_EXAMPLE = "{function: sequence, step_field: type, steps: [login, transfer], window: 1h}"
_ABSENCE_EXAMPLE = "{function: absence, step_field: type, steps: [order], without: receipt, within: 1h, window: 7d}"


class Feature(Checked):
    """A feature, as written in a rule; what is left out is the rule's.

    Attributes:
        function: the aggregate.
        of: the field that it is of; None for one that needs none. Written as a mapping it is what is computed of each
            period of the window, see `periods`.
        window: how far back it reaches.
        where: which events it counts; None for those of the rule.
        group_by: by which fields it groups; None for those of the rule.
        p: of a percentile, of how many per cent it is; None for all other functions.
        steps: of a sequence, what came, in this order; None for all other functions.
        step_field: of which field steps are values; None where they are filters.
        without: of a sequence, what did not come between its first step and its last; None for anything. Of an absence
            what did not come.
        within_ms: of an absence, how long after its step that could have come; None for all other functions.
        half_life: of what decays, after how long an event counts half, in ms; None for all other functions.
        on: `alerts` for one over alerts in a rule over events; None for one over what its rule is over.
    """

    function: Function
    measured: Annotated[
        Annotated[str | None, Tag(A_FIELD)] | Annotated[Periods, Tag(OF_EACH_PERIOD)],
        Discriminator(lambda value: OF_EACH_PERIOD if isinstance(value, Mapping | Periods) else A_FIELD),
    ] = Field(alias="of", default=None)
    window: Window
    where: FilterField | None = Field(default=None)
    group_by: tuple[str, ...] | None = None
    p: Decimal | None = None
    steps: tuple[StepField, ...] | None = None
    step_field: str | None = None
    without: StepField | None = None
    within_ms: DurationMs | None = Field(alias="within", default=None, gt=0)
    half_life: DurationMs | None = None
    on: Literal["alerts"] | None = None

    @field_validator("window", mode="before")
    @classmethod
    def _a_length_is_a_window(cls, value: Any) -> Any:
        return {"length": value} if isinstance(value, str) else value

    @field_validator("group_by")
    @classmethod
    def _fields_once(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        fault = None if value is None else grouping_fault(value)
        if fault is not None:
            raise ValueError(fault)
        return value

    @field_validator("p", mode="before")
    @classmethod
    def _per_cent(cls, value: Any) -> Decimal | None:
        if value is None:
            return None
        is_number = isinstance(value, str | int | float | Decimal) and not isinstance(value, bool)
        number = parse_decimal(str(value)) if is_number else Decimal(0)
        if not 0 < number <= 100 or number * 100 % 1 != 0:
            message = f"{short_line(repr(value))} is not a percentile; {_P_NEEDED}"
            raise ValueError(message)
        return number

    @field_serializer("p")
    def _p_as_written(self, value: Decimal | None) -> str | None:
        return None if value is None else format(value, "f")

    def _faults(self) -> Iterator[str]:
        function, aggregate, grouped = self.function, AGGREGATES[self.function], self.group_by or ()
        if self.periods is not None and function not in OVER_PERIODS:
            yield f"{function} is not computed of the values of periods; take one of {', '.join(OVER_PERIODS)}"
        if aggregate.takes and self.measured is None:
            yield f"{function} needs a field, as in {{function: {function}, of: paymentAmount}}"
        if not aggregate.takes and self.measured is not None:
            yield f"{function} is of no field; leave out `of`"
        if aggregate.by_value and has_roles(grouped) and self.of in set(map(counted_field, grouped)):
            yield f"{self.of} is a field of the timeline that is read already; count its events"
        if aggregate.needs_own_event and (has_roles(grouped) or self.on is not None):
            yield f"{function} says something of the event itself, which is not in {_ANOTHER_TIMELINE}"
        components = aggregate.components(counts_all=False)
        is_ranked = any(PERCENTILE <= component.operation < PAIRS for component in components)
        if names_this(self.where) and self.periods is None and (self.window.last or is_ranked):
            what = "a window of the last events" if self.window.last else function
            yield f"{what} does not go with a filter that names `this`"
        if self.periods is not None:
            yield from self._faults_of_periods(self.periods)
        for name, value in (("half_life", self.half_life), ("p", self.p), ("within", self.within_ms)):
            if value is not None and aggregate.parameter != name:
                yield f"{function} has no `{name}`; leave it out"
        if aggregate.parameter == "half_life" and not self.half_life:
            yield f"{function} needs a `half_life` of at least 1ms, as in {{half_life: 7d, window: 90d}}"
        if aggregate.parameter == "p" and self.p is None:
            yield f"{function} needs `p`, as in {{function: percentile, of: {self.of or '...'}, p: 95}}; {_P_NEEDED}"
        if aggregate.operation == RANK and not self.window.holds_its_event:
            yield "rank leaves the event itself out anyway; write a window that ends with it"
        yield from self._faults_of_steps(aggregate)

    def _faults_of_periods(self, periods: Periods) -> Iterator[str]:
        if not self.window.is_plain or self.window.left != "closed":
            yield "the window of a feature of periods has a length alone; write one such as `window: 30d`"
        if names_this(self.where):
            yield "a feature of periods does not go with a filter that names `this`"
        yield from filter(None, [periods.length_fault(self.window.length_ms)])

    def _faults_of_steps(self, aggregate: Aggregate) -> Iterator[str]:
        function, steps, is_absence = self.function, self.steps or (), aggregate.parameter == "within"
        if not aggregate.needs_steps:
            if (self.steps, self.step_field, self.without) != (None, None, None):
                yield f"{function} has no `steps`, `step_field` or `without`; leave them out"
            return
        if self.where is not None:
            yield f"{function} has no `where`: its steps say which events they are; write it into each of them"
        if not self.window.holds_its_event:
            yield f"the window of {function} ends with its event; leave out `exclude` and `offset`"
        if not is_absence and not aggregate.needs_steps <= len(steps) <= MOST_STEPS:
            yield f"sequence has {aggregate.needs_steps} to {MOST_STEPS} steps, as in {_SEQUENCE_EXAMPLE}"
        if is_absence and (len(steps) != 1 or self.within_ms is None or self.without is None):
            yield f"absence has `steps` with one step, `without` and `within`, as in {_ABSENCE_EXAMPLE}"
        if is_absence and not self.window.is_plain:
            yield "the window of absence has a length alone, and no `last`, `session` or `this`; write one such as 7d"
        if is_absence and self.window.length_ms <= (self.within_ms or 0):
            yield "the window of absence has a length above `within`: how far back the step may be at the next event"
        without = () if self.without is None else (("without", self.without),)
        for name, step in (*((f"steps[{at}]", each) for at, each in enumerate(steps, 1)), *without):
            check_step(name, step, self.step_field)

    @model_validator(mode="after")
    def _over_periods(self) -> "Feature":
        if self.periods is not None:
            window = PeriodsWindow.model_construct(length_ms=self.window.length_ms, periods=self.periods)
            object.__setattr__(self, "window", window)
        return self

    @property
    def needs_raw_events(self) -> bool:
        """Return whether it looks at single events, so that its window has to lie in the tail."""
        return self.aggregate.needs_raw_events or self.window.needs_raw_events or names_this(self.where)

    @property
    def step_filters(self) -> tuple[SqlFilter, ...]:
        """Return what events have to be to be its steps."""
        return tuple(step_filter(step, self.step_field) for step in self.steps or ())

    @property
    def steps_in_words(self) -> str:
        """Return its steps, and what must not come, in a sentence; empty for none."""
        return steps_in_words(self.steps or (), self.step_field, self.without, self.within_ms)

    @property
    def between(self) -> SqlFilter | None:
        """Return what no event between its first step and its last is; None for anything."""
        return None if self.without is None else step_filter(self.without, self.step_field)

    @property
    def filters(self) -> dict[tuple[str | int, ...], Filter]:
        """Return all its filters, by where in it they are written."""
        written: dict[tuple[str | int, ...], Filter] = {("where",): self.where} if self.where else {}
        written |= {("steps", at): where for at, where in enumerate(self.step_filters)}
        return written if self.between is None else {**written, ("without",): self.between}

    @model_serializer(mode="wrap")
    def _what_is_given(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        written["of"] = written.pop("measured", written.get("of"))
        return {name: value for name, value in written.items() if value is not None}

    @property
    def of(self) -> str | None:
        """Return the field that it is of, or the values of its periods are; None for none."""
        return self.measured.of if isinstance(self.measured, Periods) else self.measured

    @property
    def periods(self) -> Periods | None:
        """Return what is computed of each period of the window; None where it is of single events."""
        return self.measured if isinstance(self.measured, Periods) else None

    @property
    def of_text(self) -> str | None:
        """Return what it is of, as a brief text; None for nothing."""
        of = self.of if self.periods is None else self.periods.text
        decays = None if self.half_life is None else f"with a half-life of {format_duration(self.half_life)}"
        return " ".join(filter(None, (of, decays))) or None

    @property
    def aggregate(self) -> Aggregate:
        """Return what computes it."""
        aggregate, parameter = AGGREGATES[self.function], self.p or self.within_ms or self.half_life
        aggregate = aggregate if parameter is None else aggregate.with_parameter(parameter)
        if self.periods is None:
            return aggregate
        return OverPeriods(aggregate, AGGREGATES[self.periods.function], self.periods.unit)

    def kind(self, schema: EventSchema) -> ValueKind:
        """Return what its values are; a number where the schema does not declare its field."""
        name = schema.new_names.get(self.of or "", self.of or "")
        if self.on is not None and name in (schema.event_id, ALERT_RULE, ALERT_SEVERITY):
            return self.aggregate.kind("string")
        return self.aggregate.kind(schema.attributes.get(name))


@dataclass(frozen=True)
class NamedFeature:
    """A feature with what it takes from its rule."""

    name: str  # in the rule's condition
    feature: Feature  # as it was written
    fields: tuple[str, ...]  # by which fields it groups
    group_where: Filter  # the filter of its group
    where: Filter  # which events it counts
    on_trial: bool  # whether its rule is

    @property
    def counted(self) -> Filter:
        """Which events of its group it counts, as far as they say that themselves; empty for all."""
        return () if self.where == self.group_where else split_filter(self.where)[0]

    @property
    def paired(self) -> SqlFilter | None:
        """What these have to be to the event itself; None for anything."""
        return split_filter(self.where)[1]

    def parts(self) -> Iterator[tuple[Component, Part]]:
        """Yield what a group computes for it."""
        for component in self.feature.aggregate.components(not self.counted and self.paired is None):
            yield component, self._part(component)

    def _part(self, component: Component) -> Part:
        feature, window, on_trial = self.feature, self.feature.window, self.on_trial
        counted = Track("one", None, self.counted) if self.counted else None
        if feature.periods is not None:
            aggregate = AGGREGATES[feature.periods.function]
            column = self._track(aggregate.components(not self.counted)[0].column)
            return Part(aggregate.operation, column, None, counted, window, on_trial, over=component)
        operation, parameter = component.operation, component.parameter
        if self.paired is not None:
            kinds = component.column, component.second
            kept: Iterator[ColumnKind | None] = ("value" if kind in ("least", "greatest") else kind for kind in kinds)
            column, second = (None if kind is None else Track(kind, feature.of) for kind in kept)
            return Part(operation, column, second, counted, window, on_trial, parameter, self.paired)
        column, second = self._track(component.column), self._track(component.second)
        if counted is not None and operation == COUNT:
            operation, column = SUM, counted
        if feature.between is not None:
            second = Track("one", None, feature.between)
        steps = tuple(Track("one", None, where) for where in feature.step_filters)
        counted = counted if feature.needs_raw_events else None
        return Part(operation, column, second, counted, window, on_trial, parameter, steps=steps)

    def _track(self, kind: ColumnKind | None) -> Track | None:
        return None if kind is None else Track(kind, self.feature.of, self.counted)

    def phrase_over(self, counted: Counted) -> str:
        """Return what it computes over events or alerts, in English: `the sum of paymentAmount`."""
        phrase = self.feature.aggregate.phrase.replace("event", counted.removesuffix("s"))
        if self.feature.steps is not None:
            return f"{phrase} {self.feature.steps_in_words}"
        return " ".join(part for part in (phrase, self.feature.of) if part)


def field_kind(field: str, schema: EventSchema) -> FieldKind:
    """Return what kind of field it is, by any name that it had; KeyError if the schema does not declare it."""
    name = schema.new_names.get(field, field)
    return "measure" if name in schema.measures else schema.attributes[name]


Operator = Literal[">", ">=", "<", "<=", "=", "!="]
VALUE: Final = "value"  # The name of the one feature
FIELDS: Final = ("aggregate", "window", "limit")  # The fields of a rule that make up its short form
SHORT_LOCATIONS: Final[Mapping[tuple[str, ...], tuple[str, ...]]] = {
    ("when",): ("limit",),
    ("features", VALUE, "of"): ("aggregate", "measure"),
    ("features", VALUE, "window"): ("window",),
}
"""Where the short form has what other rules have among their features and in their condition."""
_COMPARISONS: Final[Mapping[str, str]] = {
    ">": "is above",
    ">=": "is at least",
    "<": "is below",
    "<=": "is at most",
    "=": "is exactly",
    "!=": "is not",
}
_LONGEST_LIMIT_DIGITS = 38


class Aggregation(Checked):
    """A function over a measure; a count needs no measure."""

    function: ShortFunction
    measure: str | None = None

    def _faults(self) -> Iterator[str]:
        if AGGREGATES[self.function].takes and self.measure is None:
            yield f"{self.function} needs a measure, as in {{function: {self.function}, measure: paymentAmount}}"


class Limit(Checked):
    """The comparison that makes a value an alert."""

    operator: Operator
    value: Decimal

    @field_validator("value", mode="before")
    @classmethod
    def _exact(cls, value: Any) -> Decimal:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            message = f"{value!r} is not a decimal number"
            raise ValueError(message)
        number = parse_decimal(str(value))
        if max(number.adjusted() + 1, 0) + digits_after_point(number) > _LONGEST_LIMIT_DIGITS:
            message = f"{value} has more than {_LONGEST_LIMIT_DIGITS} digits"
            raise ValueError(message)
        return Decimal(format(number, "f"))

    @field_serializer("value")
    def _as_written(self, value: Decimal) -> str:
        return format(value, "f")


def feature_of(aggregation: Aggregation, window: Window) -> Feature:
    """Return the one feature of a rule in the short form; a count is of no field, whatever measure it names."""
    of = aggregation.measure if AGGREGATES[aggregation.function].takes else None
    return Feature(function=aggregation.function, of=of, window=window)


def condition_of(limit: Limit) -> SqlFilter:
    """Return the condition of a rule in the short form."""
    operands = (Expression("field", value=VALUE), Expression("number", value=limit.value))
    return SqlFilter(Expression(limit.operator, operands), f"{VALUE} {limit.operator} {limit.value:f}")


def phrase_of(feature: Feature) -> str:
    """Return what a rule in the short form computes, in English: `the sum of paymentAmount`."""
    return " ".join(part for part in (feature.aggregate.short_phrase, feature.of) if part)


def sentence_of(feature: Feature, limit: Limit, counted: Counted, events: str = "", value: str = "") -> str:
    """Return a rule in the short form over some events or, with the value as it is shown, what an alert has found."""
    over = f"over {feature.window.words_over(counted)}"
    value = f" ({value})" if value else ""
    text = f"{phrase_of(feature)}{events} {over}{value} {_COMPARISONS[limit.operator]} {limit.value:,f}"
    return capitalised(text)
