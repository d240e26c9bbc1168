"""Heads as bytes: clock, directory and newest cells are read as they were written."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.byte_strings import ByteStrings
from buckets.compiled import compiled
from buckets.errors import BucketsError
from buckets.timeline.head import (
    CODEC_VERSION,
    HEAD_BYTES,
    Directory,
    HeadFields,
    entry_bound,
    new_directory,
    read_cells,
    write_cells,
    write_entry,
    write_head,
)
from buckets.timeline.inspection import read_heads, unreadable
from buckets.timeline.layout import written_bound
from buckets.timeline.tiers import Paging
from tests.core.cells import GREATEST, INT64S, LEAST, cell_lists, cells_of, laid_out, raw
from tests.engine import Engine
from tests.laws import examples
from tests.oracle import Event
from tests.strategies import decimals, rules

# As they run inside kernels: compiled.
new_directory, entry_bound, written_bound = map(compiled, (new_directory, entry_bound, written_bound))
read_cells, write_cells = map(compiled, (read_cells, write_cells))
write_entry, write_head = map(compiled, (write_entry, write_head))

ALL_MS = LEAST
COUNTS = st.one_of(st.integers(0, 300), st.integers(0, 2**31))
TIMES_MS = st.one_of(st.integers(-300, 300), st.integers(-(10**14), 10**14))
SUMS = st.one_of(st.integers(0, 300), st.integers(0, 2**94))
COLUMN = st.one_of(
    st.tuples(SUMS, SUMS, st.tuples(INT64S, INT64S).map(sorted), st.one_of(st.just(0), COUNTS)),
    st.tuples(st.just(0), st.just(0), st.just([GREATEST, LEAST]), st.integers(1, 2**31)),
)
"""Positive and negative sum, least and greatest value, and events without one; or only those."""
KINDS = ("page", "first_ms", "last_ms", "cells", "event_count", "resolution_ms", "is_trimmed")

# Clock 2700 ms, complete since 200 ms, generation 3, next page 5, page 4 from 1000 to 2500 ms with 2 cells
# of 3 events, folded to 500 ms, not trimmed, sums 1534 and 5, -5 to 1234; then the cell (2700 ms, -7, "é").
ENTRIES = [((4, 1000, 2500, 2, 3, 500, False), ((1534, 5, [-5, 1234], 0),))]
HEAD = (2700, 200, 3, 5, ENTRIES, [raw(2700, "é", (-7,))], 1)
PAGES_AND_CELLS = "04 c71a dc0b 04 03 f403 fe0b 05 09 d709" + "01 00 01 982a 00 0d 02 c3a9"
WRITTEN = bytes.fromhex("01 982a 03 05 01 01 01 8727" + PAGES_AND_CELLS)


@st.composite
def entries(draw, columns: int):
    """Entries of a directory: what `KINDS` says of each page, and for each measure positive, negative, both ends."""
    found, begin_ms = [], draw(TIMES_MS)
    for _ in range(draw(st.integers(0, 5))):
        begin_ms += draw(COUNTS)
        end_ms = begin_ms + draw(COUNTS)
        page, cells, count, resolution_ms = (draw(COUNTS) for _ in range(4))
        numbers = (page, begin_ms, end_ms, cells, count, resolution_ms, draw(st.booleans()))
        found.append((numbers, draw(st.tuples(*[COLUMN] * columns))))
    return found


@st.composite
def heads(draw):
    """Clock, since when, generation, next page number, entries, newest cells, and how many columns they have."""
    columns = draw(st.integers(0, 3))
    numbers = draw(INT64S), draw(st.one_of(st.just(LEAST), INT64S)), draw(COUNTS), draw(COUNTS)
    return *numbers, draw(entries(columns)), draw(cell_lists(columns, times_ms=TIMES_MS)), columns


def directory_of(found, columns: int) -> Directory:
    directory = new_directory(np.array([0, len(found)]), columns)
    for entry, (numbers, sums) in enumerate(found):
        for kind, number in zip(KINDS, numbers, strict=True):
            getattr(directory, kind)[entry] = number
        for column, (plus, minus, ends, nulls) in enumerate(sums):
            directory.nulls[column, entry] = nulls
            directory.plus[:, column, entry] = divmod(plus, 2**32)
            directory.minus[:, column, entry] = divmod(minus, 2**32)
            directory.extremes[:, column, entry] = ends
    return directory


def entries_of(directory: Directory, start: int, end: int, columns: int):
    found = []
    for entry in range(start, end):
        numbers = tuple(getattr(directory, kind)[entry].item() for kind in KINDS)
        sums = tuple(
            (
                *(
                    (int(pair[0, column, entry]) << 32) + int(pair[1, column, entry])
                    for pair in (directory.plus, directory.minus)
                ),
                directory.extremes[:, column, entry].tolist(),
                int(directory.nulls[column, entry]),
            )
            for column in range(columns)
        )
        found.append((numbers, sums))
    return found


def written(head) -> bytes:
    clock_ms, since_ms, generation, next_page, found, cells, columns = head
    timeline, pool = laid_out(cells, columns)
    directory = directory_of(found, columns)
    ids = sum(len((cell.event_id or "").encode()) for cell in cells)
    out = np.zeros(3 + written_bound(timeline, len(found)), np.uint8)
    at = write_head(out, 3, HeadFields(clock_ms, since_ms, generation, next_page, False), len(found), columns)
    before_ms = clock_ms
    for entry in range(len(found)):
        entry_at = at
        at = write_entry(out, at, directory, entry, before_ms)
        before_ms = directory.first_ms[entry]
        assert at - entry_at <= entry_bound(columns)
    assert written_bound(timeline, len(found)) >= HEAD_BYTES + len(found) * entry_bound(columns) + ids
    at = write_cells(out, at, timeline, 0, len(cells), pool)
    assert not out[:3].any()
    return out[3:at].tobytes()


def widened(columns: tuple, known: int) -> tuple:
    return (columns + ((0, 0, [0, 0], 0),) * known)[:known]


def read(data: list[bytes], known: int):
    """What a reader of so many columns finds in heads one after the other: as `heads` draws them."""
    pool, start = ByteStrings.of(data)
    assert unreadable(pool, start) == -1
    found, directory = read_heads(pool, start, known)
    seen = []
    for key in range(len(data)):
        cells = int(found.cells[key])
        timeline, _ = laid_out([], known, room=cells)
        if cells:
            read_cells(pool, found.cells_at[key], timeline, np.int32(-1), ALL_MS)
        of_key = entries_of(directory, directory.start[key], directory.start[key + 1], known)
        numbers = int(found.clock_ms[key]), int(found.since_ms[key]), int(found.next_page[key])
        seen.append((*numbers, of_key, cells_of(timeline, pool)))
    return seen


def expected(head, known: int):
    clock_ms, since_ms, _, next_page, found, cells, _ = head
    fields = ("plus", "minus", "least", "greatest", "nulls")
    cells = [
        cell._replace(**{field: (getattr(cell, field) + (0,) * known)[:known] for field in fields}) for cell in cells
    ]
    return clock_ms, since_ms, next_page, [(numbers, widened(sums, known)) for numbers, sums in found], cells


@pytest.mark.slow
@settings(max_examples=examples(150))
@given(st.lists(st.one_of(heads(), st.none()), max_size=3), st.integers(0, 4))
def test_heads_are_read_as_they_were_written_by_readers_with_more_or_fewer_columns(many, known):
    """Heads lie one after the other; that of a new key is empty."""
    data = [written(head) if head else b"" for head in many]
    assert read(data, known) == [expected(head, known) if head else (LEAST, LEAST, 0, [], []) for head in many]


@pytest.mark.parametrize("version", [0, CODEC_VERSION + 1, 255])
def test_a_head_of_an_unknown_version_is_found(version):
    heads = [b"", WRITTEN, bytes([version]) + WRITTEN[1:], WRITTEN]
    assert unreadable(*ByteStrings.of(heads)) == 2


@settings(max_examples=examples(30))
@given(rules(), decimals(2), st.sampled_from([0, CODEC_VERSION + 1, 255]))
def test_an_unknown_version_is_refused_and_nothing_is_overwritten(rules, amount, version):
    engine = Engine(rules, Paging(1, 0, 6), allowed_lateness="1h")
    fee = amount.to_integral_value()
    engine.run([[Event(f"e{at}", at, key, (amount, fee))] for key in ("k0", "k1") for at in (1000, 1001, 1002)])
    engine.store["k1"] = bytes([version]) + engine.store["k1"][1:]
    store, pages = dict(engine.store), dict(engine.pages)
    assert pages
    with pytest.raises(
        BucketsError, match=rf"was written by codec version {version}, and this release reads version 1"
    ):
        engine.run([[Event("e1", 1003, key, (amount, fee)) for key in ("k0", "k1")]])
    assert (engine.store, engine.pages) == (store, pages)


@pytest.mark.slow
def test_a_head_has_these_bytes():
    assert written(HEAD) == WRITTEN
    assert read([WRITTEN], 1) == [expected(HEAD, 1)]
    assert WRITTEN[0] == CODEC_VERSION


def test_the_greatest_numbers_fit_their_bound():
    numbers = (2**31, -(2**62), 2**62, 2**31, 2**62, 604_800_000, True)
    column = (2**94, 2**94, [LEAST, GREATEST], 2**62)
    head = (LEAST, GREATEST, 2**31, 2**31, [(numbers, (column, column))], [], 2)
    assert read([written(head)], 2) == [expected(head, 2)]
