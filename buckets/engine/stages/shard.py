"""One shard's share of a micro-batch, as a pure function over a store of timelines.

1. The payloads of each group become one table, key by key, each key's events in arrival order.
2. The keys' heads are read, and the pages that their windows need; the kernel scores, what has changed is written:
   one read and one write a key, and few pages.
3. What came out leaves as tables, one for each kind of output that is not empty, and a count of every outcome.
4. Keys that are due by the shard's eviction schedule are visited: trimmed, or evicted.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain, pairwise
from operator import add
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from buckets.arrays import Flags, Int64s
from buckets.config.engine import EngineSettings
from buckets.engine.batch import payload
from buckets.engine.batch.dead_letters import dead_letter_table
from buckets.engine.batch.fan_out import FannedOut, KeyedTable, fan_out, with_own_fields
from buckets.engine.batch.partitioner import sort_by_code
from buckets.engine.batch.shard_events import EventsByKey, ShardEvents, ShardPayload, unpack_shard
from buckets.engine.eviction.eviction import Eviction, PolicyEviction, kept_keys
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
    CLOCK,
    FILLS,
    NO_SOURCES,
    PARTS,
    Filling,
    FillSources,
    meet,
    parts_payload,
)
from buckets.engine.stages.shard_plans import GroupSet, ShardPlans, shard_plans
from buckets.engine.storage.shard_store import GroupedKeys, JoinedHeads, ShardStore, StoredHeads
from buckets.engine.values.feature_rules import FEATURES, Judged, judge, judged_columns, judged_limits
from buckets.engine.values.group_parts import ScoredGroup, group_parts, has_overflows, overflows
from buckets.events.schema import EventSchema
from buckets.kernel import keyed_events
from buckets.kernel.keyed_events import bundles
from buckets.kernel.outcome import OUTCOMES
from buckets.kernel.plan import GroupPlan
from buckets.kernel.score import Scored, ScoredGroups, score_all
from buckets.lists.index import NO_LISTS, Lists
from buckets.outputs import columns
from buckets.rules.group import Group
from buckets.rules.rule_set import RuleSet
from buckets.timeline.head import NO_CLOCK

COUNTS = "counts"  # The output that carries counts of events, as JSON
ARRIVED = "arrived"  # The output that carries what tasks have read, for the archive
ROWS = "rows"  # The output that carries the rows of a DataFrame, as they came
_FEW = 10_000
"""If at most this many events of groups are scored in one call, their alerts are built after the state is written, and
their inputs wait in memory until then."""


@dataclass(frozen=True)
class Produced:
    """A payload of an output."""

    output: str  # the name of its output
    rows: int  # the number of rows
    payload: bytes  # the rows
    # for alerts of any kind, the number of rows of each rule; it does not leave the stage
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
    counts: bool = True  # whether outcomes are counted, for the accounts of the batch
    # whether timelines are written; otherwise each event is scored as if it came alone, for its outputs alone
    keeps: bool = True

    def fan_out(self, rows: pa.RecordBatch, rule_set: RuleSet) -> FannedOut:
        """Split arrivals, given in the form of `arrivals` and in arrival order, into messages for shards."""
        whole = self.alerts or self.evaluations
        return fan_out(rows, rule_set, self.schema, self.engine, self.lists, whole, self.counts)

    def score(
        self,
        payloads: Iterable[bytes | ShardPayload],
        rule_set: RuleSet,
        store: ShardStore,
        sources: FillSources = NO_SOURCES,
        going_on: Eviction | None = None,
        on_stored: Callable[[], Iterable[Produced]] = tuple,
    ) -> Iterator[Produced]:
        """Score the payloads that `fan_out` made for one shard, as messages or unpacked.

        An eviction in `going_on` has begun with these rules; whoever began it ends it. `on_stored` is called once all
        state is written, and may return further outputs. Alerts of few events are built after that.
        """
        pieces: list[ShardPayload] = []
        is_asked = False
        for each in payloads:
            if isinstance(each, ShardPayload):
                pieces.append(each)
            elif each[:1] == payload.SHARD:
                pieces.append(unpack_shard(each))
            elif each[:1] == payload.FILL:
                is_asked = True
            else:
                yield passing(each)
        if not pieces and not is_asked:
            return
        plans = shard_plans(rule_set, self.schema, self.engine)
        eviction = self._begin(store, plans, going_on)
        arrived = ShardEvents.of(pieces, plans.group_ids) if pieces else None
        if arrived is not None and not self.keeps:
            arrived = arrived.apart()

        def stored() -> Iterator[Produced]:
            if rule_set.fills_begun:
                fills = self._filling(store, eviction, rule_set)
                numbers = {} if arrived is None else {group_id: at for at, group_id in enumerate(arrived.group_ids)}
                for fill in rule_set.fills if is_asked else ():
                    at = numbers.get(fill.group_id)
                    of_group = None if arrived is None or at is None else arrived.by_key(at)
                    of_group = of_group if of_group is not None and len(of_group.codes) else None
                    plan = plans.by_state_id[fill.timelines]
                    yield Produced(FILLS, 0, fills.go_on(fill, plan, of_group, sources.get(fill.number)))
                fills.end(rule_set.fills)
            yield from self._end([eviction], [going_on])
            yield from on_stored()

        if arrived is None:
            yield from stored()
        else:
            yield from self._score_groups(plans.groups, arrived, rule_set.version, [eviction], stored)

    def score_together(
        self,
        arrived: ShardEvents,
        rule_set: RuleSet,
        stores: Sequence[ShardStore],
        going_on: Sequence[Eviction | None],
        on_stored: Callable[[], Iterable[Produced]] = tuple,
    ) -> Iterator[Produced]:
        """Score the events of several shards in one call, as `score` does for each.

        It does not continue fills, but removes leftovers of fills that have ended.
        """
        plans = shard_plans(rule_set, self.schema, self.engine)
        evictions = [self._begin(store, plans, each) for store, each in zip(stores, going_on, strict=True)]
        arrived = arrived if self.keeps else arrived.apart()
        arrived = arrived.cut(plans.holding | self._too_large(arrived, plans))

        def stored() -> Iterator[Produced]:
            if rule_set.fills_begun:
                for store, eviction in zip(stores, evictions, strict=True):
                    self._filling(store, eviction, rule_set).end(rule_set.fills)
            yield from self._end(evictions, going_on)
            yield from on_stored()

        yield from self._score_groups(plans.groups, arrived, rule_set.version, evictions, stored)

    def _too_large(self, arrived: ShardEvents, plans: ShardPlans) -> set[str]:
        """Return the groups for which one call would put out too many rows at once."""
        if not (self.evaluations or self.features):
            return set()
        events = np.diff(arrived.key_start[arrived.group_start]).tolist()
        of_groups = [plans.groups.plans[plans.groups.numbers[group_id]] for group_id in arrived.group_ids]
        rules = [len(plan.rule_arrays.number) for plan in of_groups]
        each = zip(arrived.group_ids, events, rules, strict=True)
        return {group_id for group_id, of_group, of_event in each if of_group * of_event > keyed_events.MOST_ROWS}

    def _begin(self, store: ShardStore, plans: ShardPlans, going_on: Eviction | None) -> Eviction:
        apart = frozenset(fill.timelines for fill in plans.rule_set.fills)
        return going_on or Eviction.begin(store, plans.by_state_id, apart, self.keeps)

    def _end(self, evictions: Sequence[Eviction], going_on: Sequence[Eviction | None]) -> Iterator[Produced]:
        evicted = Counter[str]()
        for eviction, begun in zip(evictions, going_on, strict=True):
            if self.keeps and begun is None:
                eviction.end()
            evicted.update(eviction.evicted)
        if evicted and self.counts:
            yield Produced(COUNTS, 0, evicted_count(evicted))

    def _filling(self, store: ShardStore, eviction: Eviction, rule_set: RuleSet) -> Filling:
        return Filling(store, partial(self._take_in, rule_set.version, eviction))

    def _take_in(self, version: int, eviction: Eviction, plan: GroupPlan, arrived: EventsByKey, lists: Lists) -> None:
        """Take events into timelines that are being filled, and drop the results."""
        group, quiet = plan.group, replace(self, evaluations=False, lists=lists)
        events = ShardEvents.of_group(group.group_id, with_own_fields(arrived, group, self.schema))
        for _ in quiet._score_groups(GroupSet(self.schema, [plan]), events, version, [eviction]):
            pass

    def _score_groups(
        self,
        groups: GroupSet,
        arrived: ShardEvents,
        version: int,
        evictions: Sequence[Eviction],
        stored: Callable[[], Iterable[Produced]] = tuple,
    ) -> Iterator[Produced]:
        """Score the events of shards, one eviction each; `stored` ends the evictions as early as possible."""
        every, events = self.evaluations or self.features, groups.keyed(arrived, self.lists)
        plans = [groups.plans[number] for number in events.plan.tolist()]
        numbers = np.repeat(np.arange(len(plans)), np.diff(events.group_start))
        keys = GroupedKeys.of_groups([plan.group.state_id for plan in plans], numbers, arrived.keys)
        shards = _Part.read_all(evictions, keys, arrived.shards)
        first_keys = events.group_start[:-1]
        homes = np.zeros(len(plans), np.int64) if arrived.shards is None else arrived.shards[first_keys]
        counted, waiting, is_few = Counted(), list[Iterator[Produced]](), len(arrived.rows) <= _FEW
        for first, end in bundles(events, plans, every):
            begin, until = events.group_start[[first, end]].tolist()
            parts = [part for each in shards if (part := each.between(begin, until)).keys.size]
            shares = {
                at: _Share(self, arrived, plans[at], at, evictions[homes[at]])
                for at in range(first, end)
                if every or plans[at].resetting
            }
            before = JoinedHeads([part.stored for part in parts], [part.places for part in parts])
            scored = score_all(
                plans[first:end],
                groups.joined,
                before.heads,
                before.read_pages,
                events.between(first, end),
                every,
                evicted_until_ms=_evicted_until_ms(parts, until - begin),
                from_ms={at - first: share.from_ms for at, share in shares.items() if share.plan.resetting},
            )
            are_quiet = scored.are_quiet.tolist()
            if self.keeps:
                before.write(scored)
                key_events, are_kept = np.diff(scored.events.key_start), kept_keys(scored)
                for part in parts:
                    part.note(scored, key_events, are_kept)
            for at in range(first, end):
                if at in shares or not are_quiet[at - first]:
                    share = shares.get(at) or _Share(self, arrived, plans[at], at, evictions[homes[at]])
                    of_group = scored.of_group(at - first)
                    outputs = counted.each(share.plan.group, self._of_group(share, of_group, version))
                    if is_few and end - first == len(plans):
                        waiting.append(outputs)
                    else:
                        yield from outputs
            if self.counts:
                are_new = (before.heads.lengths == 0) & (scored.heads.lengths > 0)
                counted.add(scored, are_new)
        yield from stored()
        yield from chain.from_iterable(waiting)
        if self.counts:
            yield counted.produced()

    def _of_group(self, share: "_Share", scored: Scored, version: int) -> Iterator[Produced]:
        """Write the policy state of a group, and return its outputs, which are built lazily."""
        plan, table, policies = share.plan, share.table, share.policies
        group = plan.group
        if plan.resetting:
            keep_resets(plan, policies.state, share.from_ms, scored.from_ms)
        of_group = ScoredGroup(plan, version, table, in_effect(plan.rules, scored, table.column("time_ms")))
        judged: list[Judged] = []
        beyond: Sequence[tuple[int, int]] = ()
        packed = None
        if plan.parts:
            parts = group_parts(of_group)
            beyond = parts.beyond
            every, of_group_parts = self.evaluations or self.features, {frozenset(group.fields): parts.parts}
            judged = list(judge(group.own_rules, table, parts.events, of_group_parts, every))
            packed = parts_payload(of_group, parts)
        fired = fired_rules((*judged, *judged_limits(of_group, every=False)))
        decided = [(of, policies.decide(of.fired, of_group.clocks_ms)) for of in fired]
        if policies.state.write():
            share.eviction.schedule.remembered.add(group.state_id)
        return chain(
            [] if packed is None else [Produced(PARTS, 0, packed)],
            *(self.decided_alerts(of, what, version) for of, what in decided),
            self._evaluations(of_group, judged),
            _side_outputs(of_group, beyond),
        )

    def decided_alerts(self, results: FiredRules, decided: Decided, version: int) -> Iterator[Produced]:
        """Yield the alerts of rules, by output."""
        for output, rows in decided.rows().items() if self.alerts else ():
            table = alert_table(results, version, decided, output, rows)
            by_rule = {}
            if output not in columns.VARIANT_OUTPUTS:  # of which there may be very many rules
                counts = np.bincount(results.fired.rule[rows])
                found = np.flatnonzero(counts).tolist()
                by_rule = {results.fired.rules[rule].rule_id: int(counts[rule]) for rule in found}
            yield replace(_produced(output, table, results.table.group), by_rule=by_rule)

    def conditions(self, judged: Judged, version: int) -> Iterator[Produced]:
        """Yield the evaluations of a rule, and its features as columns, if they are wanted."""
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


class _Part(NamedTuple):
    """Keys of a shard that are scored in one call."""

    eviction: Eviction  # the shard's eviction
    places: Int64s  # int64 `(keys,)`, their indices among all keys of the call
    keys: GroupedKeys  # the keys; no group is empty
    stored: StoredHeads  # their heads

    @classmethod
    def read_all(cls, evictions: Sequence[Eviction], keys: GroupedKeys, shards: Int64s | None) -> "list[_Part]":
        """Read the heads of all keys; `shards` is the index of each key's shard, or None for a single shard."""
        if shards is None:
            (eviction,) = evictions
            stored = StoredHeads.read(eviction.store, keys.state_keys)
            return [cls(eviction, np.arange(keys.size), keys.dense(), stored)]
        order, start = sort_by_code(shards, len(evictions))
        parts = []
        for eviction, (begin, end) in zip(evictions, pairwise(start.tolist()), strict=True):
            of_shard = keys.take(order[begin:end])
            stored = StoredHeads.read(eviction.store, of_shard.state_keys)
            parts.append(cls(eviction, order[begin:end], of_shard.dense(), stored))
        return parts

    def between(self, first: int, end: int) -> "_Part":
        """Return its keys among keys `[first, end)` of the call, with places that count from `first`."""
        begin, until = np.searchsorted(self.places, [first, end]).tolist()
        if begin == 0 and until == len(self.places):
            return self if first == 0 else self._replace(places=self.places - first)
        keys, stored = self.keys.between(begin, until).dense(), self.stored.slice(begin, until)
        return _Part(self.eviction, self.places[begin:until] - first, keys, stored)

    def note(self, scored: ScoredGroups, key_events: Int64s, are_kept: Flags | None) -> None:
        """Note the scored keys in the shard's eviction; `are_kept` covers all keys of the call, see `kept_keys`."""
        keys, clocks_ms, are_new = self.keys, scored.clocks_ms[self.places], self.stored.heads.lengths == 0
        if are_kept is not None:
            kept = np.flatnonzero(are_kept[self.places])
            keys, clocks_ms, are_new = keys.take(kept).dense(), clocks_ms[kept], are_new[kept]
        self.eviction.note(keys, clocks_ms, are_new, int(key_events[self.places].sum()))


