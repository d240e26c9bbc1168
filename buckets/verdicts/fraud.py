"""Confirmed fraud, and the words for how rules do beside it.

    confirmed            an event that a person, or a table of cases, says was fraud, whether or not a rule fired at it
    caught               confirmed, and a rule fired at it
    caught of confirmed  the share of confirmed fraud that was caught: recall
    fraud of judged      the share of fraud among alerts that turned out to be fraud or legitimate: precision in
                         `buckets rules quality`, which leaves out what nobody has looked at
    fraud of alerted     the share of confirmed fraud among all events that alerted: precision in `buckets backtest`,
                         where an event of which nobody has said anything counts as no fraud

People and scripts read both kinds of precision as `precision`, and the share of what was caught as `recall`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from buckets.events import conversion
from buckets.events.schema import EventSchema
from buckets.numbers.fixed_point import finite_decimal
from buckets.verdicts.fraud_rows import AMOUNT, read_fraud_rows


@dataclass(frozen=True)
class Fraud:
    """An event that was fraud, and what is known of it.

    Attributes:
        event_id: its id.
        event_time_ms: when it happened, in ms since the epoch.
        amount: its first measure, or another one that was asked for.
        fields: its other fields.
    """

    event_id: str
    event_time_ms: int | None = None
    amount: Decimal | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def of(event_id: str, time_ms: int | None, fields: Mapping[str, Any], measure: str | None) -> "Fraud":
        """Make one of an event, whose amount is that of a measure."""
        amount = None if measure is None else finite_decimal(fields.get(measure))
        return Fraud(event_id, time_ms, amount, {name: value for name, value in fields.items() if value is not None})

    def completed(self, other: "Fraud") -> "Fraud":
        """Return it with what another source knows besides."""
        return replace(
            self,
            event_time_ms=other.event_time_ms if self.event_time_ms is None else self.event_time_ms,
            amount=other.amount if self.amount is None else self.amount,
            fields={**other.fields, **self.fields},
        )


def read_fraud_table(path: Path, schema: EventSchema, measure: str | None) -> list[Fraud]:
    """Read a table of confirmed fraud from elsewhere: charge-backs, or closed cases, a row for each event.

    Args:
        path: a table as `read_fraud_rows` takes it. Time, measures and attributes are taken by their names where they
            are there, and `amount`.
        schema: the event schema.
        measure: whose values are the amounts.

    Raises:
        BucketsError: it cannot be read, or has no ids.
    """
    return [
        Fraud.of(
            row.event_id, _time_ms(row.said.get(schema.event_time.field), schema), _known(row.said, schema), measure
        )
        for row in read_fraud_rows(path, schema)
    ]


def _known(row: Mapping[str, Any], schema: EventSchema) -> Mapping[str, Any]:
    """Return what a row says of an event besides its id and time."""
    names = (*schema.attributes, *schema.measures)
    known = {name: row[name] for name in names if row.get(name) not in (None, "")}
    if schema.measures and row.get(AMOUNT) not in (None, ""):
        known.setdefault(next(iter(schema.measures)), row[AMOUNT])
    return known


def _time_ms(written: Any, schema: EventSchema) -> int | None:
    """Return the time of an event; None where there is none, or none that the event schema can read."""
    if written is None or written == "":
        return None
    times_ms, faults = conversion.times_ms(pa.array([written]), schema.event_time)
    return None if faults else int(times_ms[0])
