"""What has arrived of one key of a group, and what became of each arrival up to an event."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.config.precision import JobPrecision
from buckets.delta.query import is_between, quoted_column, sql_moment
from buckets.history.explain.alerts import alert_arrivals
from buckets.history.explain.arrivals import Arrivals, Int64s
from buckets.history.explain.event_outcome import NO_CLOCK, Fate, Fates, Regime, decide_fates
from buckets.history.explain.history_lookup import Past, is_value
from buckets.history.explain.scoring import score_again
from buckets.moment import TimeRange
from buckets.outputs.columns import DEAD_LETTERS
from buckets.rules.alert_schema import Counted
from buckets.rules.fill import Fill
from buckets.rules.filter import Filter
from buckets.rules.group import Group, group_id
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet

_LARGE = 2.0**62
"""Sums of less than that are far from passing 64 bits."""


@dataclass(frozen=True)
class Target:
    """The event, or the alert as an event, that a rule is explained at.

    Attributes:
        arrivals: it alone, with all fields.
        on: what it is.
    """

    arrivals: Arrivals
    on: Counted

    @property
    def number(self) -> int:
        """What says which came before it."""
        return int(self.arrivals.numbers[0])

    @property
    def batch_id(self) -> int:
        """The batch that scored it."""
        return int(self.arrivals.batches[0])

    @property
    def time_ms(self) -> int:
        """When it happened."""
        return int(self.arrivals.times_ms[0])

    @property
    def name(self) -> str:
        """Its id."""
        return str(self.arrivals.ids[0].as_py())

    def value(self, field: str) -> Any:
        """Return one of its fields; a measure as scaled integer."""
        return self.arrivals.columns()[field][0].as_py()


@dataclass(frozen=True)
class KeyHistory:
    """A key of a group up to an event, and what came after it with a time before.

    Attributes:
        group: the group.
        arrivals: all that arrived of the key, from some time on.
        fates: what became of each.
        clock_ms: the greatest time that had come before the event; None for none.
        others: by index, the arrival with which one shares id or time.
        target: the index of the event.
        regime: the settings of its batch.
        fill: the fill from whose timelines it is evaluated; None where nothing was filled in.
    """

    group: Group
    arrivals: Arrivals
    fates: Sequence[Fate]
    clock_ms: int | None
    others: Mapping[int, int]
    target: int
    regime: Regime
    fill: Fill | None = None

    @property
    def fate(self) -> Fate:
        """What became of the event."""
        return self.fates[self.target]


def find_group(rule_set: RuleSet, rule: Rule, fields: Sequence[str], where: Filter) -> Group | None:
    """Return a group of a rule in some version of the rules, if that has it."""
    wanted = group_id(fields, where, rule.on)
    groups = rule_set.groups if rule.on == "events" else rule_set.alert_groups
    return next((group for group in groups if group.group_id == wanted), None)


def follow_key(past: Past, target: Target, group: Group, from_ms: int | None) -> KeyHistory:
    """Follow the key of an event in a group."""
    schema = target.arrivals.schema
    key = {field: target.value(field) for field in group.fields}
    if past.terms(target.batch_id).engine.duplicates.within:
        from_ms = None  # Whether an event is a repeat depends on whether the one before it is, and so on.
    assert None not in key.values(), "the event does not belong to the group"
    if target.on == "alerts":
        arrivals = alert_arrivals(past, target.batch_id, from_ms, key)
    else:
        time = quoted_column(schema.event_time.field)
        tests = [is_value(schema, field, value) for field, value in key.items()]
        tests += is_between(schema.event_time.field, TimeRange(from_ms))
        tests.append(f'({time} <= {sql_moment(target.time_ms)} or "_batch_id" <= {target.batch_id})')
        # With all fields: rules of earlier batches may have needed others than those of this one.
        arrivals = past.events(schema, tests)
    came = int(np.searchsorted(arrivals.numbers, target.number, side="right"))
    before = arrivals.take(np.arange(came))
    fill = past.fill_of(group, target.batch_id)
    decided, regime = _decide(past, group, before, fill)
    later: list[Fate] = ["not yet"] * (len(arrivals) - came)
    clock_ms = None if decided.clocks_ms[-1] == NO_CLOCK else int(decided.clocks_ms[-1])
    return KeyHistory(group, arrivals, [*decided.fates, *later], clock_ms, decided.others, came - 1, regime, fill)


def _decide(past: Past, group: Group, arrivals: Arrivals, fill: Fill | None) -> tuple[Fates, Regime]:
    """Decide what became of arrivals, and return it with the settings of the last of them."""
    known: dict[int, Fate] = {}
    # What was filled in was taken in by the rules of the batch with which that began.
    under = arrivals.batches if fill is None else np.maximum(arrivals.batches, past.begun_with(fill))
    since = past.first_batch_of(group.generation) if group.generation > 1 and fill is None else None
    passed = past.passing(group.where, arrivals)
    known |= dict.fromkeys(np.flatnonzero(~passed).tolist(), "left out")
    known |= _refused(past, group, arrivals, fill)
    known |= dict.fromkeys(_malformed(past, group, arrivals, under), "malformed")
    if since is not None:
        known |= dict.fromkeys(np.flatnonzero(arrivals.batches < since).tolist(), "before")
    batches, inverse = np.unique(under, return_inverse=True)
    regimes = [_regime(past, group, batch_id) for batch_id in batches.tolist()]
    ids = arrivals.ids.to_pylist()
    return decide_fates(arrivals.times_ms, ids, regimes, inverse, known), regimes[int(inverse[-1])]


def _malformed(past: Past, group: Group, arrivals: Arrivals, under: Int64s) -> Iterable[int]:
    """Return arrivals with a null in a field that the rules that took them in need, where nulls were strict."""
    needed = {batch_id: required_fields(past, group, batch_id) for batch_id in np.unique(under).tolist()}
    for name, column in arrivals.fields.items():
        if column.null_count:
            for row in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
                if name in needed[int(under[row])]:
                    yield row


def required_fields(past: Past, group: Group, batch_id: int) -> frozenset[str]:
    """Return the fields without which an arrival of a batch was no event, or no alert, for a group."""
    needed = group.needed_fields if group.on == "alerts" else past.rule_set(batch_id).needed_fields
    return past.terms(batch_id).engine.required(needed)


def _refused(past: Past, group: Group, arrivals: Arrivals, fill: Fill | None) -> dict[int, Fate]:
    """Return arrivals that a group left out since a sum would have passed 64 bits."""
    if group.on == "alerts":
        return {}
    because = f"so group {group.name!r} leaves it out"
    reasons = past.refused if fill is None else _refused_again(past, group, arrivals)
    return {
        row: "refused"
        for row, (source, _, position) in enumerate(arrivals.origins)
        if because in reasons.get((source, position), "")
    }


def _refused_again(past: Past, group: Group, arrivals: Arrivals) -> Mapping[tuple[str, int], str]:
    """Return the same of history that was filled in, which has no dead letters; asked where a sum could be so large."""
    measures = (arrivals.fields[name] for name in arrivals.schema.measures if name in arrivals.fields)
    if max((pc.sum(pc.abs(of.cast(pa.float64()))).as_py() or 0.0 for of in measures), default=0.0) < _LARGE:
        return {}
    last = arrivals.take(np.array([len(arrivals) - 1]))
    reasons: dict[tuple[str, int], str] = {}
    for row in score_again(past, last, [group], None, [DEAD_LETTERS])[DEAD_LETTERS]:
        where = (row["source"], row["position"])
        reasons[where] = f"{reasons.get(where, '')}; {row['reason']}".removeprefix("; ")
    return reasons


def _regime(past: Past, group: Group, batch_id: int) -> Regime:
    """Return the settings of a batch for a group."""
    rule_set, engine = past.rule_set(batch_id), past.terms(batch_id).engine
    groups = rule_set.groups if group.on == "events" else rule_set.alert_groups
    then = next((other for other in groups if other.group_id == group.group_id), group)
    horizon_ms = then.longest_window_ms + engine.allowed_lateness
    if group.on == "alerts":
        return Regime(horizon_ms, engine.late, "keep", JobPrecision())
    schema = past.terms(batch_id).event_schema
    precision = engine.precision.of_group(group.group_id, schema)
    return Regime(horizon_ms, engine.late, engine.collision, precision, engine.duplicates.within or 0)
