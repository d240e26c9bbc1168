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
from functools import lru_cache, partial
from itertools import chain
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.config.engine import EngineSettings
from buckets.engine.batch import payload
from buckets.engine.batch.dead_letters import dead_letter_table
from buckets.engine.batch.events_by_key import EventsByKey, by_key
from buckets.engine.batch.keyed_table import KeyedTable
from buckets.engine.eviction.eviction import Eviction
from buckets.engine.eviction.policy_eviction import PolicyEviction
from buckets.engine.policies.policies import AlertPolicies, Decided, in_effect
from buckets.engine.policies.resets import keep_resets, read_resets
from buckets.engine.results import side_outputs
from buckets.engine.results.alerts import FiredRules, alert_table, variant_table
from buckets.engine.results.condition_results import fired_conditions
from buckets.engine.results.evaluations import compact_evaluations, condition_evaluations, expand_evaluations
from buckets.engine.results.limit_results import fired_limits
from buckets.engine.stages.batch_facts import evicted_count
from buckets.engine.stages.cross_group import PARTS, clocks_of, meet, parts_payload
from buckets.engine.stages.filling import FILLS, NO_SOURCES, Filling, FillSources
from buckets.engine.storage.shard_store import ShardStore
from buckets.engine.storage.stored_heads import StoredHeads
from buckets.engine.storage.text_column import strings_of
from buckets.engine.values.feature_columns import FEATURES, judged_columns
from buckets.engine.values.feature_rules import Judged, judge
from buckets.engine.values.group_parts import group_parts
from buckets.engine.values.limit_rules import judged_limits
from buckets.engine.values.overflows import has_overflows, overflows
from buckets.engine.values.scored_group import ScoredGroup
from buckets.engine.values.track_values import track_values
from buckets.events.schema import EventSchema
from buckets.kernel.keyed_events import KeyedEvents
from buckets.kernel.outcome import OUTCOMES
from buckets.kernel.plan import GroupPlan, plan_group
from buckets.kernel.score import score
from buckets.lists.lists import NO_LISTS, Lists
from buckets.outputs import columns
from buckets.rules.group import Group
from buckets.rules.rule_set import RuleSet

COUNTS = "counts"
"""The output that carries counts of events, as JSON."""


