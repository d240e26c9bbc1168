"""A feature: a value computed over a window of a group's tracks, which the condition of a rule can name."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Final, Literal

from pydantic import (
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    Tag,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)

from buckets.aggregates.aggregate import Aggregate, FieldKind, ValueKind
from buckets.aggregates.component import COUNT, PAIRS, PERCENTILE, PERIODS, RANK, SUM, ColumnKind, Component
from buckets.aggregates.over_periods import OVER_PERIODS, OverPeriods
from buckets.aggregates.registry import AGGREGATES, Function, ShortFunction
from buckets.duration import DurationMs, format_duration
from buckets.events.schema import ALERT_SCORE, AttributeType, EventId, EventSchema, EventTime, Measure
from buckets.expressions.expression import Expression, digits_after_point
from buckets.numbers.fixed_point import parse_decimal
from buckets.printable import capitalised, short_line
from buckets.rules.condition import SqlFilter
from buckets.rules.filter import Filter, FilterField, describe_filter, names_this, split_filter, window_fields
from buckets.rules.role import counted_field, grouping_fault, has_roles
from buckets.rules.steps import MOST_STEPS, StepField, check_step, step_filter, steps_in_words
from buckets.rules.window import Periods, PeriodsWindow, Window
from buckets.validation import A_FIELD, OF_EACH_PERIOD, Checked


@dataclass(frozen=True)
class Track:
    """A column of a timeline."""

    kind: ColumnKind  # which values of a field are kept
    of: str | None  # the field; None where only events are counted
    where: Filter = ()  # which events count; empty for all

    @property
    def name(self) -> str:
        """What identifies a track: for plain values, the field; otherwise a text that is not the name of a measure."""
        if self.kind == "value" and not self.where:
            return self.of or ""
        filtered = f" where {describe_filter(self.where)}" if self.where else ""
        return f"{self.kind}({self.of or ''}){filtered}"


Counted = Literal["events", "alerts"]  # What a rule counts


def holds_texts(track: Track, schema: EventSchema) -> bool:
    """Return whether a track holds the texts themselves."""
    name = schema.new_names.get(track.of or "", track.of or "")
    return track.kind == "value" and schema.attributes.get(name) == "string"


@dataclass(frozen=True)
class Part:
    """An operation over a window of a group's events."""

    operation: int  # the kernel's operation, one of `buckets.aggregates.component`
    column: Track | None  # of which track; None for a count
    second: Track | None  # a second track, if pairs of values are counted
    counted: Track | None  # a track that marks the events that count; None if all do
    window: Window  # how far back it reaches
    on_trial: bool  # whether only rules on trial need it
    parameter: int = 0  # of a percentile, in hundredths of a per cent; 0 for others
    paired: SqlFilter | None = None  # condition on events of the window and the event itself
    over: Component | None = None  # aggregate over the values of periods; None for others
    steps: tuple[Track, ...] = ()  # tracks of a sequence's steps; those of `second` must not come between

    @property
    def is_listed(self) -> bool:
        """Whether it is computed from single events of the window, outside of the kernel."""
        return self.paired is not None or self.operation > PERIODS

    @property
    def tracks(self) -> tuple[Track, ...]:
        """The tracks that it reads."""
        compared = () if self.paired is None else (Track("value", name) for name in window_fields(self.paired))
        tracks = self.column, self.second, self.counted, *compared, *self.steps
        return tuple(track for track in tracks if track is not None)


