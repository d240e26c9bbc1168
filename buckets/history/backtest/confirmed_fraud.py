"""Confirmed fraud, as somebody has written it down: ids of events, and amounts where they are known.

Amounts stand in `amount` or in the measure's own column; without them an event's own amount counts.
"""

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from buckets.errors import BucketsError
from buckets.events.schema import EventSchema
from buckets.numbers.fixed_point import finite_decimal
from buckets.verdicts.fraud_rows import AMOUNT, read_fraud_rows

Amounts = Mapping[str, Decimal | None]
"""By the id of an event that was fraud, how much money it was; None where that is not written."""


def given_fraud(fraud: Mapping[str, Any]) -> Amounts:
    """Check confirmed fraud that a program gives: by id numbers, texts, or floats, which count by their shortest text.

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
        amount = finite_decimal(written)
        if amount is None and written is not None:
            remedy = "give one, or None for the event's own"
            message = f"fraud: the amount {written!r} of {event_id!r} is no number; {remedy}"
            raise BucketsError(message)
        amounts[event_id] = amount
    return amounts


def read_confirmed_fraud(path: Path, schema: EventSchema, measure: str | None) -> Amounts:
    """Read confirmed fraud from a CSV, JSON lines or Parquet file or a Delta table.

    Ids may stand in the column of the event schema, amounts in that of the measure.

    Raises:
        BucketsError: it cannot be read, or has no column of ids, or an amount in it is no number.
    """
    amounts: dict[str, Decimal | None] = {}
    for row in read_fraud_rows(path, schema):
        named = (row.said[name] for name in (AMOUNT, measure) if name is not None and row.said.get(name) is not None)
        written = next(named, "")
        amount = finite_decimal(written)
        if amount is None and written != "":
            remedy = "write digits, as in 120.50"
            message = f"fraud {path}: row {row.number:,}: the amount {written!r} is no number; {remedy}"
            raise BucketsError(message)
        amounts[row.event_id] = amount
    return amounts