@dataclass(frozen=True)
class Produced:
    """Something that came out.

    Attributes:
        output: the name of its output.
        rows: how many rows.
        payload: the rows.
        by_rule: how many rows each rule has, of alerts of any kind; it does not leave the stage.
    """

    output: str
    rows: int
    payload: bytes
    by_rule: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Scorer:
    """Scores shards under fixed settings.

    Attributes:
        schema: the event schema.
        engine: the settings that decide results.
        evaluations: whether every evaluation is put out, or alerts only.
        lists: those of the batch, into which filters and conditions may look.
        features: whether features are put out as columns, in place of alerts and evaluations.
    """

    schema: EventSchema
    engine: EngineSettings
    evaluations: bool
    lists: Lists = field(default_factory=lambda: NO_LISTS)
    features: bool = False

    def score(
        self,
        payloads: Iterable[bytes],
        rule_set: RuleSet,
        store: ShardStore,
        sources: FillSources = NO_SOURCES,
    ) -> Iterator[Produced]:
        """Score what arrived for one shard.

        Args:
            payloads: of the messages of `fan_out` for this shard.
            rule_set: the rules of this batch.
            store: the shard's state.
            sources: by the number of a fill, where its history comes from.
        """
        tables: dict[str, list[pa.Table]] = {}
        is_asked = False
        for packed in payloads:
            if packed[:1] == payload.EVENTS:
                table = payload.unpack(packed)
                tables.setdefault(payload.group_of(table), []).append(table)
            elif packed[:1] == payload.COUNTS:
                yield Produced(COUNTS, 0, packed[1:])
            elif packed[:1] == payload.FILL:
                is_asked = True
            else:
                table = payload.unpack(packed)
                yield Produced(columns.DEAD_LETTERS, table.num_rows, packed)
        if not tables and not is_asked:
            return
        schema_json = self.schema.model_dump_json()
        plans = {
            group.state_id: _plan(_Hashed(group, rule_set.version), schema_json, self.engine)
            for group in (*rule_set.groups, *rule_set.filling.values())
        }
        eviction = Eviction.begin(store, plans, frozenset(fill.timelines for fill in rule_set.fills))
        arrived = {
            group.state_id: by_key(tables[group.group_id]) for group in rule_set.groups if group.group_id in tables
        }
        all_stored = StoredHeads.read_groups(store, {state_id: each.keys for state_id, each in arrived.items()})
        for (state_id, events), stored in zip(arrived.items(), all_stored, strict=True):
            yield from self._score_group(plans[state_id], events, rule_set.version, stored, eviction)
        if rule_set.fills_begun:
            fills = Filling(store, partial(self._take_in, rule_set.version, eviction))
            for fill in rule_set.fills if is_asked else ():
                report = fills.go_on(
                    fill, plans[fill.timelines], tables.get(fill.group_id, []), sources.get(fill.number)
                )
                yield Produced(FILLS, 0, report)
            fills.end(rule_set.fills)
        eviction.end()
        if eviction.evicted:
            yield Produced(COUNTS, 0, evicted_count(eviction.evicted))

    def _take_in(self, version: int, eviction: Eviction, plan: GroupPlan, arrived: EventsByKey, lists: Lists) -> None:
        """Take events into timelines that are being filled; what comes out is thrown away."""
        (stored,) = StoredHeads.read_groups(eviction.store, {plan.group.state_id: arrived.keys})
        quiet = replace(self, evaluations=False, lists=lists)
        for _ in quiet._score_group(plan, arrived, version, stored, eviction):
            pass

    def _score_group(
        self, plan: GroupPlan, arrived: EventsByKey, version: int, stored: StoredHeads, eviction: Eviction
    ) -> Iterator[Produced]:
        group, (events, codes, key_start, keys) = plan.group, arrived
        table = KeyedTable(group, self.schema, events, keys, codes, self.lists)
        times_ms, ids = events["time_ms"].to_numpy(), strings_of(events["event_id"])
        keyed = KeyedEvents(key_start, times_ms, *track_values(table), ids)
        heads, until_ms = stored.heads, eviction.evicted_until_ms(plan)
        policies = AlertPolicies(table, stored.store.policies, plan.group.state_id)
        reset_ms = read_resets(plan, policies.state, len(keys))
        scored = score(
            plan,
            heads,
            stored.read_pages,
            keyed,
            self.evaluations or self.features,
            evicted_until_ms=until_ms,
            reset_ms=reset_ms,
        )
        stored.write(scored)
        keep_resets(plan, policies.state, reset_ms, scored.reset_ms)
        eviction.note(plan, stored, scored.clocks_ms, events.num_rows)
        of_group = ScoredGroup(plan, version, table, in_effect(plan.rules, scored, keyed.times_ms))
        judged: list[Judged] = []
        if plan.parts:
            parts = group_parts(of_group)
            every, of_group_parts = self.evaluations or self.features, {frozenset(group.fields): parts.parts}
            judged = list(judge(group.own_rules, table, parts.events, of_group_parts, every))
            packed = parts_payload(of_group, parts)
            if packed is not None:
                yield Produced(PARTS, 0, packed)
        fired = (*fired_conditions(judged), *fired_limits(of_group))
        decided = [(of, policies.decide(of.fired, of_group.clocks_ms)) for of in fired]
        if policies.state.write():
            eviction.note_policies(plan)
        outcomes = of_group.outcome_counts()
        outputs = chain(
            *(self.alerts(of, what, version) for of, what in decided),
            self._evaluations(of_group, judged),
            _side_outputs(of_group),
        )
        new_keys = int(np.count_nonzero((heads.lengths == 0) & (scored.heads.lengths > 0)))
        besides = {"new_keys": {group.name: new_keys}} if new_keys else {}
        yield from _counted(group.group_id, outcomes, outputs, besides)

    def alerts(self, results: FiredRules, decided: Decided, version: int) -> Iterator[Produced]:
        """Put out the alerts of rules.

        Args:
            results: the rules where they fired.
            decided: what became of that.
            version: of the rule set.
        """
        for output, rows in () if self.features else decided.rows().items():
            is_brief = output in columns.VARIANT_OUTPUTS
            table = (
                variant_table(results, output, rows)
                if is_brief
                else alert_table(results, version, decided, output, rows)
            )
            yield replace(_produced(output, table, results.table.group), by_rule=_by_rule(results, output, rows))

    def conditions(self, judged: Judged, version: int) -> Iterator[Produced]:
        """Put out the evaluations of a rule, if they are wanted, or its features as columns."""
        if self.features and len(judged.events):
            yield _produced(FEATURES, judged_columns(judged), judged.table.group, payload.ROWS)
        if self.evaluations and len(judged.events) and not judged.rule.is_short:
            table = condition_evaluations(judged, version)
            yield _produced(columns.EVALUATIONS, table, judged.table.group, payload.ROWS)

    def _evaluations(self, group: ScoredGroup, judged: Iterable[Judged]) -> Iterator[Produced]:
        """Put out the evaluations of all rules of a group, or their features."""
        if not (self.evaluations or self.features):
            return
        are_short = [rule.is_short for rule in group.plan.rules]
        limits = () if all(are_short) and not self.features else judged_limits(group)
        for of_rule in (*judged, *limits):
            yield from self.conditions(of_rule, group.ruleset_version)
        if self.evaluations and any(are_short):
            yield _produced(columns.EVALUATIONS, compact_evaluations(group), group.plan.group)


