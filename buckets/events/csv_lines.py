"""Reads CSV line by line, so that each line keeps its number and one broken line spoils no other.

A record is one line; a line break inside quotes is not supported and makes its line broken.
"""

import csv
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from buckets.events.csv_format import CsvFormat
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
"""What is wrong with a line, by a part of the message of Python's module."""
_DELIMITERS = (",", ";", "\t", "|")


def split_line(line: str, written: CsvFormat) -> list[str]:
    """Split one line into its fields.

    Raises:
        ValueError: quotes that do not close, or text after a closing quote.
    """
    try:
        rows = list(csv.reader([line], strict=True, delimiter=written.delimiter))
    except csv.Error as error:
        reason = next((ours for theirs, ours in _REASONS.items() if theirs in str(error)), str(error))
        message = f"broken CSV: {reason}"
        raise ValueError(message) from None
    return rows[0] if rows else []


def read_header(line: str, schema: EventSchema) -> list[str]:
    """Read the names of the fields from a header line, which is about events of a schema; some columns may have none.

    Raises:
        ValueError: broken, a field is named twice, or none is; says what to do.
    """
    names = _names(line, schema.csv)
    twice = next((name for name in schema.field_names if names.count(name) > 1), None)
    if twice is not None:
        message = (
            f"broken CSV: the header names {twice!r} twice; give each column a name of its own there, or in the event "
            "schema, by which this line is no event: csv: {header: [NAME, …]}"
        )
        raise ValueError(message)
    if set(names).isdisjoint(schema.field_names):
        message = (
            f"names no field of event schema {schema.name!r}, it begins {short_line(repr(names[0]))}; "
            f"{_remedy(line, schema)}"
        )
        raise ValueError(message)
    return names


def _names(line: str, written: CsvFormat) -> list[str]:
    return [name.strip() for name in split_line(line, written)]


def _remedy(line: str, schema: EventSchema) -> str:
    """Say what to do about a first line that names no field."""
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


@dataclass(frozen=True)
class CsvColumns:
    """Lines as columns of text by field, where empty text is null; `broken` says why a line is no record, or None."""

    fields: dict[str, list[str | None]]
    broken: list[str | None]


def read_lines(lines: Sequence[str], header: Sequence[str], wanted: Sequence[str], written: CsvFormat) -> CsvColumns:
    """Split records into columns, one for each field of `wanted`; one that is not in the header is null everywhere.

    Lines over which a text in quotes goes on are broken for that one reason, as far as they are broken.
    Columns without a name at the end may be left out of a record.
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
    return CsvColumns(dict(zip(wanted, columns, strict=True)), broken)
