"""One shard's share of a micro-batch, as a pure function over a store of timelines.

1. The payloads of each group become one table, key by key, each key's events in arrival order.
2. The keys' heads are read, and the pages that their windows need; the kernel scores, what has changed is written:
   one read and one write a key, and few pages.
3. What came out leaves as tables, one for each kind of output that is not empty, and a count of every outcome.
4. Keys that are due by the shard's eviction schedule are visited: trimmed, or evicted.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.config.engine import EngineSettings
from buckets.engine.batch import payload
from buckets.engine.batch.dead_letters import dead_letter_table
from buckets.engine.batch.fan_out import KeyedTable, ShardMessage, fan_out, with_own_fields
from buckets.engine.batch.shard_events import EventsByKey, ShardEvents, ShardPayload, unpack_shard
from buckets.engine.eviction.eviction import Eviction, PolicyEviction
from buckets.engine.policies import AlertPolicies, Decided, in_effect, keep_resets, read_resets
from buckets.engine.results import side_outputs
from buckets.engine.results.alerts import FiredRules, alert_table
from buckets.engine.results.condition_results import (
    compact_evaluations,
    condition_evaluations,
    expand_evaluations,
    fired_rules,
)
from buckets.engine.stages.accounting import evicted_count
from buckets.engine.stages.cross_group import (
    FILLS,
    NO_SOURCES,
    PARTS,
    Filling,
    FillSources,
    clocks_of,
    meet,
    parts_payload,
)
from buckets.engine.stages.shard_plans import GroupSet, shard_plans
from buckets.engine.storage.shard_store import GroupedKeys, ShardStore, StoredHeads
from buckets.engine.values.feature_rules import FEATURES, Judged, judge, judged_columns, judged_limits
from buckets.engine.values.group_parts import ScoredGroup, group_parts, has_overflows, overflows
from buckets.events.schema import EventSchema
from buckets.kernel.keyed_events import bundles
from buckets.kernel.outcome import OUTCOMES
from buckets.kernel.plan import GroupPlan
from buckets.kernel.score import Scored, ScoredGroups, score_all
from buckets.lists.index import NO_LISTS, Lists
from buckets.outputs import columns
from buckets.rules.group import Group
from buckets.rules.rule_set import RuleSet

Int64s = npt.NDArray[np.int64]
COUNTS = "counts"  # The output that carries counts of events, as JSON
ARRIVED = "arrived"  # The output that carries what tasks have read, for the archive
ROWS = "rows"  # The output that carries the rows of a DataFrame, as they came


@dataclass(frozen=True)
class Produced:
    """Something that came out."""

    output: str  # the name of its output
    rows: int  # how many rows
    payload: bytes  # the rows
    # how many rows each rule has, of alerts of any kind; it does not leave the stage
    by_rule: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Scorer:
    """Scores shards under fixed settings."""

    schema: EventSchema  # the event schema
    engine: EngineSettings  # the settings that decide results
    evaluations: bool  # whether every evaluation is put out, or alerts only
    # those of the batch, into which filters and conditions may look
    lists: Lists = field(default_factory=lambda: NO_LISTS)
    features: bool = False  # whether features are put out as columns
    alerts: bool = True  # whether alerts are put out
    counts: bool = True  # whether what becomes of events is counted, for the accounts of the batch
    # whether timelines are written; else each event is scored as if it came alone, and what comes out is all
    keeps: bool = True

    def fan_out(self, rows: pa.RecordBatch, rule_set: RuleSet) -> Iterator[ShardMessage]:
        """Turn arrivals, in the form of `arrivals` and in arrival order, into messages for `score`."""
        whole = self.alerts or self.evaluations
        return fan_out(rows, rule_set, self.schema, self.engine, self.lists, whole, self.counts)

    def score(
        self,
        payloads: Iterable[bytes],
        rule_set: RuleSet,
        store: ShardStore,
        sources: FillSources = NO_SOURCES,
        going_on: Eviction | None = None,
    ) -> Iterator[Produced]:
        """Score what the messages of `fan_out` for one shard hold.

        An eviction that is `going_on` has begun by these rules, and is ended by whoever has begun it.
        """
        pieces: list[ShardPayload] = []
        is_asked = False
        for packed in payloads:
            if packed[:1] == payload.SHARD:
                pieces.append(unpack_shard(packed))
            elif packed[:1] == payload.COUNTS:
                yield Produced(COUNTS, 0, packed[1:])
            elif packed[:1] == payload.ARRIVED:
                yield Produced(ARRIVED, 0, packed[1:])
            elif packed[:1] == payload.FILL:
                is_asked = True
            elif packed[:1] == payload.ROWS:
                yield Produced(ROWS, 0, packed)
            else:
                table = payload.unpack(packed)
                yield Produced(columns.DEAD_LETTERS, table.num_rows, packed)
        if not pieces and not is_asked:
            return
        plans = shard_plans(rule_set, self.schema, self.engine)
        apart = frozenset(fill.timelines for fill in rule_set.fills)
        eviction = going_on or Eviction.begin(store, plans.by_state_id, apart, self.keeps)
        arrived = ShardEvents.of(pieces, plans.group_ids) if pieces else None
        if arrived is not None and not self.keeps:
            arrived = arrived.apart()
        if arrived is not None:
            yield from self._score_groups(plans.groups, arrived, rule_set.version, eviction)
        if rule_set.fills_begun:
            fills = Filling(store, partial(self._take_in, rule_set.version, eviction))
            numbers = {} if arrived is None else {group_id: at for at, group_id in enumerate(arrived.group_ids)}
            for fill in rule_set.fills if is_asked else ():
                at = numbers.get(fill.group_id)
                of_group = None if arrived is None or at is None else arrived.by_key(at)
                of_group = of_group if of_group is not None and len(of_group.codes) else None
                plan = plans.by_state_id[fill.timelines]
                yield Produced(FILLS, 0, fills.go_on(fill, plan, of_group, sources.get(fill.number)))
            fills.end(rule_set.fills)
        if self.keeps and going_on is None:
            eviction.end()
        if eviction.evicted and self.counts:
            yield Produced(COUNTS, 0, evicted_count(eviction.evicted))

    def _take_in(self, version: int, eviction: Eviction, plan: GroupPlan, arrived: EventsByKey, lists: Lists) -> None:
        """Take events into timelines that are being filled; what comes out is thrown away."""
        group, quiet = plan.group, replace(self, evaluations=False, lists=lists)
        events = ShardEvents.of_group(group.group_id, with_own_fields(arrived, group, self.schema))
        for _ in quiet._score_groups(GroupSet(self.schema, [plan]), events, version, eviction):
            pass

    def _score_groups(
        self, groups: GroupSet, arrived: ShardEvents, version: int, eviction: Eviction
    ) -> Iterator[Produced]:
        every, events = self.evaluations or self.features, groups.keyed(arrived, self.lists)
        plans = [groups.plans[number] for number in events.plan.tolist()]
        numbers = np.repeat(np.arange(len(plans)), np.diff(events.group_start))
        keys = GroupedKeys.of_groups([plan.group.state_id for plan in plans], numbers, arrived.keys)
        stored = StoredHeads.read(eviction.store, keys.state_keys)
        counted = Counted()
        for first, end in bundles(events, plans, every):
            of_keys = slice(*events.group_start[[first, end]].tolist())
            shares = [_Share(self, arrived, plans[at], at, eviction) for at in range(first, end)]
            before = stored.slice(of_keys)
            scored = score_all(
                plans[first:end],
                groups.joined,
                before.heads,
                before.read_pages,
                events.between(first, end),
                every,
                evicted_until_ms=eviction.evicted_until_ms(plans[first:end]),
                reset_ms={index: share.reset_ms for index, share in enumerate(shares) if share.plan.resetting},
            )
            if self.keeps:
                before.write(scored)
                eviction.note(keys.between(first, end, of_keys), before, scored)
            for share, is_quiet in zip(shares, scored.are_quiet.tolist(), strict=True):
                if every or share.plan.resetting or not is_quiet:
                    of_group = scored.of_group(share.index - first)
                    yield from counted.each(share.plan.group, self._of_group(share, of_group, version))
            if self.counts:
                are_new = (before.heads.lengths == 0) & (scored.heads.lengths > 0)
                counted.add(scored, are_new, events.group_start[first : end + 1] - of_keys.start)
        if self.counts:
            yield counted.produced()

    def _of_group(self, share: "_Share", scored: Scored, version: int) -> Iterator[Produced]:
        plan, table, policies = share.plan, share.table, share.policies
        group = plan.group
        if plan.resetting:
            keep_resets(plan, policies.state, share.reset_ms, scored.reset_ms)
        of_group = ScoredGroup(plan, version, table, in_effect(plan.rules, scored, table.column("time_ms")))
        judged: list[Judged] = []
        beyond: Sequence[tuple[int, int]] = ()
        if plan.parts:
            parts = group_parts(of_group)
            beyond = parts.beyond
            every, of_group_parts = self.evaluations or self.features, {frozenset(group.fields): parts.parts}
            judged = list(judge(group.own_rules, table, parts.events, of_group_parts, every))
            packed = parts_payload(of_group, parts)
            if packed is not None:
                yield Produced(PARTS, 0, packed)
        fired = fired_rules((*judged, *judged_limits(of_group, every=False)))
        decided = [(of, policies.decide(of.fired, of_group.clocks_ms)) for of in fired]
        if policies.state.write():
            share.eviction.schedule.remembered.add(group.state_id)
        yield from chain(
            *(self.decided_alerts(of, what, version) for of, what in decided),
            self._evaluations(of_group, judged),
            _side_outputs(of_group, beyond),
        )

    def decided_alerts(self, results: FiredRules, decided: Decided, version: int) -> Iterator[Produced]:
        """Put out the alerts of rules."""
        for output, rows in decided.rows().items() if self.alerts else ():
            table = alert_table(results, version, decided, output, rows)
            by_rule = {}
            if output not in columns.VARIANT_OUTPUTS:  # of which there may be very many rules
                counts = np.bincount(results.fired.rule[rows])
                found = np.flatnonzero(counts).tolist()
                by_rule = {results.fired.rules[rule].rule_id: int(counts[rule]) for rule in found}
            yield replace(_produced(output, table, results.table.group), by_rule=by_rule)

    def conditions(self, judged: Judged, version: int) -> Iterator[Produced]:
        """Put out the evaluations of a rule, if they are wanted, or its features as columns."""
        if self.features and len(judged.events):
            yield _produced(FEATURES, judged_columns(judged), judged.table.group, payload.ROWS)
        if self.evaluations and len(judged.events) and not judged.rule.is_short:
            table = condition_evaluations(judged, version)
            yield _produced(columns.EVALUATIONS, table, judged.table.group, payload.ROWS)

    def _evaluations(self, group: ScoredGroup, judged: Iterable[Judged]) -> Iterator[Produced]:
        if not (self.evaluations or self.features):
            return
        are_short = [rule.is_short for rule in group.plan.rules]
        limits = () if all(are_short) and not self.features else judged_limits(group)
        for of_rule in (*judged, *limits):
            yield from self.conditions(of_rule, group.ruleset_version)
        if self.evaluations and any(are_short):
            yield _produced(columns.EVALUATIONS, compact_evaluations(group), group.plan.group)


def _side_outputs(group: ScoredGroup, beyond: Sequence[tuple[int, int]]) -> Iterator[Produced]:
    for output, make in side_outputs.MAKERS.items():
        table = make(group)
        if table is not None:
            yield _produced(output, table, group.plan.group)
    if beyond or has_overflows(group):
        yield _produced(columns.DEAD_LETTERS, dead_letter_table(overflows(group, beyond)), group.plan.group)


def _produced(output: str, table: pa.Table, group: Group, kind: bytes = payload.EVENTS) -> Produced:
    return Produced(output, table.num_rows, payload.pack(kind, table, group.group_id))


@dataclass(frozen=True)
class _Share:
    """A group's share of the events of a shard; what is not asked for is not made."""

    scorer: Scorer
    arrived: ShardEvents
    plan: GroupPlan
    index: int
    eviction: Eviction

    @cached_property
    def table(self) -> KeyedTable:
        arrived, index = self.arrived, self.index
        return KeyedTable(
            self.scorer.schema,
            arrived.events,
            self.scorer.lists,
            arrived.rows[arrived.events_of(index)],
            group=self.plan.group,
            keys=arrived.keys_of(index),
            codes=arrived.codes_of(index),
        )

    @cached_property
    def policies(self) -> AlertPolicies:
        return AlertPolicies(self.table, self.eviction.store.policies, self.plan.group.state_id)

    @cached_property
    def reset_ms(self) -> Int64s:
        """Return when its resetting rules last fired."""
        return read_resets(self.plan, self.policies.state, len(self.table.keys))