def _side_outputs(group: ScoredGroup) -> Iterator[Produced]:
    """Put out what is told of events beside results."""
    for output, make in side_outputs.MAKERS.items():
        table = make(group)
        if table is not None:
            yield _produced(output, table, group.plan.group)
    if has_overflows(group):
        yield _produced(columns.DEAD_LETTERS, dead_letter_table(overflows(group)), group.plan.group)


def _produced(output: str, table: pa.Table, group: Group, kind: bytes = payload.EVENTS) -> Produced:
    return Produced(output, table.num_rows, payload.pack(kind, table, group.group_id))


def _by_rule(results: FiredRules, output: str, rows: npt.NDArray[np.int64]) -> dict[str, int]:
    """Return how many of some rows each rule has; of variants nobody asks, and a sweep may have very many."""
    if output in columns.VARIANT_OUTPUTS:
        return {}
    counts = np.bincount(results.fired.rule[rows])
    return {results.fired.rules[rule].rule_id: int(counts[rule]) for rule in np.flatnonzero(counts).tolist()}


def _counted(
    group_id: str,
    outcomes: Sequence[int],
    outputs: Iterable[Produced],
    besides: Mapping[str, Mapping[str, int]] = MappingProxyType({}),
) -> Iterator[Produced]:
    """Yield what a group puts out, and after it a count of its outcomes and alerts, and what is counted besides."""
    rows = dict.fromkeys((columns.ALERTS, columns.HELD_ALERTS), 0)
    rules: dict[str, Counter[str]] = {}
    for produced in outputs:
        if not produced.rows:
            continue
        if produced.output in rows:
            rows[produced.output] += produced.rows
        if produced.by_rule:
            rules.setdefault(produced.output, Counter()).update(produced.by_rule)
        yield produced
    counts = {"group_id": group_id, "outcomes": outcomes, **rows, **besides} | ({"rules": rules} if rules else {})
    yield Produced(COUNTS, 0, json.dumps(counts).encode())


def cross_group_outputs(
    scorer: Scorer, payloads: Iterable[bytes], rule_set: RuleSet, store: ShardStore
) -> Iterator[Produced]:
    """Yield what rules put out that have features of several groups, and a count of their alerts.

    Args:
        scorer: the settings.
        payloads: all of output `PARTS` of a batch.
        rule_set: the rules of the batch.
        store: what the policies of these rules remember.
    """
    policies: dict[str, AlertPolicies] = {}
    met: list[tuple[Judged, list[tuple[FiredRules, Decided]]]] = []
    for group, judged in meet(payloads, rule_set, scorer.schema, scorer.lists):
        of_group = policies.setdefault(group.group_id, AlertPolicies(judged.table, store.policies, group.group_id))
        fired = fired_conditions([judged])
        met.append((judged, [(of, of_group.decide(of.fired, clocks_of(judged.table))) for of in fired]))
    if any(each.table.group.policies for each in policies.values()):
        eviction = PolicyEviction(store, rule_set, scorer.engine.allowed_lateness)
        for each in policies.values():
            eviction.note(each.table, each.state.write())
        eviction.end()
    for judged, decided in met:
        alerts = (scorer.alerts(of, what, rule_set.version) for of, what in decided)
        outputs = chain(*alerts, scorer.conditions(judged, rule_set.version))
        yield from _counted(judged.table.group.group_id, [0] * OUTCOMES, outputs)


class _Hashed:
    """A group with a hash that is cheap to take."""

    def __init__(self, group: Group, version: int) -> None:
        self.group = group
        self._hash = hash((group.group_id, version))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hashed) and self.group == other.group


@lru_cache(maxsize=1024)
def _plan(hashed: _Hashed, schema_json: str, engine: EngineSettings) -> GroupPlan:
    return plan_group(hashed.group, EventSchema.model_validate_json(schema_json), engine)


def evaluation_rows(packed: bytes, rule_set: RuleSet, schema: EventSchema, engine: EngineSettings) -> pa.Table:
    """Return a payload of evaluations as one row for an event and a rule; most of them come out compactly.

    Args:
        packed: a payload of output `evaluations`.
        rule_set: the rules of its batch.
        schema: the event schema.
        engine: the settings of the engine.
    """
    compact = payload.unpack(packed)
    if packed[:1] == payload.ROWS:
        return compact.replace_schema_metadata()
    group = next(each for each in rule_set.groups if each.group_id == payload.group_of(compact))
    plan = _plan(_Hashed(group, rule_set.version), schema.model_dump_json(), engine)
    return expand_evaluations(compact, plan, schema, rule_set.version)
