"""Reads events written as CSV, one record a line, into columns of text.

The event schema names the columns, or a header line in each file; a file whose header cannot be read gives only dead
letters. Each line keeps its number, and a broken line affects no other.
"""

import csv
import io
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.events.arrivals import BROKEN, LONGEST_RAW, POSITION, RAW, SOURCE, replaced, shortened, with_declared
from buckets.events.clock_times import Faults
from buckets.events.csv_format import PLAIN_CSV, CsvFormat
from buckets.events.parquet_rows import with_folder_values
from buckets.events.schema import EventSchema
from buckets.printable import short_line

csv.field_size_limit(sys.maxsize)
_GOES_ON = (
    "a text in quotes goes on over the end of its line; a record is one line, so write line breaks in it as spaces"
)
_REASONS = {
    "unexpected end of data": _GOES_ON,
    "new-line character seen": "a carriage return stands between its fields, as lines end on old Macs; save the file "
    "with line feeds",
    "expected after": "text follows closing quotes; a quote inside of quotes is written twice",
}
"""The fault of a line, by a part of the message of Python's module."""
_DELIMITERS = (",", ";", "\t", "|")


def split_line(line: str, written: CsvFormat) -> list[str]:
    """Split one line into its fields; ValueError if quotes do not close, or text follows a closing quote."""
    try:
        rows = list(csv.reader([line], strict=True, delimiter=written.delimiter))
    except csv.Error as error:
        reason = next((ours for theirs, ours in _REASONS.items() if theirs in str(error)), str(error))
        message = f"broken CSV: {reason}"
        raise ValueError(message) from None
    return rows[0] if rows else []


def read_header(line: str, schema: EventSchema) -> list[str]:
    """Read field names from a header line; ValueError if none is declared or one is repeated. Some may be empty."""
    try:
        names = _names(line, schema.csv)
    except ValueError as error:
        message = f"the header line is {error}"
        raise ValueError(message) from None
    twice = next((name for name in schema.field_names if names.count(name) > 1), None)
    if twice is not None:
        message = (
            f"the header line is broken CSV: the header names {twice!r} twice; give each column a name of its own "
            "there, or in the event schema, by which this line is not an event: csv: {header: [NAME, …]}"
        )
        raise ValueError(message)
    if set(names).isdisjoint(schema.field_names):
        message = (
            f"the first line names no field of event schema {schema.name!r}, it begins {short_line(repr(names[0]))}; "
            f"{_remedy(line, schema)}"
        )
        raise ValueError(message)
    return names


def _names(line: str, written: CsvFormat) -> list[str]:
    return [name.strip() for name in split_line(line, written)]


def _remedy(line: str, schema: EventSchema) -> str:
    """Suggest what to do about a first line that names no field."""
    for delimiter in _DELIMITERS:
        try:
            names = _names(line, schema.csv.model_copy(update={"delimiter": delimiter}))
        except ValueError:
            continue
        if not set(names).isdisjoint(schema.field_names):
            shown = '"\\t"' if delimiter == "\t" else f'"{delimiter}"'
            return f"write into the event schema how it is separated: csv: {{delimiter: {shown}}}"
    named = schema.csv.delimiter.join(schema.field_names)
    return (
        f"write the names of the columns above it, as in {named}, or into the event schema: csv: {{header: [NAME, …]}}"
    )


def read_lines(
    lines: Sequence[str], header: Sequence[str], wanted: Sequence[str], written: CsvFormat
) -> tuple[dict[str, list[str | None]], list[str | None]]:
    """Split records into columns of text, one for each field of `wanted`, with a fault or None for each line.

    A field that is not in the header is null in all rows; empty text is null too. If quoted text spans several lines,
    each of them is broken for that one reason. Trailing columns without a name may be missing from a record.
    """
    index_of = {name: index for index, name in enumerate(header)}
    least = max((index + 1 for index, name in enumerate(header) if name), default=0)
    indices = [index_of.get(name) for name in wanted]
    columns: list[list[str | None]] = [[] for _ in wanted]
    broken: list[str | None] = []
    goes_on = False
    for line in lines:
        values: list[str] = []
        reason = None
        try:
            values = split_line(line, written)
            if not least <= len(values) <= len(header):
                reason = f"broken CSV: {len(values)} fields where the header has {len(header)}"
        except ValueError as error:
            reason = str(error)
        if reason is not None and goes_on:
            reason, goes_on = f"broken CSV: {_GOES_ON}", line.count('"') % 2 == 0
        else:
            goes_on = reason is not None and reason.endswith(_GOES_ON)
        broken.append(reason)
        for column, index in zip(columns, indices, strict=True):
            column.append(None if reason or index is None else values[index] or None)
    return dict(zip(wanted, columns, strict=True)), broken