@dataclass
class Counted:
    """Counts the events and alerts of groups, by the outcome of the event."""

    _groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    _rules: dict[str, Counter[str]] = field(default_factory=dict)
    _new_keys: Counter[str] = field(default_factory=Counter)

    def each(self, group: Group, outputs: Iterable[Produced]) -> Iterator[Produced]:
        """Yield what a group puts out and has rows, or none by its nature, and count its alerts."""
        counts = self._of(group)
        for produced in outputs:
            if produced.output in (columns.ALERTS, columns.HELD_ALERTS):
                counts[produced.output] += produced.rows
            if produced.by_rule:
                self._rules.setdefault(produced.output, Counter()).update(produced.by_rule)
            if produced.rows or produced.output == PARTS:
                yield produced

    def add(self, scored: ScoredGroups, are_new: npt.NDArray[np.bool_], starts: Int64s) -> None:
        """Add events by their outcome, and new keys; those of each group begin at one of `starts`."""
        new_keys = np.diff(np.append(0, np.cumsum(are_new))[starts]).tolist()
        for plan, outcomes, new in zip(scored.plans, scored.counts.tolist(), new_keys, strict=True):
            counts = self._of(plan.group)
            if new:
                self._new_keys[plan.group.name] += new
            counts["outcomes"] = [a + b for a, b in zip(counts["outcomes"], outcomes, strict=True)]

    def produced(self) -> Produced:
        """Return the counts."""
        besides = {name: value for name, value in (("rules", self._rules), ("new_keys", self._new_keys)) if value}
        return Produced(COUNTS, 0, json.dumps({"groups": self._groups, **besides}).encode())

    def _of(self, group: Group) -> dict[str, Any]:
        nothing = {"outcomes": [0] * OUTCOMES, columns.ALERTS: 0, columns.HELD_ALERTS: 0}
        return self._groups.setdefault(group.group_id, nothing)


