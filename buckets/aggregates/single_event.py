"""What aggregates share that look at one event of the window: NULL where there is none."""

from collections.abc import Mapping

import numpy as np

from buckets.aggregates.aggregate import Aggregate, Component, Computed, Own, Values


class SingleEvent(Aggregate):
    """The value of a field in one event of the window."""

    needs_raw_events = True

    def __init__(self, phrase: str, found: Component) -> None:
        """Name it.

        Args:
            phrase: what it is called in a sentence.
            found: what finds the event.
        """
        self.phrase = phrase
        self._found = found

    def components(self, counts_all: bool) -> tuple[Component, ...]:
        """That which finds the event."""
        return (self._found,)

    def lower(self, found: Mapping[Component, Computed], own: Own) -> Values:
        """The value of the field in that event."""
        return of_event(found[self._found], own.scale)


class SecondsSince(SingleEvent):
    """How long before each event another one of its window was."""

    takes = ()

    def lower(self, found: Mapping[Component, Computed], own: Own) -> Values:
        """The seconds, with three digits."""
        before = found[self._found]
        values, there, times_ms = of_event(before, 3), before.event_count > 0, own.times_ms
        return values._replace(
            scaled=np.where(there, times_ms - before.whole, 0),
            lower=np.where(there, times_ms - before.upper_whole, 0),
            upper=np.where(there, times_ms - before.lower_whole, 0),
        )


def of_event(found: Computed, scale: int) -> Values:
    """The value of a field in an event that was found."""
    return Values(
        scaled=found.whole,
        scale=scale,
        valid=found.event_count > 0,
        lower=found.lower_whole,
        upper=found.upper_whole,
        may_be_null=found.count_lower == 0,
        exact=found.exact,
    )
