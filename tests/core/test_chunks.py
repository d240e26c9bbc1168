"""Chunks of the eviction schedule are read as they were written, and nothing is read beyond their end."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from buckets.byte_strings import ByteStrings
from buckets.engine.eviction.chunks import NOT_NOTED, read_chunks, write_chunks
from buckets.errors import BucketsError

KEYS = st.one_of(st.text(max_size=6), st.sampled_from(["\0", "a\0b", "é", "😀", "k" * 200]))
CLOCKS_MS = st.one_of(st.integers(-(2**63), 2**63 - 2), st.sampled_from([0, -1, 9, 10, -(2**63), 1_700_000_000_000]))
ENTRIES = st.lists(st.tuples(KEYS, st.one_of(st.just(NOT_NOTED), CLOCKS_MS)), max_size=6)
CHUNKS = st.lists(ENTRIES, max_size=4)


def varint(number: int) -> bytes:
    """The number in groups of seven bits, the lowest first."""
    more = number >> 7
    return bytes([number & 127 | (128 if more else 0)]) + (varint(more) if more else b"")


def text_of(chunk) -> bytes:
    """A chunk as the module says that it is written."""
    written = b""
    for key, clock_ms in chunk:
        is_noted = clock_ms != NOT_NOTED
        written += varint(2 * len(key.encode()) + is_noted) + key.encode()
        written += varint(2 * clock_ms if clock_ms >= 0 else -2 * clock_ms - 1) if is_noted else b""
    return written


def columns(chunks, prefix: bytes) -> tuple[ByteStrings, np.ndarray]:
    """Keys behind a prefix, and what is noted of them."""
    entries = [entry for chunk in chunks for entry in chunk]
    keys = ByteStrings.of([prefix + key.encode() for key, _ in entries])
    return keys, np.array([noted_ms for _, noted_ms in entries], np.int64)


def starts(chunks) -> list[int]:
    """Where the entries of each chunk begin."""
    return [0, *np.cumsum([len(chunk) for chunk in chunks]).tolist()]


@given(CHUNKS, CHUNKS)
def test_chunks_go_on_where_they_end(before, more):
    before, more = ([*chunks, *[[]] * (4 - len(chunks))] for chunks in (before, more))
    keys, noted_ms = columns(more, b"12345678")
    written = write_chunks(ByteStrings.of([*map(text_of, before)]), keys, noted_ms, np.array(starts(more)), 8)
    together = [[*chunk, *added] for chunk, added in zip(before, more, strict=True)]
    assert written.to_list() == [text_of(chunk) for chunk in together]


@given(CHUNKS, st.data())
def test_chunks_are_read_as_the_lists_that_they_are(chunks, data):
    chunks = [chunk for chunk in chunks if chunk]
    prefixes = [data.draw(st.binary(max_size=9)) for _ in chunks]
    keys, noted_ms, first = read_chunks(ByteStrings.of([*map(text_of, chunks)]), ByteStrings.of(prefixes))
    expected = [columns([chunk], prefix) for chunk, prefix in zip(chunks, prefixes, strict=True)]
    assert keys.to_list() == [key for own_keys, _ in expected for key in own_keys.to_list()]
    assert noted_ms.tolist() == [clock_ms for _, own_ms in expected for clock_ms in own_ms.tolist()]
    assert first.tolist() == starts(chunks)


@pytest.mark.parametrize(
    "text", [b"", b"\x80", b"\x04a", b"\x03a", b"\x03a\x80", b"\x02a\x02", b"\xff" * 9 + b"\x01", b"\xff" * 11]
)
def test_a_chunk_that_is_no_list_of_keys_is_refused(text):
    with pytest.raises(BucketsError, match="a chunk that is not a list of keys"):
        read_chunks(ByteStrings.of([b"\x02a", text]), ByteStrings.of([b"", b""]))


@given(st.binary(max_size=40), st.binary(max_size=3))
def test_nothing_that_lies_there_is_read_beyond_its_end(text, prefix):
    whole = b"\x02" + text
    try:
        keys, _, first = read_chunks(ByteStrings.of([whole]), ByteStrings.of([prefix]))
    except BucketsError:
        return
    assert first.tolist() == [0, keys.size]
    assert len(keys.data) <= len(whole) + keys.size * len(prefix)