def cross_group_outputs(
    scorer: Scorer, payloads: Iterable[bytes], rule_set: RuleSet, store: ShardStore
) -> Iterator[Produced]:
    """Yield what rules put out that have features of several groups, and a count of their alerts.

    `payloads` are all of output `PARTS` of a batch, and `store` has what the policies of these rules remember.
    """
    policies: dict[str, AlertPolicies] = {}
    met: list[tuple[Judged, list[tuple[FiredRules, Decided]]]] = []
    for group, judged in meet(payloads, rule_set, scorer.schema, scorer.lists):
        of_group = policies.setdefault(group.group_id, AlertPolicies(judged.table, store.policies, group.group_id))
        fired = fired_rules([judged])
        met.append((judged, [(of, of_group.decide(of.fired, clocks_of(judged.table))) for of in fired]))
    if any(each.table.group.policies for each in policies.values()):
        eviction = PolicyEviction(store, rule_set, scorer.engine.allowed_lateness)
        for each in policies.values():
            eviction.note(each.table, each.state.write())
        eviction.end()
    counted = Counted()
    for judged, decided in met:
        alerts = (scorer.decided_alerts(of, what, rule_set.version) for of, what in decided)
        yield from counted.each(judged.table.group, chain(*alerts, scorer.conditions(judged, rule_set.version)))
    if met and scorer.counts:
        yield counted.produced()


def evaluation_rows(packed: bytes, rule_set: RuleSet, schema: EventSchema, engine: EngineSettings) -> pa.Table:
    """Return a payload of output `evaluations` as one row for an event and a rule; most of them come out compactly."""
    compact = payload.unpack(packed)
    if packed[:1] == payload.ROWS:
        return compact.replace_schema_metadata()
    group = next(each for each in rule_set.groups if each.group_id == payload.group_of(compact))
    plan = shard_plans(rule_set, schema, engine).by_state_id[group.state_id]
    return expand_evaluations(compact, plan, schema, rule_set.version)
