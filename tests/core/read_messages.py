"""Messages of a topic read as a job reads them: key, value, headers and timestamp."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from buckets.audit.tables import HEADERS_TYPE
from buckets.checkpoint.writer_schemas import RegisteredSchemas
from buckets.config.source import SourceSettings
from buckets.events.arrivals import INGESTED, parse, skipped_rows
from buckets.events.message_fields import HEADERS, STAMPED, columns_beside_value
from buckets.events.messages import SchemaOf
from buckets.events.schema import KEY, EventSchema
from tests.core.avro_events import rows_of
from tests.core.pinned import NOTHING_PINNED, Pinned, topic_messages


class ReadMessages(NamedTuple):
    """Events as mappings, reasons of dead letters by position, and how many were skipped by why."""

    events: list[dict[str, Any]]
    dead: dict[int, str]
    skipped: dict[str, int]


class TestMessage(NamedTuple):
    """A message; `stamp` is what Kafka calls the type of its timestamp."""

    __test__ = False
    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] | None = None
    stamp: int | None = 0
    time_ms: int = 0


def read_messages(
    folder: Path,
    messages: Sequence[TestMessage],
    events: Mapping[str, Any],
    source: Mapping[str, Any] | None = None,
    pinned: Pinned = NOTHING_PINNED,
    ask: SchemaOf | None = None,
) -> ReadMessages:
    """Read messages by an event schema."""
    schema = EventSchema.model_validate(events)
    topic = SourceSettings.model_validate({"kind": "kafka", "topic": "payments"} | dict(source or {}))
    headers = [
        None if each.headers is None else [{"key": name, "value": value} for name, value in each.headers]
        for each in messages
    ]
    beside = {
        KEY: pa.array([each.key for each in messages], pa.binary()),
        HEADERS: pa.array(headers, HEADERS_TYPE),
        STAMPED: pa.array([each.stamp for each in messages], pa.int32()),
    }
    times = pa.array([each.time_ms for each in messages], pa.int64())
    rows = rows_of([each.value for each in messages]).append_column(INGESTED, times)
    for name in columns_beside_value(schema):
        rows = rows.append_column(name, beside[name])
    read = topic_messages(topic, RegisteredSchemas(folder, ask)).read(rows, schema, pinned)
    found, dead = parse(read, schema, frozenset())
    columns = {schema.event_id: found.event_id, schema.event_time.field: pa.array(found.times_ms)}
    columns |= found.attributes | found.measures
    rows_found = zip(*(column.to_pylist() for column in columns.values()), strict=True)
    return ReadMessages(
        [dict(zip(columns, row, strict=True)) for row in rows_found],
        {letter.position: letter.reason for letter in dead},
        dict(skipped_rows(read)),
    )
