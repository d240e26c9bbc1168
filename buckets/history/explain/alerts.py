"""Alerts as events, for rules that count alerts: as the job has put them out, in the order in which they count."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from buckets.delta.query import sql_text
from buckets.events.conversion import column_types
from buckets.events.schema import ALERT_SCORE, EventSchema
from buckets.history.explain.arrivals import Arrivals
from buckets.history.explain.history_lookup import Past
from buckets.moment import TimeRange
from buckets.numbers.fixed_point import to_scaled
from buckets.outputs.columns import ALERTS
from buckets.outputs.recorded_outputs import Row, Selection
from buckets.rules.alert_schema import ALERT_RULE, ALERT_SEVERITY, alert_schema

RANKS = 1 << 20
"""More than a rule set has rules: alerts of one event count in the order of the rules."""


class _AlertArrival(NamedTuple):
    """An alert as an arrival: one element of each column of `Arrivals`."""

    number: int
    batch: int
    fields: Mapping[str, Any]
    origin: tuple[str, int, int]
    ingested_ms: int | None


def alert_arrivals(past: Past, batch_id: int, from_ms: int | None, key: Mapping[str, Any]) -> Arrivals:
    """Return the alerts on events that have a key, from a time on.

    Args:
        past: the past.
        batch_id: the batch by whose event schema they are read.
        from_ms: the first event time.
        key: the fields of the key.
    """
    tests = [
        f"strpos(event, {sql_text(json.dumps(value, ensure_ascii=False))}) > 0"
        for field, value in key.items()
        if isinstance(value, str) and not field.startswith("alert_")
    ]
    return as_arrivals(past, batch_id, past.results(ALERTS, Selection({}, TimeRange(from_ms), tests)), key)


def as_arrivals(past: Past, batch_id: int, rows: list[Row], key: Mapping[str, Any] | None = None) -> Arrivals:
    """Return rows of `alerts` as arrivals: those of rules over events, and of one key if one is given."""
    schema = past.terms(batch_id).event_schema
    of_alerts = alert_schema(schema)
    came = past.numbers_of(schema, [(row["event_id"], row["event_time"]) for row in rows])
    alerts: list[_AlertArrival] = []
    for row in rows:
        arrivals = came.get((row["event_id"], row["event_time"]))
        if arrivals is None:
            continue
        came_at = arrivals.row_of(row["source"], row["position"])
        batch = int(arrivals.batches[came_at])
        rules = past.rule_set(batch).rules
        rank = next((at for at, rule in enumerate(rules) if rule.rule_id == row["rule_id"]), None)
        if rank is None or rules[rank].on != "events":
            continue
        event = {name: row["event"].get(then) for name, then in _named_in(past, schema, batch)}
        fields = _fields(event, schema) | {"": row["alert_id"], schema.event_time.field: row["event_time"]}
        fields |= {schema.event_id: row["event_id"], ALERT_RULE: row["rule_id"]}
        fields |= {ALERT_SEVERITY: rules[rank].severity, ALERT_SCORE: rules[rank].score}
        if key is not None and any(fields.get(field) != value for field, value in key.items()):
            continue
        number = int(arrivals.numbers[came_at]) * RANKS + rank
        origin, ingested_ms = arrivals.origins[came_at], arrivals.ingested_ms[came_at].as_py()
        alerts.append(_AlertArrival(number, batch, fields, origin, ingested_ms))
    alerts.sort(key=lambda alert: alert.number)
    return _table(alerts, of_alerts)


def _named_in(past: Past, schema: EventSchema, batch_id: int) -> list[tuple[str, str | None]]:
    """Return the fields of an event schema, each with what it was called in a batch."""
    names = past.archive.names
    return [(field, names.name_in(names.epoch_of(batch_id), field)) for field in schema.field_names]


def _fields(event: Mapping[str, Any], schema: EventSchema) -> dict[str, Any]:
    fields = {name: event.get(name) for name in (*schema.attributes, *schema.arrays)}
    for name, measure in schema.measures.items():
        value = event.get(name)
        fields[name] = None if value is None else to_scaled(str(value), measure.scale)
    return fields


def _table(alerts: list[_AlertArrival], schema: EventSchema) -> Arrivals:
    rows = [alert.fields for alert in alerts]
    fields = {name: pa.array([row[name] for row in rows], kind) for name, kind in column_types(schema).items()}
    fields |= {name: pa.array([row[name] for row in rows], pa.int64()) for name in schema.measures}
    return Arrivals(
        schema=schema,
        numbers=np.array([alert.number for alert in alerts], np.int64),
        batches=np.array([alert.batch for alert in alerts], np.int64),
        times_ms=np.array([row[schema.event_time.field] for row in rows], np.int64),
        ids=pa.array([row[""] for row in rows], pa.string()),
        origins=[alert.origin for alert in alerts],
        ingested_ms=pa.array([alert.ingested_ms for alert in alerts], pa.int64()),
        fields=fields,
    )
