"""What the smallest and the largest value of a field share. Of no events they are NULL."""

from collections.abc import Mapping

from buckets.aggregates.aggregate import COUNT, Aggregate, Component, Computed, Own, Values, lowered


class Extreme(Aggregate):
    """The value of a field that is at one end."""

    def __init__(self, phrase: str, of_all: Component, of_some: Component) -> None:
        """Name it.

        Args:
            phrase: what it is called in a sentence.
            of_all: what is computed where all events count.
            of_some: what is computed where some do not.
        """
        self.phrase = phrase
        self._of_all, self._of_some = of_all, of_some

    def components(self, counts_all: bool) -> tuple[Component, ...]:
        """The one or the other, and the count."""
        return (self._of_all if counts_all else self._of_some, COUNT)

    def lower(self, found: Mapping[Component, Computed], own: Own) -> Values:
        """The value, NULL where nothing counts."""
        return lowered(found[self._of_all if self._of_all in found else self._of_some], found[COUNT], own.scale)
