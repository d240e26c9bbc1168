"""The smallest value."""

from buckets.aggregates.extreme import Extreme
from buckets.aggregates.operation import MIN

AGGREGATE = Extreme("the smallest", MIN, "least", min)
