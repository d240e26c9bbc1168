"""How a file of JSON is laid out, where it is not one object a line, and what to write for it."""

import contextlib
import json
from collections.abc import Iterable
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

_LOOKED_AT = 16 * 2**20
"""Bytes of a file in which the end of its first value is looked for."""


def check_layout(path: Path, lines: Iterable[bytes], schema: EventSchema) -> None:
    """See that a file has one object a line; other first lines than the first may be broken.

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
            raise _other(path, "one JSON array", value)
        if isinstance(value, Fields) and not _has_event(value, schema) and _records(value):
            raise _other(path, "an object with a list of objects", value)
        return
    begin = first[0].strip()
    if begin.startswith((b"[", b"{")):
        value = _first_value(path)
        if value is not None or begin in (b"[", b"{"):
            is_list = begin.startswith(b"[")
            raise _other(path, "a JSON array over many lines" if is_list else "JSON objects over many lines", value)


def _other(path: Path, layout: str, value: Any) -> BucketsError:
    records = ELEMENTS if isinstance(value, list) or "array" in layout else _records(value)
    wanted = f", or `records: {json.dumps(records)}` into the event schema" if records else ""
    return BucketsError(f"events {path}: has {layout}; write one object a line{wanted}")


def _first_value(path: Path) -> Any:
    """Return the first value of a file, which ends in another line than the first; None where that is not known."""
    with open_text(path) as file:
        text = file.read(_LOOKED_AT).decode(errors="replace").removeprefix(BYTE_ORDER_MARK).lstrip()
    with contextlib.suppress(ValueError, RecursionError):
        return json.JSONDecoder(object_pairs_hook=Fields).raw_decode(text)[0]
    return None


def _records(value: Any) -> str | None:
    """Return the path of the only list of an object, if there are objects in it."""
    if not isinstance(value, Fields):
        return None
    lists = [name for name, inside in value if isinstance(inside, list)]
    found = dict(value).get(lists[0]) if len(lists) == 1 else None
    return f"{short_line(lists[0])}{ELEMENTS}" if found and all(isinstance(one, Fields) for one in found) else None


def _has_event(value: Fields, schema: EventSchema) -> bool:
    """Return whether an object has the id or the time of an event, or something in which it may lie."""
    there = {name for name, _ in value}
    names = (schema.event_id, schema.event_time.field)
    return any(name in there or name.split(".")[0].partition("[")[0] in there for name in names)
