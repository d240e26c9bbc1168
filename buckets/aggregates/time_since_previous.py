"""The seconds since the latest event before this one. Without one in the window it is NULL."""

from buckets.aggregates.aggregate import Component
from buckets.aggregates.single_event import SecondsSince

AGGREGATE = SecondsSince("the seconds since the previous event", Component("previous_time"))
