"""A table of confirmed fraud from elsewhere: charge-backs, or closed cases, a row for each event."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from buckets.events import conversion
from buckets.events.schema import EventSchema
from buckets.verdicts.fraud_rows import AMOUNT, read_fraud_rows

FraudEvent = tuple[str, int | None, Mapping[str, Any]]
"""The id of an event, its time in ms since the epoch where the table has it, and what else the table says of it."""


def read_fraud_table(path: Path, schema: EventSchema) -> list[FraudEvent]:
    """The events of a table of fraud.

    Args:
        path: a table as `read_fraud_rows` takes it. Time, measures and attributes are taken by their names where they
            are there, and `amount`.
        schema: the event schema.

    Raises:
        BucketsError: it cannot be read, or has no ids.
    """
    return [
        (row.event_id, _time_ms(row.said.get(schema.event_time.field), schema), _known(row.said, schema))
        for row in read_fraud_rows(path, schema)
    ]


def _known(row: Mapping[str, Any], schema: EventSchema) -> Mapping[str, Any]:
    """What a row says of an event besides its id and time."""
    names = (*schema.attributes, *schema.measures)
    known = {name: row[name] for name in names if row.get(name) not in (None, "")}
    if schema.measures and row.get(AMOUNT) not in (None, ""):
        known.setdefault(next(iter(schema.measures)), row[AMOUNT])
    return known


def _time_ms(written: Any, schema: EventSchema) -> int | None:
    """The time of an event; None where there is none, or none that the event schema can read."""
    if written is None or written == "":
        return None
    times_ms, faults = conversion.times_ms(pa.array([written]), schema.event_time)
    return None if faults else int(times_ms[0])
