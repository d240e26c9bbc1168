"""The number of events with this event's value: a count by one more grouping field."""

from buckets.aggregates.aggregate import ANY_FIELD
from buckets.aggregates.count import Count


class _SameCount(Count):
    phrase = "the number of events with the same"
    short_phrase = ""
    takes = ANY_FIELD
    by_value = True
    adds_up = False


AGGREGATE = _SameCount()
