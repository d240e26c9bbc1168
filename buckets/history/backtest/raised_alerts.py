"""Collects the alerts of a backtest, and confirmed fraud, piece by piece, and computes figures from them.

Events are rows of the pieces, identified by their arrival number, which also tells which of two came first. An event
that alerts is stored once, for any number of rules and variants; each alert takes two numbers.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from buckets.archive.arrived_rows import ARRIVAL
from buckets.arrays import Int64s
from buckets.delta.whole_table import inside, moments_ms
from buckets.duration import DAY_MS
from buckets.engine.batch.dead_letters import bad_rows
from buckets.engine.policies import is_in_share
from buckets.events import conversion
from buckets.events.bad_rows import BadRows
from buckets.events.schema import EventSchema
from buckets.history.backtest.report import Figures, FraudFigures, KeyCount
from buckets.history.scoring import ScoredPiece
from buckets.json_text import write_json
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
from buckets.verdicts.confirmed import Amounts

_ARRIVAL = "source_order"  # The column of alerts that holds the number of their arrival, see `Backtest.piece`
_NO_NUMBERS, _NO_ALERTS = np.empty(0, np.int64), np.empty((0, 2), np.int64)
_NEVER = np.iinfo(np.int64).max
_LOW_BITS = 32
_LEAST_SHARE = 20  # A day counts if it has at least 1/20 of the events of a usual day


def scaled_amounts(rows: pa.Table, schema: EventSchema, amount: str | None) -> npt.NDArray[np.int64]:
    """Return the amounts of rows of a history as scaled int64; 0 if missing."""
    if amount is None:
        return np.zeros(len(rows), np.int64)
    amounts, *_ = conversion.measures(rows[amount].combine_chunks(), schema.measures[amount])
    return amounts


@dataclass(frozen=True)
class FraudEvent:
    """An event that is confirmed fraud, with the number of its first arrival.

    The amount is scaled, and 0 if unknown; the fields are those by which rules group.
    """

    arrival: int
    time_ms: int
    amount: int
    fields: dict[str, Any]


class FraudEvents:
    """Searches a history for confirmed fraud.

    Attributes:
        confirmed: the ids that are confirmed fraud, found or not, with their amounts.
        found: by id and time, in the order of arrival: an id that comes at several times is several events.
    """

    def __init__(self, confirmed: Amounts, schema: EventSchema, amount: str | None, fields: Iterable[str]) -> None:
        """Begin with nothing found; `amount` is the measure of the events' amounts, `fields` are those of keys."""
        self.confirmed, self._schema, self._amount = confirmed, schema, amount
        self._fields: Sequence[str] = list(dict.fromkeys(fields))
        self.found: dict[Event, FraudEvent] = {}
        self._ids_found: set[str] = set()

    @property
    def missing(self) -> int:
        """The number of these ids that have not been found."""
        return len(self.confirmed) - len(self._ids_found)

    def among(self, rows: pa.Table) -> pa.Table:
        """Return the rows of a piece that are confirmed fraud, with the data that `take` needs."""
        event_id, time = self._schema.event_id, self._schema.event_time.field
        mask = pc.and_(
            pc.is_in(rows[event_id], value_set=pa.array(self.confirmed, pa.string())), rows["_fault"].is_null()
        )
        names = dict.fromkeys([ARRIVAL, event_id, time, *self._fields, *filter(None, [self._amount])])
        return rows.select(names).filter(mask)

    def take(self, rows: pa.Table) -> None:
        """Add rows returned by `among`; pieces come in their order."""
        event_id, time = self._schema.event_id, self._schema.event_time.field
        fields = rows.select(self._fields).to_pylist() if self._fields else [{}] * len(rows)
        columns = (rows[event_id].to_pylist(), rows[ARRIVAL].to_pylist(), moments_ms(rows[time]).to_pylist())
        amounts = scaled_amounts(rows, self._schema, self._amount).tolist()
        for event, arrival, time_ms, amount, values in zip(*columns, amounts, fields, strict=True):
            if (event, time_ms) not in self.found:
                self.found[event, time_ms] = FraudEvent(arrival, time_ms, self._worth(event, amount), values)
                self._ids_found.add(event)

    def _worth(self, event_id: str, own: int) -> int:
        """Return the confirmed amount of an event, scaled, or its own amount if none is given.

        An amount given for an id belongs to its first event; later events with this id count 0.
        """
        written = self.confirmed[event_id]
        if written is None or self._amount is None:
            return own
        if event_id in self._ids_found:
            return 0
        scale = self._schema.measures[self._amount].scale
        return int(written.scaleb(scale).to_integral_value())


