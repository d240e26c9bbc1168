"""What all aggregates share: their components, what the kernel has computed of those, and what a value is."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from importlib import import_module
from typing import Any, ClassVar, Final, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

SimpleFunction = Literal["sum", "count", "avg", "min", "max"]
"""The functions of rules in the short form, whose values the kernel compares with limits itself."""
KernelFunction = Literal[
    SimpleFunction,
    "first",
    "first_time",
    "previous",
    "previous_time",
    "count_distinct",
    "percentile",
    "median",
    "mode",
]
ColumnKind = Literal[
    "value", "one", "least", "greatest", "square_0", "square_1", "square_2", "square_3", "digest_high", "digest_low"
]
"""What a timeline keeps of an event for a feature: the field's value, 1 for an event that counts, a value that is never
the least or greatest for one that does not, 32 bits of a square, or a half of what tells values apart: a text's digest
of 126 bits, or a number and 0."""
FieldKind = Literal["measure", "long", "string", "boolean"]
Function = Literal[
    SimpleFunction,
    "variance",
    "stddev",
    "first",
    "last",
    "previous",
    "time_since_first",
    "time_since_previous",
    "is_first",
    "same_count",
    "count_distinct",
    "percentile",
    "median",
    "mode",
]
NUMBERS: Final[tuple[FieldKind, ...]] = ("measure", "long")
ANY_FIELD: Final[tuple[FieldKind, ...]] = ("measure", "long", "string", "boolean")
Integers = npt.NDArray[Any]
"""int64, or Python integers where 64 bits may not be enough."""
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Component:
    """Something that the kernel computes for an aggregate, over the events that its feature counts.

    Attributes:
        function: what is computed.
        column: of what; None for a count.
        second: a second column, where pairs of values are counted.
        parameter: of a percentile, which one it is in hundredths of a per cent; 0 for all else.
    """

    function: KernelFunction
    column: ColumnKind | None = None
    second: ColumnKind | None = None
    parameter: int = 0


COUNT: Final = Component("count")


class Computed(NamedTuple):
    """A component at some events, value and bounds as the kernel gives them: arrays `(events,)`; see `Rows`."""

    whole: npt.NDArray[np.int64]
    micro: npt.NDArray[np.int32]
    lower_whole: npt.NDArray[np.int64]
    lower_micro: npt.NDArray[np.int32]
    upper_whole: npt.NDArray[np.int64]
    upper_micro: npt.NDArray[np.int32]
    event_count: npt.NDArray[np.int64]
    count_lower: npt.NDArray[np.int64]
    count_upper: npt.NDArray[np.int64]
    exact: Flags


COMPUTED: Final = Computed._fields
"""The names of what is known of a component."""


class Own(Protocol):
    """What the events themselves say; few aggregates ask for more than the scale."""

    @property
    def times_ms(self) -> npt.NDArray[np.int64]:
        """When each happened."""

    @property
    def counts(self) -> Flags:
        """Whether the feature counts the event."""

    @property
    def has_value(self) -> Flags:
        """Whether it has a value in the feature's field."""

    @property
    def value(self) -> npt.NDArray[np.int64]:
        """The feature's field, as integers; 0 where it has none."""

    @property
    def scale(self) -> int:
        """Digits after the point of the feature's field."""


class Values(NamedTuple):
    """A feature at some events.

    Attributes:
        scaled: the values times `10**scale`, `(events,)`; of a boolean 0 and 1.
        scale: digits after the point.
        valid: which are not NULL.
        lower: the least that each can be with `tail: all`, where it is not NULL.
        upper: the greatest.
        may_be_null: which may be NULL, as far as is known.
        exact: which are known to the last digit.
    """

    scaled: Integers
    scale: int
    valid: Flags
    lower: Integers
    upper: Integers
    may_be_null: Flags
    exact: Flags


