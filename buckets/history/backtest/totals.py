"""Figures of the alerts that a backtest has raised: counts, amounts, and what they are beside confirmed fraud."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from functools import cached_property

import numpy as np
import numpy.typing as npt

from buckets.duration import DAY_MS
from buckets.history.backtest.confirmed_fraud import FraudEvent, FraudEvents
from buckets.history.backtest.raised_alerts import AlertsOfRule, RaisedAlerts
from buckets.history.backtest.report import Figures, FraudFigures, KeyCount
from buckets.moment import TimeRange
from buckets.outputs.columns import ALERTS, HELD_ALERTS, SHADOW_ALERTS, VARIANT_ALERTS, VARIANT_HELD_ALERTS
from buckets.outputs.comparison import Event, Sample
from buckets.rules.rule import Rule

Int64s = npt.NDArray[np.int64]
_NEVER = np.iinfo(np.int64).max
_LOW_BITS = 32


class Totals:
    """Counts what rules have raised."""

    def __init__(self, raised: RaisedAlerts, fraud: FraudEvents | None, span: TimeRange, scale: int | None) -> None:
        """Begin once all pieces have been taken; amounts have `scale` digits after the point, None for no amounts."""
        self._raised, self._events, self._scale = raised, raised.events, scale
        self._fraud = None if fraud is None else _FraudOfRange(fraud, raised, span)

    def of_rule(self, rule: Rule) -> Figures:
        """Return what a rule has raised: its alerts, or of one on trial its shadow alerts."""
        return self.figures([(rule, self.alerts_of(rule))], self._held([rule]))

    def of_active(self, rules: Iterable[Rule]) -> Figures:
        """Return what ACTIVE rules have raised together."""
        active = [rule for rule in rules if rule.state == "ACTIVE"]
        return self.figures([(rule, self._raised.of(rule.rule_id, ALERTS)) for rule in active], self._held(active))

    def of_variants(self, variants: Iterable[tuple[str, Rule]]) -> Figures:
        """Return what variants, with the rules that they are of, have raised together."""
        chosen = list(variants)
        held = sum(len(self._raised.of(name, VARIANT_HELD_ALERTS).row) for name, _ in chosen)
        return self.figures([(rule, self._raised.of(name, VARIANT_ALERTS)) for name, rule in chosen], held)

    def alerts_of(self, rule: Rule) -> AlertsOfRule:
        """Return the alerts of an ACTIVE rule, the shadow alerts of one on trial."""
        return self._raised.of(rule.rule_id, ALERTS if rule.state == "ACTIVE" else SHADOW_ALERTS)

    def days(self, rules: Iterable[Rule]) -> dict[int, dict[str, int]]:
        """Return by day the alerts of each ACTIVE rule that has some, days ascending."""
        days: dict[int, dict[str, int]] = defaultdict(dict)
        for rule in rules:
            if rule.state == "ACTIVE":
                times_ms = self._events.time_ms[self._raised.of(rule.rule_id, ALERTS).row]
                for day, count in zip(*np.unique(times_ms // DAY_MS, return_counts=True), strict=True):
                    days[int(day)][rule.rule_id] = int(count)
        return {day: days[day] for day in sorted(days)}

    def top_keys(self, rule: Rule, most: int) -> tuple[KeyCount, ...]:
        """Return the keys with most alerts of a rule; of equal ones those that come first as text."""
        numbers, counts = np.unique(self.alerts_of(rule).key, return_counts=True)
        counted = zip(numbers.tolist(), counts.tolist(), strict=True)
        named = [(-count, self._raised.keys[number]) for number, count in counted]
        return tuple(KeyCount(_in_order(key, rule.group_by), -count) for count, key in sorted(named)[:most])

    def samples(self, alerts: Iterable[AlertsOfRule]) -> dict[Event, Sample]:
        """Return the events of alerts, for comparisons."""
        samples: dict[Event, Sample] = {}
        events = self._events
        for of_rule in alerts:
            columns = (events.event_id.take(of_rule.row).to_pylist(), events.time_ms[of_rule.row].tolist())
            amounts = events.amount[of_rule.row].tolist()
            for event_id, time_ms, key, amount in zip(*columns, of_rule.key.tolist(), amounts, strict=True):
                sample = Sample(time_ms, event_id, self._raised.keys[key], self._money(amount))
                samples.setdefault(sample.event, sample)
        return samples

    def figures(self, alerts: Sequence[tuple[Rule, AlertsOfRule]], held: int) -> Figures:
        """Return what rules with their alerts have raised together, of which so many more were held back."""
        row = np.concatenate([np.empty(0, np.int64), *(of_rule.row for _, of_rule in alerts)])
        key = np.concatenate([np.empty(0, np.int64), *(of_rule.key for _, of_rule in alerts)])
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
        for rule, of_rule in alerts:
            if rule.group_by:
                first = np.full(len(self._raised.keys) + 1, _NEVER, np.int64)
                np.minimum.at(first, of_rule.key, self._events.arrival[of_rule.row])
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
            (event, confirmed) for event, confirmed in fraud.found.items() if span.has(confirmed.time_ms)
        ]
        self._raised = raised
        self._keys: dict[tuple[str, ...], Int64s] = {}
        self.arrival = np.array([confirmed.arrival for _, confirmed in self._found], np.int64)

    @cached_property
    def event(self) -> Int64s:
        """For each the number of its event among those that alerted; -1 where it did not."""
        events = self._raised.events
        alerted = zip(events.event_id.to_pylist(), events.time_ms.tolist(), strict=True)
        number_of = dict(zip(alerted, events.event.tolist(), strict=True))
        return np.array([number_of.get(event, -1) for event, _ in self._found], np.int64)

    def keys(self, fields: Iterable[str]) -> Int64s:
        """Return for each the number of its key by some fields; -1 where no alert has it."""
        chosen = tuple(sorted(fields))
        if chosen not in self._keys:
            numbers = [self._raised.key_of({name: fraud.fields[name] for name in chosen}) for _, fraud in self._found]
            self._keys[chosen] = np.array([-1 if number is None else number for number in numbers], np.int64)
        return self._keys[chosen]

    def amount_of(self, chosen: npt.NDArray[np.bool_]) -> int:
        """Return the amounts of some of them together, scaled."""
        return sum(
            fraud.amount for (_, fraud), is_chosen in zip(self._found, chosen.tolist(), strict=True) if is_chosen
        )


def exact_sum(numbers: Int64s) -> int:
    """Return the sum of 64-bit integers, which may be larger than one."""
    low = numbers & ((1 << _LOW_BITS) - 1)
    return (int((numbers >> _LOW_BITS).sum()) << _LOW_BITS) + int(low.sum())


def _in_order(key: str, fields: Iterable[str]) -> str:
    """Return a key as JSON with its fields in some order."""
    values: Mapping[str, object] = json.loads(key)
    return json.dumps({name: values[name] for name in fields}, ensure_ascii=False)
