"""Fields of a message that do not lie in its value: in its key, in its headers, or its time, which the broker knows.

A header is text in UTF-8, which becomes what the event schema says, as text in JSON does, and so is a key that is not
written in a format (`message_keys`). A header that is not there is null; of one that is given several times the last
counts, as in Kafka's own clients.
"""

from collections.abc import Collection, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.events.arrivals import BROKEN, INGESTED, field_column
from buckets.events.event_id import EventId
from buckets.events.moment_text import Faults
from buckets.events.schema import KEY, OF_ENVELOPE, OF_HEADERS, OF_KEY, EventSchema

HEADERS, STAMPED = "headers", "stamped"
"""Columns of rows beside `key`: headers as a list of key and value, and what the timestamp is, as Kafka numbers it."""
_STAMPS = {"create_time": 0, "log_append_time": 1}
_STAMPED_BY = {0: "was stamped when it was made, as create_time", 1: "was stamped by the broker, as log_append_time"}

_NO_ID = EventId.model_construct(field="")


class _PartOfSchema(EventSchema):
    """A part of an event schema: id and time are called nothing where they do not belong to it."""

    @property
    def field_names(self) -> list[str]:
        return [name for name in dict.fromkeys(super().field_names) if name]


def columns_beside_value(schema: EventSchema, envelope: str | None) -> list[str]:
    """Return the columns that rows have to have beside the value, of `key`, `headers` and `stamped`.

    Args:
        schema: the event schema.
        envelope: that of the source, if it has one.
    """
    origins = schema.origins.values()
    wanted = {
        KEY: any(is_of_key(origin) for origin in origins),
        HEADERS: envelope == "cloudevents" or any(origin.startswith(OF_HEADERS) for origin in origins),
        STAMPED: schema.event_time.broker is not None,
    }
    return [name for name, is_wanted in wanted.items() if is_wanted]


def is_of_key(origin: str) -> bool:
    """Return whether an origin is the key of a message, or lies in it."""
    return origin == KEY or origin.startswith(OF_KEY)


def value_schema(schema: EventSchema) -> EventSchema:
    """Return the event schema of what lies in values, by which these are read."""
    schema = without_made_id(schema)
    beside = schema.beside_value
    names = {name: name for name in schema.field_names if name not in beside}
    return part_of_schema(schema, names) if beside else schema


def without_made_id(schema: EventSchema) -> EventSchema:
    """Return the event schema by which events are read whose ids are made afterwards, by `with_made_ids`."""
    if not schema.identity.is_made:
        return schema
    return _PartOfSchema.model_construct(**(dict(schema) | {"identity": _NO_ID}))


def part_of_schema(schema: EventSchema, names: Mapping[str, str], texts: Collection[str] = ()) -> EventSchema:
    """Return an event schema of some fields.

    Args:
        schema: the event schema.
        names: the fields, each with what it is called in the part.
        texts: fields of text that the part has besides.
    """
    time = schema.event_time
    attributes = {names[name]: kind for name, kind in schema.attributes.items() if name in names}
    return _PartOfSchema.model_construct(
        name=schema.name,
        identity=EventId.model_construct(field=names.get(schema.event_id, "")),
        event_time=time.model_copy(update={"field": names.get(time.field, "")}),
        attributes=dict.fromkeys(texts, "string") | attributes,
        measures={names[name]: measure for name, measure in schema.measures.items() if name in names},
        arrays={names[name]: kind for name, kind in schema.arrays.items() if name in names},
        csv=schema.csv,
    )


def with_message_fields(rows: pa.RecordBatch, schema: EventSchema) -> pa.RecordBatch:
    """Put the fields beside the value to those of the value.

    Args:
        rows: with the fields of `value_schema`, `broken`, the columns of `columns_beside_value`, and what lies in
            envelopes and in keys that are written in a format as columns that are called like their origins.
        schema: the event schema.

    Returns:
        The rows with all declared fields, without those columns.
    """
    beside = schema.beside_value
    if not beside:
        return rows
    of_value = value_schema(schema).field_names
    fields = {name: rows.column(field_column(index)) for index, name in enumerate(of_value)}
    faults: Faults = {}
    for name, origin in beside.items():
        fields[name], faulty = _field(rows, origin)
        for row, reason in faulty.items():
            faults.setdefault(row, f"{name}: {reason}")
    unwanted = {KEY, HEADERS, STAMPED, *beside.values(), *map(field_column, range(len(of_value)))}
    columns = {name: rows.column(name) for name in rows.schema.names if name not in unwanted}
    if faults:
        reasons = rows.column(BROKEN).to_pylist()
        columns[BROKEN] = pa.array([reason or faults.get(row) for row, reason in enumerate(reasons)], pa.string())
    return pa.record_batch(columns | {field_column(at): fields[name] for at, name in enumerate(schema.field_names)})


def _field(rows: pa.RecordBatch, origin: str) -> tuple[pa.Array, Faults]:
    if origin.startswith(OF_HEADERS):
        return header_text(rows, origin.removeprefix(OF_HEADERS))
    if is_of_key(origin) or origin.startswith(OF_ENVELOPE):
        column = rows.column(origin)
        return _as_text(column) if pa.types.is_binary(column.type) else (column, {})
    return _times_ms(rows.column(INGESTED), rows.column(STAMPED), _STAMPS[origin])


def header_text(rows: pa.RecordBatch, name: str) -> tuple[pa.StringArray, Faults]:
    """Return the text of a header in each message, null where it has none, and what is no text."""
    return _as_text(_last_header(rows.column(HEADERS), name))


def _last_header(headers: pa.ListArray, name: str) -> pa.BinaryArray:
    """Return the value of the last header of a name in each message, null where there is none."""
    flat, messages = headers.flatten(), pc.list_parent_indices(headers).to_numpy()
    named = np.flatnonzero(pc.equal(pc.struct_field(flat, "key"), name).to_numpy(zero_copy_only=False))
    at = np.full(len(headers), -1, np.int64)
    at[messages[named]] = named
    return pc.struct_field(flat, "value").take(pa.array(at, mask=at < 0))


def _as_text(values: pa.BinaryArray) -> tuple[pa.StringArray, Faults]:
    try:
        return pc.cast(values, pa.string()), {}
    except pa.ArrowInvalid:
        pass
    texts: list[str | None] = []
    faults: Faults = {}
    for row, value in enumerate(values.to_pylist()):
        try:
            texts.append(None if value is None else value.decode())
        except UnicodeDecodeError:
            texts.append(None)
            faults[row] = "is not valid UTF-8"
    return pa.array(texts, pa.string()), faults


def _times_ms(times_ms: pa.Array, stamped: pa.Array, wanted: int) -> tuple[pa.Array, Faults]:
    """Return timestamps, null where a message has none of the kind that is wanted; a kind that is unknown is that."""
    kinds = stamped.fill_null(wanted).to_numpy(zero_copy_only=False)
    others = np.flatnonzero(kinds != wanted)
    if not len(others):
        return times_ms, {}
    faults = {int(row): _STAMPED_BY.get(int(kinds[row]), "has no timestamp") for row in others}
    return pc.if_else(pa.array(kinds == wanted), times_ms, None), faults