class Aggregate(ABC):
    """A function over the events of a window.

    Attributes:
        phrase: what it is called in a sentence, before the name of its field.
        takes: of which kinds of field it may be; empty if it needs none.
        is_boolean: whether it is true or false, and no number.
        needs_raw_events: whether it looks at single events, so that its window has to lie in the tail.
        by_value: whether it counts events that share the value of its field, which is a grouping of its own.
        needs_p: whether it has to be told of how many per cent it is.
    """

    phrase: str
    takes: ClassVar[tuple[FieldKind, ...]] = NUMBERS
    is_boolean: ClassVar[bool] = False
    needs_raw_events: ClassVar[bool] = False
    by_value: ClassVar[bool] = False
    needs_p: ClassVar[bool] = False

    def of_p(self, p: Decimal) -> "Aggregate":
        """The same of so many per cent."""
        message = f"{self.phrase} has no per cent"
        raise TypeError(message)

    @abstractmethod
    def components(self, counts_all: bool) -> tuple[Component, ...]:
        """What has to be computed.

        Args:
            counts_all: whether the feature counts every event of its key.
        """

    def counted(self, found: Mapping[Component, Computed], own: Own) -> npt.NDArray[np.int64]:
        """How many events the value is of; of a function that looks at one event, whether there is one.

        Args:
            found: as for `lower`.
            own: as for `lower`.
        """
        first = next(iter(found.values()))
        return with_value(first, found[COUNT]).whole if COUNT in found else first.event_count

    @abstractmethod
    def lower(self, found: Mapping[Component, Computed], own: Own) -> Values:
        """The values that follow from the components.

        Args:
            found: the components of `components`, which all have the same events.
            own: the events.
        """


@dataclass(frozen=True)
class _Named:
    """Finds aggregates by name, each in the module that is called like it."""

    known: dict[str, Aggregate]

    def __call__(self, function: str) -> Aggregate:
        if function not in self.known:
            self.known[function] = import_module(f"buckets.aggregates.{function}").AGGREGATE
        return self.known[function]


aggregate: Final[Callable[[str], Aggregate]] = _Named({})
"""The aggregate of a function of `Function`."""


class Events(NamedTuple):
    """How many events a feature is of, and the fewest and the most that they can be: int64 arrays `(events,)`."""

    whole: npt.NDArray[np.int64]
    fewest: npt.NDArray[np.int64]
    most: npt.NDArray[np.int64]


def with_value(of: Computed, count: Computed) -> Events:
    """How many of the events that count have a value, of which a component is.

    The component knows how many events of the window have one, those that do not count among them; the count knows how
    many events there are. All that have none count.

    Args:
        of: the component.
        count: how many events count; the component itself, if that is the count.
    """
    fewest = count.lower_whole - (count.count_lower - of.count_lower)
    most = count.upper_whole - (count.count_upper - of.count_upper)
    # The number is shared out for an uncertain edge, each part for itself.
    whole = np.clip(count.whole - (count.event_count - of.event_count), fewest, most)
    return Events(whole, fewest, most)


def lowered(found: Computed, count: Computed | None, scale: int) -> Values:
    """A component as it is: NULL where nothing is counted.

    Args:
        found: the component.
        count: how many events count; None where the component is never NULL.
        scale: digits after the point.
    """
    everywhere = np.ones(len(found.whole), np.bool_)
    if count is None:
        return Values(found.whole, scale, everywhere, found.lower_whole, found.upper_whole, ~everywhere, found.exact)
    events = with_value(found, count)
    return Values(
        scaled=found.whole,
        scale=scale,
        valid=events.whole > 0,
        lower=found.lower_whole,
        upper=found.upper_whole,
        may_be_null=events.fewest == 0,
        exact=(found.lower_whole == found.upper_whole) & ((events.fewest > 0) | (events.most == 0)),
    )


def joined(whole: npt.NDArray[np.int64], micro: npt.NDArray[np.int32], digits: int) -> Integers:
    """Wholes and millionths as one integer, of which so many digits are after the point."""
    unit, rest = 10**digits, micro // np.int32(10 ** (6 - digits))
    # Of the least integer numpy's absolute value is negative.
    largest = max(abs(int(whole.min())), abs(int(whole.max()))) if len(whole) else 0
    if largest < 2**63 // unit - 1:
        narrow: npt.NDArray[np.int64] = whole * unit + rest
        return narrow
    return fitted(whole.astype(object) * unit + rest)


def fitted(numbers: Integers) -> Integers:
    """Python integers as int64 where all of them fit."""
    if numbers.dtype != object or not len(numbers):
        return numbers.astype(np.int64)
    return numbers.astype(np.int64) if numbers.min() >= -(2**63) and numbers.max() < 2**63 else numbers
