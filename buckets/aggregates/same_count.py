"""The number of events with the value that this event has in a field: a count by one more grouping field."""

from buckets.aggregates.aggregate import ANY_FIELD
from buckets.aggregates.count import Count


class _SameCount(Count):
    phrase = "the number of events with the same"
    takes = ANY_FIELD
    by_value = True


AGGREGATE = _SameCount()
