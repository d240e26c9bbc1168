"""Reads JSON files that hold a list of events in one value: `{"Records": […]}`, or one array.

Such a file is read whole and cut into the texts of its records, which are then read like lines. So each keeps its
digits as written, and its number in the list is its position.
"""

import json
from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from buckets.events.arrivals import BROKEN, POSITION, RAW, SOURCE, SOURCE_ORDER, replaced
from buckets.events.bad_rows import bad_source
from buckets.events.csv_events import BYTE_ORDER_MARK, as_text
from buckets.events.field_paths import Path, name_of, path_of
from buckets.events.json_events import DEEPEST, Fields, decoder_of, field_of, has_plain_names, read_events, read_object
from buckets.events.parquet_rows import MOST_ROWS, with_folder_values
from buckets.events.schema import EventSchema
from buckets.events.source_files import open_text
from buckets.expressions.expression import ELEMENTS
from buckets.printable import short_line

_NOTHING = (b"", b"null")


def members(text: bytes, names: tuple[str, ...], once: tuple[str, ...] | None = None) -> list[bytes | None]:
    """Return the JSON of members of an object, None if missing or null; ValueError if it is not an object.

    ValueError also if a member of `once` (None: any member) is repeated; for others the last may be returned.
    """
    is_nowhere_twice = all(text.count(f'"{name}"'.encode()) <= 1 for name in (names if once is None else once))
    is_shallow = text.count(b"[") + text.count(b"{") <= DEEPEST
    if is_nowhere_twice and is_shallow and (b"\\" not in text or has_plain_names(text)):
        try:
            found = msgspec.structs.astuple(decoder_of(names, msgspec.Raw).decode(text))
        except (ValueError, RecursionError):
            pass
        else:
            return [None if member in _NOTHING else member for member in map(bytes, found)]
    event = read_object(text.decode())
    return [_member(event, name, once is None or name in once) for name in names]


def _member(event: Fields, name: str, is_once: bool) -> bytes | None:
    found = [value for own, value in event if own == name]
    if len(found) > 1 and is_once:
        message = f"{name}: is given twice"
        raise ValueError(message)
    return None if not found or found[-1] is None else json_text(found[-1]).encode()


def json_text(value: Any) -> str:
    """Write a value returned by `read_object`; its numbers are text, and stay so."""
    if isinstance(value, Fields):
        return "{" + ",".join(f"{json.dumps(name)}:{json_text(member)}" for name, member in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(json_text, value)) + "]"
    return json.dumps(value)


def kind_of(member: bytes) -> str:
    """Return whether a member is an object, a list, or a single value."""
    return {b"{": "an object", b"[": "a list"}.get(member[:1], "one value")


MOST_BYTES = 256 * 2**20  # How large such a file may be, uncompressed
_MOST_NAMES = 10
_MARK = BYTE_ORDER_MARK.encode()
_RECORDS = msgspec.json.Decoder(list[msgspec.Raw])
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def split_records(content: bytes, records: str) -> list[bytes]:
    """Return the texts of the records of a file.

    `records` is the path of its list, as in event schemas: `[]`, `Records[]`, `a.b[]`, `a[0].b[]`.
    """
    content = content.removeprefix(_MARK)
    found: msgspec.Raw | bytes = content
    steps: Path = () if records == ELEMENTS else path_of(records.removesuffix(ELEMENTS))
    for number, step in enumerate(steps):
        outer = name_of(steps[:number])
        found = _element(found, step, outer) if isinstance(step, int) else _member_at(found, step, outer)
    outer = name_of(steps)
    lists = _decoded(_RECORDS, found, outer, "a list")
    _check_once(content, found, steps)
    return list(map(bytes, lists))


def _member_at(text: msgspec.Raw | bytes, name: str, outer: str) -> msgspec.Raw:
    """Return the member of an object at a path, as a view of its text."""
    kind = msgspec.defstruct("Around", [("inside", msgspec.Raw, msgspec.Raw())], rename={"inside": name})
    found: msgspec.Raw = _decoded(msgspec.json.Decoder(kind), text, outer, "an object").inside
    if not bytes(memoryview(found)[:1]):
        names = list(_MEMBERS.decode(text))
        there = ", ".join(map(short_line, names[:_MOST_NAMES])) or "nothing"
        more = ", …" if len(names) > _MOST_NAMES else ""
        message = f"{outer or 'the object'} has no {name!r}; there is {there}{more}"
        raise ValueError(message)
    return found