def _evicted_until_ms(parts: Sequence[_Part], keys: int) -> Int64s:
    """Return the latest event time of all evicted timelines of each key's group in its shard, int64 `(keys,)`, ms."""
    until_ms = np.full(keys, NO_CLOCK)
    for part in parts:
        known = part.eviction.schedule.evicted_until_ms
        if known:
            until_ms[part.places] = part.keys.each(known, NO_CLOCK)
    return until_ms


@dataclass(frozen=True)
class _Share:
    """A group's share of the events of a shard; its members are built when first used."""

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
    def from_ms(self) -> Int64s:
        """From when events count since each of its resetting rules last fired, as in `read_resets`."""
        return read_resets(self.plan, self.policies.state, len(self.table.keys))


@dataclass
class Counted:
    """Counts events of groups by outcome, and their alerts."""

    _groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    _rules: dict[str, Counter[str]] = field(default_factory=dict)
    _new_keys: Counter[str] = field(default_factory=Counter)

    def each(self, group: Group, outputs: Iterable[Produced]) -> Iterator[Produced]:
        """Yield the outputs of a group that have rows, and those that carry parts; count its alerts."""
        counts = self._of(group)
        for produced in outputs:
            if produced.output in (columns.ALERTS, columns.HELD_ALERTS):
                counts[produced.output] += produced.rows
            if produced.by_rule:
                self._rules.setdefault(produced.output, Counter()).update(produced.by_rule)
            if produced.rows or produced.output == PARTS:
                yield produced

    def add(self, scored: ScoredGroups, are_new: Flags) -> None:
        """Count events by outcome, and new keys."""
        new_keys = np.diff(np.append(0, np.cumsum(are_new))[scored.events.group_start]).tolist()
        for plan, outcomes, new in zip(scored.plans, scored.counts.tolist(), new_keys, strict=True):
            counts = self._of(plan.group)
            if new:
                self._new_keys[plan.group.name] += new
            counts["outcomes"] = [*map(add, counts["outcomes"], outcomes)]

    def produced(self) -> Produced:
        """Return the counts as an output."""
        besides = {name: value for name, value in (("rules", self._rules), ("new_keys", self._new_keys)) if value}
        return Produced(COUNTS, 0, msgspec.json.encode({"groups": self._groups, **besides}))

    def _of(self, group: Group) -> dict[str, Any]:
        if group.group_id not in self._groups:
            self._groups[group.group_id] = {"outcomes": [0] * OUTCOMES, columns.ALERTS: 0, columns.HELD_ALERTS: 0}
        return self._groups[group.group_id]


