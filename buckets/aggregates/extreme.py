"""What the smallest and the largest value of a field share."""

from collections.abc import Callable, Mapping, Sequence

from buckets.aggregates.aggregate import Aggregate, Own, Values, as_values
from buckets.aggregates.component import EVENTS, ColumnKind, Component, Computed
from buckets.aggregates.plain import NO_EVENT, CountedEvents, PlainValue, plain_number
from buckets.aggregates.value_range import ValueRange


class Extreme(Aggregate):
    """The value of a field that is at one end."""

    def __init__(self, phrase: str, operation: int, neutral: ColumnKind, pick: Callable[[Sequence[int]], int]) -> None:
        """Name it.

        Args:
            phrase: what it is called in a sentence, of either form of a rule.
            operation: MIN or MAX.
            neutral: the column in which events that do not count are never at that end.
            pick: picks the value of a list.
        """
        self.phrase = self.short_phrase = phrase
        self._of_all, self._of_some = Component(operation, "value"), Component(operation, neutral)
        self._pick = pick

    def components(self, counts_all: bool) -> tuple[Component, ...]:
        """Return the one of all events or that of those that count, and the count."""
        return (self._of_all if counts_all else self._of_some, EVENTS)

    def finalize(self, computed: Mapping[Component, Computed], own: Own) -> Values:
        """Return the value, NULL where nothing counts."""
        extreme = computed[self._of_all if self._of_all in computed else self._of_some]
        return as_values(extreme, computed[EVENTS], own.scale)

    def plain(self, events: CountedEvents, scale: int) -> PlainValue:
        """Return the value of a list that is at that end."""
        return plain_number(self._pick(events.values), scale) if len(events) else NO_EVENT

    def value_range(self, field: ValueRange, reach_ms: int, counts_itself: bool) -> ValueRange:
        """Return between what the values of the field lie."""
        return field.of_events(counts_itself)
