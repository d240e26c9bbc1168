"""A feature: what is computed over a window, to be named in the condition of a rule."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)

from buckets.aggregates.aggregate import Aggregate, FieldKind
from buckets.aggregates.component import Component
from buckets.aggregates.operation import COUNT, SUM
from buckets.aggregates.registry import AGGREGATES, Function
from buckets.events.schema import EventSchema
from buckets.numbers.fixed_point import parse_decimal
from buckets.printable import short_line
from buckets.rules.alert_schema import Counted
from buckets.rules.filter import Filter, FilterField
from buckets.rules.part import Part
from buckets.rules.track import Track
from buckets.rules.window import Window

_P_NEEDED = "write a number above 0 and up to 100 with at most two digits after the point"


class Feature(BaseModel):
    """A feature, as written in a rule; what is left out is the rule's.

    Attributes:
        function: the aggregate.
        of: the field that it is of; None for one that needs none.
        window: how far back it reaches.
        where: which events it counts; None for those of the rule.
        group_by: by which fields it groups; None for those of the rule.
        p: of a percentile, of how many per cent it is; None for all other functions.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    function: Function
    of: str | None = None
    window: Window
    where: FilterField | None = Field(default=None)
    group_by: tuple[str, ...] | None = None
    p: Decimal | None = None

    @field_validator("window", mode="before")
    @classmethod
    def _a_length_is_a_window(cls, value: Any) -> Any:
        return {"length": value} if isinstance(value, str) else value

    @field_validator("group_by")
    @classmethod
    def _fields_once(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if value is not None and len(set(value)) != len(value):
            message = f"a field is named twice in {list(value)}"
            raise ValueError(message)
        return value

    @field_validator("p", mode="before")
    @classmethod
    def _per_cent(cls, value: Any) -> Decimal | None:
        if value is None:
            return None
        is_number = isinstance(value, str | int | float | Decimal) and not isinstance(value, bool)
        number = parse_decimal(str(value)) if is_number else Decimal(0)
        if not 0 < number <= 100 or number * 100 % 1 != 0:
            message = f"{short_line(repr(value))} is no per cent of a percentile; {_P_NEEDED}"
            raise ValueError(message)
        return number

    @field_serializer("p")
    def _p_as_written(self, value: Decimal | None) -> str | None:
        return None if value is None else format(value, "f")

    @model_validator(mode="after")
    def _field_where_needed(self) -> "Feature":
        needs = bool(AGGREGATES[self.function].takes)
        if needs and self.of is None:
            message = f"{self.function} needs a field, as in {{function: {self.function}, of: paymentAmount}}"
            raise ValueError(message)
        if not needs and self.of is not None:
            message = f"{self.function} is of no field; leave out `of`"
            raise ValueError(message)
        return self

    @model_validator(mode="after")
    def _p_where_needed(self) -> "Feature":
        if AGGREGATES[self.function].needs_p != (self.p is not None):
            message = f"{self.function} has no `p`; leave it out"
            if self.p is None:
                message = (
                    f"{self.function} needs `p`, as in {{function: percentile, of: {self.of}, p: 95}}; {_P_NEEDED}"
                )
            raise ValueError(message)
        return self

    @model_serializer(mode="wrap")
    def _what_is_given(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        return {name: value for name, value in written.items() if value is not None}

    @property
    def aggregate(self) -> Aggregate:
        """Return what computes it."""
        aggregate = AGGREGATES[self.function]
        return aggregate if self.p is None else aggregate.of_p(self.p)


@dataclass(frozen=True)
class NamedFeature:
    """A feature with what it takes from its rule.

    Attributes:
        name: in the rule's condition.
        feature: as it was written.
        fields: by which fields it groups.
        group_where: the filter of its group.
        where: which events it counts.
        on_trial: whether its rule is.
    """

    name: str
    feature: Feature
    fields: tuple[str, ...]
    group_where: Filter
    where: Filter
    on_trial: bool

    @property
    def counted(self) -> Filter:
        """Which events of its group it counts; empty for all."""
        return () if self.where == self.group_where else self.where

    def parts(self) -> Iterator[tuple[Component, Part]]:
        """Yield what a group computes for it."""
        for component in self.feature.aggregate.components(not self.counted):
            yield component, self._part(component)

    def _part(self, component: Component) -> Part:
        operation, column, counted = component.operation, self._track(component), None
        if self.counted and self.feature.aggregate.needs_raw_events:
            counted = Track("one", None, self.counted)
        if self.counted and operation == COUNT:
            operation, column = SUM, Track("one", None, self.counted)
        second = None if component.second is None else Track(component.second, self.feature.of, self.counted)
        return Part(operation, column, second, counted, self.feature.window, self.on_trial, component.parameter)

    def _track(self, component: Component) -> Track | None:
        return None if component.column is None else Track(component.column, self.feature.of, self.counted)

    def phrase_over(self, counted: Counted) -> str:
        """Return what it computes over events or alerts, in English: `the sum of paymentAmount`."""
        phrase = self.feature.aggregate.phrase.replace("event", counted.removesuffix("s"))
        return " ".join(part for part in (phrase, self.feature.of) if part)


def field_kind(field: str, schema: EventSchema) -> FieldKind:
    """Return what kind of field it is.

    Raises:
        KeyError: the schema does not declare it.
    """
    return "measure" if field in schema.measures else schema.attributes[field]
