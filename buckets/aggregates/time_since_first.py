"""The seconds since the earliest event of the window."""

from buckets.aggregates.aggregate import Component
from buckets.aggregates.single_event import SecondsSince

AGGREGATE = SecondsSince("the seconds since the first event", Component("first_time"))
