"""Timelines from plain cells, and back."""

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from buckets.compiled import compiled
from buckets.timeline.timeline import HOT, NO_ID, Timeline, new_timeline, push
from tests.oracle import Cell, combined

# As they run inside kernels: compiled.
new_timeline, push = map(compiled, (new_timeline, push))

LEAST, GREATEST = -(2**63), 2**63 - 1
INT64S = st.one_of(st.integers(-300, 300), st.integers(LEAST, GREATEST), st.sampled_from([LEAST, GREATEST, 2**62]))
VALUES = st.one_of(INT64S, INT64S, st.none())
"""What an event has in a column, or has not."""
TIMES_MS = st.integers(-300, 300)
LOW_MASK = 2**32 - 1


def raw(time_ms: int, event_id: str, values: Sequence[int | None]) -> Cell:
    """The cell of one event."""
    plus, minus = tuple(max(value or 0, 0) for value in values), tuple(max(-(value or 0), 0) for value in values)
    nulls = tuple(int(value is None) for value in values)
    return Cell(time_ms, time_ms, 1, event_id, plus, minus, tuple(values), tuple(values), nulls)


def extremes_of(values: Sequence[int | None], side: int) -> list[int]:
    """Least (side 0) or greatest values as a timeline has them."""
    return [(GREATEST, LEAST)[side] if value is None else value for value in values]


def bucket(events: Sequence[tuple[int, Sequence[int | None]]]) -> Cell:
    """The cell of several events, each given as its time and its values."""
    return combined([raw(time_ms, "", values) for time_ms, values in events])


@st.composite
def cell_lists(draw, columns: int, values=VALUES, times_ms=TIMES_MS, most: int = 8):
    """Buckets of one to three events, and raw events after them."""
    event = st.tuples(times_ms, st.tuples(*[values] * columns))
    events = sorted(draw(st.lists(event, max_size=3 * most)), key=lambda each: each[0])
    cells: list[Cell] = []
    for _ in range(draw(st.integers(0, most))):
        size = draw(st.integers(1, 3))
        cells += [bucket(events[:size])] if events else []
        events = events[size:]
    return cells + [raw(time_ms, draw(st.text(max_size=5)), each) for time_ms, each in events[:most]]


def laid_out(cells: Sequence[Cell], columns: int, room: int = 0) -> tuple[Timeline, np.ndarray]:
    """A timeline with these cells and room for more, and the pool in which their ids lie after some other bytes."""
    timeline = new_timeline(len(cells) + room, np.ones(columns, np.bool_), np.zeros(columns, np.bool_))
    pool = b"other"
    for index, cell in enumerate(cells):
        timeline.first_ms[index], timeline.last_ms[index] = cell.first_ms, cell.last_ms
        timeline.owner[index] = HOT
        for side, values in enumerate((cell.least, cell.greatest)):
            timeline.extremes[side, :, index] = extremes_of(values, side)
        timeline.nulls[:, index] = cell.nulls
        timeline.id_start[index], timeline.id_length[index] = len(pool), NO_ID
        if cell.event_id is None:
            for sums, field in ((timeline.plus, cell.plus), (timeline.minus, cell.minus)):
                sums[0, :, index] = [each >> 32 for each in field]
                sums[1, :, index] = [each & LOW_MASK for each in field]
        else:
            timeline.id_length[index] = len(cell.event_id.encode())
            pool += cell.event_id.encode()
        push(timeline, cell.events)
    return timeline, np.frombuffer(pool, np.uint8)


def cells_of(timeline: Timeline, pool: np.ndarray) -> list[Cell]:
    """The cells of a timeline; sums of buckets must be normal pairs."""
    return [_cell(timeline, index, pool) for index in range(int(timeline.size[0]))]


def _cell(timeline: Timeline, index: int, pool: np.ndarray) -> Cell:
    first_ms, last_ms = int(timeline.first_ms[index]), int(timeline.last_ms[index])
    events = int(timeline.prefix_count[index + 1] - timeline.prefix_count[index])
    start, length = int(timeline.id_start[index]), int(timeline.id_length[index])
    pairs = timeline.extremes[:, :, index].T.tolist()
    least, greatest = (tuple(pair[side] if pair[0] <= pair[1] else None for pair in pairs) for side in range(2))
    if length != NO_ID:
        assert (first_ms, events, least) == (last_ms, 1, greatest)
        return raw(first_ms, pool[start : start + length].tobytes().decode(), least)
    sums = []
    for part in (timeline.plus, timeline.minus):
        pairs = part[:, :, index].T.tolist()
        assert all(0 <= low <= LOW_MASK and high >= 0 for high, low in pairs)
        sums.append(tuple((high << 32) + low for high, low in pairs))
    nulls = tuple(timeline.nulls[:, index].tolist())
    return Cell(first_ms, last_ms, events, None, sums[0], sums[1], least, greatest, nulls)
