"""The latest alerts of a batch, as plain data for those who watch."""

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

_SHOWN = (
    "rule_id", "rule_version", "ruleset_version", "rule", "event_id", "exact", "certain", "warm", "count", "operator",
    "limit", "condition",
)  # fmt: skip
_ORDER = ("source_order", "source", "position", "rule_id")
_READ = [*_SHOWN, "key", "value", "source_order", "source", "position"]


def latest_alerts(tables: Sequence[pa.Table], most: int) -> list[dict[str, Any]]:
    """The latest alerts of a batch as plain data, in arrival order.

    Args:
        tables: alerts, in no order.
        most: at most so many are returned.
    """
    rows: list[dict[str, Any]] = []
    for table in tables:
        latest = table.sort_by([(name, "ascending") for name in _ORDER]).slice(max(len(table) - most, 0))
        times_ms = latest["event_time"].cast(pa.int64())
        rows += latest.select(_READ).append_column("event_time", times_ms).to_pylist()
    rows.sort(key=lambda row: tuple(row[name] for name in _ORDER))
    return [_plain(row) for row in rows[-most:]]


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """An alert as JSON can hold it: times in ms, decimals as text."""
    shown = {name: row[name] for name in (*_SHOWN, "event_time")}
    value = None if row["value"] is None else format(row["value"], "f")
    return shown | {"key": json.loads(row["key"]), "value": value}
