"""Reads events written as JSON, one object per text, into columns of text that keep the digits of each number.

msgspec decodes most texts. `read_object` finds the reason for those that it refuses, and also checks for faults that it
would accept: a repeated field, and unlimited nesting.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from operator import attrgetter
from typing import Any, NoReturn

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.events.arrivals import BROKEN, RAW, field_column, with_declared
from buckets.events.clock_times import Faults
from buckets.events.conversion import A_LIST, FEW, NO_LIST, of_rows
from buckets.events.csv_events import BYTE_ORDER_MARK
from buckets.events.field_paths import Path, Step, array_path, containers, path_of, prefixes, walk
from buckets.events.schema import EventSchema
from buckets.expressions.expression import ELEMENTS, is_array
from buckets.json_text import write_json
from buckets.list_columns import list_of

DEEPEST = 500  # Levels of nesting that are read; the parsers' own limits are higher, and depend on the caller's stack
_QUOTED_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)
_STEP = {"[": 1, "{": 1, "]": -1, "}": -1}


class Fields(tuple[tuple[str, Any], ...]):
    """The fields of an object with their values as written, including repeated fields."""

    __slots__ = ()


def _refuse(constant: str) -> NoReturn:
    message = f"broken JSON: {constant} is not a number in JSON"
    raise ValueError(message)


_DECODER = json.JSONDecoder(
    parse_int=lambda text: "0" if text == "-0" else text,
    parse_float=str,
    parse_constant=_refuse,
    object_pairs_hook=Fields,
)


def read_object(text: str) -> Fields:
    """Read a text that is exactly one object, as `read_value` does; ValueError gives the fault."""
    value = read_value(text)
    if not isinstance(value, Fields):
        kind = "null" if value is None else "a list" if isinstance(value, list) else "one value"
        message = f"is {kind}, and must be an object"
        raise ValueError(message)
    return value


def read_value(text: str) -> Any:
    """Read a text that is exactly one value, after an optional byte order mark; ValueError gives the fault.

    Numbers become text, exactly as written (the integer -0 as 0); objects become `Fields`.
    """
    text = text.removeprefix(BYTE_ORDER_MARK)
    if text.count("[") + text.count("{") > DEEPEST and _is_deep(text):
        message = f"broken JSON: nested deeper than {DEEPEST} levels"
        raise ValueError(message)
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        fault = "there is more after the first value," if error.msg == "Extra data" else error.msg
        message = f"broken JSON: {fault} at character {error.pos + 1}"
        raise ValueError(message) from None


def _is_deep(text: str) -> bool:
    depth = 0
    for bracket in _QUOTED_OR_BRACKET.finditer(text):
        depth += _STEP.get(bracket[0], 0)
        if depth > DEEPEST:
            return True
    return False


_ESCAPED_NAME = re.compile(rb'\\[^"\\]*"[ \t\r\n]*:')
"""Finds each name that is written with escapes, unless it holds a quote; and some texts that are no names.

