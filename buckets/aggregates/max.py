"""The largest value."""

from buckets.aggregates.extreme import Extreme
from buckets.aggregates.operation import MAX

AGGREGATE = Extreme("the largest", MAX, "greatest", max)