_SEPARATORS = {".": r"\.", ",": ",", "'": "['\u2019]", " ": "[ \u00a0\u202f]"}
"""Each separator as a regular expression of its variants: a nonbreaking space is a space."""


def plain_numbers(texts: pa.Array, csv: CsvFormat) -> tuple[pa.Array, Faults]:
    """Return numbers as JSON spells them, with a fault by row; text that is no number at all may pass unchanged."""
    if csv.decimal == PLAIN_CSV.decimal and csv.thousands is None:
        rows = pc.indices_nonzero(pc.match_substring_regex(texts, "[ ,'\u2019\u00a0\u202f]|\\..*\\.").fill_null(False))
        suspects = zip(rows.to_pylist(), texts.take(rows).to_pylist(), strict=True)
        return texts, {row: _reason(text, csv) for row, text in suspects if any(_readings(text, csv))}
    fits = pc.match_substring_regex(texts, f"^(?:{_pattern(csv)})$").fill_null(True)
    faults = {}
    if not pc.all(fits).as_py():
        rows = pc.indices_nonzero(pc.invert(fits))
        texts_of = texts.take(rows).to_pylist()
        faults = {row: _reason(text, csv) for row, text in zip(rows.to_pylist(), texts_of, strict=True)}
    return pc.if_else(fits, _plain(texts, csv), None), faults


def _pattern(csv: CsvFormat) -> str:
    """Return the regular expression for numbers, which Arrow and Python read alike."""
    whole = "[0-9]+"
    if csv.thousands is not None:
        whole = f"[0-9]{{1,3}}(?:{_SEPARATORS[csv.thousands]}[0-9]{{3}})+|{whole}"
    point = _SEPARATORS[csv.decimal]
    return f"[+-]?(?:(?:{whole})(?:{point}[0-9]*)?|{point}[0-9]+)(?:[eE][+-]?[0-9]+)?"


def _plain(texts: pa.Array, csv: CsvFormat) -> pa.Array:
    if csv.thousands is not None:
        texts = pc.replace_substring_regex(texts, _SEPARATORS[csv.thousands], "")
    return texts if csv.decimal == "." else pc.replace_substring(texts, csv.decimal, ".")


def _reason(text: str, csv: CsvFormat) -> str:
    """Describe a fault of a number, and the declarations that would accept it."""
    groups = "" if csv.thousands is None else f' and thousands: "{csv.thousands}" between groups of three digits'
    hints = [f"csv: {declared} reads {plain}" for declared, plain in _readings(text, csv)]
    return f'{short_line(repr(text))} is not a number with decimal: "{csv.decimal}"{groups}' + "".join(
        f"{'; ' if at == 0 else ', '}{hint}" for at, hint in enumerate(hints)
    )


def _readings(text: str, csv: CsvFormat) -> Iterator[tuple[str, str]]:
    """Yield other number formats that would accept a text, each with its result.

    A declared decimal comma is not questioned.
    """
    for decimal in (".", ",") if csv.decimal == "." and csv.thousands is None else (csv.decimal,):
        for thousands in (None, ".", ",", "'", " "):
            if thousands == decimal or (decimal, thousands) == (csv.decimal, csv.thousands):
                continue
            other = CsvFormat.model_construct(decimal=decimal, thousands=thousands)
            without_groups = thousands is not None and re.search(_SEPARATORS[thousands], text) is None
            if without_groups or re.fullmatch(_pattern(other), text) is None:
                continue
            declared = f'decimal: "{decimal}"' if decimal != PLAIN_CSV.decimal else ""
            grouped = "" if thousands is None else f'thousands: "{thousands}"'
            yield f"{{{', '.join(filter(None, (declared, grouped)))}}}", _plain(pa.array([text]), other)[0].as_py()


BYTE_ORDER_MARK = "\ufeff"
_LINE_END = "\r\n"
_LONGEST_CHARACTER = 4


