"""Cells that hold several events: how a raw event becomes a bucket, and takes in other events and cells."""

from buckets.compiled import leaf
from buckets.numbers.wide_sum import LOW_BITS, LOW_MASK
from buckets.timeline.timeline import NO_ID, Timeline, is_null, is_raw, rebuild


@leaf
def make_combined(timeline: Timeline, cell) -> None:
    """Let a raw event's cell stand for a bucket of one event."""
    if not is_raw(timeline, cell):
        return
    timeline.id_length[cell] = NO_ID
    for column in range(timeline.extremes.shape[1]):
        for member in range(2):
            timeline.plus[member, column, cell] = 0
            timeline.minus[member, column, cell] = 0
        timeline.nulls[column, cell] = is_null(timeline, column, cell)
        if not is_null(timeline, column, cell):
            _add_value(timeline, column, cell, timeline.extremes[0, column, cell])


@leaf
def _add_value(timeline: Timeline, column, cell, value):
    """Add one event's value to the sums of a combined cell, which stay normal."""
    if value >= 0:
        low = timeline.plus[1, column, cell] + (value & LOW_MASK)
        timeline.plus[0, column, cell] += (value >> LOW_BITS) + (low >> LOW_BITS)
        timeline.plus[1, column, cell] = low & LOW_MASK
    else:
        low = timeline.minus[1, column, cell] + (-(value & LOW_MASK) & LOW_MASK)
        high = -(value >> LOW_BITS) - (1 if value & LOW_MASK else 0)
        timeline.minus[0, column, cell] += high + (low >> LOW_BITS)
        timeline.minus[1, column, cell] = low & LOW_MASK


@leaf
def merge_value(timeline: Timeline, cell, values, nulls, event, time_ms) -> None:
    """Take a late event into a bucket. Cost: O(cells), for totals and stacks after it.

    Args:
        timeline: the cells.
        cell: a combined one.
        values: int64 `(columns, events)`.
        nulls: bool `(columns, events)`, which of them are not there.
        event: which of them.
        time_ms: its time.
    """
    for column in range(timeline.extremes.shape[1]):
        if nulls[column, event]:
            timeline.nulls[column, cell] += 1
            continue
        value = values[column, event]
        _add_value(timeline, column, cell, value)
        timeline.extremes[0, column, cell] = min(timeline.extremes[0, column, cell], value)
        timeline.extremes[1, column, cell] = max(timeline.extremes[1, column, cell], value)
    timeline.first_ms[cell] = min(timeline.first_ms[cell], time_ms)
    timeline.last_ms[cell] = max(timeline.last_ms[cell], time_ms)
    for index in range(cell, timeline.size[0]):
        timeline.prefix_count[index + 1] += 1
    rebuild(timeline)


@leaf
def absorb(timeline: Timeline, cell, other) -> None:
    """Combine another cell into a combined one, without regard to what is computed from cells."""
    timeline.first_ms[cell] = min(timeline.first_ms[cell], timeline.first_ms[other])
    timeline.last_ms[cell] = max(timeline.last_ms[cell], timeline.last_ms[other])
    for column in range(timeline.extremes.shape[1]):
        least, greatest = timeline.extremes[0, column], timeline.extremes[1, column]
        if not is_raw(timeline, other):
            timeline.nulls[column, cell] += timeline.nulls[column, other]
            _add_pair(timeline.plus, column, cell, other)
            _add_pair(timeline.minus, column, cell, other)
        elif is_null(timeline, column, other):
            timeline.nulls[column, cell] += 1
        else:
            _add_value(timeline, column, cell, least[other])
        least[cell] = min(least[cell], least[other])
        greatest[cell] = max(greatest[cell], greatest[other])


@leaf
def _add_pair(sums, column, cell, other):
    low = sums[1, column, cell] + sums[1, column, other]
    sums[0, column, cell] += sums[0, column, other] + (low >> LOW_BITS)
    sums[1, column, cell] = low & LOW_MASK
