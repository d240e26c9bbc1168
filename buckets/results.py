"""What scoring found, as tables: evaluations, alerts, and the side outputs of one shard's events of one group."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from buckets.arrivals import INGESTED, DeadLetter, event_json, shortened
from buckets.decimal128 import decimals
from buckets.event_schema import EventSchema
from buckets.key import decode_key, key_json
from buckets.outputs import (
    COLLISION_COLUMNS,
    DUPLICATE_COLUMNS,
    LATE_EVENT_COLUMNS,
    TIME,
    alert_columns,
    value_type,
)
from buckets.plan import GroupPlan
from buckets.rule import Rule
from buckets.scoring import Scored
from buckets.verdict import COLLISION_NOT_KEPT, DUPLICATE, EVALUATED, LATE, OUTCOMES, OVERFLOW, TOO_LATE

Int64s = npt.NDArray[np.int64]
LIST_COLUMNS = ("rule", "whole", "micro", "count", "fired", "warm")
BOUND_COLUMNS = {
    "lower_whole": "lower_whole",
    "lower_micro": "lower_micro",
    "upper_whole": "upper_whole",
    "upper_micro": "upper_micro",
    "exact": "exact",
    "count_lower": "held_lower",
    "count_upper": "held_upper",
}
"""Columns of compact evaluations that are there only where some window is open, and what rows call them."""


def alert_id(rule: Rule, key: str, event_id: str, event_time_ms: int) -> str:
    """The identity of an alert: the same whenever the same event of the same key crosses the same version of a rule.

    An event is its id and its time, as everywhere: the same id at another time is no duplicate. Where it stood in its
    source does not count, so that a replay from another file or topic has the same alerts.
    """
    parts = json.dumps([rule.rule_id, rule.version, key, event_id, event_time_ms], ensure_ascii=False)
    return hashlib.blake2b(parts.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True)
class GroupResults:
    """The scored events of one group and shard.

    Attributes:
        plan: the group's plan.
        schema: the event schema.
        ruleset_version: version of the rule set that judged.
        events: the events as they came in their payload, key by key, each key's in arrival order.
        keys: the key of each code.
        codes: int64 `(events,)`, each event's key.
        scored: verdicts and rows.
    """

    plan: GroupPlan
    schema: EventSchema
    ruleset_version: int
    events: pa.Table
    keys: Sequence[str]
    codes: Int64s
    scored: Scored

    def _key_column(self, events: Int64s) -> pa.Array:
        codes, places = np.unique(self.codes[events], return_inverse=True)
        texts = [key_json(self.plan.group, self.keys[code], self.schema) for code in codes.tolist()]
        return pa.array(texts, pa.string()).take(pa.array(places))

    def _taken(self, events: Int64s) -> pa.Table:
        return self.events.take(pa.array(events))

    def counts(self) -> list[int]:
        """How many events had each outcome, by its code in `verdict`."""
        return np.bincount(self.scored.verdicts.outcome, minlength=OUTCOMES).tolist()

    def _warm(self, events: Int64s, rules: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        """Whether the windows of rules at events reach no further back than what has been kept for rule and key."""
        reach = self.plan.window_arrays.reach_ms[self.plan.rule_arrays.window]
        times_ms, plan = self.events["time_ms"].to_numpy()[events], self.plan
        step = np.searchsorted(plan.complete_from_ms, times_ms, side="right") - 1
        since_ms = np.maximum(plan.complete_since_ms[rules, step], self.scored.since_ms[self.codes[events]])
        return times_ms - reach[rules] >= since_ms

    def evaluations(self) -> pa.Table:
        """All rows, compactly: one row an event, its results as lists. `expand` makes them rows."""
        rows = self.scored.rows
        starts = np.flatnonzero(np.diff(rows.event, prepend=-1))
        events = rows.event[starts]
        offsets = pa.array(np.append(starts, len(rows.event)).astype(np.int32))
        taken = self._taken(events)
        columns = {
            "rule": rows.rule,
            "whole": rows.whole,
            "micro": rows.micro,
            "count": rows.held,
            "fired": rows.fired,
            "warm": self._warm(rows.event, rows.rule),
        }
        if not np.array_equal(rows.held_lower, rows.held_upper):
            columns |= {name: getattr(rows, column) for name, column in BOUND_COLUMNS.items()}
        return pa.table(
            {
                "event_id": taken["event_id"],
                "key": self._key_column(events).dictionary_encode(),
                "time_ms": taken["time_ms"],
                "source": taken["source"],
                "source_order": taken["source_order"],
                "position": taken["position"],
            }
            | {name: pa.ListArray.from_arrays(offsets, pa.array(values)) for name, values in columns.items()}
        )

    def alerts(self, state: str) -> pa.Table:
        """Fired rows of rules in a state, ACTIVE or SHADOW; with `ingested_ms` where the source knows that."""
        rows, columns = self.scored.rows, alert_columns(self.schema.largest_scale)
        of_state = np.array([rule.state == state for rule in self.plan.rules], np.bool_)
        chosen = np.flatnonzero(rows.fired & of_state[rows.rule]) if len(of_state) else np.empty(0, np.int64)
        if not len(chosen):
            return columns.empty_table()
        events, rules = rows.event[chosen], rows.rule[chosen]
        taken = self._taken(events)
        keys = self._key_column(events)
        times_ms = taken["time_ms"].to_numpy()
        judged = [self.plan.rules[rule] for rule in rules]
        kind = value_type(self.schema.largest_scale)
        factors = value_factors(self.plan, self.schema)[rules]
        value = decimals(rows.whole[chosen], rows.micro[chosen], factors, kind)
        lower = upper = value
        if not rows.exact[chosen].all():
            lower = decimals(rows.lower_whole[chosen], rows.lower_micro[chosen], factors, kind)
            upper = decimals(rows.upper_whole[chosen], rows.upper_micro[chosen], factors, kind)
        ids = taken["event_id"].to_pylist()
        lengths_ms = np.array([rule.window.length_ms for rule in self.plan.rules], np.int64)
        sentences = pa.array([rule.sentence() for rule in self.plan.rules])
        found = {
            "alert_id": pa.array(list(map(alert_id, judged, keys.to_pylist(), ids, times_ms.tolist()))),
            "rule_id": pa.array([rule.rule_id for rule in judged]),
            "rule_version": pa.array([rule.version for rule in judged], pa.int32()),
            "ruleset_version": pa.array(np.full(len(chosen), self.ruleset_version)),
            "rule": sentences.take(pa.array(rules)),
            "key": keys,
            "event_id": taken["event_id"],
            "event_time": taken["time_ms"].cast(TIME),
            "value": value,
            "lower": lower,
            "upper": upper,
            "exact": pa.array(rows.exact[chosen]),
            "certain": pa.array(rows.certain[chosen]),
            "warm": pa.array(self._warm(events, rules)),
            "count": pa.array(rows.held[chosen]),
            "count_lower": pa.array(rows.held_lower[chosen]),
            "count_upper": pa.array(rows.held_upper[chosen]),
            "operator": pa.array([rule.limit.operator for rule in judged]),
            "limit": pa.array([format(rule.limit.value, "f") for rule in judged]),
            "window_start": pa.array(times_ms - lengths_ms[rules]).cast(TIME),
            "window_end": taken["time_ms"].cast(TIME),
            "event": pa.array(self._event_texts(events, taken)),
            "source": taken["source"].cast(pa.string()),
            "source_order": taken["source_order"],
            "position": taken["position"],
        }
        table = pa.table({name: found[name] for name in columns.names}, schema=columns)
        return table.append_column(INGESTED, taken[INGESTED]) if INGESTED in taken.column_names else table

    def _event_texts(self, events: Int64s, taken: pa.Table) -> list[str]:
        """The events as JSON text."""
        names = {f"attribute:{name}": name for name in self.schema.attributes}
        names |= {f"measure:{name}": name for name in self.schema.measures}
        known = [name for name in taken.column_names if name in names]
        keys = [decode_key(self.plan.group, self.keys[code], self.schema) for code in self.codes[events]]
        others = taken.select(known).rename_columns([names[name] for name in known]).to_pylist()
        ids, times_ms = taken["event_id"].to_pylist(), taken["time_ms"].to_pylist()
        declared = [*self.schema.attributes, *self.schema.measures]
        texts = []
        for event_id, time_ms, key, other in zip(ids, times_ms, keys, others, strict=True):
            fields = key | other
            texts.append(event_json(self.schema, event_id, time_ms, {name: fields[name] for name in declared}))
        return texts

    def _side(self, events: Int64s) -> dict[str, pa.Array]:
        """The columns that all side outputs have.

        An outcome is warm where the event is later than all that may have been evicted of its key: nothing that is
        missing could make it another.
        """
        taken = self._taken(events)
        warm = taken["time_ms"].to_numpy() >= self.scored.since_ms[self.codes[events]]
        fields = pa.array([list(self.plan.group.fields)] * len(events), pa.list_(pa.string()))
        return {
            "event_id": taken["event_id"],
            "group": pa.array([self.plan.group.name] * len(events), pa.string()),
            "group_by": fields,
            "key": self._key_column(events),
            "event_time": taken["time_ms"].cast(TIME),
            "warm": pa.array(warm),
            "source": taken["source"].cast(pa.string()),
            "source_order": taken["source_order"],
            "position": taken["position"],
        }

    def _others(self, events: Int64s) -> pa.Array:
        return pa.array([self.scored.other_id(event) for event in events.tolist()], pa.string())

    def late_events(self) -> pa.Table:
        """Late and too late events."""
        verdicts = self.scored.verdicts
        events = np.flatnonzero((verdicts.outcome == LATE) | (verdicts.outcome == TOO_LATE))
        columns = self._side(events) | {
            "clock": pa.array(verdicts.clock_ms[events]).cast(TIME),
            "applied": pa.array(verdicts.applied[events]),
            "too_late": pa.array(verdicts.outcome[events] == TOO_LATE),
            "other_event_id": self._others(events),
        }
        return pa.table({name: columns[name] for name in LATE_EVENT_COLUMNS.names}, schema=LATE_EVENT_COLUMNS)

    def has_collisions(self) -> bool:
        """Whether some event shared its time with another."""
        return bool((self.scored.verdicts.other_start >= 0).any())

    def collisions(self) -> pa.Table:
        """Events that shared their time with another, and were not late."""
        verdicts = self.scored.verdicts
        on_time = (verdicts.outcome == EVALUATED) | (verdicts.outcome == COLLISION_NOT_KEPT)
        events = np.flatnonzero(on_time & (verdicts.other_start >= 0))
        columns = self._side(events) | {
            "kept": pa.array(verdicts.applied[events]),
            "other_event_id": self._others(events),
        }
        return pa.table({name: columns[name] for name in COLLISION_COLUMNS.names}, schema=COLLISION_COLUMNS)

    def duplicates(self) -> pa.Table:
        """Events that were already there."""
        columns = self._side(np.flatnonzero(self.scored.verdicts.outcome == DUPLICATE))
        return pa.table({name: columns[name] for name in DUPLICATE_COLUMNS.names}, schema=DUPLICATE_COLUMNS)

    def has_dead_letters(self) -> bool:
        """Whether with some event the sum of a rule would pass 64 bits."""
        return bool(len(self.scored.beyond.rule) or (self.scored.verdicts.outcome == OVERFLOW).any())

    def dead_letters(self) -> list[DeadLetter]:
        """Events with which a sum would pass 64 bits: which rule has no result, and whether the group has any.

        A rule in force takes the event out of its group. One on trial has no result for it, and all others have theirs.
        """
        verdicts, beyond = self.scored.verdicts, self.scored.beyond
        refused = np.flatnonzero(verdicts.outcome == OVERFLOW)
        events = np.concatenate([refused, beyond.event])
        rules = [self.plan.rules[place] for place in [*verdicts.rule[refused].tolist(), *beyond.rule.tolist()]]
        taken = self._taken(events)
        places = [taken[name].cast(kind).to_pylist() for name, kind in _PLACE_TYPES]
        letters = []
        for row, (rule, text) in enumerate(zip(rules, self._event_texts(events, taken), strict=True)):
            sum_of_rule = f"{rule.measure}: with this event the sum of rule {rule.rule_id!r} would pass 64 bits"
            consequence = f"so group {self.plan.group.name!r} leaves it out"
            if row >= len(refused):
                consequence = "so this rule, which is on trial, has no result for it"
            source, order, position = (place[row] for place in places)
            reason = f"{sum_of_rule}, {consequence}"
            letters.append(DeadLetter(source, order, position, reason, shortened(text)))
        return letters


def one_letter_an_event(letters: pa.Table) -> pa.Table:
    """Dead letters with all reasons of each event, which may have failed in several groups and for several rules."""
    order = ("source_order", "position", "source", "raw")
    ordered = letters.sort_by([(name, "ascending") for name in (*order, "reason")]).to_pylist()
    joined = []
    for _, each in groupby(ordered, key=itemgetter(*order)):
        first, *others = each
        reasons = dict.fromkeys(letter["reason"] for letter in (first, *others))
        joined.append(first | {"reason": "; ".join(reasons)})
    return pa.Table.from_pylist(joined, letters.schema)


_PLACE_TYPES = (("source", pa.string()), ("source_order", pa.int64()), ("position", pa.int64()))


def value_factors(plan: GroupPlan, schema: EventSchema) -> Int64s:
    """For each rule, how many of the last digits of `outputs.value_type` make one unit of its values."""
    digits = schema.largest_scale + 6
    scales = [0 if rule.measure is None else schema.measures[rule.measure].scale for rule in plan.rules]
    return np.array([10 ** (digits - scale) for scale in scales], np.int64)


def expand(compact: pa.Table, plan: GroupPlan, schema: EventSchema, ruleset_version: int) -> pa.Table:
    """Compact evaluations as one row for an event and a rule, in the columns of `outputs.evaluation_columns`.

    Three columns more, `source`, `source_order` and `position`, say where the event stood.
    """
    names = [*LIST_COLUMNS, *(name for name in BOUND_COLUMNS if name in compact.column_names)]
    lists = {name: compact[name].combine_chunks() for name in names}
    flat = {name: pc.list_flatten(values) for name, values in lists.items()}
    events = pc.list_parent_indices(lists["rule"])
    rules = flat["rule"].to_numpy()
    kind = value_type(schema.largest_scale)
    factors = value_factors(plan, schema)[rules]
    value = decimals(flat["whole"].to_numpy(), flat["micro"].to_numpy(), factors, kind)
    lower = upper = value
    count_lower = count_upper = flat["count"]
    exact = pa.array(np.ones(len(rules), np.bool_))
    if "exact" in flat:
        count_lower, count_upper = flat["count_lower"], flat["count_upper"]
        lower = decimals(flat["lower_whole"].to_numpy(), flat["lower_micro"].to_numpy(), factors, kind)
        upper = decimals(flat["upper_whole"].to_numpy(), flat["upper_micro"].to_numpy(), factors, kind)
        exact = flat["exact"]
    rule_ids = pa.array([rule.rule_id for rule in plan.rules])
    versions = pa.array([rule.version for rule in plan.rules], pa.int32())
    return pa.table(
        {
            "event_id": compact["event_id"].take(events),
            "rule_id": rule_ids.take(flat["rule"]),
            "rule_version": versions.take(flat["rule"]),
            "ruleset_version": pa.array(np.full(len(rules), ruleset_version)),
            "key": compact["key"].cast(pa.string()).take(events),
            "event_time": compact["time_ms"].cast(TIME).take(events),
            "value": value,
            "lower": lower,
            "upper": upper,
            "exact": exact,
            "warm": flat["warm"],
            "count": flat["count"],
            "count_lower": count_lower,
            "count_upper": count_upper,
            "fired": flat["fired"],
            "source": compact["source"].cast(pa.string()).take(events),
            "source_order": compact["source_order"].take(events),
            "position": compact["position"].take(events),
        }
    )
