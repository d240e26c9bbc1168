"""What has arrived of one key of a group, and what became of each arrival up to an event."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from buckets.config.precision import JobPrecision
from buckets.history.explanation_alerts import alert_arrivals
from buckets.history.explanation_arrivals import Arrivals, Int64s
from buckets.history.explanation_fate import NO_CLOCK, Fate, Fates, Regime, decide_fates
from buckets.history.explanation_past import Past
from buckets.history.explanation_results import sql_moment, sql_value
from buckets.rules.alert_schema import Counted
from buckets.rules.filter import Filter, needed_fields
from buckets.rules.rule import Rule
from buckets.rules.rule_set import Group, RuleSet, group_id


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
        """One of its fields; a measure as scaled integer."""
        return self.arrivals.columns()[field][0].as_py()


@dataclass(frozen=True)
class KeyHistory:
    """A key of a group up to an event, and what came after it with a time before.

    Attributes:
        group: the group.
        arrivals: all that arrived of the key, from some time on.
        fates: what became of each.
        clocks_ms: the greatest time that had come before each.
        others: by index, the arrival with which one shares id or time.
        target: the index of the event.
        regime: the settings of its batch.
    """

    group: Group
    arrivals: Arrivals
    fates: Sequence[Fate]
    clocks_ms: Int64s
    others: Mapping[int, int]
    target: int
    regime: Regime

    @property
    def fate(self) -> Fate:
        """What became of the event."""
        return self.fates[self.target]

    @property
    def clock_ms(self) -> int | None:
        """The greatest time that had come before it."""
        clock_ms = int(self.clocks_ms[self.target])
        return None if clock_ms == NO_CLOCK else clock_ms


def find_group(rule_set: RuleSet, rule: Rule, fields: Sequence[str], where: Filter) -> Group | None:
    """A group of a rule, in some version of the rules."""
    wanted = group_id(fields, where, rule.on)
    groups = rule_set.groups if rule.on == "events" else rule_set.alert_groups
    return next((group for group in groups if group.group_id == wanted), None)


def follow_key(past: Past, target: Target, group: Group, from_ms: int, fields: Iterable[str]) -> KeyHistory:
    """Follow the key of an event in a group.

    Args:
        past: the past.
        target: the event.
        group: the group, as it was at the event.
        from_ms: from which event time on.
        fields: what is looked at of each arrival besides.
    """
    schema = target.arrivals.schema
    key = {field: target.value(field) for field in group.fields}
    names = {*fields, *group.fields, *group.needed_fields, *needed_fields(group.where, schema)}
    if target.on == "alerts":
        arrivals = alert_arrivals(past, target.batch_id, from_ms, key)
    else:
        names |= past.rule_set(target.batch_id).needed_fields
        time = f'"{schema.event_time.field}"'
        tests = [f'"{field}" = {sql_value(value)}' for field, value in key.items()]
        tests.append(f"{time} >= {sql_moment(from_ms)}")
        tests.append(f'({time} <= {sql_moment(target.time_ms)} or "_batch_id" <= {target.batch_id})')
        arrivals = past.events(schema, tests, names)
    came = int(np.searchsorted(arrivals.numbers, target.number, side="right"))
    before = arrivals.take(np.arange(came))
    found, regime = _decide(past, group, before)
    later: list[Fate] = ["not yet"] * (len(arrivals) - came)
    clocks_ms = np.append(found.clocks_ms, np.full(len(later), NO_CLOCK, np.int64))
    return KeyHistory(group, arrivals, [*found.fates, *later], clocks_ms, found.others, came - 1, regime)


def _decide(past: Past, group: Group, arrivals: Arrivals) -> tuple[Fates, Regime]:
    """What became of arrivals, and the settings of the last of them."""
    known: dict[int, Fate] = {}
    since = past.first_batch_of(group.generation) if group.generation > 1 else None
    passed = past.passing(group.where, arrivals)
    known |= dict.fromkeys(np.flatnonzero(~passed).tolist(), "left out")
    known |= _refused(past, group, arrivals)
    known |= dict.fromkeys(_malformed(past, group, arrivals), "malformed")
    if since is not None:
        known |= dict.fromkeys(np.flatnonzero(arrivals.batches < since).tolist(), "before")
    batches, inverse = np.unique(arrivals.batches, return_inverse=True)
    regimes = [_regime(past, group, batch_id) for batch_id in batches.tolist()]
    ids = arrivals.ids.to_pylist()
    return decide_fates(arrivals.times_ms, ids, regimes, inverse, known), regimes[int(inverse[-1])]


def _malformed(past: Past, group: Group, arrivals: Arrivals) -> Iterable[int]:
    """Arrivals with a null in a field that the rules of their batch need."""
    if group.on == "alerts":
        needed = dict.fromkeys(np.unique(arrivals.batches).tolist(), group.needed_fields)
    else:
        needed = {batch_id: past.rule_set(batch_id).needed_fields for batch_id in np.unique(arrivals.batches).tolist()}
    for name, column in arrivals.fields.items():
        if column.null_count:
            for row in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
                if name in needed[int(arrivals.batches[row])]:
                    yield row


def _refused(past: Past, group: Group, arrivals: Arrivals) -> dict[int, Fate]:
    """Arrivals that a group left out since a sum would have passed 64 bits."""
    if group.on == "alerts" or not past.refused:
        return {}
    because = f"so group {group.name!r} leaves it out"
    return {
        row: "refused"
        for row, (source, _, position) in enumerate(arrivals.origins)
        if because in past.refused.get((source, position), "")
    }


def _regime(past: Past, group: Group, batch_id: int) -> Regime:
    """The settings of a batch for a group."""
    rule_set, engine = past.rule_set(batch_id), past.terms(batch_id).engine
    groups = rule_set.groups if group.on == "events" else rule_set.alert_groups
    then = next((each for each in groups if each.group_id == group.group_id), group)
    horizon_ms = then.longest_window_ms + engine.allowed_lateness
    if group.on == "alerts":
        return Regime(horizon_ms, engine.late, "keep", JobPrecision())
    schema = past.terms(batch_id).event_schema
    precision = engine.precision.of_group(group.group_id, schema)
    return Regime(horizon_ms, engine.late, engine.collision, precision)
