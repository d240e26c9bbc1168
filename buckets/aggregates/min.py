"""The smallest value of a field. Of no events it is NULL."""

from buckets.aggregates.aggregate import Component
from buckets.aggregates.extreme import Extreme

AGGREGATE = Extreme("the smallest", Component("min", "value"), Component("min", "least"))
