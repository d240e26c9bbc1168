"""Figures of the alerts that a backtest has raised: counts, amounts, and what they are beside confirmed fraud."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from functools import cached_property

import numpy as np
import numpy.typing as npt

from buckets.history.backtest.fraud_events import FraudEvent, FraudEvents
from buckets.history.backtest.raised_alerts import AlertsOfRule, RaisedAlerts
from buckets.history.backtest.report import Figures, FraudFigures, KeyCount
from buckets.moment import TimeRange
from buckets.outputs.columns import ALERTS, HELD_ALERTS, SHADOW_ALERTS, VARIANT_ALERTS, VARIANT_HELD_ALERTS
from buckets.outputs.comparison import DAY_MS, Event, Sample
from buckets.rules.rule import Rule

Int64s = npt.NDArray[np.int64]
_NEVER = np.iinfo(np.int64).max
_LOW_BITS = 32


class Totals:
    """Counts what rules have raised."""

    def __init__(self, raised: RaisedAlerts, fraud: FraudEvents | None, span: TimeRange, scale: int | None) -> None:
        """All pieces have been taken.

        Args:
            raised: the alerts.
            fraud: the events of confirmed fraud; None where that is not known.
            span: which events count.
            scale: digits after the point of amounts; None where events have no amount.
        """
        self._raised, self._events, self._scale = raised, raised.events, scale
        self._fraud = None if fraud is None else _FraudOfRange(fraud, raised, span)

    def of_rule(self, rule: Rule) -> Figures:
        """What a rule has raised: its alerts, or of one on trial its shadow alerts."""
        return self.figures([(rule, self.alerts_of(rule))], self._held([rule]))

    def of_active(self, rules: Iterable[Rule]) -> Figures:
        """What ACTIVE rules have raised together."""
        active = [rule for rule in rules if rule.state == "ACTIVE"]
        return self.figures([(rule, self._raised.of(rule.rule_id, ALERTS)) for rule in active], self._held(active))

    def of_variants(self, variants: Iterable[tuple[str, Rule]]) -> Figures:
        """What variants, with the rules that they are of, have raised together."""
        chosen = list(variants)
        held = sum(len(self._raised.of(name, VARIANT_HELD_ALERTS).row) for name, _ in chosen)
        return self.figures([(rule, self._raised.of(name, VARIANT_ALERTS)) for name, rule in chosen], held)

    def alerts_of(self, rule: Rule) -> AlertsOfRule:
        """The alerts of an ACTIVE rule, the shadow alerts of one on trial."""
        return self._raised.of(rule.rule_id, ALERTS if rule.state == "ACTIVE" else SHADOW_ALERTS)

    def days(self, rules: Iterable[Rule]) -> dict[int, dict[str, int]]:
        """By day the alerts of each ACTIVE rule that has some, days ascending."""
        found: dict[int, dict[str, int]] = defaultdict(dict)
        for rule in rules:
            if rule.state == "ACTIVE":
                times_ms = self._events.time_ms[self._raised.of(rule.rule_id, ALERTS).row]
                for day, count in zip(*np.unique(times_ms // DAY_MS, return_counts=True), strict=True):
                    found[int(day)][rule.rule_id] = int(count)
        return {day: found[day] for day in sorted(found)}

    def top_keys(self, rule: Rule, most: int) -> tuple[KeyCount, ...]:
        """The keys with most alerts of a rule; of equal ones those that come first as text."""
        numbers, counts = np.unique(self.alerts_of(rule).key, return_counts=True)
        named = [
            (-count, self._raised.keys[number]) for number, count in zip(numbers.tolist(), counts.tolist(), strict=True)
        ]
        return tuple(KeyCount(_in_order(key, rule.group_by), -count) for count, key in sorted(named)[:most])

    def samples(self, alerts: Iterable[AlertsOfRule]) -> dict[Event, Sample]:
        """The events of alerts, for comparisons."""
        found: dict[Event, Sample] = {}
        events = self._events
        for each in alerts:
            columns = (events.event_id.take(each.row).to_pylist(), events.time_ms[each.row].tolist())
            amounts = events.amount[each.row].tolist()
            for event_id, time_ms, key, amount in zip(*columns, each.key.tolist(), amounts, strict=True):
                sample = Sample(time_ms, event_id, self._raised.keys[key], self._money(amount))
                found.setdefault(sample.event, sample)
        return found

    def figures(self, alerts: Sequence[tuple[Rule, AlertsOfRule]], held: int) -> Figures:
        """What rules have raised together.

        Args:
            alerts: the rules with their alerts.
            held: how many alerts of theirs were held back.
        """
        row = np.concatenate([np.empty(0, np.int64), *(each.row for _, each in alerts)])
        key = np.concatenate([np.empty(0, np.int64), *(each.key for _, each in alerts)])
        is_alerted = np.zeros(len(self._events.first_row), np.bool_)
        is_alerted[self._events.event[row]] = True
        count = int(is_alerted.sum())
        amount = self._money(exact_sum(self._events.amount[self._events.first_row[is_alerted]]))
        fraud = None if self._fraud is None else self._beside_fraud(alerts, is_alerted, count)
        return Figures(len(row), held, count, len(np.unique(key)), amount, fraud)

    def _beside_fraud(
        self, alerts: Sequence[tuple[Rule, AlertsOfRule]], is_alerted: npt.NDArray[np.bool_], alerted: int
    ) -> FraudFigures:
        fraud = self._fraud
        assert fraud is not None
        caught = fraud.event >= 0
        caught[caught] = is_alerted[fraud.event[caught]]
        after = np.zeros(len(caught), np.bool_)
        for rule, each in alerts:
            if rule.group_by:
                first = np.full(len(self._raised.keys) + 1, _NEVER, np.int64)
                np.minimum.at(first, each.key, self._events.arrival[each.row])
                # The last element is for keys without an alert, which have the number -1.
                after |= first[fraud.keys(rule.group_by)] < fraud.arrival
        after &= ~caught
        return FraudFigures(
            confirmed=len(caught),
            alerted=alerted,
            caught=int(caught.sum()),
            after=int(after.sum()),
            caught_amount=Decimal(fraud.amount_of(caught)).scaleb(-(self._scale or 0)),
            after_amount=Decimal(fraud.amount_of(after)).scaleb(-(self._scale or 0)),
        )

    def _held(self, rules: Iterable[Rule]) -> int:
        return sum(len(self._raised.of(rule.rule_id, HELD_ALERTS).row) for rule in rules)

    def _money(self, scaled: int) -> Decimal | None:
        return None if self._scale is None else Decimal(scaled).scaleb(-self._scale)


class _FraudOfRange:
    """The confirmed fraud of the range, as arrays: one element for an event."""

    def __init__(self, fraud: FraudEvents, raised: RaisedAlerts, span: TimeRange) -> None:
        self._found: list[tuple[Event, FraudEvent]] = [
            (event, each) for event, each in fraud.found.items() if span.has(each.time_ms)
        ]
        self._raised = raised
        self._keys: dict[tuple[str, ...], Int64s] = {}
        self.arrival = np.array([each.arrival for _, each in self._found], np.int64)

    @cached_property
    def event(self) -> Int64s:
        """For each the number of its event among those that alerted; -1 where it did not."""
        events = self._raised.events
        alerted = zip(events.event_id.to_pylist(), events.time_ms.tolist(), strict=True)
        number_of = dict(zip(alerted, events.event.tolist(), strict=True))
        return np.array([number_of.get(event, -1) for event, _ in self._found], np.int64)

    def keys(self, fields: Iterable[str]) -> Int64s:
        """For each the number of its key by some fields; -1 where no alert has it."""
        chosen = tuple(sorted(fields))
        if chosen not in self._keys:
            found = [self._raised.key_of({name: each.fields[name] for name in chosen}) for _, each in self._found]
            self._keys[chosen] = np.array([-1 if number is None else number for number in found], np.int64)
        return self._keys[chosen]

    def amount_of(self, chosen: npt.NDArray[np.bool_]) -> int:
        """The amounts of some of them together, scaled."""
        return sum(each.amount for (_, each), mine in zip(self._found, chosen.tolist(), strict=True) if mine)


def exact_sum(numbers: Int64s) -> int:
    """The sum of 64-bit integers, which may be larger than one."""
    low = numbers & ((1 << _LOW_BITS) - 1)
    return (int((numbers >> _LOW_BITS).sum()) << _LOW_BITS) + int(low.sum())


def _in_order(key: str, fields: Iterable[str]) -> str:
    """A key as JSON with its fields in some order."""
    values: Mapping[str, object] = json.loads(key)
    return json.dumps({name: values[name] for name in fields}, ensure_ascii=False)
