"""The precision of times: a millisecond in the tail, a bucket before it.

Behind `after_ms` of a tier, counted from the key's clock, events lie in buckets `[start, start + resolution_ms)`. A
bucket is folded once all of it is old enough, so the *border* of a tier is a multiple of its resolution:

    border = floor((clock - after) / resolution) * resolution        times before it are known by the bucket

Borders depend on the clock alone. That makes results independent of how a stream is cut: borders decide whether an edge
falls into a bucket, not what a timeline happens to have folded already.
"""

from typing import NamedTuple

import numpy as np

from buckets.arrays import Int64s
from buckets.compiled import inlined, leaf
from buckets.numbers.wide_sum import LOW_BITS, LOW_MASK
from buckets.timeline.timeline import NO_ID, Timeline, forget_text, is_null, is_raw, rebuild


class Tiers(NamedTuple):
    """Tiers of buckets, finest and youngest first: int64 arrays of shape `(tiers,)`; empty for `tail: all`."""

    after_ms: Int64s
    resolution_ms: Int64s


@inlined
def floor_to(time_ms, width_ms):
    """Return the last multiple of a width at or before a time."""
    return time_ms // width_ms * width_ms


@inlined
def coarsest_ms(tiers: Tiers):
    """Return the width of the widest buckets; 1 if every event is kept raw."""
    return tiers.resolution_ms[tiers.resolution_ms.shape[0] - 1] if tiers.resolution_ms.shape[0] else np.int64(1)


@inlined
def set_borders(borders, tiers: Tiers, clock_ms):
    """Compute each tier's border, int64 `(tiers,)`, for a clock."""
    for tier in range(borders.shape[0]):
        borders[tier] = floor_to(clock_ms - tiers.after_ms[tier], tiers.resolution_ms[tier])


@inlined
def width_at(tiers: Tiers, borders, time_ms):
    """Return the width of the bucket for events at a time; 1 in the tail."""
    width = np.int64(1)
    for tier in range(borders.shape[0]):
        if time_ms >= borders[tier]:
            break
        width = tiers.resolution_ms[tier]
    return width


@inlined
def kept_from_ms(tiers: Tiers, clock_ms, horizon_ms):
    """Return the time from which events are kept: the horizon, rounded down to the coarsest bucket."""
    return floor_to(clock_ms - horizon_ms, coarsest_ms(tiers))


class Paging(NamedTuple):
    """How timelines are cut into pages."""

    page_cells: int  # cells of a page when it is cut off
    hot_cells: int  # newest cells that always stay in the head; more do until they fill a page
    most_pages: int  # pages of a timeline, beyond which neighbours are merged


BULK = 4  # How many times larger than `page_cells` a page from a large batch may be


@leaf
def page_size(paging: Paging, cells):
    """Return the most cells of a page in a timeline of this many cells, such that half of `most_pages` would hold it.

    So if a timeline has more than `most_pages`, some neighbours fit into one page.
    """
    size = np.int64(paging.page_cells)
    while cells > size * (paging.most_pages // 2):
        size *= 2
    return size


@leaf
def cut_size(paging: Paging, cells):
    """Return the cells of each page when this many are cut: more for a large batch, or one that fills the directory.

    After a large batch, edges of later ones pass over as many cells, and fewer large pages need fewer state calls.
    """
    size = np.int64(paging.page_cells)
    while cells > 2 * size and size < BULK * paging.page_cells:
        size *= 2
    while cells > size * max(1, paging.most_pages // 8):
        size *= 2
    return size


@leaf
def make_combined(timeline: Timeline, cell) -> None:
    """Turn the cell of a raw event into a bucket of one event."""
    if not is_raw(timeline, cell):
        return
    timeline.id_length[cell] = NO_ID
    for column in range(timeline.extremes.shape[1]):
        for member in range(2):
            timeline.plus[member, column, cell] = 0
            timeline.minus[member, column, cell] = 0
        forget_text(timeline, column, cell)
        timeline.nulls[column, cell] = is_null(timeline, column, cell)
        if not is_null(timeline, column, cell):
            _add_value(timeline, column, cell, timeline.extremes[0, column, cell])


@leaf
def _add_value(timeline: Timeline, column, cell, value):
    """Add an event's value to the sums of a combined cell, which stay normal."""
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
    """Merge a late event, given by its index in `values`, into a bucket. Cost: O(cells), for totals and stacks."""
    for column in range(timeline.extremes.shape[1]):
        if nulls[column, event]:
            timeline.nulls[column, cell] += 1
            continue
        value = np.int64(0) if timeline.is_text[column] else values[column, event]
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
    """Merge another cell into a combined one, without updating arrays derived from cells."""
    timeline.first_ms[cell] = min(timeline.first_ms[cell], timeline.first_ms[other])
    timeline.last_ms[cell] = max(timeline.last_ms[cell], timeline.last_ms[other])
    for column in range(timeline.extremes.shape[1]):
        least, greatest = timeline.extremes[0, column], timeline.extremes[1, column]
        if is_raw(timeline, other):
            forget_text(timeline, column, other)
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
