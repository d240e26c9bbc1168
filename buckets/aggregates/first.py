"""The value of the earliest event."""

from operator import itemgetter

from buckets.aggregates.component import Component
from buckets.aggregates.operation import FIRST
from buckets.aggregates.single_event import SingleEvent

AGGREGATE = SingleEvent("the first", Component(FIRST, "value"), itemgetter(0))
