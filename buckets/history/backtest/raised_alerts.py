"""The alerts that a backtest raises, gathered piece by piece: of each the rule, the key and the event, as numbers.

Events are rows of the pieces, known by the number of their arrival. So it is known which of two came first. An event
that alerts is kept once, whatever the number of rules and variants that it alerts for; of an alert there are two
numbers.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from buckets.archive.archive import ARRIVAL
from buckets.delta.whole_table import inside, moments_ms
from buckets.engine.batch.dead_letters import bad_rows
from buckets.engine.policies.policies import is_in_share
from buckets.events import conversion
from buckets.events.bad_rows import BadRows
from buckets.events.schema import EventSchema
from buckets.history.backtest.page import CountedDays
from buckets.history.scoring.scoring import ScoredPiece
from buckets.moment import TimeRange
from buckets.outputs.columns import DEAD_LETTERS, VARIANT_OUTPUTS
from buckets.outputs.recorded_outputs import ALERT_OUTPUTS
from buckets.rules.policy import WHOLE_SHARE
from buckets.rules.rule import Rule

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
