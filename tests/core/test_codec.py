"""Timelines as bytes: what is written is read again, by this release and by the next."""

from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from buckets.codec import CODEC_VERSION, decode, decode_counts, encode, encoded_bound
from buckets.errors import BucketsError
from buckets.timeline import Timeline, new_timeline, rebuild, total
from tests.engine import Engine
from tests.oracle import Event
from tests.strategies import decimals, rules

LEAST = -(2**63)
INT64S = st.one_of(st.integers(-300, 300), st.integers(-(2**63), 2**63 - 1), st.sampled_from([LEAST, 2**63 - 1]))
TIMES_MS = st.one_of(st.integers(-300, 300), st.integers(-(10**14), 10**14))
GAPS_MS = st.sampled_from([0, 1, 127, 128, 129, 16_383, 16_384, 2**21 - 1, 2**21, 2**35])
"""Around the places where a varint becomes a byte longer."""
Cells = list[tuple[int, str, tuple[int, ...]]]

# Version 1: clock 2000 ms, 1 column, cells (1500 ms, 1234, "e1") and (2000 ms, -5, "é2").
PINNED = bytes.fromhex("01 01 a01f 02 b817 f403 a413 09 02 6531 03 c3a932")


@st.composite
def timelines(draw):
    """Cells sorted by time, and how many columns they have."""
    columns = draw(st.integers(0, 3))
    cell = st.tuples(TIMES_MS, st.text(max_size=200), st.tuples(*[INT64S] * columns))
    return sorted(draw(st.lists(cell, max_size=20)), key=lambda each: each[0]), columns


def laid_out(cells: Cells, columns: int) -> tuple[Timeline, np.ndarray]:
    """A timeline with these cells, and the pool in which their ids lie behind some other bytes."""
    timeline = new_timeline(len(cells), np.ones(columns, np.bool_))
    pool = b"other"
    for place, (time_ms, event_id, values) in enumerate(cells):
        timeline.times_ms[place] = time_ms
        timeline.id_start[place], timeline.id_length[place] = len(pool), len(event_id.encode())
        timeline.values[:, place] = values
        pool += event_id.encode()
    timeline.size[0] = len(cells)
    rebuild(timeline)
    return timeline, np.frombuffer(pool, np.uint8)


def written(cells: Cells, columns: int, clock_ms: int = 0, keep_from_ms: int = LEAST) -> bytes:
    timeline, pool = laid_out(cells, columns)
    out = np.zeros(encoded_bound(timeline) + 7, np.uint8)
    end = encode(out, 7, timeline, pool, clock_ms, keep_from_ms)
    assert not out[:7].any()
    assert not out[end:].any()
    return out[7:end].tobytes()


def read(data: bytes, columns: int) -> tuple[Cells, int]:
    """Cells and clock, read by a reader of so many columns from the middle of a larger pool."""
    pool = np.frombuffer(b"\xff\xff" + data + b"\xff", np.uint8)
    end = 2 + len(data)
    timeline = new_timeline(decode_counts(pool, 2, end), np.zeros(columns, np.bool_))
    clock_ms = decode(pool, 2, end, timeline)
    cells = []
    for place in range(int(timeline.size[0])):
        start, length = timeline.id_start[place], timeline.id_length[place]
        event_id = pool[start : start + length].tobytes().decode()
        cells.append((int(timeline.times_ms[place]), event_id, tuple(timeline.values[:, place].tolist())))
    return cells, int(clock_ms)


@given(timelines(), INT64S)
def test_decode_reads_what_encode_wrote(timeline, clock_ms):
    cells, columns = timeline
    assert read(written(cells, columns, clock_ms), columns) == (cells, clock_ms)


@given(TIMES_MS, st.lists(GAPS_MS, max_size=8))
def test_gaps_of_every_length_in_bytes_are_read_again(first_ms, gaps_ms):
    times_ms = list(accumulate(gaps_ms, initial=first_ms))
    cells = [(time_ms, "", ()) for time_ms in times_ms]
    assert read(written(cells, 0, 5), 0) == (cells, 5)


@given(timelines())
def test_encode_writes_no_more_than_its_bound(timeline):
    cells, columns = timeline
    laid, _ = laid_out(cells, columns)
    assert len(written(cells, columns, LEAST)) <= encoded_bound(laid)


@given(timelines(), st.integers(1, 3))
def test_a_reader_with_more_columns_takes_the_missing_ones_as_0(timeline, more):
    cells, columns = timeline
    widened = [(time_ms, event_id, values + (0,) * more) for time_ms, event_id, values in cells]
    assert read(written(cells, columns, 5), columns + more) == (widened, 5)


@given(timelines(), TIMES_MS)
def test_cells_before_the_horizon_leave_no_trace(timeline, keep_from_ms):
    cells, columns = timeline
    kept = [cell for cell in cells if cell[0] >= keep_from_ms]
    assert written(cells, columns, 3, keep_from_ms) == written(kept, columns, 3)


@given(timelines())
def test_totals_are_there_after_decoding(timeline):
    cells, columns = timeline
    data = np.frombuffer(written(cells, columns), np.uint8)
    decoded = new_timeline(len(cells), np.ones(columns, np.bool_))
    decode(data, 0, len(data), decoded)
    for column in range(columns):
        exact = sum(values[column] for _, _, values in cells)
        fits = LEAST <= exact < 2**63
        assert total(decoded, column, 0, len(cells)) == ((exact, True) if fits else (0, False))


def test_no_bytes_are_an_empty_timeline_of_a_new_key():
    assert read(b"", 2) == ([], LEAST)


def test_bytes_of_version_1_are_read():
    assert read(PINNED, 1) == ([(1500, "e1", (1234,)), (2000, "é2", (-5,))], 2000)


def test_bytes_of_version_1_are_written():
    assert written([(1500, "e1", (1234,)), (2000, "é2", (-5,))], 1, 2000) == PINNED
    assert PINNED[0] == CODEC_VERSION


@given(rules(), decimals(2), st.sampled_from([0, 2, 3, 255]))
def test_an_unknown_version_is_refused_and_nothing_is_overwritten(rules, amount, version):
    engine = Engine(rules)
    engine.run([[Event("e0", 1000, "k0", (amount, amount.to_integral_value()))]])
    unknown = bytes([version]) + engine.store["k0"][1:]
    engine.store["k0"] = unknown
    with pytest.raises(BucketsError, match="was not written by codec version 1"):
        engine.run([[Event("e1", 1001, "k0", (amount, amount.to_integral_value()))]])
    assert engine.store["k0"] == unknown


def test_a_reader_with_fewer_columns_passes_over_the_others():
    data = written([(1, "a", (5, 6)), (3, "b", (7, 8))], columns=2)
    assert read(data, columns=1)[0] == [(1, "a", (5,)), (3, "b", (7,))]
