"""Columns of text, as Arrow has them, as byte strings for the kernels and the state, and back."""

import numpy as np
import pyarrow as pa

from buckets.byte_strings import ByteStrings, concatenated, fixed


def strings_of(column: pa.Array | pa.ChunkedArray) -> ByteStrings:
    """Return the texts of a column, in UTF-8, without a copy where it is in one piece.

    It may have many pieces: Arrow has no piece of text with more than 2 GB.
    """
    pieces = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return concatenated([_strings_of(piece) for piece in pieces if len(piece)] or [ByteStrings.of([])])


def column_of(strings: ByteStrings) -> pa.Array:
    """Return byte strings as a column of Arrow, without a copy."""
    buffers = [None, pa.py_buffer(strings.start), pa.py_buffer(strings.data)]
    return pa.Array.from_buffers(pa.large_binary(), strings.size, buffers)


def texts_of(strings: ByteStrings) -> pa.Array:
    """Return byte strings in UTF-8, of no more than 2 GB, as a column of text."""
    buffers = [None, pa.py_buffer(strings.start.astype(np.int32)), pa.py_buffer(strings.data)]
    return pa.Array.from_buffers(pa.string(), strings.size, buffers)


def _strings_of(piece: pa.Array) -> ByteStrings:
    _, offsets, data = piece.buffers()
    start = np.frombuffer(offsets, np.int32)[piece.offset : piece.offset + len(piece) + 1].astype(np.int64)
    text = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return fixed(text[start[0] : start[-1]], start - start[0])
