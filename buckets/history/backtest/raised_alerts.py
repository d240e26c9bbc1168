"""The alerts that a backtest raises, gathered piece by piece: of each the rule, the key and the event, as numbers.

Events are rows of the pieces, known by the number of their arrival. So it is known which of two came first. An event
that alerts is kept once, whatever the number of rules and variants that it alerts for; of an alert there are two
numbers.

Figures of the alerts that a backtest has raised.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from buckets.archive.archive import ARRIVAL
from buckets.delta.whole_table import inside, moments_ms
from buckets.duration import DAY_MS
from buckets.engine.batch.dead_letters import bad_rows
from buckets.engine.policies import is_in_share
from buckets.events import conversion
from buckets.events.bad_rows import BadRows
from buckets.events.schema import EventSchema
from buckets.history.backtest.confirmed_fraud import FraudEvent, FraudEvents
from buckets.history.backtest.page import CountedDays
from buckets.history.backtest.report import Figures, FraudFigures, KeyCount
from buckets.history.scoring import ScoredPiece
from buckets.moment import TimeRange
from buckets.outputs.columns import (
    ALERTS,
    DEAD_LETTERS,
    HELD_ALERTS,
    SHADOW_ALERTS,
    VARIANT_ALERTS,
    VARIANT_HELD_ALERTS,
    VARIANT_OUTPUTS,
)
from buckets.outputs.comparison import Event, Sample
from buckets.outputs.recorded_outputs import ALERT_OUTPUTS
from buckets.rules.rule import WHOLE_SHARE, Rule

Int64s = npt.NDArray[np.int64]
_ARRIVAL = "source_order"  # The column of alerts that holds the number of their arrival, see `BacktestScoring.piece`


@dataclass(frozen=True)
class AlertedEvents:
    """The rows at which something has alerted, in no order: arrays of one length."""

    arrival: Int64s  # int64, the number of the row
    time_ms: Int64s  # int64
    event_id: pa.Array  # the ids
    amount: Int64s  # int64, scaled; 0 where there is none

    @cached_property
    def event(self) -> Int64s:
        """For each row the number of its event, which is its id and its time: an event that came twice is one."""
        ids = self.event_id.dictionary_encode().indices.to_numpy().astype(np.int64)
        _, times = np.unique(self.time_ms, return_inverse=True)
        _, codes = np.unique(ids * (len(ids) + 1) + times, return_inverse=True)
        numbers: Int64s = codes.astype(np.int64)
        return numbers

    @cached_property
    def first_row(self) -> Int64s:
        """For each event the row with which it came first, of those that alerted."""
        order = np.argsort(self.arrival, kind="stable")
        _, first = np.unique(self.event[order], return_index=True)
        rows: Int64s = order[first]
        return rows


@dataclass(frozen=True)
class AlertsOfRule:
    """The alerts of a rule in one output: rows of `AlertedEvents` and keys of `RaisedAlerts`, both int64."""

    row: Int64s
    key: Int64s

    @classmethod
    def joined(cls, parts: "list[AlertsOfRule]") -> "AlertsOfRule":
        """Join the alerts of several pieces."""
        none = np.empty(0, np.int64)
        rows, keys = [part.row for part in parts], [part.key for part in parts]
        return cls(np.concatenate([none, *rows]), np.concatenate([none, *keys]))


class RaisedAlerts:
    """Gathers what scored pieces have raised within a span of event time.

    Attributes:
        keys: the different keys as JSON, their fields sorted by name.
        arrived: how many rows have been taken.
        alerted: at how many of them something has alerted.
        arrivals: how many events of the span have arrived, repeats among them.
        in_span_ms: the least and the greatest event time among them; None where there is none.
        all_ms: the least and the greatest of all event times, in the span or not; None where there is none.
        days: the days of the events of the span.
        bad: the rows that are no events, or could not be evaluated by some rule.
    """

    def __init__(self, schema: EventSchema, span: TimeRange, amount: str | None, rules: Mapping[str, Rule]) -> None:
        """Begin with nothing taken.

        `amount` is the measure that is the amount of an event, if any; `rules` has rules by their ids, and by the id of
        a variant the rule that it is one of.
        """
        self._schema, self._span, self._amount = schema, span, amount
        self._shares = {name: rule for name, rule in rules.items() if _has_share(rule)}
        self._code_of: dict[str, int] = {}
        self._canonical: dict[str, int] = {}
        self._rows: list[tuple[Int64s, Int64s, pa.Array, Int64s]] = []
        self.alerted = self.arrived = 0
        self._found: dict[tuple[str, str], list[AlertsOfRule]] = defaultdict(list)
        self.keys: list[str] = []
        self.arrivals, self.bad = 0, BadRows()
        self.in_span_ms: tuple[int, int] | None = None
        self.all_ms: tuple[int, int] | None = None
        self.days = CountedDays()

    def take(self, scored: ScoredPiece) -> None:
        """Take a piece into account; pieces come in their order."""
        rows = scored.piece.rows
        self._note_times(rows)
        self.bad.take(scored.account.events_in, scored.account.malformed, bad_rows(scored.table(DEAD_LETTERS)))
        self.bad.rounded.update(scored.piece.rounded)
        there = {}
        for output in (*ALERT_OUTPUTS, *VARIANT_OUTPUTS):
            table = scored.table(output)
            in_span = table.filter(inside(moments_ms(table["event_time"]), self._span)) if table.num_rows else table
            if in_span.num_rows:
                there[output] = in_span
        if there:
            joined = pa.concat_tables([table.select([_ARRIVAL, "rule_id", "key"]) for table in there.values()])
            self._add(rows, joined, np.repeat(list(there), [table.num_rows for table in there.values()]))
        self.arrived += rows.num_rows

    @cached_property
    def events(self) -> AlertedEvents:
        """The rows at which something has alerted, once all pieces have been taken."""
        arrival, time_ms, event_id, amount = zip(*self._rows, strict=True) if self._rows else ((), (), (), ())
        none = np.empty(0, np.int64)
        ids = pa.chunked_array(list(event_id), pa.string()).combine_chunks()
        return AlertedEvents(
            np.concatenate([none, *arrival]), np.concatenate([none, *time_ms]), ids, np.concatenate([none, *amount])
        )

    def of(self, rule_id: str, output: str) -> AlertsOfRule:
        """Return the alerts of a rule or a variant in an output, once all pieces have been taken.

        Of an ACTIVE rule those of the keys inside its `rollout`, for they alone come, or would come, to `alerts`.
        """
        return AlertsOfRule.joined(self._found.get((rule_id, output), []))

    def key_of(self, values: Mapping[str, object]) -> int | None:
        """Return the number of a key, by the values of its fields; None where it has no alert."""
        return self._canonical.get(_sorted_json(values))

    def _note_times(self, rows: pa.Table) -> None:
        times_ms = moments_ms(rows[self._schema.event_time.field]).filter(rows["_fault"].is_null())
        counted_ms = times_ms.filter(inside(times_ms, self._span))
        self.arrivals += len(counted_ms)
        self.days.take(counted_ms.to_numpy())
        self.in_span_ms, self.all_ms = _wider(self.in_span_ms, counted_ms), _wider(self.all_ms, times_ms)

    def _add(self, rows: pa.Table, alerts: pa.Table, outputs: npt.NDArray[np.str_]) -> None:
        """Add the alerts of a piece."""
        arrivals, index = np.unique(alerts[_ARRIVAL].to_numpy(), return_inverse=True)
        different = np.searchsorted(rows[ARRIVAL].to_numpy(), arrivals)
        measures = [] if self._amount is None else [self._amount]
        names = [self._schema.event_id, self._schema.event_time.field, *measures]
        chosen = rows.select(names).take(pa.array(different))
        ids, times_ms = chosen[names[0]].combine_chunks(), moments_ms(chosen[names[1]]).to_numpy()
        amounts = np.zeros(len(different), np.int64)
        if self._amount is not None:
            measure = self._schema.measures[self._amount]
            amounts, *_ = conversion.measures(chosen[self._amount].combine_chunks(), measure)
        self._rows.append((arrivals, times_ms, ids, amounts))
        row, key = index.astype(np.int64) + self.alerted, self._key_numbers(alerts["key"])
        self.alerted += len(different)
        for rule_id, output, at in _by_rule(alerts["rule_id"], outputs):
            if rule_id in self._shares:
                at = at[[is_in_share(self._shares[rule_id], self.keys[number]) for number in key[at].tolist()]]
            self._found[rule_id, output].append(AlertsOfRule(row[at], key[at]))

    def _key_numbers(self, keys: pa.ChunkedArray) -> Int64s:
        """Return the number of each key, whatever the order of its fields."""
        encoded = keys.combine_chunks().dictionary_encode()
        for text in encoded.dictionary.to_pylist():
            if text not in self._code_of:
                canonical = _sorted_json(json.loads(text))
                if canonical not in self._canonical:
                    self._canonical[canonical] = len(self.keys)
                    self.keys.append(canonical)
                self._code_of[text] = self._canonical[canonical]
        of_text = np.array([self._code_of[text] for text in encoded.dictionary.to_pylist()], np.int64)
        numbers: Int64s = of_text[encoded.indices.to_numpy()]
        return numbers


def _has_share(rule: Rule) -> bool:
    """Return whether the alerts of some keys of a rule are for `shadow_alerts` only.

    Alerts that are held back are those of all keys, and so is what variants raise.
    """
    return rule.state == "ACTIVE" and rule.rollout < WHOLE_SHARE


def _by_rule(rule_ids: pa.ChunkedArray, outputs: npt.NDArray[np.str_]) -> Iterator[tuple[str, str, Int64s]]:
    """Return each rule and output with the indices of its alerts, ascending."""
    encoded = rule_ids.combine_chunks().dictionary_encode()
    names, of_output = np.unique(outputs, return_inverse=True)
    codes = encoded.indices.to_numpy().astype(np.int64) * len(names) + of_output
    order = np.argsort(codes, kind="stable")
    for alerts in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        rule, output = divmod(int(codes[alerts[0]]), len(names))
        yield encoded.dictionary[rule].as_py(), str(names[output]), alerts


def _wider(known: tuple[int, int] | None, times_ms: pa.ChunkedArray) -> tuple[int, int] | None:
    """Return the least and the greatest of times, and of what was known before."""
    if not len(times_ms):
        return known
    ends = pc.min_max(times_ms).as_py()
    before = (ends["min"], ends["max"]) if known is None else known
    return min(ends["min"], before[0]), max(ends["max"], before[1])


def _sorted_json(values: Mapping[str, object]) -> str:
    return json.dumps({name: values[name] for name in sorted(values)}, ensure_ascii=False)


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
