"""Reads changes of database rows as Debezium writes them: the row after the change is the event.

Rows created (`c`), read by a snapshot (`r`) or updated (`u`) are events; deletes (`d`), truncated tables (`t`),
messages in the log (`m`) and tombstones are skipped. JSON may wrap the change in `schema` and `payload`.

Source: https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-events
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import yaml

from buckets.errors import BucketsError
from buckets.events.arrivals import (
    BROKEN,
    DELETED,
    LOGGED,
    RAW,
    TOMBSTONE,
    TRUNCATED,
    declared_fields,
    field_column,
    replaced,
    with_declared,
)
from buckets.events.connect_schema import ConnectValues
from buckets.events.json_events import read_events, read_object
from buckets.events.json_records import kind_of, members
from buckets.events.message_fields import part_of_schema, value_schema
from buckets.events.schema import OF_ENVELOPE, AttributeType, EventSchema
from buckets.expressions.expression import ELEMENTS, is_array
from buckets.printable import short_line
from buckets.validation import did_you_mean


@dataclass(frozen=True)
class ImportedField:
    """A field of messages, and its possible role in an event schema: attribute, measure, or neither."""

    name: str  # of the field; the name of an array is the path into its list
    attribute: AttributeType | None = None  # its type as an attribute, or that of an array's elements; None for none
    scale: int | None = None  # the digits of a measure; None for none
    reason: str = ""  # why it is neither, as text
    unit: Literal["ms", "iso8601"] = "ms"  # its unit as an event time
    is_single: bool = True  # whether it is a single value, as an event's id and time must be


def in_list(name: str, fields: Iterable[ImportedField]) -> Iterator[ImportedField]:
    """Yield array fields for the elements of a list: one without a name for plain elements, else one per field."""
    for field in fields:
        called = f"{name}{ELEMENTS}" + (f".{field.name}" if field.name else "")
        if is_array(field.name) or field.attribute is None:
            reason = "is a list in a list" if is_array(field.name) else field.reason or "is an amount"
            # The requirements of a measure do not help here.
            reason = reason.partition(";")[0]
            yield ImportedField(called, reason=reason, is_single=False)
        else:
            yield ImportedField(called, field.attribute, is_single=False)


def event_schema_text(fields: Sequence[ImportedField], name: str, event_id: str, event_time: str) -> str:
    """Return an event schema in YAML, with a comment for each field that it cannot hold."""
    known = {field.name: field for field in fields}
    for option, chosen in (("--id", event_id), ("--time", event_time)):
        if chosen not in known:
            hint = "; for changes as Debezium writes them say --envelope debezium" if f"after.{chosen}" in known else ""
            near = hint or did_you_mean(chosen, known)
            message = f"{option}: {name} has no field {chosen}{near}; fields: {', '.join(known)}"
            raise BucketsError(message)
        if not known[chosen].is_single:
            what = "lies in a list" if is_array(chosen) else known[chosen].reason
            message = f"{option}: {chosen} {what}, and must be one value"
            raise BucketsError(message)
    if event_id == event_time:
        message = f"--id and --time are both {event_id}; name two fields"
        raise BucketsError(message)
    others = [field for field in fields if field.name not in (event_id, event_time)]
    typed = {field.name: field.attribute for field in others if field.attribute is not None}
    declared: dict[str, Any] = {
        "name": name,
        "version": 1,
        "event_id": event_id,
        "event_time": {"field": event_time, "unit": known[event_time].unit},
        "attributes": {name: kind for name, kind in typed.items() if not is_array(name)},
        "measures": {field.name: {"scale": field.scale} for field in others if field.scale is not None},
        "arrays": {name: kind for name, kind in typed.items() if is_array(name)},
    }
    if not declared["arrays"]:
        del declared["arrays"]
    text = yaml.safe_dump(declared, sort_keys=False, allow_unicode=True)
    return text + "".join(f"# {field.name}: {field.reason}\n" for field in others if field.reason)


ReadFields = Callable[[pa.RecordBatch, EventSchema], pa.RecordBatch]
"""Reads the values of messages, or keys, into the fields of an event schema."""
_EVENTS = frozenset("cru")
_SKIPPED = {"d": DELETED, "t": TRUNCATED, "m": LOGGED}
_PLAIN = frozenset(f'"{operation}"'.encode() for operation in _EVENTS)
AFTER = "after."  # What stands before the path to a field of the event
_BEFORE = "before."
_OP = "op"
_WRAPPED = ("payload", "schema", _OP, "after")
_INNER = _WRAPPED[2:]
_QUOTED = tuple(f'"{name}"'.encode() for name in _INNER)


def fields_of_rows(fields: Iterable[ImportedField]) -> list[ImportedField]:
    """Return the fields of rows, as a job sees them, from those of change messages; empty if these have no row."""
    return [replace(field, name=field.name.removeprefix(AFTER)) for field in fields if field.name.startswith(AFTER)]


def fields_beside_rows(fields: Iterable[ImportedField]) -> list[ImportedField]:
    """Return what change messages hold besides the row and its old version; such a field needs an origin."""
    reason = "lies beside the row; name it in `origins` for a field to have it"
    others = [field.name for field in fields if not field.name.startswith((AFTER, _BEFORE))]
    return [ImportedField(f"{OF_ENVELOPE}{name}", reason=reason) for name in others]


class _Opened(NamedTuple):
    """An opened envelope: why it holds no event, if so, the JSON of the row's fields, and its own JSON."""

    reason: str | None = None
    fields: bytes = b"{}"
    envelope: bytes = b"{}"


