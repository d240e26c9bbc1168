"""Confirmed fraud: ids of events, with amounts where somebody has written them, and the events of a history with them.

Amounts stand in `amount` or in the measure's own column; without them an event's own amount counts.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from buckets.archive.archive import ARRIVAL
from buckets.delta.whole_table import moments_ms
from buckets.errors import BucketsError
from buckets.events import conversion
from buckets.events.schema import EventSchema
from buckets.numbers.fixed_point import finite_decimal
from buckets.outputs.comparison import Event
from buckets.verdicts.confirmed import AMOUNT, read_fraud_rows

Amounts = Mapping[str, Decimal | None]
"""By the id of an event that was fraud, how much money it was; None where that is not written."""


def given_fraud(fraud: Mapping[str, Any]) -> Amounts:
    """Check confirmed fraud that a program gives: by id numbers, or texts, or floats as their shortest text."""
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


def scaled_amounts(rows: pa.Table, schema: EventSchema, amount: str | None) -> npt.NDArray[np.int64]:
    """Return the amounts of rows of a history as scaled int64; 0 where there is none."""
    if amount is None:
        return np.zeros(len(rows), np.int64)
    amounts, *_ = conversion.measures(rows[amount].combine_chunks(), schema.measures[amount])
    return amounts


@dataclass(frozen=True)
class FraudEvent:
    """An event that is confirmed fraud, with the number of the arrival with which it came first.

    The amount is scaled, and 0 where it is not known; the fields are those by which rules group.
    """

    arrival: int
    time_ms: int
    amount: int
    fields: dict[str, Any]


class FraudEvents:
    """Looks for confirmed fraud in a history.

    Attributes:
        found: by id and time, in the order of arrival: an id that comes at several times is several events.
    """

    def __init__(self, confirmed: Amounts, schema: EventSchema, amount: str | None, fields: Iterable[str]) -> None:
        """Begin with nothing found; `amount` is the measure that is the amount of an event, `fields` those of keys."""
        self._confirmed, self._schema, self._amount = confirmed, schema, amount
        self._fields: Sequence[str] = list(dict.fromkeys(fields))
        self._ids = pa.array(list(confirmed), pa.string())
        self.found: dict[Event, FraudEvent] = {}
        self._ids_found: set[str] = set()

    @property
    def confirmed(self) -> int:
        """How many ids are confirmed fraud, found or not."""
        return len(self._ids)

    @property
    def missing(self) -> int:
        """How many of these ids have not been found."""
        return len(self._ids) - len(self._ids_found)

    def take(self, rows: pa.Table) -> None:
        """Look through the rows of a piece; pieces come in their order."""
        event_id, time = self._schema.event_id, self._schema.event_time.field
        mask = pc.and_(pc.is_in(rows[event_id], value_set=self._ids), rows["_fault"].is_null())
        numbers = np.flatnonzero(mask.to_numpy())
        if not len(numbers):
            return
        names = dict.fromkeys([ARRIVAL, event_id, time, *self._fields, *filter(None, [self._amount])])
        rows = rows.select(names).take(pa.array(numbers))
        fields = rows.select(self._fields).to_pylist() if self._fields else [{}] * len(rows)
        columns = (rows[event_id].to_pylist(), rows[ARRIVAL].to_pylist(), moments_ms(rows[time]).to_pylist())
        amounts = scaled_amounts(rows, self._schema, self._amount).tolist()
        for event, arrival, time_ms, amount, values in zip(*columns, amounts, fields, strict=True):
            if (event, time_ms) not in self.found:
                self.found[event, time_ms] = FraudEvent(arrival, time_ms, self._worth(event, amount), values)
                self._ids_found.add(event)

    def _worth(self, event_id: str, own: int) -> int:
        """Return the confirmed amount of an event, scaled; its own where none is written.

        What is written for an id is the amount of its first event; others of this id have none.
        """
        written = self._confirmed[event_id]
        if written is None or self._amount is None:
            return own
        if event_id in self._ids_found:
            return 0
        scale = self._schema.measures[self._amount].scale
        return int(written.scaleb(scale).to_integral_value())
