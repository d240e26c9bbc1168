"""The seconds, with 3 digits, since the earliest event."""

from operator import itemgetter

from buckets.aggregates.component import Component
from buckets.aggregates.operation import FIRST_TIME
from buckets.aggregates.single_event import SecondsSince

AGGREGATE = SecondsSince("the seconds since the first event", Component(FIRST_TIME), itemgetter(0))
