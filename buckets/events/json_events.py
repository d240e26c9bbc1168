"""Events written as JSON, one object a text, into columns of text: each number with the very digits that were written.

Most texts are decoded by msgspec, which leaves fractions as they are written, makes integers of any size, and passes
over fields that nobody asks for. What it refuses goes to `json_object`, which decides whether the text is an event and
says why not; so does what msgspec would let pass: a field that is given twice, and nesting without end.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from buckets.events.arrivals import BROKEN, RAW, field_column
from buckets.events.field_paths import Path, containers, path_of, prefixes, walk
from buckets.events.json_object import DEEPEST, Fields, read_object
from buckets.events.schema import EventSchema

_ESCAPED_NAME = re.compile(rb'\\[^"\\]*"[ \t\r\n]*:')
"""Finds each name that is written with escapes, unless it holds a quote; and some texts that are no names.

It looks at most from one backslash to the next, so that a long text full of them is scanned only once.
"""
_NOTHING = b"{}"
_Column = list[Any]


@cache
def _decoder(names: tuple[str, ...]) -> msgspec.json.Decoder[Any]:
    """Return a decoder of the fields of these names, in their order; None for those that are missing."""
    columns = [field_column(index) for index in range(len(names))]
    fields = [(column, object, None) for column in columns]
    kind = msgspec.defstruct("Event", fields, rename=dict(zip(columns, names, strict=True)), gc=False)
    return msgspec.json.Decoder(kind, float_hook=str)


def read_events(rows: pa.RecordBatch, schema: EventSchema) -> pa.RecordBatch:
    """Read texts into the declared fields.

    Args:
        rows: with `raw` (text), and `broken` where a text has a fault already.
        schema: the event schema.

    Returns:
        The rows with the declared fields as columns of text, and `broken` for each text that is no event.
    """
    reasons: list[str | None] = rows.column(BROKEN).to_pylist()
    texts: list[bytes] = pc.cast(rows.column(RAW), pa.binary()).to_pylist()
    if rows.column(BROKEN).null_count < rows.num_rows:
        texts = [_NOTHING if reason else text for text, reason in zip(texts, reasons, strict=True)]
    columns, doubtful = _decoded(texts, schema.field_names)
    for row in sorted(doubtful):
        try:
            values = _fields(texts[row].decode(), schema.field_names)
        except ValueError as error:
            reasons[row], values = str(error), [None] * len(columns)
        for column, value in zip(columns, values, strict=True):
            column[row] = value
    for index, (name, column) in enumerate(zip(schema.field_names, columns, strict=True)):
        textual = name == schema.event_id or schema.attributes.get(name) == "string"
        rows = rows.append_column(field_column(index), _as_text(name, column, textual, reasons))
    return rows.set_column(rows.schema.get_field_index(BROKEN), BROKEN, pa.array(reasons, pa.string()))


def _decoded(texts: Sequence[bytes], names: Sequence[str]) -> tuple[list[_Column], set[int]]:
    """Return the values of each field, and the rows that need a closer look."""
    read = [*names, *containers(names)]
    decode = _decoder(tuple(read)).decode
    nothing = decode(_NOTHING)
    events, doubtful = [], set[int]()
    for row, text in enumerate(texts):
        try:
            events.append(decode(text))
        except (ValueError, RecursionError):
            events.append(nothing)
            doubtful.add(row)
    columns = {name: list(map(attrgetter(field_column(index)), events)) for index, name in enumerate(read)}
    inside, odd = _inside(columns, names)
    found = [*columns.items(), *((path[-1], column) for path, column in inside.items())]
    doubtful |= odd | _repeating(texts, found) | _deep(texts)
    return [_either(columns[name], inside.get(path_of(name))) for name in names], doubtful


def _inside(columns: Mapping[str, _Column], names: Sequence[str]) -> tuple[dict[Path, _Column], set[int]]:
    """Return what lies at each path inside of the outermost objects, and the rows with something else on the way."""
    found: dict[Path, _Column] = {}
    odd = set[int]()
    for path in prefixes(names):
        outermost, *steps = path
        if steps:
            column: _Column = [None] * len(columns[outermost])
            for row, value in enumerate(columns[outermost]):
                try:
                    column[row] = walk(value, steps)
                except TypeError:
                    odd.add(row)
            found[path] = column
    return found, odd


def _either(column: _Column, other: _Column | None) -> _Column:
    """Return the values of a field, and where it has none those at its path, if it has one."""
    if other is None:
        return column
    return [inside if value is None else value for value, inside in zip(column, other, strict=True)]


def _repeating(texts: Sequence[bytes], found: Sequence[tuple[str, _Column]]) -> set[int]:
    """Return the rows in which a field may be given twice, of which msgspec takes the last.

    A row that has a value has the field's name at least once, unless the name is written with escapes. So where all
    texts together have no more of a name than there are values of fields of that name in rows without escaped names, no
    row has one twice, and that is found in one search for each name.

    Args:
        texts: one a row.
        found: names, each with the values that a field of it has; several fields may have one name.
    """
    together = b"\n".join(texts)
    quoted = {name: json.dumps(name, ensure_ascii=False).encode() for name, _ in found}
    escaped = set[int]()
    if b"\\" in together:
        plain = all(written == f'"{name}"'.encode() for name, written in quoted.items())
        escaped = {row for row, text in enumerate(texts) if b"\\" in text and not (plain and has_plain_names(text))}
    rows, values = set(escaped), Counter[str]()
    for name, column in found:
        values[name] += len(column) - column.count(None) - sum(column[row] is not None for row in escaped)
    for name, written in quoted.items():
        if together.count(written) > values[name]:
            rows |= {row for row, text in enumerate(texts) if text.count(written) > 1}
    return rows


def has_plain_names(text: bytes) -> bool:
    """Return whether no name in a text is written with escapes."""
    return _ESCAPED_NAME.search(text) is None


def _deep(texts: Sequence[bytes]) -> set[int]:
    """Return the rows that may be nested deeper than is read."""
    return {
        row for row, text in enumerate(texts) if len(text) > DEEPEST and text.count(b"[") + text.count(b"{") > DEEPEST
    }


def _fields(text: str, names: Sequence[str]) -> list[Any]:
    """Return the fields of these names; None for those that are missing.

    Raises:
        ValueError: the text is no object, one of the fields is given twice, or is no Unicode text.
    """
    event = read_object(text)
    values = {name: _field(event, name, name) for name in dict.fromkeys([*names, *containers(names)])}
    return [_at_path(values, name) if values[name] is None else values[name] for name in names]


def _field(fields: Fields, name: str, path: str) -> Any:
    """Return a field of an object, None where it has none; messages name it by its path.

    Raises:
        ValueError: it is given twice, or is no Unicode text.
    """
    found = [value for own, value in fields if own == name]
    if len(found) > 1:
        message = f"{path}: is given twice"
        raise ValueError(message)
    value = found[0] if found else None
    if isinstance(value, str):
        _check_unicode(path, value)
    return value


def _at_path(values: Mapping[str, Any], name: str) -> Any:
    """Return what lies at the path of a name inside of outermost objects.

    Raises:
        ValueError: something on the way is no object, or as `_field`.
    """
    outermost, *steps = path_of(name)
    if not steps:
        return None
    value, path = values[outermost], outermost
    for step in steps:
        if value is None:
            return None
        if not isinstance(value, Fields):
            message = f"{path}: is {'a list' if isinstance(value, list) else 'one value'}, and must be an object"
            raise ValueError(message)
        path = f"{path}.{step}"
        value = _field(value, step, path)
    return value


def _check_unicode(name: str, value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        message = f"{name}: holds {value[error.start]!a}, which is half of a character"
        raise ValueError(message) from None


def _as_text(name: str, values: _Column, textual: bool, reasons: list[str | None]) -> pa.StringArray:
    """Return the values of a field as text; where one cannot be, `reasons` gets why.

    `textual` says that the field holds text, so that true and false are no values of it.
    """
    kinds = set(map(type, values))
    if kinds <= {str, type(None)}:
        return pa.array(values, pa.string())
    if kinds <= {int, type(None)}:
        try:
            return pc.cast(pa.array(values, pa.int64()), pa.string())
        except (OverflowError, pa.ArrowInvalid):
            pass
    texts: list[str | None] = []
    for row, value in enumerate(values):
        fault = None
        if isinstance(value, bool):
            texts.append("true" if value else "false")
            fault = f"is {texts[-1]}, and must be text" if textual else None
        elif value is None or isinstance(value, str | int):
            texts.append(None if value is None else str(value))
        else:
            texts.append(None)
            fault = (
                "is a list, and must be one value" if isinstance(value, list) else "is an object, and must be one value"
            )
        if fault and reasons[row] is None:
            reasons[row] = f"{name}: {fault}"
    return pa.array(texts, pa.string())
