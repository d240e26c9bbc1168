"""Envelopes around the values of messages: the fields of an event lie in one part of them, and others beside it.

What an envelope says of its event may be a field too, whose origin is `envelope.` and the path to it. It is read as a
column that is called like the origin.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pyarrow as pa

from buckets.events.arrivals import BROKEN, RAW, field_column
from buckets.events.json_events import read_events
from buckets.events.message_fields import part_of_schema, value_schema
from buckets.events.schema import OF_ENVELOPE, EventSchema


class Opened(NamedTuple):
    """An envelope: the JSON of the fields in it, its own JSON, and why it holds no event, if it holds none."""

    fields: bytes
    envelope: bytes
    reason: str | None = None


NOTHING = b"{}"
ReadFields = Callable[[pa.RecordBatch, EventSchema], pa.RecordBatch]
"""Reads the values of messages, or keys, into the fields of an event schema."""


def unopened(reason: str | None) -> Opened:
    """Return an envelope in which nothing is to be read."""
    return Opened(NOTHING, NOTHING, reason)


def paths_in_envelope(schema: EventSchema) -> dict[str, str]:
    """Return the paths of fields that lie in the envelope, by field."""
    return {
        name: origin.removeprefix(OF_ENVELOPE)
        for name, origin in schema.origins.items()
        if origin.startswith(OF_ENVELOPE)
    }


def read_opened(texts: pa.RecordBatch, opened: Sequence[Opened], schema: EventSchema) -> pa.RecordBatch:
    """Read envelopes in JSON.

    Args:
        texts: messages with `raw` (text), and `broken` where it cannot be read.
        opened: what is in each.
        schema: the event schema.

    Returns:
        The messages with the fields of values, `broken`, and the columns of what lies in envelopes.
    """
    reasons = [one.reason for one in opened]
    rows = read_events(_with_text(texts, [one.fields for one in opened], reasons), value_schema(schema))
    paths = paths_in_envelope(schema)
    if paths:
        of_envelope = part_of_schema(schema, paths)
        broken = rows.column(BROKEN).to_pylist()
        read = read_events(_with_text(texts, [one.envelope for one in opened], broken), of_envelope)
        for index, path in enumerate(of_envelope.field_names):
            rows = rows.append_column(f"{OF_ENVELOPE}{path}", read.column(field_column(index)))
        rows = _replaced(rows, BROKEN, read.column(BROKEN))
    return _replaced(rows, RAW, texts.column(RAW))


def _with_text(texts: pa.RecordBatch, written: Sequence[bytes], reasons: Sequence[str | None]) -> pa.RecordBatch:
    rows = _replaced(texts, RAW, pa.array(written, pa.binary()).cast(pa.string()))
    return _replaced(rows, BROKEN, pa.array(reasons, pa.string()))


def _replaced(rows: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    return rows.set_column(rows.schema.get_field_index(name), name, column)
