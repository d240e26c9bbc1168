"""Reads CSV line by line, so that each line keeps its number and one broken line spoils no other.

A record is one line; a line break inside quotes is not supported and makes its line broken.
"""

import csv
import sys
from collections.abc import Sequence
from dataclasses import dataclass

csv.field_size_limit(sys.maxsize)


def split_line(line: str) -> list[str]:
    """Split one line into its fields.

    Raises:
        ValueError: quotes that do not close, or text after a closing quote.
    """
    try:
        rows = list(csv.reader([line], strict=True))
    except csv.Error as error:
        message = f"broken CSV: {error}"
        raise ValueError(message) from None
    return rows[0] if rows else []


def split_header(line: str) -> list[str]:
    """Split a header line into the names of the fields.

    Raises:
        ValueError: broken, or a name is given twice.
    """
    names = [name.strip() for name in split_line(line)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        message = f"broken CSV: the header names {twice!r} twice"
        raise ValueError(message)
    return names


@dataclass(frozen=True)
class CsvColumns:
    """Lines as columns of text by field, where empty text is null; `broken` says why a line is no record, or None."""

    fields: dict[str, list[str | None]]
    broken: list[str | None]


def read_lines(lines: Sequence[str], header: Sequence[str], wanted: Sequence[str]) -> CsvColumns:
    """Split records into columns, one for each field of `wanted`; one that is not in the header is null everywhere."""
    index_of = {name: index for index, name in enumerate(header)}
    indices = [index_of.get(name) for name in wanted]
    columns: list[list[str | None]] = [[] for _ in wanted]
    broken: list[str | None] = []
    for line in lines:
        values: list[str] = []
        reason = None
        try:
            values = split_line(line)
            if len(values) != len(header):
                reason = f"broken CSV: {len(values)} fields where the header has {len(header)}"
        except ValueError as error:
            reason = str(error)
        broken.append(reason)
        for column, index in zip(columns, indices, strict=True):
            column.append(None if reason or index is None else values[index] or None)
    return CsvColumns(dict(zip(wanted, columns, strict=True)), broken)