@dataclass(frozen=True)
class _AlertedEvents:
    """The rows at which something alerted: arrays of one length, except the last."""

    arrival: Int64s  # the number of each
    time_ms: Int64s
    event_id: pa.Array
    amount: Int64s  # scaled; 0 where there is none
    event: Int64s  # the number of its event, which is its id and its time: one that came twice is one
    first_row: Int64s  # by event, the row with which it came first


class FoundInPiece(NamedTuple):
    """The data that a backtest keeps from a piece. Arrays about alerted rows have the same length."""

    rows: int  # how many rows the piece has
    days: pa.Table  # its events in the span, as `events_by_day` counts them
    all_ms: tuple[int, ...]  # the least and the greatest event time, in the span or not; empty where there is none
    bad: tuple[int, int, Sequence[tuple[str, int, str]]]  # as `BadRows.take` takes them
    rounded: Mapping[str, int]  # by measure, how many values were rounded
    fraud: pa.Table | None  # the rows that are confirmed fraud; None where that is not known
    # number of the arrival, rule, key and output of each alert in the span; None where there is none
    alerts: pa.Table | None
    arrivals: Int64s  # the numbers of rows that have alerted, ascending
    times_ms: Int64s
    event_ids: pa.Array
    amounts: Int64s  # scaled; 0 where there is none


