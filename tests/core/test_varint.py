"""Integers as bytes: what is written is read, in no more bytes than is said."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.compiled import compiled
from buckets.numbers import varint
from tests.core.cells import INT64S, LOW_MASK
from tests.laws import examples

# As they run inside kernels: compiled.
write, write_signed, write_pair = map(compiled, (varint.write, varint.write_signed, varint.write_pair))
read_unsigned, read_signed = compiled(varint.read), compiled(varint.read_signed)
read_count, read_pair = compiled(varint.read_count), compiled(varint.read_pair)

EDGES = sorted({power + beside for bits in range(0, 96) for power in [2**bits] for beside in (-1, 0, 1)})
"""Around the numbers where a varint becomes a byte longer."""
UINT64S = st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([edge for edge in EDGES if edge < 2**64]))
COUNTS = st.one_of(st.integers(0, 2**63 - 1), st.sampled_from([edge for edge in EDGES if edge < 2**63]))
PAIRS = st.one_of(st.integers(0, 2**95 - 1), st.sampled_from([edge for edge in EDGES if edge < 2**95]))


def leb128(number: int) -> bytes:
    """Seven bits a byte, the lowest first; all bytes but the last are marked."""
    rest, parts = number, []
    while rest >= 128:
        parts.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*parts, rest])


def written(writer, *number) -> bytes:
    """What a function writes after three other bytes."""
    out = np.full(3 + varint.LONGEST_PAIR + 1, 7, np.uint8)
    end = writer(out, 3, *number)
    assert out[:3].tolist() == [7] * 3
    assert out[end:].tolist() == [7] * (len(out) - end)
    return out[3:end].tobytes()


def read(reader, data: bytes):
    """What a function reads from the middle of a larger pool, where it ends as it should."""
    *found, end = reader(np.frombuffer(b"\x07\x07" + data + b"\xff", np.uint8), 2)
    assert end == 2 + len(data)
    return [int(each) for each in found]


@settings(max_examples=examples(300))
@given(UINT64S)
def test_a_number_is_written_as_leb128_and_read_again(number):
    data = written(write, np.uint64(number))
    assert data == leb128(number)
    assert len(data) <= varint.LONGEST
    assert read(read_unsigned, data) == [number]


@given(COUNTS)
def test_a_count_is_written_as_leb128_and_read_again(number):
    data = written(write, np.int64(number))
    assert data == leb128(number)
    assert read(read_count, data) == [number]


@settings(max_examples=examples(300))
@given(st.one_of(INT64S, COUNTS, COUNTS.map(lambda number: -number - 1)))
def test_a_signed_number_is_zigzagged_and_read_again(number):
    data = written(write_signed, np.int64(number))
    assert data == leb128(2 * number if number >= 0 else -2 * number - 1)
    assert len(data) <= varint.LONGEST
    assert read(read_signed, data) == [number]


@settings(max_examples=examples(300))
@given(PAIRS)
def test_a_pair_is_written_as_the_number_that_it_means_and_read_again(number):
    high, low = number >> 32, number & LOW_MASK
    data = written(write_pair, np.int64(high), np.int64(low))
    assert data == leb128(number)
    assert len(data) <= varint.LONGEST_PAIR
    assert read(read_pair, data) == [high, low]


@pytest.mark.parametrize(
    ("number", "data"), [(0, "00"), (1, "02"), (-1, "01"), (300, "d804"), (-(2**63), "ff" * 9 + "01")]
)
def test_signed_numbers_as_bytes(number, data):
    assert written(write_signed, np.int64(number)).hex() == data