def _paths_in_envelope(schema: EventSchema) -> dict[str, str]:
    """Return the paths of fields in the envelope, by field."""
    return {
        name: origin.removeprefix(OF_ENVELOPE)
        for name, origin in schema.origins.items()
        if origin.startswith(OF_ENVELOPE)
    }


def read_json_changes(
    texts: pa.RecordBatch, is_null: np.ndarray, schema: EventSchema, digits: bool = False
) -> pa.RecordBatch:
    """Read changes in JSON; for `digits` see `ConnectValues`."""
    fields, paths = value_schema(schema), _paths_in_envelope(schema)
    of_row = ConnectValues((AFTER[:-1],), {name: name for name in fields.field_names}, schema, digits)
    of_envelope = ConnectValues((), paths, schema, digits)
    written = zip(texts.column(RAW).to_pylist(), texts.column(BROKEN).to_pylist(), is_null.tolist(), strict=True)
    opened = [
        _Opened(TOMBSTONE if is_tombstone else reason)
        if is_tombstone or reason
        else _open(text.encode(), of_row, of_envelope)
        for text, reason, is_tombstone in written
    ]
    reasons = pa.array([one.reason for one in opened], pa.string())
    rows = read_events(_with_text(texts, [one.fields for one in opened], reasons), fields)
    if paths:
        part = part_of_schema(schema, paths)
        read = read_events(_with_text(texts, [one.envelope for one in opened], rows.column(BROKEN)), part)
        for index, path in enumerate(part.field_names):
            rows = rows.append_column(f"{OF_ENVELOPE}{path}", read.column(field_column(index)))
        rows = replaced(rows, BROKEN, read.column(BROKEN))
    return replaced(rows, RAW, texts.column(RAW))


def _with_text(texts: pa.RecordBatch, written: Sequence[bytes], reasons: pa.StringArray) -> pa.RecordBatch:
    rows = replaced(texts, RAW, pa.array(written, pa.binary()).cast(pa.string()))
    return replaced(rows, BROKEN, reasons)


def _open(text: bytes, of_row: ConnectValues, of_envelope: ConnectValues) -> _Opened:
    try:
        # Most have no schema around them, or one that names these fields too, so search for them at once.
        payload, connect, op, after = members(text, _WRAPPED, once=_WRAPPED[:1])
        inner = text if payload is None else payload
        if payload is not None or any(text.count(quoted) > 1 for quoted in _QUOTED) or b"\\" in text:
            op, after = members(inner, _INNER)
    except ValueError as error:
        return _Opened(str(error))
    if op is None:  # Some converters write a tombstone as `schema` and `payload` with nothing in them.
        is_empty = payload is None and b'"payload"' in text
        is_tombstone = is_empty and dict(read_object(text.decode())) == {"schema": None, "payload": None}
        return _Opened(TOMBSTONE if is_tombstone else _reason_of(None))
    reason = None if op in _PLAIN else _reason_of(_text_of(op))
    if reason is not None:
        return _Opened(reason)
    if after is None:
        return _Opened("after: is missing or null")
    if not after.startswith(b"{"):
        return _Opened(f"after: is {kind_of(after)}, and must be an object")
    connect = None if payload is None else connect
    try:
        return _Opened(None, of_row.written(after, connect), of_envelope.written(inner, connect))
    except ValueError as error:
        return _Opened(str(error))


def _text_of(op: bytes) -> str:
    operation = json.loads(op)
    return operation if isinstance(operation, str) else op.decode()


def _reason_of(operation: str | None) -> str | None:
    if operation is None:
        return "op: is missing or null, and Debezium says there what has changed"
    if operation in _EVENTS:
        return None
    return _SKIPPED.get(operation, f"op: {short_line(repr(operation))} is not an operation of Debezium")


def read_changes(rows: pa.RecordBatch, schema: EventSchema, read: ReadFields) -> pa.RecordBatch:
    """Read changes whose values are records, which `read` decodes; `raw` is null in tombstones."""
    fields = value_schema(schema)
    inside = {name: f"{AFTER}{name}" for name in fields.field_names}
    paths = _paths_in_envelope(schema)
    wanted = part_of_schema(schema, inside | paths, {_OP})
    is_tombstone = rows.column(RAW).is_null().to_numpy(zero_copy_only=False)
    read_rows = read(rows, wanted)
    columns = declared_fields(read_rows, wanted)
    operations, broken = columns[_OP].cast(pa.string()).to_pylist(), read_rows.column(BROKEN).to_pylist()
    reasons = [
        TOMBSTONE
        if is_null
        else _SKIPPED.get(operation) or (reason.removeprefix(AFTER) if reason else _reason_of(operation))
        for reason, operation, is_null in zip(broken, operations, is_tombstone.tolist(), strict=True)
    ]
    rows = with_declared(read_rows, {name: columns[path] for name, path in inside.items()}, fields, reasons)
    for path in dict.fromkeys(paths.values()):
        rows = rows.append_column(f"{OF_ENVELOPE}{path}", columns[path])
    return rows
