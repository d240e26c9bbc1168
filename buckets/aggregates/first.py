"""The value of a field in the earliest event of the window."""

from buckets.aggregates.aggregate import Component
from buckets.aggregates.single_event import SingleEvent

AGGREGATE = SingleEvent("the first", Component("first", "value"))
