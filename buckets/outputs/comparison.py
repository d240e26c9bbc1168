"""Compares what two rules caught, by their alerts: events of the first only, of the second only, and of both.

Both caught an event if its id and time are in the alerts of both, whatever their keys. Keys are compared if both rules
group by the same fields. Only the id, time, key and amount of each alert stay in memory.
"""

import heapq
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, NamedTuple

from buckets.duration import DAY_MS
from buckets.moment import iso_text
from buckets.numbers.fixed_point import finite_decimal

Caught = Literal["only_a", "only_b", "both"]
PARTS: tuple[Caught, ...] = ("only_a", "only_b", "both")
Event = tuple[str, int]
"""The identity of an event: id and time in ms, since the same id at another time is another event."""


class Sample(NamedTuple):
    """A caught event: its time in ms, its id, the key of the alert as JSON, and its amount, if known."""

    event_time_ms: int
    event_id: str
    key: str
    amount: Decimal | None

    @property
    def event(self) -> Event:
        """Return the identity of the event."""
        return self.event_id, self.event_time_ms

    def to_json(self) -> dict[str, Any]:
        """Return the sample as plain data."""
        time, key = iso_text(self.event_time_ms), json.loads(self.key)
        return {"event_id": self.event_id, "event_time": time, "key": key, "amount": _as_text(self.amount)}


@dataclass(frozen=True)
class CaughtEvents:
    """Events caught by one rule alone, or by both."""

    events: int  # how many
    keys: int | None  # how many keys were caught by that rule alone, or by both; None where the rules have other keys
    amount: Decimal | None  # the sum of the events' amounts; None where none is known
    samples: tuple[Sample, ...]  # the latest of them, newest first

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain data."""
        samples = [sample.to_json() for sample in self.samples]
        return {"events": self.events, "keys": self.keys, "amount": _as_text(self.amount), "samples": samples}


@dataclass(frozen=True)
class Comparison:
    """What two rules caught."""

    parts: dict[Caught, CaughtEvents]  # by who caught it
    # by day (UTC, the number of days since 1970) how many events each part has; days without alerts are absent
    days: dict[int, dict[Caught, int]]

    @property
    def overlap(self) -> float | None:
        """Return the share of all caught events that both caught; None without any."""
        events = sum(part.events for part in self.parts.values())
        return self.parts["both"].events / events if events else None

    def share_of(self, one: Caught) -> float | None:
        """Return the share of one rule's events that the other caught too; None if it has none."""
        both, alone = self.parts["both"].events, self.parts[one].events
        return both / (both + alone) if both + alone else None


def compared_columns(measure: str | None) -> tuple[str, ...]:
    """Return the columns of alerts to compare; the text of the event, most of a row, only for its amount."""
    return ("rule_id", "event_id", "event_time", "key", *(() if measure is None else ("event",)))


def compare(alerts: Iterable[Mapping[str, Any]], a: str, b: str, measure: str | None, samples: int) -> Comparison:
    """Compare what two rules caught. Cost: O(alerts), with memory for each different event.

    Alerts have `compared_columns`, times in ms, `key` and `event` as objects; `samples` events of each part are kept.
    """
    caught: dict[str, dict[Event, Sample]] = {a: {}, b: {}}
    for alert in alerts:
        sample = sample_of(alert, measure)
        caught[alert["rule_id"]].setdefault(sample.event, sample)
    return compare_events(caught[a], caught[b], samples)


def sample_of(alert: Mapping[str, Any], measure: str | None) -> Sample:
    """Return the part of an alert that `compare` needs."""
    key = json.dumps(alert["key"], sort_keys=True, ensure_ascii=False)
    event = alert.get("event")
    amount = finite_decimal(event.get(measure) if isinstance(event, Mapping) and measure is not None else None)
    return Sample(alert["event_time"], alert["event_id"], key, amount)


def compare_events(of_a: Mapping[Event, Sample], of_b: Mapping[Event, Sample], samples: int) -> Comparison:
    """Compare the events caught by two rules; see `compare`."""
    events: dict[Caught, list[Sample]] = {
        "only_a": [sample for identity, sample in of_a.items() if identity not in of_b],
        "only_b": [sample for identity, sample in of_b.items() if identity not in of_a],
        "both": [sample for identity, sample in of_a.items() if identity in of_b],
    }
    keys = _keys(of_a.values(), of_b.values())
    parts = {name: _part(events[name], keys.get(name), samples) for name in PARTS}
    return Comparison(parts, _days(events))


def _part(events: list[Sample], keys: int | None, samples: int) -> CaughtEvents:
    amounts = [event.amount for event in events if event.amount is not None]
    latest = heapq.nlargest(samples, events, key=lambda event: (event.event_time_ms, event.event_id))
    return CaughtEvents(len(events), keys, sum(amounts, Decimal(0)) if amounts else None, tuple(latest))


def _keys(of_a: Iterable[Sample], of_b: Iterable[Sample]) -> dict[Caught, int]:
    """Count the keys by which rule caught them; empty if the rules group by different fields."""
    keys_a, keys_b = ({sample.key for sample in caught} for caught in (of_a, of_b))
    fields = {frozenset(json.loads(key)) for key in (*keys_a, *keys_b)}
    if len(fields) > 1:
        return {}
    return {"only_a": len(keys_a - keys_b), "only_b": len(keys_b - keys_a), "both": len(keys_a & keys_b)}


def _days(events: Mapping[Caught, Iterable[Sample]]) -> dict[int, dict[Caught, int]]:
    counts = {name: Counter(sample.event_time_ms // DAY_MS for sample in of_part) for name, of_part in events.items()}
    return {day: {name: counts[name][day] for name in PARTS} for day in sorted(set().union(*counts.values()))}


def _as_text(amount: Decimal | None) -> str | None:
    return None if amount is None else format(amount, "f")
