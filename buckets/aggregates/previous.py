"""The value of the latest event before this one."""

from operator import itemgetter

from buckets.aggregates.component import Component
from buckets.aggregates.operation import PREVIOUS
from buckets.aggregates.single_event import Before

AGGREGATE = Before("the previous", Component(PREVIOUS, "value"), itemgetter(-1))
