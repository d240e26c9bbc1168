"""The timeline under work against a plain list of cells."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.compiled import compiled
from buckets.timeline.tiers import absorb, make_combined, merge_value
from buckets.timeline.timeline import (
    HOT,
    Timeline,
    clear,
    extreme,
    first_ending_at_or_after,
    insert,
    is_raw,
    rebuild,
    remove,
    total,
    valued,
)
from tests.core.cells import GREATEST, LEAST, bucket, cell_lists, cells_of, laid_out, raw
from tests.laws import examples
from tests.oracle import Cell, combined, fits

# As they run inside kernels: compiled.
absorb, clear, extreme, first_ending_at_or_after = map(compiled, (absorb, clear, extreme, first_ending_at_or_after))
insert, is_raw, make_combined, merge_value = map(compiled, (insert, is_raw, make_combined, merge_value))
rebuild, remove, total, valued = map(compiled, (rebuild, remove, total, valued))

NUMBERS = st.one_of(st.integers(-3, 3), st.integers(LEAST, GREATEST), st.sampled_from([LEAST, GREATEST, 2**62]))
VALUES = st.one_of(NUMBERS, NUMBERS, st.none())
TIMES_MS = st.integers(-20, 20)
COLUMNS = 2
IDS = b"abcdefghijklmnopqrstuvwxyz"


def stacks_of(timeline: Timeline) -> list[list[int]]:
    sizes = timeline.stack_size
    return [timeline.stack[side, c, : sizes[side, c]].tolist() for side in range(2) for c in range(COLUMNS)]


def columns_of(values: Sequence[int | None]) -> tuple[np.ndarray, np.ndarray]:
    """The values of two events, the second of which is given, and where they have none."""
    nulls = np.array([[False] * COLUMNS, [value is None for value in values]]).T.copy()
    return np.array([[0] * COLUMNS, [value or 0 for value in values]], np.int64).T.copy(), nulls


def index_of(cells: list[Cell], time_ms: int) -> int:
    """After all cells that begin up to that time."""
    return sum(cell.first_ms <= time_ms for cell in cells)


@st.composite
def histories(draw):
    """Cells, then events inserted or taken into a bucket, now and then one removed."""
    step = st.sampled_from(["insert", "insert", "merge", "remove"])
    steps = st.tuples(step, TIMES_MS, st.tuples(*[VALUES] * COLUMNS), st.integers(0, 100))
    return draw(cell_lists(COLUMNS, VALUES, TIMES_MS, most=5)), draw(st.lists(steps, max_size=16))


def played(history) -> tuple[Timeline, np.ndarray, list[Cell]]:
    """A timeline after its history, the pool of ids, and the same as a list."""
    cells, steps = history
    timeline, pool = laid_out(cells, COLUMNS, room=len(steps))
    pool, start, cells = np.concatenate([pool, np.frombuffer(IDS, np.uint8)]), len(pool), list(cells)
    for number, (step, time_ms, values, chosen) in enumerate(steps):
        columns = columns_of(values)
        buckets = [index for index, cell in enumerate(cells) if cell.event_id is None]
        events = [index for index, cell in enumerate(cells) if cell.event_id is not None]
        if step == "insert":
            index = index_of(cells, time_ms)
            if index and cells[index - 1].last_ms > time_ms:  # inside a bucket
                continue
            insert(timeline, index, time_ms, start + number, 1, *columns, 1, np.int32(HOT))
            cells.insert(index, raw(time_ms, chr(IDS[number]), values))
        elif step == "merge" and buckets:
            index = buckets[chosen % len(buckets)]
            inside_ms = min(max(time_ms, cells[index].first_ms), cells[index].last_ms)
            merge_value(timeline, index, *columns, 1, inside_ms)
            cells[index] = combined([cells[index], raw(inside_ms, "", values)])
        elif step == "remove" and events:
            index = events[chosen % len(events)]
            remove(timeline, index)
            del cells[index]
    return timeline, pool, cells


@given(histories())
def test_insert_merge_and_remove_do_what_a_list_does(history):
    timeline, pool, cells = played(history)
    assert cells_of(timeline, pool) == cells
    assert [is_raw(timeline, index) for index in range(len(cells))] == [cell.event_id is not None for cell in cells]


@given(histories())
def test_every_stretch_has_the_exact_total_or_says_that_it_does_not_fit(history):
    timeline, _, cells = played(history)
    for column in range(COLUMNS):
        for first in range(len(cells) + 1):
            for end in range(first, len(cells) + 1):
                exact = sum(cell.plus[column] - cell.minus[column] for cell in cells[first:end])
                assert total(timeline, column, first, end) == ((exact, True) if fits(exact) else (0, False))


@given(histories())
def test_every_stretch_has_the_least_and_the_greatest_of_its_values(history):
    timeline, _, cells = played(history)
    for column in range(COLUMNS):
        for first in range(len(cells)):
            for end in range(first + 1, len(cells) + 1):
                stretch = cells[first:end]
                least = [cell.least[column] for cell in stretch if cell.least[column] is not None]
                greatest = [cell.greatest[column] for cell in stretch if cell.greatest[column] is not None]
                assert extreme(timeline, 0, column, first, end) == min(least, default=GREATEST)
                assert extreme(timeline, 1, column, first, end) == max(greatest, default=LEAST)
                events = sum(cell.events - cell.nulls[column] for cell in stretch)
                assert valued(timeline, column, first, end) == events


@given(histories())
def test_what_is_kept_up_step_by_step_is_what_is_built_anew(history):
    timeline, _, cells = played(history)
    counts, stacks = timeline.prefix_count[: len(cells) + 1].tolist(), stacks_of(timeline)
    assert counts == [sum(cell.events for cell in cells[:index]) for index in range(len(cells) + 1)]
    rebuild(timeline)
    assert stacks_of(timeline) == stacks


@given(st.lists(st.tuples(*[VALUES] * COLUMNS), max_size=10), st.randoms(use_true_random=False))
def test_the_order_of_insertions_at_different_times_does_not_matter(values, random):
    ordered = [raw(10 * index - 30, "o", each) for index, each in enumerate(values)]
    timeline, pool = laid_out([], COLUMNS, room=len(values))
    inserted: list[Cell] = []
    for cell in random.sample(ordered, len(ordered)):
        index = index_of(inserted, cell.first_ms)
        insert(timeline, index, cell.first_ms, 0, 1, *columns_of(cell.least), 1, np.int32(HOT))
        inserted.insert(index, cell)
    in_order, _ = laid_out(ordered, COLUMNS)
    assert cells_of(timeline, pool) == ordered
    assert stacks_of(timeline) == stacks_of(in_order)


@given(cell_lists(COLUMNS, VALUES, TIMES_MS), st.integers(-25, 25))
def test_the_first_cell_that_ends_at_or_after_a_time_splits_the_timeline(cells, time_ms):
    timeline, _ = laid_out(cells, COLUMNS)
    assert first_ending_at_or_after(timeline, time_ms) == sum(cell.last_ms < time_ms for cell in cells)


@given(cell_lists(COLUMNS, VALUES, TIMES_MS))
def test_a_timeline_that_was_cleared_is_empty(cells):
    timeline, _ = laid_out(cells, COLUMNS)
    clear(timeline)
    assert cells_of(timeline, np.empty(0, np.uint8)) == []
    assert stacks_of(timeline) == [[]] * 4


@settings(max_examples=examples(200))
@given(cell_lists(COLUMNS, VALUES, TIMES_MS, most=6).filter(bool))
def test_cells_that_absorb_each_other_are_one_bucket_of_all_their_events(cells):
    timeline, pool = laid_out(cells, COLUMNS)
    make_combined(timeline, 0)
    for other in range(1, len(cells)):
        absorb(timeline, 0, other)
    timeline.prefix_count[1], timeline.size[0] = timeline.prefix_count[len(cells)], 1
    assert cells_of(timeline, pool) == [combined(cells)]


@given(cell_lists(COLUMNS, VALUES, TIMES_MS, most=6), st.randoms(use_true_random=False))
def test_the_order_in_which_cells_are_absorbed_does_not_matter(cells, random):
    assert not cells or combined(cells) == combined(random.sample(cells, len(cells)))
    timeline, pool = laid_out(cells, COLUMNS)
    for index in range(len(cells)):
        make_combined(timeline, index)
    kept = int(random.random() * len(cells))
    others = [index for index in range(len(cells)) if index != kept]
    for other in random.sample(others, len(others)):
        absorb(timeline, kept, other)
    if cells:
        whole = combined(cells)
        assert cells_of(timeline, pool)[kept] == whole._replace(events=cells[kept].events)


@given(VALUES, VALUES)
def test_a_bucket_of_one_event_keeps_its_total_and_loses_its_id(value, other):
    timeline, pool = laid_out([raw(5, "a", (value, other))], COLUMNS)
    make_combined(timeline, 0)
    rebuild(timeline)
    assert cells_of(timeline, pool) == [bucket([(5, (value, other))])]
    assert total(timeline, 0, 0, 1) == (value or 0, True)
    assert valued(timeline, 0, 0, 1) == (value is not None)


def test_a_sum_stops_fitting_exactly_one_beyond_64_bits():
    pairs = [(GREATEST, LEAST), (1, -1), (-1, 1), (-2, 2)]
    timeline, _ = laid_out([raw(index, "", pair) for index, pair in enumerate(pairs)], COLUMNS)
    assert total(timeline, 0, 0, 1) == (GREATEST, True)
    assert total(timeline, 0, 0, 2) == (0, False)
    assert total(timeline, 0, 0, 3) == (GREATEST, True)
    assert total(timeline, 0, 0, 4) == (GREATEST - 2, True)
    assert total(timeline, 1, 0, 1) == (LEAST, True)
    assert total(timeline, 1, 0, 2) == (0, False)
    assert total(timeline, 1, 0, 3) == (LEAST, True)
    assert total(timeline, 1, 0, 4) == (LEAST + 2, True)


@pytest.mark.parametrize("size", [1, 100])
def test_running_totals_far_beyond_64_bits_leave_later_stretches_exact(size):
    """Raw events, or buckets of a hundred whose sums are beyond 64 bits themselves."""
    events = [(index, (GREATEST, LEAST)) for index in range(2000)]
    buckets = [bucket(events[start : start + size]) for start in range(0, 2000, size)]
    large = [raw(index, "", (GREATEST, LEAST)) for index in range(2000)] if size == 1 else buckets
    timeline, _ = laid_out([*large, raw(2000, "", (GREATEST, LEAST)), raw(2001, "", (-7, 7))], COLUMNS)
    last = len(large)
    assert total(timeline, 0, last + 1, last + 2) == (-7, True)
    assert total(timeline, 0, last, last + 2) == (GREATEST - 7, True)
    assert total(timeline, 1, last, last + 2) == (LEAST + 7, True)
    assert total(timeline, 0, 0, last + 2) == (0, False)
    assert total(timeline, 1, 0, last + 2) == (0, False)


def test_of_equal_values_the_newest_stands_on_the_stack():
    timeline, _ = laid_out([raw(index, "", (4, 4)) for index in range(3)], COLUMNS)
    assert stacks_of(timeline) == [[2]] * 4
