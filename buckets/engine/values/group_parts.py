"""The parts that a group computes at its events for rules with features; and their columns, to join several groups."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.aggregates.component import COMPUTED, Computed
from buckets.arrays import Flags, Int32s, Int64s
from buckets.engine.batch.fan_out import KeyedTable
from buckets.engine.values.pairs import ListedPairs
from buckets.engine.values.periods import compute_over_periods
from buckets.events.arrivals import DeadLetter, shortened
from buckets.kernel.outcome import OVERFLOW
from buckets.kernel.plan import GroupPlan
from buckets.kernel.result_rows import Rows
from buckets.kernel.score import Scored, chosen_rows
from buckets.rules.feature import Part, holds_texts
from buckets.timeline.inspection import texts_at


@dataclass(frozen=True)
class ScoredGroup:
    """The scored events of one group and shard."""

    plan: GroupPlan  # the group's plan
    ruleset_version: int  # version of the rule set that evaluated the events
    table: KeyedTable  # the events, key by key, each key's in arrival order
    scored: Scored  # outcomes and rows

    @cached_property
    def clocks_ms(self) -> Int64s:
        """The clock of its key after each event."""
        return np.maximum(self.table.column("time_ms"), self.scored.outcomes.clock_ms)

    def warm(self, events: Int64s, rules: Int32s | Int64s) -> Flags:
        """Return where windows of rules or parts reach no further back than complete data, bool `(events,)`."""
        times_ms, plan = self.table.times_ms(events), self.plan
        step = np.searchsorted(plan.complete_from_ms, times_ms, side="right") - 1
        since_ms = np.maximum(plan.complete_since_ms[rules, step], self.scored.since_ms[self.table.codes[events]])
        return times_ms - plan.reach_ms[rules] >= since_ms


_VALUES = ("whole", "micro", "event_count")


def names_told(of: Computed | Rows) -> tuple[str, ...]:
    """Return the columns that describe values at events: `COMPUTED`, without bounds if all values are exact."""
    is_known = of.exact.all() and np.array_equal(of.count_lower, of.count_upper)
    return _VALUES if is_known else COMPUTED


@dataclass(frozen=True)
class ComputedPart:
    """A part at some events."""

    computed: Computed  # its values and bounds, `(events,)`
    there: Flags  # bool, whether it was computed; not for an event that is too late for its window
    warm: Flags  # bool, whether nothing that its window needs can be missing
    outside: Flags | None = None  # bool, whether the event does not belong to the part's group; None where all do

    def take(self, rows: Int64s) -> "ComputedPart":
        """Return the part at these rows."""
        outside = None if self.outside is None else self.outside[rows]
        return ComputedPart(self.computed.taken(rows), self.there[rows], self.warm[rows], outside)

    def take_or_outside(self, rows: Int64s) -> "ComputedPart":
        """Return the part at these rows; a row of -1 is an event that does not belong to its group."""
        outside = rows < 0
        if not outside.any():
            return self.take(rows)
        inside, at = self.take(rows[~outside]), np.flatnonzero(~outside)
        computed = Computed(*(_spread(column, at, len(rows)) for column in inside.computed))
        there, warm = (_spread(flags, at, len(rows)) | outside for flags in (inside.there, inside.warm))
        return ComputedPart(computed, there, warm, outside)


@dataclass(frozen=True)
class GroupParts:
    """Parts at the same events."""

    events: Int64s  # int64, the indices of the events in their group's table, ascending
    parts: dict[Part, ComputedPart]  # by part
    # events and the numbers of parts, as in rows, whose sums pass 64 bits, so that they were not computed
    beyond: Sequence[tuple[int, int]] = ()


def group_parts(group: ScoredGroup) -> GroupParts:
    """Collect the parts that a group has computed."""
    rows, parts = group.scored.parts, group.plan.parts
    order = np.argsort(rows.rule, kind="stable")
    start = np.searchsorted(rows.rule[order], np.arange(len(parts) + 1))
    of_part = [order[start[index] : start[index + 1]] for index in range(len(parts))]
    longest: Int64s = max((rows.event[chosen] for chosen in of_part), key=len, default=np.empty(0, np.int64))
    same = all(len(chosen) == len(longest) for chosen in of_part)
    events = longest if same else np.unique(rows.event)
    pairs = ListedPairs(group.plan, group.table, group.scored)
    found, beyond = dict[Part, ComputedPart](), list[tuple[int, int]]()
    for index, part in enumerate(parts):
        of_rows = chosen_rows(rows, of_part[index])
        if part.is_listed:
            computed, is_beyond = pairs.compute(part, of_rows)
            if is_beyond.any():
                number = len(group.plan.rules) + index
                beyond += [(event, number) for event in of_rows.event[is_beyond].tolist()]
                of_rows = chosen_rows(of_rows, ~is_beyond)
                computed = computed.taken(~is_beyond)
        elif part.over is not None:
            computed = compute_over_periods(part, of_rows, group.scored.pairs)
        else:
            computed = Computed(*(getattr(of_rows, name) for name in COMPUTED))
        found[part] = _part(group, index, of_rows, computed, events)
    return GroupParts(events, found, beyond)


def _part(group: ScoredGroup, index: int, rows: Rows, computed: Computed, events: Int64s) -> ComputedPart:
    """Spread one part from its rows to `events`, some of which it may lack."""
    part = group.plan.parts[index]
    if part.column is not None and holds_texts(part.column, group.table.schema):
        texts = texts_at(group.scored.pool, computed.whole)
        computed = computed._replace(whole=texts, lower_whole=texts, upper_whole=texts)
    there = np.ones(len(events), np.bool_)
    if len(rows.event) < len(events):
        at = np.searchsorted(events, rows.event)
        there = np.zeros(len(events), np.bool_)
        there[at] = True
        computed = Computed(*(_spread(column, at, len(events)) for column in computed))
    warm = group.warm(events, np.full(len(events), len(group.plan.rules) + index))
    return ComputedPart(computed, there, warm)


def _spread(column: npt.NDArray[Any], at: Int64s, size: int) -> npt.NDArray[Any]:
    wide = np.full(size, "", object) if column.dtype == object else np.zeros(size, column.dtype)
    wide[at] = column
    return wide


def to_columns(parts: Sequence[ComputedPart]) -> dict[str, pa.Array]:
    """Convert parts at the same events to columns of a table, with bounds if some value is not exact."""
    columns: dict[str, pa.Array] = {}
    for number, of in enumerate(parts):
        for name in names_told(of.computed):
            columns[f"{number}:{name}"] = pa.array(getattr(of.computed, name))
        columns |= {f"{number}:there": pa.array(of.there), f"{number}:warm": pa.array(of.warm)}
    return columns


def from_columns(table: pa.Table, parts: int) -> list[ComputedPart]:
    """Read this many parts from the columns that `to_columns` made."""
    return [_read(table, number) for number in range(parts)]


def _read(table: pa.Table, number: int) -> ComputedPart:
    def column(name: str) -> npt.NDArray[Any]:
        values: npt.NDArray[Any] = table[f"{number}:{name}"].to_numpy()
        return values

    if f"{number}:exact" in table.column_names:
        computed = Computed(*map(column, COMPUTED))
    else:
        computed = Computed.known(*map(column, _VALUES))
    return ComputedPart(computed, column("there"), column("warm"))


def joined(pieces: Sequence[ComputedPart]) -> ComputedPart:
    """Concatenate a part over several pieces of events."""
    computed = Computed._make(map(np.concatenate, zip(*(each.computed for each in pieces), strict=True)))
    there, warm = (np.concatenate([getattr(each, name) for each in pieces]) for name in ("there", "warm"))
    return ComputedPart(computed, there, warm)


def has_overflows(group: ScoredGroup) -> bool:
    """Return whether some event of the group takes a sum past 64 bits, apart from sums of single events."""
    return bool(len(group.scored.beyond.rule) or (group.scored.outcomes.code == OVERFLOW).any())


def overflows(group: ScoredGroup, of_parts: Sequence[tuple[int, int]] = ()) -> list[DeadLetter]:
    """Return a dead letter for each event and sum past 64 bits, which names the rule and the consequence.

    For a rule in force, the group leaves the event out. A rule on trial only has no result for it, and other rules are
    not affected. The same holds for a sum over single events, such as those that a filter compares with the event
    itself; they are in `of_parts`, as in `GroupParts.beyond`.
    """
    outcomes, beyond = group.scored.outcomes, group.scored.beyond
    refused = np.flatnonzero(outcomes.code == OVERFLOW)
    left_out = f"so group {group.plan.group.name!r} leaves it out"
    pairs = zip(refused.tolist(), outcomes.rule[refused].tolist(), strict=True)
    reasons = [(event, _sum(group.plan, index), left_out) for event, index in pairs]
    on_trial = "so this rule, which is on trial, has no result for it"
    pairs = zip(beyond.event.tolist(), beyond.rule.tolist(), strict=True)
    reasons += [(event, _sum(group.plan, index), on_trial) for event, index in pairs]
    reasons += [(event, _sum(group.plan, index), "so this rule has no result for it") for event, index in of_parts]
    different = list(dict.fromkeys(reasons))
    events = np.array([event for event, *_ in different], np.int64)
    taken = group.table.take(events)
    texts = group.table.event_texts(taken)
    sources = taken["source"].cast(pa.string()).to_pylist()
    orders, positions = taken["source_order"].to_pylist(), taken["position"].to_pylist()
    return [
        DeadLetter(source, order, position, f"{sum_of_rule}, {consequence}", shortened(text))
        for (_, sum_of_rule, consequence), source, order, position, text in zip(
            different, sources, orders, positions, texts, strict=True
        )
    ]


def _sum(plan: GroupPlan, index: int) -> str:
    """Say which sum of a rule or part passes 64 bits, by field and rules; parts are numbered after the rules."""
    parts_from, fields = len(plan.rules), plan.group.fields
    rule = plan.rules[index] if index < parts_from else None
    if rule is not None and rule.is_short:
        field, owner = rule.measure, f"rule {rule.rule_id!r}"
    else:
        part = plan.parts[index - parts_from] if rule is None else rule.parts(fields)[0]
        owners = [repr(owner.rule_id) for owner in plan.group.rules if part in owner.parts(fields)]
        field, owner = None if part.column is None else part.column.of, f"a feature of rule {', '.join(owners)}"
    return f"{field}: with this event the sum of {owner} would pass 64 bits"