ALERT_ID = "alert_id"
ALERT_RULE = "alert_rule"
ALERT_SEVERITY = "alert_severity"
ALERT_FIELDS = (ALERT_ID, ALERT_RULE, ALERT_SEVERITY, ALERT_SCORE)
"""The fields of an alert besides those of its event."""


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
    """Return the event schema of the things that a rule counts; ValueError as for `alert_schema`."""
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
        """Return whether it depends on single events, so that its window has to lie in the tail."""
        return self.aggregate.needs_raw_events or self.window.needs_raw_events or names_this(self.where)

    @property
    def step_filters(self) -> tuple[SqlFilter, ...]:
        """Return the filters that events pass to be its steps."""
        return tuple(step_filter(step, self.step_field) for step in self.steps or ())

    @property
    def steps_in_words(self) -> str:
        """Return its steps, and what must not come between, in a sentence; empty without steps."""
        return steps_in_words(self.steps or (), self.step_field, self.without, self.within_ms)

    @property
    def between(self) -> SqlFilter | None:
        """Return the filter that no event between its first and last step may pass; None if there is none."""
        return None if self.without is None else step_filter(self.without, self.step_field)

    @property
    def filters(self) -> dict[tuple[str | int, ...], Filter]:
        """Return all its filters, by their locations in it."""
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
        """Return the field that it aggregates, or that its periods aggregate; None if it needs none."""
        return self.measured.of if isinstance(self.measured, Periods) else self.measured

    @property
    def periods(self) -> Periods | None:
        """Return the aggregation over each period of the window; None if it aggregates single events."""
        return self.measured if isinstance(self.measured, Periods) else None

    @property
    def of_text(self) -> str | None:
        """Return what it aggregates, as a short text; None without a field."""
        of = self.of if self.periods is None else self.periods.text
        decays = None if self.half_life is None else f"with a half-life of {format_duration(self.half_life)}"
        return " ".join(filter(None, (of, decays))) or None

    @property
    def aggregate(self) -> Aggregate:
        """Return its aggregate."""
        aggregate, parameter = AGGREGATES[self.function], self.p or self.within_ms or self.half_life
        aggregate = aggregate if parameter is None else aggregate.with_parameter(parameter)
        if self.periods is None:
            return aggregate
        return OverPeriods(aggregate, AGGREGATES[self.periods.function], self.periods.unit)

    def kind(self, schema: EventSchema) -> ValueKind:
        """Return the kind of its values; a number if the schema does not declare its field."""
        name = schema.new_names.get(self.of or "", self.of or "")
        if self.on is not None and name in (schema.event_id, ALERT_RULE, ALERT_SEVERITY):
            return self.aggregate.kind("string")
        return self.aggregate.kind(schema.attributes.get(name))


@dataclass(frozen=True)
class NamedFeature:
    """A feature with the settings that it takes from its rule."""

    name: str  # in the rule's condition
    feature: Feature  # as it was written
    fields: tuple[str, ...]  # by which fields it groups
    group_where: Filter  # the filter of its group
    where: Filter  # which events it counts
    on_trial: bool  # whether its rule is

    @property
    def counted(self) -> Filter:
        """The events of its group that it counts, as a filter on these alone; empty for all."""
        return () if self.where == self.group_where else split_filter(self.where)[0]

    @property
    def paired(self) -> SqlFilter | None:
        """The condition on pairs of these events and the event itself; None if there is none."""
        return split_filter(self.where)[1]

    def parts(self) -> Iterator[tuple[Component, Part]]:
        """Yield the parts that a group computes for it."""
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
        """Return its computation over events or alerts, in English: `the sum of paymentAmount`."""
        phrase = self.feature.aggregate.phrase.replace("event", counted.removesuffix("s"))
        if self.feature.steps is not None:
            return f"{phrase} {self.feature.steps_in_words}"
        return " ".join(part for part in (phrase, self.feature.of) if part)


def field_kind(field: str, schema: EventSchema) -> FieldKind:
    """Return the kind of a field, by any of its names; KeyError if the schema does not declare it."""
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
"""Locations in the short form of what other rules have in features and condition."""
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
    """The comparison that turns a value into an alert."""

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
    """Return the one feature of a rule in the short form; a count has no field, whatever measure it names."""
    of = aggregation.measure if AGGREGATES[aggregation.function].takes else None
    return Feature(function=aggregation.function, of=of, window=window)


def condition_of(limit: Limit) -> SqlFilter:
    """Return the condition of a rule in the short form."""
    operands = (Expression("field", value=VALUE), Expression("number", value=limit.value))
    return SqlFilter(Expression(limit.operator, operands), f"{VALUE} {limit.operator} {limit.value:f}")


def phrase_of(feature: Feature) -> str:
    """Return the computation of a rule in the short form, in English: `the sum of paymentAmount`."""
    return " ".join(part for part in (feature.aggregate.short_phrase, feature.of) if part)


def sentence_of(feature: Feature, limit: Limit, counted: Counted, events: str = "", value: str = "") -> str:
    """Return the sentence of a rule in the short form or, with the formatted value, that of an alert."""
    over = f"over {feature.window.words_over(counted)}"
    value = f" ({value})" if value else ""
    text = f"{phrase_of(feature)}{events} {over}{value} {_COMPARISONS[limit.operator]} {limit.value:,f}"
    return capitalised(text)