It looks at most from one backslash to the next, so that a long text full of them is scanned only once.
"""
_NOTHING = b"{}"
_Column = list[Any]


@cache
def decoder_of(names: tuple[str, ...], kind: type = object) -> msgspec.json.Decoder[Any]:
    """Return a decoder of these fields, in this order; a missing one is None, or an empty value."""
    columns = [field_column(index) for index in range(len(names))]
    fields = [(column, kind, None if kind is object else kind()) for column in columns]
    event = msgspec.defstruct("Event", fields, rename=dict(zip(columns, names, strict=True)), gc=False)
    return msgspec.json.Decoder(event, float_hook=str)


def read_events(rows: pa.RecordBatch, schema: EventSchema) -> pa.RecordBatch:
    """Read `raw` (text) into the declared fields, as columns of text or of lists of text.

    `broken` holds faults found before, and afterwards also the fault of each text that is not an event.
    """
    reasons: list[str | None] = rows.column(BROKEN).to_pylist()
    texts: list[bytes] = pc.cast(rows.column(RAW), pa.binary()).to_pylist()
    if rows.column(BROKEN).null_count < rows.num_rows:
        texts = [_NOTHING if reason else text for text, reason in zip(texts, reasons, strict=True)]
    columns, doubtful = _decoded(texts, schema.field_names)
    for row in sorted(doubtful):
        try:
            values = fields_of(texts[row].decode(), schema.field_names, schema.newer_names)
        except ValueError as error:
            reasons[row], values = str(error), [None] * len(columns)
        for column, value in zip(columns, values, strict=True):
            column[row] = value
    named, fields = dict(zip(schema.field_names, columns, strict=True)), dict[str, pa.Array]()
    for name, column in named.items():
        as_column = _as_lists if name in schema.arrays else _as_text
        fields[name], faults = as_column(column, schema.holds_text(name))
        newer = [named[each] for each in schema.newer_names(name)] if faults else []
        for row, fault in faults.items():
            if all(values[row] is None for values in newer):
                reasons[row] = reasons[row] or f"{name}: {fault}"
    return with_declared(rows, fields, schema, reasons)


def _decoded(texts: Sequence[bytes], names: Sequence[str]) -> tuple[list[_Column], set[int]]:
    """Return the values of each field, and the rows that need a closer look."""
    read = [*names, *containers(names)]
    decode = decoder_of(tuple(read)).decode
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
    found = list(columns.items())
    # Fields of one element of a list are counted with the arrays of that list, if any.
    has_arrays = any(map(is_array, names))
    for path, column in inside.items():
        if isinstance(path[-1], str) and not (has_arrays and any(isinstance(step, int) for step in path)):
            found.append((path[-1], column))
    arrays, counts = dict[str, _Column](), list[tuple[str, list[int]]]()
    if has_arrays:
        arrays, counts, of_arrays = _in_lists(columns, inside, names)
        odd |= of_arrays
    doubtful |= odd | _repeating(texts, found, counts)
    for row, text in enumerate(texts):
        if len(text) > DEEPEST and text.count(b"[") + text.count(b"{") > DEEPEST:
            doubtful.add(row)
    found_at_paths = ((columns[name], arrays.get(name, inside.get(path_of(name)))) for name in names)
    return [
        column
        if other is None
        else [at_path if own is None else own for own, at_path in zip(column, other, strict=True)]
        for column, other in found_at_paths
    ], doubtful


def _inside(columns: Mapping[str, _Column], names: Sequence[str]) -> tuple[dict[Path, _Column], set[int]]:
    """Return the values at each path inside the outermost objects, and the rows with another type on the way."""
    found: dict[Path, _Column] = {}
    odd = set[int]()
    for path in prefixes(names):
        outermost, *steps = path
        if steps:
            outer = columns[str(outermost)]
            column: _Column = [None] * len(outer)
            for row, value in enumerate(outer):
                try:
                    column[row] = walk(value, steps)
                except TypeError:
                    odd.add(row)
            found[path] = column
    return found, odd


def _in_lists(
    columns: Mapping[str, _Column], inside: Mapping[Path, _Column], names: Sequence[str]
) -> tuple[dict[str, _Column], list[tuple[str, list[int]]], set[int]]:
    """Return the elements of arrays, how often each row has names in them, and the rows with another type there."""
    found: dict[str, _Column] = {}
    counts: dict[tuple[str, Path], list[int]] = {}
    odd = set[int]()
    for name, array in ((name, array_path(name)) for name in names):
        if array is None:
            continue
        path = path_of(array.outer)
        lists = inside[path] if len(path) > 1 else columns[array.outer]
        ways = [array.steps[: length + 1] for length in range(len(array.steps))] or [()]
        for way in ways:
            column, of_way = _elements(lists, way)
            odd |= of_way
            if way:
                counts[array.outer, way] = [
                    0 if values is None else len(values) - values.count(None) for values in column
                ]
        found[name] = column
    named = [(way[-1], of_rows) for (_, way), of_rows in counts.items()]
    return found, [(name, of_rows) for name, of_rows in named if isinstance(name, str)], odd


def _elements(lists: _Column, way: Path) -> tuple[_Column, set[int]]:
    """Return the values at a path in each list element, and the rows where a list or an element has another type."""
    column: _Column = [None] * len(lists)
    odd = set[int]()
    for row, elements in enumerate(lists):
        if isinstance(elements, list):
            try:
                column[row] = _at_way(elements, way)
            except (AttributeError, TypeError):
                odd.add(row)
        elif elements is not None:
            odd.add(row)
    return column, odd


def _at_way(elements: list[Any], way: Path) -> list[Any]:
    """Return the values at a path in elements; raises AttributeError or TypeError if one is not an object."""
    if not way:
        return elements
    if len(way) == 1:  # much faster than a walk
        return [None if element is None else element.get(way[0]) for element in elements]
    return [walk(element, way) for element in elements]


def _repeating(
    texts: Sequence[bytes], found: Sequence[tuple[str, _Column]], counts: Sequence[tuple[str, list[int]]]
) -> set[int]:
    """Return the rows in which a field may be repeated; msgspec would take the last value.

    A row with a value contains the field's name at least once, unless the name is written with escapes. So if all texts
    together contain a name no more often than rows without escaped names have values of it, none of these repeats it,
    and one search per name proves that. `found` has names with the values of a field of each, `counts` names inside
    lists with the number of values in each row.
    """
    together = b"\n".join(texts)
    quoted = {name: _quoted(name) for name, _ in (*found, *counts)}
    escaped = set[int]()
    if b"\\" in together:
        plain = all(written == f'"{name}"'.encode() for name, written in quoted.items())
        escaped = {row for row, text in enumerate(texts) if b"\\" in text and not (plain and has_plain_names(text))}
    rows, values = set(escaped), Counter[str]()
    for name, column in found:
        values[name] += len(column) - column.count(None) - sum(column[row] is not None for row in escaped)
    for name, of_row in counts:
        values[name] += sum(of_row) - sum(of_row[row] for row in escaped)
    for name, written in quoted.items():
        if together.count(written) > values[name]:
            rows |= {row for row, text in enumerate(texts) if text.count(written) > 1}
    return rows


@lru_cache(maxsize=1_024)
def _quoted(name: str) -> bytes:
    return write_json(name).encode()


def has_plain_names(text: bytes) -> bool:
    """Return whether all names in a text are written without escapes."""
    return _ESCAPED_NAME.search(text) is None


def fields_of(text: str, names: Sequence[str], newer: Callable[[str], Iterable[str]] = lambda name: ()) -> list[Any]:
    """Return the named fields, None if missing; ValueError if the text is not an object, or repeats a field.

    `newer` lists for a name the ones that take precedence: if one of them has a value, the name is not read.
    """
    event = read_object(text)
    values = {name: field_of(event, name, name) for name in dict.fromkeys([*names, *containers(names)])}
    found: dict[str, Any] = {}
    for name in names:
        has_newer = any(found[each] is not None for each in newer(name))
        found[name] = None if has_newer else _named(values, name)
    return [found[name] for name in names]


def _named(values: Mapping[str, Any], name: str) -> Any:
    """Return the field of a name, or the value at its path; raises as `_inwards`."""
    array, value = array_path(name), values[name]
    steps: Path = ()
    if array is None:
        return _at_path(values, name) if value is None else value
    if value is None:
        value, name, steps = _at_path(values, array.outer), f"{array.outer}{ELEMENTS}", array.steps
        if value is not None and not isinstance(value, list):
            message = f"{array.outer}: {'is an object, and must be a list' if isinstance(value, Fields) else NO_LIST}"
            raise ValueError(message)
    if not isinstance(value, list):
        return value
    return [_within(element, name, steps, number) for number, element in enumerate(value, 1)]


def _within(element: Any, name: str, steps: Path, number: int) -> Any:
    """Return the value at a path inside a list element, whose number appears in messages; raises as `_inwards`."""
    try:
        if isinstance(element, str) and not steps:
            _check_unicode(name, element)
        return _inwards(element, name, steps)
    except ValueError as error:
        path, _, reason = str(error).partition(": ")
        message = f"{path}: element {number:,}: {reason}"
        raise ValueError(message) from None


def field_of(fields: Fields, name: str, path: str) -> Any:
    """Return a field of an object, None if missing; messages name it by its path."""
    found = [value for own, value in fields if own == name]
    if len(found) > 1:
        message = f"{path}: is given twice"
        raise ValueError(message)
    value = found[0] if found else None
    if isinstance(value, str):
        _check_unicode(path, value)
    return value


def _at_path(values: Mapping[str, Any], name: str) -> Any:
    outermost, *steps = path_of(name)
    return _inwards(values[str(outermost)], str(outermost), steps)


def _inwards(value: Any, path: str, steps: Sequence[Step]) -> Any:
    """Return the value at a path inside a value, whose own path is `path`; ValueError if a step has another type."""
    for step in steps:
        if value is None:
            return None
        if isinstance(step, int):
            if not isinstance(value, list):
                message = f"{path}: {'is an object, and must be a list' if isinstance(value, Fields) else NO_LIST}"
                raise ValueError(message)
            path, value = f"{path}[{step}]", value[step] if step < len(value) else None
            if isinstance(value, str):
                _check_unicode(path, value)
            continue
        if not isinstance(value, Fields):
            message = f"{path}: is {'a list' if isinstance(value, list) else 'one value'}, and must be an object"
            raise ValueError(f"{message}; {path}[0] is its first element" if isinstance(value, list) else message)
        path = f"{path}.{step}"
        value = field_of(value, step, path)
    return value


def _check_unicode(name: str, value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        message = f"{name}: holds {value[error.start]!a}, which is half of a character"
        raise ValueError(message) from None


def _as_lists(values: _Column, textual: bool) -> tuple[pa.ListArray, Faults]:
    """Return the values of an array as lists of text, converted as by `_as_text`."""
    faults: Faults = {}
    lists: list[list[Any] | None] = []
    for row, value in enumerate(values):
        is_list = isinstance(value, list)
        lists.append(value if is_list else None)
        if value is not None and not is_list:
            faults[row] = "is an object, and must be a list" if isinstance(value, dict | Fields) else NO_LIST
    texts, of_elements = _as_text([element for elements in lists for element in elements or ()], textual)
    lengths = np.array([0 if elements is None else len(elements) for elements in lists], np.int64)
    column = list_of(texts, lengths, np.array([elements is not None for elements in lists], np.bool_))
    return column, of_rows(of_elements, lengths) | faults


def _as_text(values: _Column, textual: bool) -> tuple[pa.StringArray, Faults]:
    """Return the values of a field as text, with the fault of each that cannot be converted.

    `textual` says that the field holds text, so that true and false are faults.
    """
    kinds = set(map(type, values))
    if kinds <= {str, type(None)}:
        return pa.array(values, pa.string()), {}
    if kinds <= {int, type(None)} and len(values) > FEW:
        try:
            return pc.cast(pa.array(values, pa.int64()), pa.string()), {}
        except (OverflowError, pa.ArrowInvalid):
            pass
    faults: Faults = {}
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
            fault = A_LIST if isinstance(value, list) else "is an object, and must be one value"
        if fault:
            faults[row] = fault
    return pa.array(texts, pa.string()), faults
