"""The number of events."""

from collections.abc import Mapping
from typing import ClassVar

from buckets.aggregates.aggregate import COUNT, Aggregate, Component, Computed, FieldKind, Own, Values, lowered


class Count(Aggregate):
    """The number of events that count."""

    phrase = "the number of events"
    takes: ClassVar[tuple[FieldKind, ...]] = ()

    def components(self, counts_all: bool) -> tuple[Component, ...]:
        """The count."""
        return (COUNT,)

    def lower(self, found: Mapping[Component, Computed], own: Own) -> Values:
        """The count, which is never NULL."""
        return lowered(found[COUNT], None, 0)


AGGREGATE = Count()