def passing(packed: bytes) -> Produced:
    """Return a payload that bypasses the shards as an output."""
    kind = packed[:1]
    if kind in (payload.COUNTS, payload.ARRIVED):
        return Produced(COUNTS if kind == payload.COUNTS else ARRIVED, 0, packed[1:])
    if kind == payload.ROWS:
        return Produced(ROWS, 0, packed)
    return Produced(columns.DEAD_LETTERS, payload.unpack(packed).num_rows, packed)


def cross_group_outputs(
    scorer: Scorer, payloads: Iterable[bytes], rule_set: RuleSet, store: ShardStore
) -> Iterator[Produced]:
    """Yield the outputs of rules that have features of several groups, and a count of their alerts.

    `payloads` are the whole output `PARTS` of a batch; `store` has the policy state of these rules.
    """
    policies: dict[str, AlertPolicies] = {}
    met: list[tuple[Judged, list[tuple[FiredRules, Decided]]]] = []
    for group, judged in meet(payloads, rule_set, scorer.schema, scorer.lists):
        of_group = policies.setdefault(group.group_id, AlertPolicies(judged.table, store.policies, group.group_id))
        fired = fired_rules([judged])
        met.append((judged, [(of, of_group.decide(of.fired, judged.table.column(CLOCK))) for of in fired]))
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
    """Unpack a payload of output `evaluations`, most of which are compact, into one row per event and rule."""
    compact = payload.unpack(packed)
    if packed[:1] == payload.ROWS:
        return compact.replace_schema_metadata()
    group = next(each for each in rule_set.groups if each.group_id == payload.group_of(compact))
    plan = shard_plans(rule_set, schema, engine).by_state_id[group.state_id]
    return expand_evaluations(compact, plan, schema, rule_set.version)
