"""The events of a history that are confirmed fraud: when each arrived first, what it was worth, and its keys."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.archive.archive import ARRIVAL
from buckets.delta.query import moments_ms
from buckets.events import conversion
from buckets.events.schema import EventSchema
from buckets.history.backtest.confirmed_fraud import Amounts
from buckets.outputs.comparison import Event


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
        schema = self._schema
        mask = pc.and_(pc.is_in(rows[schema.event_id], value_set=self._ids), rows["_fault"].is_null())
        numbers = np.flatnonzero(mask.to_numpy())
        if len(numbers):
            measures = [] if self._amount is None else [self._amount]
            names = [schema.event_id, schema.event_time.field, *self._fields, *measures]
            self._note(rows.select(dict.fromkeys([ARRIVAL, *names])).take(pa.array(numbers)))

    def _note(self, rows: pa.Table) -> None:
        amounts = np.zeros(len(rows), np.int64)
        if self._amount is not None:
            measure = self._schema.measures[self._amount]
            amounts, *_ = conversion.measures(rows[self._amount].combine_chunks(), measure)
        times_ms = moments_ms(rows[self._schema.event_time.field])
        fields = rows.select(self._fields).to_pylist() if self._fields else [{}] * len(rows)
        ids = rows[self._schema.event_id].to_pylist()
        each = zip(ids, rows[ARRIVAL].to_pylist(), times_ms.to_pylist(), amounts.tolist(), fields, strict=True)
        for event_id, arrival, time_ms, amount, values in each:
            if (event_id, time_ms) not in self.found:
                worth = self._worth(event_id, amount)
                self.found[event_id, time_ms] = FraudEvent(arrival, time_ms, worth, values)
                self._ids_found.add(event_id)

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