def _element(text: msgspec.Raw | bytes, index: int, outer: str) -> msgspec.Raw:
    """Return an element of the list at a path, as a view of its text."""
    elements: list[msgspec.Raw] = _decoded(_RECORDS, text, outer, "a list")
    if index >= len(elements):
        message = f"{outer} has no [{index}]; it is a list of {len(elements)}"
        raise ValueError(message)
    return elements[index]


def _decoded(decoder: msgspec.json.Decoder[Any], text: msgspec.Raw | bytes, outer: str, wanted: str) -> Any:
    try:
        return decoder.decode(text)
    except msgspec.ValidationError:
        found = bytes(memoryview(text)[:1000]).lstrip()
        message = f"{outer or 'the file'} is {'null' if found == b'null' else kind_of(found)}, and must be {wanted}"
    except RecursionError:
        message = "broken JSON: nested too deep"
    except ValueError as error:
        message = f"broken JSON: {str(error).removeprefix('JSON is malformed: ')}"
    raise ValueError(message)


def _check_once(content: bytes, records: msgspec.Raw | bytes, steps: Path) -> None:
    """Refuse a repeated name on the path to the list, of which msgspec takes the last."""
    if not steps:
        return
    start = pa.py_buffer(records).address - pa.py_buffer(content).address
    around = content[:start] + b"null" + content[start + len(memoryview(records)) :]
    try:
        value: Any = read_object(around.decode())
    except UnicodeDecodeError:
        message = "is not valid UTF-8 around its list"
        raise ValueError(message) from None
    for step in steps:
        value = value[step] if isinstance(step, int) else field_of(value, step, step)


def read_records(path: FilePath, records: str) -> tuple[list[bytes], str | None]:
    """Read the records of a file as texts; if the whole file is broken, return its text and the fault."""
    with open_text(path) as file:
        content = file.read(MOST_BYTES + 1)
    if not content.strip():
        return [], None
    try:
        if len(content) > MOST_BYTES:
            message = (
                f"has more than {MOST_BYTES:,} bytes, the limit of a file that is read whole; write one object a line"
            )
            raise ValueError(message)
        return split_records(content, records), None
    except ValueError as error:
        return [content], str(error)


def check_records(path: FilePath, records: str) -> list[bytes]:
    """Return the records of a file as texts; refuse a file without any."""
    texts, reason = read_records(path, records)
    if reason is not None:
        raise bad_source(path, f"{reason}; the event schema has `records: {json.dumps(records)}`")
    if not texts:
        raise bad_source(path, "is empty")
    return texts


def record_arrivals(
    path: FilePath, order: int, schema: EventSchema, batch_rows: int = MOST_ROWS
) -> Iterator[pa.RecordBatch]:
    """Read the records of a file as arrivals, in pieces; a file that is broken as a whole is one arrival.

    `order` orders files, for example by modification time.
    """
    assert schema.records is not None
    texts, reason = read_records(path, schema.records)
    for start in range(0, len(texts), batch_rows):
        lines = _numbered(texts[start : start + batch_rows], start, path, order)
        if reason is not None:
            lines = replaced(lines, BROKEN, pa.array([reason]))
        yield with_folder_values(read_events(lines, schema), schema, schema.field_names)


def read_texts(texts: list[bytes], path: FilePath, schema: EventSchema) -> pa.RecordBatch:
    """Read records that are already in memory, the first ones of a file."""
    return with_folder_values(read_events(_numbered(texts, 0, path, 0), schema), schema, schema.field_names)


def _numbered(texts: list[bytes], before: int, path: FilePath, order: int) -> pa.RecordBatch:
    """Return the texts of records as lines, numbered as in the file."""
    raw = pa.array(texts, pa.binary())
    rows = {
        RAW: raw,
        SOURCE: pa.repeat(pa.scalar(str(path)), len(raw)),
        SOURCE_ORDER: pa.repeat(pa.scalar(order, pa.int64()), len(raw)),
        POSITION: pa.array(np.arange(before + 1, before + len(raw) + 1)),
    }
    return as_text(pa.record_batch(rows))