def numbered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Number the lines of whole files from 1 as `position`, unless they have numbers."""
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
    r"""Decode `raw` to text, and mark in `broken` each line that is not valid in the encoding; `name` is its name.

    Such a line is shown with its bytes escaped, as in `\xff`: replacement characters could make two ids equal. Only the
    beginning of a long line is kept.
    """
    raw, reasons = rows.column(RAW), list[str | None]()
    try:
        text = pc.cast(raw, pa.string()) if encoding == "utf-8" else None
    except pa.ArrowInvalid:
        text = None
    if text is None:
        lines: list[str | None] = []
        for line in raw.to_pylist():
            try:
                lines.append(line.decode(encoding))
                reasons.append(None)
            except UnicodeDecodeError:
                most = LONGEST_RAW * _LONGEST_CHARACTER  # Only the beginning of a long line is shown
                begin = line[:most].decode(encoding, errors="backslashreplace")
                is_cut = len(line) > most or len(begin) > LONGEST_RAW
                lines.append(shortened(begin, f"{len(line):,} bytes" if is_cut else ""))
                reasons.append(f"is not valid {name}")
        text = pa.array(lines, pa.string())
    broken = pa.array(reasons, pa.string()) if reasons else pa.nulls(rows.num_rows, pa.string())
    return replaced(rows, RAW, text).append_column(BROKEN, broken)


def recoded_lines(file: IO[bytes], encoding: str) -> Iterator[bytes]:
    """Yield, in UTF-8, the lines of a file whose encoding hides line ends from bytes; raises UnicodeDecodeError.

    Half of a character stays one, so its line is invalid.
    """
    with io.TextIOWrapper(file, encoding, errors="surrogatepass", newline="\n") as lines:
        for line in lines:
            yield line.encode("utf-8", "surrogatepass")


def text_lines(
    batches: Iterable[pa.RecordBatch], encoding: str = "utf-8", name: str = "UTF-8"
) -> Iterator[pa.RecordBatch]:
    """Turn the lines of files, `raw` (binary), into numbered text without blank lines; `name` names the encoding."""
    for rows in numbered(batch for batch in batches if batch.num_rows):
        rows = as_text(rows, encoding, name)
        text = pc.ascii_rtrim(rows.column(RAW), _LINE_END)
        is_blank = pc.equal(pc.binary_length(pc.ascii_trim_whitespace(text)), 0)
        lines = replaced(rows, RAW, text)
        if pc.any(is_blank).as_py():
            lines = lines.filter(pc.invert(is_blank))
        if lines.num_rows:
            yield lines


_MARK = 3


_Header = tuple[list[str], str | None]  # The names of the columns of a file, and why they cannot be read


def read_events(
    batches: Iterable[pa.RecordBatch], schema: EventSchema, header: list[str] | None
) -> Iterator[pa.RecordBatch]:
    """Read lines of whole files, as returned by `text_lines`, into the declared fields.

    `header` gives the names of the fields if neither a header line nor the schema does.
    """
    headers: dict[str, _Header] = {}
    for rows in batches:
        source = rows.column(SOURCE).to_pylist()
        lines = rows.column(RAW).to_pylist()
        starts = [0, *(row for row in range(1, len(source)) if source[row] != source[row - 1]), len(source)]
        for start, end in pairwise(starts):
            first = start
            if source[first] not in headers:
                lines[first] = lines[first].removeprefix(BYTE_ORDER_MARK)
                names = schema.csv.header or header
                broken = rows.column(BROKEN)[first]
                found = (list(names), None) if names else _header(lines[first], broken, schema)
                headers[source[first]] = found
                first += 0 if names or found[1] else 1
            if first < end:
                yield _with_fields(rows.slice(first, end - first), lines[first:end], headers[source[start]], schema)


def _header(line: str, broken: pa.Scalar, schema: EventSchema) -> _Header:
    if broken.is_valid:
        return [], f"the header line {broken}"
    fault = schema.csv.mark_fault(line[:_MARK].encode(schema.csv.line_encoding))
    if fault:
        return [], f"its file {fault}"
    try:
        return read_header(line, schema), None
    except ValueError as error:
        return [], str(error)


def _with_fields(rows: pa.RecordBatch, lines: list[str], header: _Header, schema: EventSchema) -> pa.RecordBatch:
    names, fault = header
    columns, records = read_lines(lines, names, schema.field_names, schema.csv)
    faults, fields = Faults(), dict[str, pa.Array]()
    for name in schema.field_names:
        column = pa.array(columns[name], pa.string())
        if name in schema.measures or schema.attributes.get(name) == "long":
            column, faulty = plain_numbers(column, schema.csv)
            faults = {row: f"{name}: {reason}" for row, reason in faulty.items()} | faults
        fields[name] = column
    reasons = [
        undecoded or fault or broken or faults.get(row)
        for row, (undecoded, broken) in enumerate(zip(rows.column(BROKEN).to_pylist(), records, strict=True))
    ]
    rows = with_declared(rows, fields, schema, reasons)
    return with_folder_values(rows, schema, set(schema.field_names) - set(names))
