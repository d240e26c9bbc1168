"""The interface of aggregates, from which rules, lint and explanations derive everything that they know of one."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar, Final, Literal, NamedTuple

import numpy as np

from buckets.aggregates.component import EVENTS, Component, Computed, Integers, with_value
from buckets.aggregates.plain import CountedEvents, PlainValue
from buckets.arrays import Flags, Int64s

FieldKind = Literal["measure", "long", "string", "boolean"]
NUMBERS: Final[tuple[FieldKind, ...]] = ("measure", "long")
ANY_FIELD: Final[tuple[FieldKind, ...]] = ("measure", "long", "string", "boolean")
ValueKind = Literal["number", "text", "boolean"]
Parameter = Literal["p", "half_life", "within"]
"""What an aggregate may require: a percentile, a half-life in ms, or in ms within which time something has to come."""
INFINITY: Final = Decimal("Infinity")


@dataclass(frozen=True)
class ValueRange:
    """The possible values of a number."""

    lower: Decimal = -INFINITY  # the least number; minus infinity for no bound
    upper: Decimal = INFINITY  # the greatest number
    digits: int | None = None  # digits after the point; None for any number of digits
    may_be_null: bool = True  # whether it can be NULL
    # how many distinct values are possible; None if very many or unknown
    size: int | None = None

    def of_events(self, counts_itself: bool) -> "ValueRange":
        """Return the range of a value that lies between the values of some events.

        `counts_itself` says whether the window's own event surely counts, so that there is at least one.
        """
        return ValueRange(self.lower, self.upper, may_be_null=not counts_itself or self.may_be_null)


@dataclass(frozen=True)
class Own:
    """Data of the evaluated events themselves, computed on demand; few aggregates need more than the scale."""

    kind: ValueKind  # the kind of the feature's values
    scale: int  # digits after the point of the feature's field; 0 if it has none
    times_ms: Callable[[], Int64s]  # when each happened
    counts: Callable[[], Flags]  # whether the feature counts the event
    has_value: Callable[[], Flags]  # whether it has a value in the feature's field
    value: Callable[[], Integers]  # the feature's field, as integers or texts; 0 where it has none


class Values(NamedTuple):
    """A feature at some events."""

    scaled: Integers  # the values times `10**scale`, `(events,)`; 0 or 1 for a boolean; a text as an object
    scale: int  # digits after the point
    valid: Flags  # which are not NULL
    lower: Integers  # the lower bound of each with `tail: all`, unless it is NULL
    upper: Integers  # the upper bound
    may_be_null: Flags  # which may be NULL, as far as is known
    exact: Flags  # which are known to the last digit
    kind: ValueKind = "number"  # their kind


class Aggregate(ABC):
    """A function over the events of a window.

    Attributes:
        description: its description in the documentation.
        phrase: its name in a sentence, before the name of its field.
        made_of: the components that the kernel computes, unless they depend on whether the feature counts every event.
        short_phrase: its name in the sentence of a rule in the short form, whose limit the kernel compares with the
            first component; empty if rules in the short form cannot have it.
        takes: the kinds of field that it accepts; empty if it needs no field.
        null_when: over which events it is NULL, or never, in the words of the documentation.
        is_boolean: whether it is true or false, whatever its field is.
        keeps_kind: whether it is a value of its field: a text or a boolean if the field is one.
        needs_raw_events: whether it looks at single events, so that its window has to lie in the tail.
        by_value: whether it counts events that share the value of its field, which is a grouping of its own.
        parameter: the field of a feature that it requires; None for none.
        needs_steps: the least number of steps that it requires; 0 for none.
        needs_own_event: whether it describes the event itself, which therefore has to be in its window.
        adds_up: whether each event adds its value, or 1, to it, so that an explanation shows running totals.
    """

    description: str
    phrase: str
    made_of: tuple[Component, ...]
    short_phrase: str = ""
    takes: ClassVar[tuple[FieldKind, ...]] = NUMBERS
    null_when: ClassVar[str] = "of no event"
    is_boolean: ClassVar[bool] = False
    keeps_kind: ClassVar[bool] = False
    needs_raw_events: ClassVar[bool] = False
    by_value: ClassVar[bool] = False
    parameter: ClassVar[Parameter | None] = None
    needs_steps: ClassVar[int] = 0
    needs_own_event: ClassVar[bool] = False
    adds_up: ClassVar[bool] = False

    def with_parameter(self, value: Any) -> "Aggregate":
        """Return the aggregate with another value of its parameter, or itself if it has none."""
        return self

    def kind(self, field: FieldKind | None) -> ValueKind:
        """Return the kind of its values for a kind of field, None for no field."""
        if self.is_boolean or (self.keeps_kind and field == "boolean"):
            return "boolean"
        return "text" if self.keeps_kind and field == "string" else "number"

    @property
    def operation(self) -> int:
        """Return the operation of its first component, which a rule in the short form compares with its limit."""
        return self.components(counts_all=True)[0].operation

    def components(self, counts_all: bool) -> tuple[Component, ...]:
        """Return the components for the kernel; `counts_all` says whether the feature counts every event of its key."""
        return self.made_of

    def counted(self, computed: Mapping[Component, Computed], own: Own) -> Int64s:
        """Return over how many events the value is computed; for an aggregate of one event, 1 if there is one."""
        first = next(iter(computed.values()))
        return with_value(first, computed[EVENTS]).whole if EVENTS in computed else first.event_count

    @abstractmethod
    def finalize(self, computed: Mapping[Component, Computed], own: Own) -> Values:
        """Compute the values from the components.

        Args:
            computed: the components of `components`, all at the same events.
            own: the events.
        """

    @abstractmethod
    def plain(self, events: CountedEvents, scale: int) -> PlainValue:
        """Compute the value independently, from a list of events.

        Args:
            events: the events that it counts.
            scale: digits after the point of their values.
        """

    def value_range(self, field: ValueRange, reach_ms: int, counts_itself: bool) -> ValueRange:
        """Return the possible values of a numeric aggregate; any value if nothing is known.

        Args:
            field: the possible values of its field.
            reach_ms: how far the window reaches back.
            counts_itself: whether the window's own event surely counts.
        """
        return ValueRange()


def as_values(component: Computed, count: Computed | None, scale: int) -> Values:
    """Return a component as values: NULL where `count` is 0, and never without a `count`."""
    lower, upper = component.lower_whole, component.upper_whole
    everywhere = np.ones(len(component.whole), np.bool_)
    if count is None:
        return Values(component.whole, scale, everywhere, lower, upper, ~everywhere, component.exact)
    events = with_value(component, count)
    return Values(
        scaled=component.whole,
        scale=scale,
        valid=events.whole > 0,
        lower=lower,
        upper=upper,
        may_be_null=events.fewest == 0,
        exact=(lower == upper) & ((events.fewest > 0) | (events.most == 0)),
    )
