"""Confirmed fraud, as somebody has written it down: ids of events, and amounts where they are known.

Amounts stand in `amount` or in the measure's own column; without them an event's own amount counts.
"""

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from buckets.errors import BucketsError
from buckets.events.schema import EventSchema
from buckets.verdicts.fraud import amount_of
from buckets.verdicts.fraud_rows import AMOUNT, read_fraud_rows

Amounts = Mapping[str, Decimal | None]
"""By the id of an event that was fraud, how much money it was; None where that is not written."""


def given_fraud(fraud: Mapping[str, Any]) -> Amounts:
    """Confirmed fraud as a program gives it.

    Args:
        fraud: by id, the amounts: whole numbers, decimals, texts or floats, which count by their shortest text.

    Raises:
        BucketsError: an id is no text, or an amount no finite number.
    """
    if not isinstance(fraud, Mapping):
        message = f"fraud: must be amounts by id, as a dict, not {type(fraud).__name__}; None is an amount as well"
        raise BucketsError(message)
    amounts: dict[str, Decimal | None] = {}
    for event_id, written in fraud.items():
        if not isinstance(event_id, str):
            message = f"fraud: the id {event_id!r} is no text; give ids as str"
            raise BucketsError(message)
        amounts[event_id] = _given_amount(event_id, written)
    return amounts


def _given_amount(event_id: str, written: Any) -> Decimal | None:
    amount = amount_of(written)
    if amount is None and written is not None:
        message = f"fraud: the amount {written!r} of {event_id!r} is no number; give one, or None for the event's own"
        raise BucketsError(message)
    return amount


def read_confirmed_fraud(path: Path, schema: EventSchema, measure: str | None) -> Amounts:
    """Read a table of confirmed fraud.

    Args:
        path: a CSV, JSON lines or Parquet file, or a Delta table.
        schema: the event schema, whose id the table may be written with.
        measure: the measure that is the amount of an event.

    Raises:
        BucketsError: it cannot be read, or has no column of ids, or an amount in it is no number.
    """
    amounts: dict[str, Decimal | None] = {}
    for row in read_fraud_rows(path, schema):
        written = (row.said[name] for name in (AMOUNT, measure) if name is not None and row.said.get(name) is not None)
        amounts[row.event_id] = _decimal(path, row.number, next(written, None))
    return amounts


def _decimal(path: Path, number: int, written: Any) -> Decimal | None:
    if written is None or written == "":
        return None
    amount = amount_of(written)
    if amount is not None:
        return amount
    message = f"fraud {path}: row {number:,}: the amount {written!r} is no number; write digits, as in 120.50"
    raise BucketsError(message)
