"""What aggregates share that look at one event of the window: NULL where there is none."""

import numpy as np

from buckets.aggregates.aggregate import Computed, Own, Values


def of_event(found: Computed, scale: int) -> Values:
    """The value of a field in that event."""
    return Values(
        scaled=found.whole,
        scale=scale,
        valid=found.event_count > 0,
        lower=found.lower_whole,
        upper=found.upper_whole,
        may_be_null=found.count_lower == 0,
        exact=found.exact,
    )


def seconds_since(found: Computed, own: Own) -> Values:
    """How long before each event that event was, in seconds."""
    values, there = of_event(found, 3), found.event_count > 0
    return values._replace(
        scaled=np.where(there, own.times_ms - found.whole, 0),
        lower=np.where(there, own.times_ms - found.upper_whole, 0),
        upper=np.where(there, own.times_ms - found.lower_whole, 0),
    )
