"""Cells as bytes: what is written is read again, by this release and by the next."""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.compiled import compiled
from buckets.timeline.head import CELL_BYTES, COLUMN_BYTES, FIXED_BYTES, read_cells, read_counts, write_cells
from buckets.timeline.timeline import new_timeline, total
from tests.core.cells import GREATEST, LEAST, bucket, cell_lists, cells_of, laid_out, raw
from tests.laws import examples
from tests.oracle import Cell, fits

# As they run inside kernels: compiled.
read_cells, read_counts, write_cells, new_timeline, total = map(
    compiled, (read_cells, read_counts, write_cells, new_timeline, total)
)

TIMES_MS = st.one_of(st.integers(-300, 300), st.integers(-(10**14), 10**14))
GAPS_MS = st.sampled_from([0, 1, 127, 128, 129, 16_383, 16_384, 2**21 - 1, 2**21, 2**35])
"""Around the numbers where a varint becomes a byte longer."""
ALL_MS = LEAST

# A bucket of (1000 ms, 1234) and (1200 ms, -5), and a raw event (1500 ms, 300, "é").
CELLS = [bucket([(1000, (1234,)), (1200, (-5,))]), raw(1500, "é", (300,))]
PINNED = bytes.fromhex("01 01 01 d00f" + "00 c801 02 d209 05 09 d709" + "f403 d804 02 c3a9")


@st.composite
def pages(draw):
    """Cells, and how many columns they have."""
    columns = draw(st.integers(0, 3))
    return draw(cell_lists(columns, times_ms=TIMES_MS)), columns


def written(cells: Sequence[Cell], columns: int, first: int = 0, end: int | None = None) -> bytes:
    """What is written of some cells, after seven other bytes."""
    timeline, pool = laid_out(cells, columns)
    out = np.zeros(7 + bound(cells, columns) + 1, np.uint8)
    at = write_cells(out, 7, timeline, first, len(cells) if end is None else end, pool)
    assert not out[:7].any()
    assert not out[at:].any()
    return out[7:at].tobytes()


def bound(cells: Sequence[Cell], columns: int) -> int:
    """Bytes of a page, at most."""
    ids = sum(len(cell.event_id.encode()) for cell in cells if cell.event_id is not None)
    return FIXED_BYTES + len(cells) * (CELL_BYTES + columns * COLUMN_BYTES) + ids


def read(data: bytes, columns: int, from_ms: int = ALL_MS, before: Sequence[Cell] = ()) -> list[Cell]:
    """Cells, read by a reader of so many columns from the middle of a larger pool, after those that are there."""
    pool = np.frombuffer(b"\xff\xff" + data + b"\xff", np.uint8)
    count = int(read_counts(pool, 2))
    timeline, other_pool = laid_out(before, columns, room=count)
    assert read_cells(pool, 2, timeline, np.int32(4), from_ms) == 2 + len(data)
    assert timeline.owner[len(before) : int(timeline.size[0])].tolist() == [4] * (int(timeline.size[0]) - len(before))
    timeline.id_start[: len(before)] += len(pool)
    return cells_of(timeline, np.concatenate([pool, other_pool]))


def widened(cells: Sequence[Cell], columns: int) -> list[Cell]:
    """The same cells with as many columns, the missing ones 0."""
    fields = ("plus", "minus", "least", "greatest", "nulls")
    return [
        cell._replace(**{field: (getattr(cell, field) + (0,) * columns)[:columns] for field in fields})
        for cell in cells
    ]


@settings(max_examples=examples(200))
@given(pages())
def test_what_is_written_is_read_in_no_more_bytes_than_the_bound(page):
    cells, columns = page
    data = written(cells, columns)
    assert len(data) <= bound(cells, columns)
    assert read_counts(np.frombuffer(data, np.uint8), 0) == len(cells)
    assert read(data, columns) == cells


@given(TIMES_MS, st.lists(st.tuples(GAPS_MS, GAPS_MS), max_size=8), st.integers(0, 8))
def test_gaps_of_every_length_in_bytes_are_read_again(first_ms, steps, combined):
    begins_ms = list(accumulate((gap + span for gap, span in steps), initial=first_ms))
    spans_ms = [span for _, span in steps]
    cells = [
        bucket([(at, ()), (at + span, ())]) if index < combined else raw(at, "", ())
        for index, (at, span) in enumerate(zip(begins_ms, spans_ms, strict=False))
    ]
    assert read(written(cells, 0), 0) == cells


@given(pages(), st.integers(0, 24), st.integers(0, 24))
def test_any_stretch_of_cells_makes_a_page(page, first, end):
    cells, columns = page
    first, end = sorted((min(first, len(cells)), min(end, len(cells))))
    assert read(written(cells, columns, first, end), columns) == cells[first:end]


@given(pages(), st.integers(0, 4))
def test_a_reader_takes_missing_columns_as_0_and_passes_over_others(page, known):
    cells, columns = page
    assert read(written(cells, columns), known) == widened(cells, known)


@given(pages(), TIMES_MS, st.integers(0, 24))
def test_cells_that_end_before_a_time_are_passed_over(page, other_ms, index):
    cells, columns = page
    for from_ms in {other_ms, *(cell.last_ms for cell in cells[index : index + 1])}:
        kept = [cell for cell in cells if cell.last_ms >= from_ms]
        assert read(written(cells, columns), columns, from_ms) == kept


@given(pages(), st.data())
def test_pages_are_read_one_after_the_other(page, data):
    cells, columns = page
    before = data.draw(cell_lists(columns, times_ms=TIMES_MS))
    assert read(written(cells, columns), columns, before=before) == before + cells


@given(pages())
def test_totals_are_there_after_reading(page):
    cells, columns = page
    data = np.frombuffer(written(cells, columns), np.uint8)
    timeline = new_timeline(len(cells), np.ones(columns, np.bool_), np.zeros(columns, np.bool_))
    read_cells(data, 0, timeline, np.int32(0), ALL_MS)
    for column in range(columns):
        exact = sum(cell.plus[column] - cell.minus[column] for cell in cells)
        assert total(timeline, column, 0, len(cells)) == ((exact, True) if fits(exact) else (0, False))


def test_the_largest_bucket_fits_its_bound():
    cells = [bucket([(-(2**62), (GREATEST, LEAST)), (2**62, (LEAST, GREATEST))])]
    data = written(cells, 2)
    assert len(data) <= bound(cells, 2)
    assert read(data, 2) == cells


def test_bytes_of_a_page_are_read_and_written():
    assert read(PINNED, 1) == CELLS
    assert written(CELLS, 1) == PINNED
