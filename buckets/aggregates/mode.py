"""The most frequent value of a field; of several the least. Of no events it is NULL."""

from buckets.aggregates.aggregate import Component
from buckets.aggregates.single_event import SingleEvent

AGGREGATE = SingleEvent("the most frequent", Component("mode", "value"))