class RaisedAlerts:
    """Collects the alerts of scored pieces within a range of event times, and counts them at the end.

    The alerts of a rule in an output are an int64 array of two columns: row numbers of alerted events, and key numbers.

    Attributes:
        arrived: how many rows have been taken.
        alerted: at how many of them something has alerted.
        all_ms: the least and the greatest of all event times, in the span or not; empty where there is none.
        days: the events of the span that have arrived, repeats among them, as `events_by_day` counts them.
        bad: the rows that are not events, or could not be evaluated by some rule.
        fraud: the confirmed fraud; None where none is known.
    """

    def __init__(
        self,
        schema: EventSchema,
        span: TimeRange,
        amount: str | None,
        rules: Mapping[str, Rule],
        fraud: FraudEvents | None = None,
    ) -> None:
        """Begin with nothing taken.

        `amount` is the measure of the events' amounts, if any; `rules` holds rules by id, and for the id of a variant
        its rule; `fraud` searches for confirmed fraud, if any is known.
        """
        self._schema, self._span, self._amount, self.fraud = schema, span, amount, fraud
        # Held-back alerts, and those of variants, cover all keys.
        active = {name: rule for name, rule in rules.items() if rule.state == "ACTIVE"}
        self._shares = {name: rule for name, rule in active.items() if rule.rollout < WHOLE_SHARE}
        self._code_of: dict[str, int] = {}
        self._keys: dict[str, int] = {}  # by the key as JSON, its fields sorted by name
        self._texts: list[str] = []  # the same by number
        self._fraud_keys_by: dict[frozenset[str], Int64s] = {}
        self._rows: list[tuple[Int64s, Int64s, pa.Array, Int64s]] = []
        self._found: dict[tuple[str, str], list[Int64s]] = defaultdict(list)
        self.alerted = self.arrived = 0
        self.bad, self.days = BadRows(), events_by_day(pa.chunked_array([], pa.int64()))
        self.all_ms: tuple[int, ...] = ()

    def found_in(self, scored: ScoredPiece) -> "FoundInPiece":
        """Return the data of a piece that `take` needs, independent of other pieces."""
        rows, schema, account = scored.piece.rows, self._schema, scored.results.account
        times_ms = moments_ms(rows[schema.event_time.field]).filter(rows["_fault"].is_null())
        there = []
        for output in (*ALERT_OUTPUTS, *VARIANT_OUTPUTS):
            table = scored.table(output)
            in_span = table.filter(inside(moments_ms(table["event_time"]), self._span)) if table.num_rows else table
            if in_span.num_rows:
                alerted = in_span.select([_ARRIVAL, "rule_id", "key"])
                there.append(alerted.append_column("output", pa.repeat(output, len(alerted))))
        alerts = pa.concat_tables(there) if there else None
        arrivals = np.unique([] if alerts is None else alerts[_ARRIVAL].to_numpy()).astype(np.int64)
        measures = [] if self._amount is None else [self._amount]
        chosen = rows.select([schema.event_id, schema.event_time.field, *measures])
        chosen = chosen.take(pa.array(np.searchsorted(rows[ARRIVAL].to_numpy(), arrivals)))
        return FoundInPiece(
            rows.num_rows,
            events_by_day(times_ms.filter(inside(times_ms, self._span))),
            tuple(pc.min_max(times_ms).as_py().values()) if len(times_ms) else (),
            (account.events_in, account.malformed, list(bad_rows(scored.table(DEAD_LETTERS)))),
            scored.piece.rounded,
            None if self.fraud is None else self.fraud.among(rows),
            alerts,
            arrivals,
            moments_ms(chosen[schema.event_time.field]).to_numpy(),
            chosen[schema.event_id].combine_chunks(),
            scaled_amounts(chosen, schema, self._amount),
        )

    def take(self, found: "FoundInPiece") -> None:
        """Add a piece; pieces come in their order."""
        self.days = joined_days(pa.concat_tables([self.days, found.days]))
        known_ms = self.all_ms + found.all_ms
        self.all_ms = (min(known_ms), max(known_ms)) if known_ms else ()
        self.bad.take(*found.bad)
        self.bad.rounded.update(found.rounded)
        if self.fraud is not None and found.fraud is not None:
            self.fraud.take(found.fraud)
        if found.alerts is not None:
            self._add(found, found.alerts)
        self.arrived += found.rows

    def _add(self, found: "FoundInPiece", alerts: pa.Table) -> None:
        index = np.searchsorted(found.arrivals, alerts[_ARRIVAL].to_numpy())
        self._rows.append((found.arrivals, found.times_ms, found.event_ids, found.amounts))
        keys = alerts["key"].combine_chunks().dictionary_encode()
        numbers = np.array([self._number(text) for text in keys.dictionary.to_pylist()], np.int64)
        added = np.stack([index.astype(np.int64) + self.alerted, numbers[keys.indices.to_numpy()]], axis=1)
        self.alerted += len(found.arrivals)
        for rule_id, output, at in _by_rule(alerts):
            if rule_id in self._shares:
                rule = self._shares[rule_id]
                at = at[[is_in_share(rule, self._texts[number]) for number in added[at, 1].tolist()]]
            self._found[rule_id, output].append(added[at])

    def _number(self, text: str) -> int:
        """Return the number of a key given as JSON, whatever the order of its fields."""
        if text not in self._code_of:
            key = _sorted_json(json.loads(text))
            if key not in self._keys:
                self._keys[key] = len(self._texts)
                self._texts.append(key)
            self._code_of[text] = self._keys[key]
        return self._code_of[text]

    @cached_property
    def _events(self) -> _AlertedEvents:
        arrivals, times_ms, ids, amounts = zip(*self._rows, strict=True) if self._rows else ((), (), (), ())
        arrival, time_ms = np.concatenate([_NO_NUMBERS, *arrivals]), np.concatenate([_NO_NUMBERS, *times_ms])
        event_id = pa.chunked_array(list(ids), pa.string()).combine_chunks()
        id_code = event_id.dictionary_encode().indices.to_numpy().astype(np.int64)
        _, time_code = np.unique(time_ms, return_inverse=True)
        _, event = np.unique(id_code * (len(arrival) + 1) + time_code, return_inverse=True)
        order = np.argsort(arrival, kind="stable")
        _, first = np.unique(event[order], return_index=True)
        amount = np.concatenate([_NO_NUMBERS, *amounts])
        return _AlertedEvents(arrival, time_ms, event_id, amount, event.astype(np.int64), order[first])

    def _of(self, rule_id: str, output: str) -> Int64s:
        """Return the alerts of a rule or a variant in an output.

        For an ACTIVE rule only those of keys inside its `rollout`, since no others can reach `alerts`.
        """
        return np.concatenate([_NO_ALERTS, *self._found.get((rule_id, output), [])])

    def _alerts_of(self, rule: Rule) -> Int64s:
        return self._of(rule.rule_id, ALERTS if rule.state == "ACTIVE" else SHADOW_ALERTS)

    def of_rules(self, rules: Iterable[Rule]) -> Figures:
        """Return the joint alerts of rules, or for rules on trial their shadow alerts."""
        alerts = [(rule, self._alerts_of(rule)) for rule in rules]
        return self._figures(alerts, sum(len(self._of(rule.rule_id, HELD_ALERTS)) for rule, _ in alerts))

    def of_variants(self, variants: Mapping[str, Rule]) -> Figures:
        """Return the joint alerts of variants, given by id with their rules."""
        held = sum(len(self._of(name, VARIANT_HELD_ALERTS)) for name in variants)
        return self._figures([(rule, self._of(name, VARIANT_ALERTS)) for name, rule in variants.items()], held)

    def by_day(self, rules: Iterable[Rule]) -> dict[int, dict[str, int]]:
        """Return the alerts of each rule by day, days ascending, without rules that have none."""
        days: dict[int, dict[str, int]] = defaultdict(dict)
        for rule in rules:
            times_ms = self._events.time_ms[self._alerts_of(rule)[:, 0]]
            for day, count in zip(*np.unique(times_ms // DAY_MS, return_counts=True), strict=True):
                days[int(day)][rule.rule_id] = int(count)
        return {day: days[day] for day in sorted(days)}

    def top_keys(self, rule: Rule, most: int) -> tuple[KeyCount, ...]:
        """Return the keys with the most alerts of a rule; ties are ordered as text."""
        numbers, counts = np.unique(self._alerts_of(rule)[:, 1], return_counts=True)
        named = sorted(
            (-count, self._texts[number]) for number, count in zip(numbers.tolist(), counts.tolist(), strict=True)
        )
        counted = ((json.loads(key), -count) for count, key in named[:most])
        return tuple(KeyCount(write_json({name: key[name] for name in rule.group_by}), count) for key, count in counted)

    def samples(self, rules: Iterable[Rule]) -> dict[Event, Sample]:
        """Return the events of the alerts of rules, for comparisons."""
        samples: dict[Event, Sample] = {}
        events = self._events
        for rule in rules:
            row, key = self._alerts_of(rule).T
            columns = (events.event_id.take(pa.array(row)).to_pylist(), events.time_ms[row].tolist(), key.tolist())
            for event_id, time_ms, number, amount in zip(*columns, events.amount[row].tolist(), strict=True):
                sample = Sample(time_ms, event_id, self._texts[number], self._money(amount))
                samples.setdefault(sample.event, sample)
        return samples

    def _figures(self, alerts: Sequence[tuple[Rule, Int64s]], held: int) -> Figures:
        """Return the joint figures of some rules; `held` more alerts were held back."""
        row, key = np.concatenate([_NO_ALERTS, *(of_rule for _, of_rule in alerts)]).T
        is_alerted = np.zeros(len(self._events.first_row), np.bool_)
        is_alerted[self._events.event[row]] = True
        amounts = self._events.amount[self._events.first_row[is_alerted]]
        # The sum may be larger than 64 bits.
        low = int((amounts & ((1 << _LOW_BITS) - 1)).sum())
        amount = self._money((int((amounts >> _LOW_BITS).sum()) << _LOW_BITS) + low)
        fraud = None if self.fraud is None else self._beside_fraud(alerts, is_alerted)
        return Figures(len(row), held, int(is_alerted.sum()), len(np.unique(key)), amount, fraud)

    @cached_property
    def _fraud_in_span(self) -> dict[Event, FraudEvent]:
        assert self.fraud is not None
        return {event: fraud for event, fraud in self.fraud.found.items() if self._span.has(fraud.time_ms)}

    @cached_property
    def _fraud_number(self) -> Int64s:
        """Return the event number of each confirmed fraud of the span; -1 if it did not alert."""
        events = self._events
        alerted = zip(events.event_id.to_pylist(), events.time_ms.tolist(), strict=True)
        number_of = dict(zip(alerted, events.event.tolist(), strict=True))
        return np.array([number_of.get(event, -1) for event in self._fraud_in_span], np.int64)

    def _fraud_keys(self, fields: frozenset[str]) -> Int64s:
        """Return the key number of each of them for some fields; -1 if no alert has that key."""
        if fields not in self._fraud_keys_by:
            keys = ({name: fraud.fields[name] for name in fields} for fraud in self._fraud_in_span.values())
            numbers = [self._keys.get(_sorted_json(key), -1) for key in keys]
            self._fraud_keys_by[fields] = np.array(numbers, np.int64)
        return self._fraud_keys_by[fields]

    def _beside_fraud(self, alerts: Sequence[tuple[Rule, Int64s]], is_alerted: npt.NDArray[np.bool_]) -> FraudFigures:
        frauds = list(self._fraud_in_span.values())
        arrival = np.array([fraud.arrival for fraud in frauds], np.int64)
        caught = self._fraud_number >= 0
        caught[caught] = is_alerted[self._fraud_number[caught]]
        after = np.zeros(len(caught), np.bool_)
        for rule, of_rule in alerts:
            if rule.group_by:
                first = np.full(len(self._keys) + 1, _NEVER, np.int64)
                np.minimum.at(first, of_rule[:, 1], self._events.arrival[of_rule[:, 0]])
                # The last element is for keys without an alert, which have the number -1.
                after |= first[self._fraud_keys(frozenset(rule.group_by))] < arrival
        after &= ~caught
        caught_amount, after_amount = (
            self._money(sum(fraud.amount for fraud, is_it in zip(frauds, chosen.tolist(), strict=True) if is_it))
            for chosen in (caught, after)
        )
        return FraudFigures(
            confirmed=len(caught),
            alerted=int(is_alerted.sum()),
            caught=int(caught.sum()),
            after=int(after.sum()),
            caught_amount=caught_amount or Decimal(0),
            after_amount=after_amount or Decimal(0),
        )

    def _money(self, scaled: int) -> Decimal | None:
        return None if self._amount is None else Decimal(scaled).scaleb(-self._schema.measures[self._amount].scale)


def _by_rule(alerts: pa.Table) -> Iterator[tuple[str, str, Int64s]]:
    """Return the ascending indices of alerts by rule and output."""
    numbered = alerts.append_column("at", pa.array(np.arange(len(alerts))))
    grouped = numbered.group_by(["rule_id", "output"], use_threads=False).aggregate([("at", "list")])
    for rule_id, output, at in zip(grouped["rule_id"], grouped["output"], grouped["at_list"], strict=True):
        yield rule_id.as_py(), output.as_py(), at.values.to_numpy()


def _sorted_json(values: Mapping[str, object]) -> str:
    return json.dumps(values, ensure_ascii=False, sort_keys=True)


def events_by_day(times_ms: pa.ChunkedArray) -> pa.Table:
    """Count events by `day` from their times: `events` is their number, `first_ms` and `last_ms` the range."""
    days, ones = times_ms.to_numpy() // DAY_MS, np.ones(len(times_ms), np.int64)
    return joined_days(pa.table({"day": days, "events": ones, "first_ms": times_ms, "last_ms": times_ms}))


def joined_days(days: pa.Table) -> pa.Table:
    """Merge the rows of events by day into one per day."""
    joined = days.group_by("day").aggregate([("events", "sum"), ("first_ms", "min"), ("last_ms", "max")])
    return joined.rename_columns({"events_sum": "events", "first_ms_min": "first_ms", "last_ms_max": "last_ms"})


def counted_days(days: pa.Table, begin_ms: int | None, end_ms: int | None) -> Fraction:
    """Return how many days count, given all events of a range by day, at least one event.

    An open beginning is the first event of a day that counts, an open end is after the last.
    """
    counts = np.sort(days["events"].to_numpy())
    middle = np.searchsorted(np.cumsum(counts), counts.sum() / 2)
    counted = days.filter(pc.greater_equal(days["events"], int(counts[middle]) / _LEAST_SHARE))
    first_ms = pc.min(counted["first_ms"]).as_py() if begin_ms is None else begin_ms
    end_ms = pc.max(counted["last_ms"]).as_py() + 1 if end_ms is None else end_ms
    spans = ((max(first_ms, day * DAY_MS), min(end_ms, (day + 1) * DAY_MS)) for day in counted["day"].to_pylist())
    return Fraction(sum(end - begin for begin, end in spans), DAY_MS)
