"""The value of a field in the latest event before this one. Without one in the window it is NULL."""

from buckets.aggregates.aggregate import Component
from buckets.aggregates.single_event import SingleEvent

AGGREGATE = SingleEvent("the previous", Component("previous", "value"))
