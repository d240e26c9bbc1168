"""Turns lines of bytes into numbered lines of text, in the same way for every source that is made of lines.

A line ends with a line feed; carriage returns before it belong to the line's end. Only lines that hold nothing but
ASCII white space are blank, and left out: whatever else is on a line is an event or a dead letter.
"""

import io
from collections.abc import Iterable, Iterator
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.events.arrivals import BROKEN, LONGEST_RAW, POSITION, RAW, SOURCE, shortened

BYTE_ORDER_MARK = "\ufeff"
_LINE_END = "\r\n"
_LONGEST_CHARACTER = 4


def numbered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Number the lines of whole files, from 1, as `position`, if they have no numbers yet."""
    lines_before: dict[str, int] = {}
    for rows in batches:
        if POSITION in rows.schema.names:
            yield rows
            continue
        source = rows.column(SOURCE).dictionary_encode()
        codes = source.indices.to_numpy()
        numbers = np.empty(len(codes), np.int64)
        for code, name in enumerate(source.dictionary.to_pylist()):
            chosen = np.flatnonzero(codes == code)
            before = lines_before.get(name, 0)
            numbers[chosen] = np.arange(before + 1, before + len(chosen) + 1)
            lines_before[name] = before + len(chosen)
        yield rows.append_column(POSITION, pa.array(numbers))


def as_text(rows: pa.RecordBatch, encoding: str = "utf-8", name: str = "UTF-8") -> pa.RecordBatch:
    r"""Turn `raw` from bytes into text, and say in `broken` where a line is not valid in the encoding of that name.

    The bytes of such a line are shown with backslashes, as in `\xff`: replacing them could make two ids equal. Of a
    long line the beginning is kept.
    """
    raw, reasons = rows.column(RAW), pa.nulls(rows.num_rows, pa.string())
    try:
        text = pc.cast(raw, pa.string()) if encoding == "utf-8" else None
    except pa.ArrowInvalid:
        text = None
    if text is None:
        text, reasons = _shown(raw, encoding, name)
    at = rows.schema.get_field_index(RAW)
    return rows.set_column(at, RAW, text).append_column(BROKEN, reasons)


def _shown(raw: pa.BinaryArray, encoding: str, name: str) -> tuple[pa.StringArray, pa.StringArray]:
    """Turn lines into text, and say what is wrong with those that are not valid."""
    text: list[str | None] = []
    reasons: list[str | None] = []
    for line in raw.to_pylist():
        try:
            text.append(line.decode(encoding))
            reasons.append(None)
        except UnicodeDecodeError:
            text.append(_with_backslashes(line, encoding))
            reasons.append(f"is not valid {name}")
    return pa.array(text, pa.string()), pa.array(reasons, pa.string())


def _with_backslashes(line: bytes, encoding: str) -> str:
    """Show a line that is not valid; of a long one the beginning, as a dead letter keeps it."""
    most = LONGEST_RAW * _LONGEST_CHARACTER
    begin = line[:most].decode(encoding, errors="backslashreplace")
    return shortened(begin, f"{len(line):,} bytes" if len(line) > most or len(begin) > LONGEST_RAW else "")


def recoded_lines(file: IO[bytes], encoding: str) -> Iterator[bytes]:
    """Yield the lines of a file whose encoding does not show where they end, in UTF-8.

    Half of a character stays one, so that its line is not valid.

    Raises:
        UnicodeDecodeError: the file ends within a character, or has something else that no line could keep.
    """
    with io.TextIOWrapper(file, encoding, errors="surrogatepass", newline="\n") as lines:
        for line in lines:
            yield line.encode("utf-8", "surrogatepass")


def without_blank(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Leave out blank lines, and the ends of the others."""
    text = pc.ascii_rtrim(rows.column(RAW), _LINE_END)
    rows = rows.set_column(rows.schema.get_field_index(RAW), RAW, text)
    blank = pc.equal(pc.binary_length(pc.ascii_trim_whitespace(text)), 0)
    return rows.filter(pc.invert(blank)) if pc.any(blank).as_py() else rows


def text_lines(
    batches: Iterable[pa.RecordBatch], encoding: str = "utf-8", name: str = "UTF-8"
) -> Iterator[pa.RecordBatch]:
    """Turn the lines of files from bytes into numbered text without blank lines.

    Args:
        batches: rows with `raw` (binary), `source`, and `position` if they are numbered already.
        encoding: that of the lines.
        name: what the encoding of the files is called, where a line is not valid.
    """
    for rows in numbered(batch for batch in batches if batch.num_rows):
        lines = without_blank(as_text(rows, encoding, name))
        if lines.num_rows:
            yield lines
