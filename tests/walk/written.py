"""What rules as they are written make of a row: whether it is an event, which groups and features count it."""

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from buckets.events.schema import EventSchema
from buckets.rules.group import Group
from tests.oracle import Event
from tests.walk.catalogue import BY_ID, FILTERS, Looked
from tests.walk.recorded import RecordedBatch
from tests.walk.timelines import Row, key_fields, key_of

MEASURES = {"amount": 2, "fee": 0, "alert_score": 0}
ATTRIBUTES = ("id", "payer", "country", "kind", "device", "payee")
FIRST = "items[0].sku"


def parsed(line: str, schema: EventSchema) -> Row | None:
    """The event of a line; None if it is none."""

    def once(pairs: list[tuple[str, Any]]) -> Row:
        row = dict(pairs)
        if len(row) < len(pairs):
            raise ValueError(line)
        return row

    try:
        row = json.loads(line, object_pairs_hook=once)
    except ValueError:
        return None
    latest = schema.event_time.latest
    assert latest is not None
    if not isinstance(row, dict) or not isinstance(row["t"], int) or row["t"] > in_ms(latest):
        return None
    row = {schema.new_names.get(name, name): value for name, value in row.items()}
    amount = None if row["amount"] is None else Decimal(row["amount"])
    if (
        row["id"] is None
        or not isinstance(row["fee"], int | float | None)
        or (amount is not None and amount != round(amount, 2))
    ):
        return None
    items = [item.get("sku") for item in row["items"]] if "items" in row else None
    channel = row["channel"] if "channel" in schema.attributes else None
    fee = None if row["fee"] is None else round(row["fee"])  # of two integers that are as near the even one
    added = {"channel": channel, "items": items, FIRST: items[0] if items else None}
    added |= {"t": row["t"], "amount": amount, "fee": fee}
    return {name: row[name] for name in ATTRIBUTES} | added


def has_key(group: Group, row: Row, asks: bool = False) -> bool:
    """Whether an event or alert belongs to a group or, where the key is another field's value, asks there."""
    return all(row[name] is not None for name in key_fields(group.fields, asks).values())


def event_of(group: Group, row: Row, event_id: str, asks: bool = False) -> Event:
    """An event or alert as a group has it, or as it asks there."""
    given = [row.get(name, 0) for name in MEASURES]
    values = tuple(None if value is None else Decimal(value) for value in given)
    return Event(event_id, row["t"], key_of(row, group.fields, asks), values)


def looked(batch: RecordedBatch) -> Looked:
    """What the lists of a batch have for keys."""
    return {name: _looked(index) for name, index in batch.lists.items()}


def _looked(index: Any) -> Callable[[str, int], Any]:
    def find(key: str, time_ms: int) -> Any:
        entry = index.get(key)
        return None if entry is None or (entry.until_ms is not None and time_ms >= entry.until_ms) else entry.values

    return find


def passes(group: Group, row: Row, lists: Looked) -> bool:
    """Whether an event passes the filter of a group."""
    if not group.where:
        return True
    written = BY_ID[group.rules[0].rule_id].written["where"]
    return FILTERS[_text(written)](row, lists)


def _text(where: Any) -> str:
    return where if isinstance(where, str) else " AND ".join(f"{name} = '{value}'" for name, value in where.items())


def in_ms(moment: Any) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)
