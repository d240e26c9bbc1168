"""The seconds, with 3 digits, since the latest event before this one."""

from operator import itemgetter

from buckets.aggregates.component import Component
from buckets.aggregates.operation import PREVIOUS_TIME
from buckets.aggregates.single_event import SecondsSinceBefore

AGGREGATE = SecondsSinceBefore("the seconds since the previous event", Component(PREVIOUS_TIME), itemgetter(-1))
