"""How a file of JSON is laid out, where it is not one object a line, and what to write for it."""

import contextlib
import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from buckets.errors import BucketsError
from buckets.events.json_object import Fields, read_value
from buckets.events.schema import EventSchema
from buckets.events.text_file import open_text
from buckets.events.text_lines import BYTE_ORDER_MARK
from buckets.expressions.expression import ELEMENTS
from buckets.printable import short_line

_DEEPEST = 5
_LOOKED_AT = 16 * 2**20
"""Bytes of a file in which the end of its first value is looked for."""


def check_layout(path: Path, lines: Iterable[bytes], schema: EventSchema) -> None:
    """See that a file has one object a line; single lines that have none become dead letters when they are read.

    Args:
        path: the file.
        lines: of the file, without blank ones.
        schema: the event schema.

    Raises:
        BucketsError: it is one array, one object over many lines, or one with a list of events; says what to do.
    """
    first = list(islice(lines, 2))
    with contextlib.suppress(ValueError):
        value = read_value(first[0].decode())
        if isinstance(value, list) and len(first) == 1:
            raise _other(path, "one JSON array", ELEMENTS)
        records = _records(value, schema) if len(first) == 1 else None
        if records is not None:
            raise _other(path, "an object with a list of objects", records)
        return
    begin = first[0].strip()
    if not begin.startswith((b"[", b"{")):
        return
    value = _first_value(path)
    if value is None and begin not in (b"[", b"{"):
        return
    if begin.startswith(b"["):
        raise _other(path, "a JSON array over many lines", ELEMENTS)
    raise _other(path, "JSON objects over many lines", _records(value, schema))


def _other(path: Path, layout: str, records: str | None) -> BucketsError:
    wanted = f", or `records: {json.dumps(records)}` into the event schema" if records else ""
    return BucketsError(f"events {path}: has {layout}; write one object a line{wanted}")


def _first_value(path: Path) -> Any:
    """Return the first value of a file, which ends in another line than the first; None where that is not known."""
    with open_text(path) as file:
        text = file.read(_LOOKED_AT).decode(errors="replace").removeprefix(BYTE_ORDER_MARK).lstrip()
    with contextlib.suppress(ValueError, RecursionError):
        return json.JSONDecoder(object_pairs_hook=Fields).raw_decode(text)[0]
    return None


def _records(value: Any, schema: EventSchema) -> str | None:
    """Return the path of the only list of objects in an object that is no event itself, as `records` has it."""
    if not isinstance(value, Fields) or _has_event(value, schema):
        return None
    found = list(_lists(value, ()))
    names = found[0] if len(found) == 1 else ()
    if not names or not all(names) or any(set(".[") & set(name) for name in names):
        return None
    return short_line(f"{'.'.join(names)}{ELEMENTS}")


def _lists(value: Fields, outer: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the names on the way to each list of objects that is not too deep inside."""
    for name, inside in value:
        way = (*outer, name)
        if isinstance(inside, list) and inside and all(isinstance(element, Fields) for element in inside):
            yield way
        elif isinstance(inside, Fields) and len(way) < _DEEPEST:
            yield from _lists(inside, way)


def _has_event(value: Fields, schema: EventSchema) -> bool:
    """Return whether an object has the id or the time of an event, or something in which it may lie."""
    there = {name for name, _ in value}
    names = (schema.event_id, schema.event_time.field)
    return any(name in there or name.split(".")[0].partition("[")[0] in there for name in names)
