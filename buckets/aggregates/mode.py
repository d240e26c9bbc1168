"""The most frequent value; of several the least."""

from collections import Counter
from collections.abc import Sequence

from buckets.aggregates.component import Component
from buckets.aggregates.operation import MODE
from buckets.aggregates.single_event import SingleEvent


def _most_frequent(values: Sequence[int]) -> int:
    times = Counter(values)
    return min(times, key=lambda value: (-times[value], value))


AGGREGATE = SingleEvent("the most frequent", Component(MODE, "value"), _most_frequent)
