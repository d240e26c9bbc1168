"""The timeline under work against a plain list of cells."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from buckets.timeline import Timeline, extreme, first_at_or_after, insert, new_timeline, rebuild, remove, total

LEAST, GREATEST = -(2**63), 2**63 - 1
VALUES = st.one_of(st.integers(-3, 3), st.integers(LEAST, GREATEST), st.sampled_from([LEAST, GREATEST, 2**62]))
COLUMNS = 2
Cell = tuple[int, int, tuple[int, ...]]


def timeline_for(cells: int) -> Timeline:
    return new_timeline(cells, np.ones(COLUMNS, np.bool_))


def put(timeline: Timeline, place: int, cell: Cell) -> None:
    time_ms, number, values = cell
    columns = np.array([values], np.int64).T.copy()
    insert(timeline, place, time_ms, number, number + 1, columns, 0)


def cells_of(timeline: Timeline) -> list[Cell]:
    size = int(timeline.size[0])
    numbers = timeline.id_start[:size].tolist()
    assert timeline.id_length[:size].tolist() == [number + 1 for number in numbers]
    values = map(tuple, timeline.values[:, :size].T.tolist())
    return list(zip(timeline.times_ms[:size].tolist(), numbers, values, strict=True))


def stacks_of(timeline: Timeline) -> list[list[int]]:
    sizes = timeline.stack_size
    return [timeline.stack[side, c, : sizes[side, c]].tolist() for side in range(2) for c in range(COLUMNS)]


def place_of(cells: list[Cell], time_ms: int) -> int:
    """Behind all cells up to that time."""
    return sum(time <= time_ms for time, _, _ in cells)


@st.composite
def histories(draw):
    """Insertions at random times, now and then a removal of a random cell."""
    steps = st.one_of(
        st.tuples(st.just("insert"), st.integers(-20, 20), st.tuples(*[VALUES] * COLUMNS)),
        st.tuples(st.just("insert"), st.integers(-20, 20), st.tuples(*[VALUES] * COLUMNS)),
        st.tuples(st.just("insert"), st.integers(-20, 20), st.tuples(*[VALUES] * COLUMNS)),
        st.tuples(st.just("remove"), st.integers(0, 100), st.none()),
    )
    return draw(st.lists(steps, max_size=16))


def played(history) -> tuple[Timeline, list[Cell]]:
    timeline, cells = timeline_for(max(1, len(history))), []
    for number, (step, at, values) in enumerate(history):
        if step == "insert":
            place = place_of(cells, at)
            put(timeline, place, (at, number, values))
            cells.insert(place, (at, number, values))
        elif cells:
            remove(timeline, at % len(cells))
            del cells[at % len(cells)]
    return timeline, cells


@given(histories())
def test_insert_and_remove_do_what_a_list_does(history):
    timeline, cells = played(history)
    assert cells_of(timeline) == cells


@given(histories())
def test_every_stretch_has_the_exact_total_or_says_that_it_does_not_fit(history):
    timeline, cells = played(history)
    for column in range(COLUMNS):
        for first in range(len(cells) + 1):
            for end in range(first, len(cells) + 1):
                exact = sum(values[column] for _, _, values in cells[first:end])
                expected = (exact, True) if LEAST <= exact <= GREATEST else (0, False)
                assert total(timeline, column, first, end) == expected


@given(histories())
def test_every_stretch_has_the_least_and_the_greatest_of_its_values(history):
    timeline, cells = played(history)
    for column in range(COLUMNS):
        for first in range(len(cells)):
            for end in range(first + 1, len(cells) + 1):
                values = [values[column] for _, _, values in cells[first:end]]
                assert extreme(timeline, 0, column, first, end) == min(values)
                assert extreme(timeline, 1, column, first, end) == max(values)


@given(histories())
def test_stacks_kept_up_by_insertions_are_those_built_anew(history):
    timeline, _ = played(history)
    kept = stacks_of(timeline)
    rebuild(timeline)
    assert kept == stacks_of(timeline)


@given(st.lists(st.tuples(*[VALUES] * COLUMNS), max_size=10), st.randoms(use_true_random=False))
def test_the_order_of_insertions_at_different_times_does_not_matter(values, random):
    ordered = [(10 * place - 30, place, each) for place, each in enumerate(values)]
    shuffled = random.sample(ordered, len(ordered))
    timeline, inserted = timeline_for(max(1, len(values))), []
    for cell in shuffled:
        place = place_of(inserted, cell[0])
        put(timeline, place, cell)
        inserted.insert(place, cell)
    in_order = timeline_for(max(1, len(values)))
    for place, cell in enumerate(ordered):
        put(in_order, place, cell)
    assert cells_of(timeline) == cells_of(in_order) == ordered
    assert stacks_of(timeline) == stacks_of(in_order)
    for column in range(COLUMNS):
        exact = sum(each[column] for each in values)
        assert (total(timeline, column, 0, len(values))[1]) == (LEAST <= exact <= GREATEST)


@given(histories(), st.integers(-25, 25))
def test_the_first_cell_at_or_after_a_time_splits_the_timeline(history, time_ms):
    timeline, cells = played(history)
    assert first_at_or_after(timeline, time_ms) == sum(time < time_ms for time, _, _ in cells)


def test_a_sum_stops_fitting_exactly_one_beyond_64_bits():
    timeline = timeline_for(4)
    for place, values in enumerate([(GREATEST, LEAST), (1, -1), (-1, 1), (-2, 2)]):
        put(timeline, place, (place, place, values))
    assert total(timeline, 0, 0, 1) == (GREATEST, True)
    assert total(timeline, 0, 0, 2) == (0, False)
    assert total(timeline, 0, 0, 3) == (GREATEST, True)
    assert total(timeline, 0, 0, 4) == (GREATEST - 2, True)
    assert total(timeline, 1, 0, 1) == (LEAST, True)
    assert total(timeline, 1, 0, 2) == (0, False)
    assert total(timeline, 1, 0, 3) == (LEAST, True)
    assert total(timeline, 1, 0, 4) == (LEAST + 2, True)


def test_running_totals_far_beyond_64_bits_leave_later_stretches_exact():
    timeline = timeline_for(2001)
    for place in range(2000):
        put(timeline, place, (place, place, (GREATEST, LEAST)))
    put(timeline, 2000, (2000, 2000, (-7, 7)))
    assert total(timeline, 0, 2000, 2001) == (-7, True)
    assert total(timeline, 0, 1999, 2001) == (GREATEST - 7, True)
    assert total(timeline, 1, 1999, 2001) == (LEAST + 7, True)
    assert total(timeline, 0, 0, 2001) == (0, False)
    assert total(timeline, 1, 0, 2001) == (0, False)


def test_of_equal_values_the_newest_stands_on_the_stack():
    timeline = timeline_for(3)
    for place, value in enumerate([4, 4, 4]):
        put(timeline, place, (place, place, (value, value)))
    assert stacks_of(timeline) == [[2]] * 4
