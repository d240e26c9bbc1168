"""Confirmed fraud, as somebody has written it down: ids of events, and amounts where they are known.

Amounts stand in `amount` or in the measure's own column; without them an event's own amount counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from buckets.errors import BucketsError
from buckets.events.schema import EventSchema
from buckets.verdicts.fraud_rows import AMOUNT, read_fraud_rows


@dataclass(frozen=True)
class ConfirmedFraud:
    """Events that were fraud.

    Attributes:
        amounts: by id, how much money it was; None where that is not written.
    """

    amounts: Mapping[str, Decimal | None]


def read_confirmed_fraud(path: Path, schema: EventSchema, measure: str | None) -> ConfirmedFraud:
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
    return ConfirmedFraud(amounts)


def _decimal(path: Path, number: int, written: Any) -> Decimal | None:
    if written is None or written == "":
        return None
    try:
        amount = Decimal(str(written))
        if amount.is_finite():
            return amount
    except InvalidOperation:
        pass
    message = f"fraud {path}: row {number:,}: the amount {written!r} is no number; write digits, as in 120.50"
    raise BucketsError(message)
