"""Eviction in a shard: keys that are due in its schedule are trimmed to their horizon or evicted.

An event that is older than the shard's clock by more than the allowed lateness may belong to an evicted key. It begins
a new timeline, which is complete only after the latest event that was ever evicted from its group: windows that reach
further back say `warm: false`.

Policy entries of a key are evicted with its timeline. A key stays as if it had had an event when its policies last need
their entry, at the end of its last cooldown, however short its windows are.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow.compute as pc

from buckets.arrays import Flags, Int64s, starts_of
from buckets.byte_strings import ByteStrings, concatenated
from buckets.engine.batch.fan_out import KeyedTable
from buckets.engine.eviction.schedule import SPARE_VISITS, EvictionSchedule, Scheduled
from buckets.engine.policies import needed_until_ms, read_entry
from buckets.engine.storage.shard_store import GroupedKeys, ShardStore, StoredHeads, column_of, head_keys, strings_of
from buckets.kernel.group_plans import join_plans
from buckets.kernel.keyed_events import ASKS, are_settled, no_events
from buckets.kernel.plan import GroupPlan
from buckets.kernel.score import PAGING, ScoredGroups, score_all
from buckets.rules.rule_set import RuleSet
from buckets.timeline.head import NO_CLOCK
from buckets.timeline.inspection import clocks_of

_NO_GENERATION = -1  # That of no head: of groups that are gone


def kept_keys(scored: ScoredGroups) -> Flags | None:
    """Return which keys have an event that does more than ask, bool `(keys,)`; None if all have."""
    if not len(scored.events.ways):
        return None
    remaining, are_kept = np.flatnonzero(scored.events.ways != ASKS), np.zeros(len(scored.clocks_ms), np.bool_)
    are_kept[np.searchsorted(scored.events.key_start, remaining, side="right") - 1] = True
    return are_kept


@dataclass
class Eviction:
    """The eviction that follows the scoring of one shard's share of a batch."""

    store: ShardStore  # the shard's state
    plans: Mapping[str, GroupPlan]  # the live groups' plans, by the identity of their timelines
    schedule: EvictionSchedule  # the shard's eviction schedule
    # by the name of a live group, how many keys were evicted in this batch
    evicted: Counter[str] = field(default_factory=Counter)
    events: int = 0  # how many events have been scored
    _scored: list[tuple[ByteStrings, Int64s]] = field(default_factory=list)

    @classmethod
    def begin(
        cls,
        store: ShardStore,
        plans: Mapping[str, GroupPlan],
        apart: frozenset[str] = frozenset(),
        evicts: bool = True,
    ) -> "Eviction":
        """Read the schedule before the batch writes anything.

        `apart` are the timelines that are being filled, which have clocks of their own. Without `evicts`, only the
        record of earlier evictions is read.
        """
        if not evicts:
            return cls(store, plans, EvictionSchedule.of_evicted(store.schedule))
        return cls(store, plans, EvictionSchedule.load(store.schedule, apart))

    def next(self) -> "Eviction":
        """Begin the eviction that follows this one, which has ended."""
        return self.begin(self.store, self.plans)

    def note(self, keys: GroupedKeys, clocks_ms: Int64s, are_new: Flags, events: int) -> None:
        """Note keys that were scored: new ones enter the schedule, and none of them needs a visit in this batch.

        Args:
            keys: the keys, group by group; no group is empty.
            clocks_ms: int64 `(keys,)`, their clocks after the batch; NO_CLOCK for none.
            are_new: bool `(keys,)`, which had no timeline before.
            events: their number of events.
        """
        self.events += events
        self._scored.append((keys.state_keys, clocks_ms))
        group_start = starts_of(np.bincount(keys.groups))
        times_ms = self.schedule.clock.note(keys.group_ids, group_start, keys.state_keys, clocks_ms)
        new = np.flatnonzero(are_new)
        if len(new):
            self.schedule.enter(keys.take(new), clocks_ms[new], self._horizons_ms, times_ms)

    def end(self) -> None:
        """Visit keys that are due, and write the schedule."""
        due = self.schedule.take_due(self.store.schedule, self._horizons_ms, self.events + SPARE_VISITS)
        if due.keys.size:
            scored, clocks_ms = self._scored_of(due.keys)
            self.schedule.enter(due.keys.take(scored), clocks_ms, self._horizons_ms)
            self._visit(due.take(np.setdiff1d(np.arange(due.keys.size), scored, assume_unique=True)))
        self.schedule.leave(self.store.schedule, self.plans.keys())

    @cached_property
    def _horizons_ms(self) -> dict[str, int]:
        return {group_id: plan.horizon_ms for group_id, plan in self.plans.items()}

    def _scored_of(self, keys: GroupedKeys) -> tuple[Int64s, Int64s]:
        """Return indices of the keys that were scored in this batch, and their clocks after it, int64 `(scored,)`."""
        if not self._scored:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        # Of a key that was scored more than once the last clock counts: the first that is found counts here.
        state_keys, clocks_ms = zip(*reversed(self._scored), strict=True)
        index = pc.index_in(column_of(keys.state_keys), column_of(concatenated(state_keys))).fill_null(-1).to_numpy()
        found = np.flatnonzero(index >= 0)
        return found, np.concatenate(clocks_ms)[index[found]]

    def _visit(self, visited: Scheduled) -> None:
        """Visit keys that this batch did not score: keep and trim them, or evict them."""
        keys = visited.keys
        if not keys.size:
            return
        stored = StoredHeads.read(self.store, keys.state_keys)
        asked = np.flatnonzero(keys.each(dict.fromkeys(self.schedule.remembered, 1), 0))
        entries = self.store.policies.read(keys.state_keys.take(asked))
        some = np.flatnonzero(entries.lengths)
        remembered, entries = asked[some], entries.take(some)  # the keys of which policies remember something
        generations = {group_id: plan.group.generation for group_id, plan in self.plans.items()}
        needed_ms = clocks_of(stored.heads, keys.each(generations, _NO_GENERATION))
        for group_id, of_group in keys.take(remembered).stretches():
            if group_id in self.plans:
                indices, stored_entries = remembered[of_group], entries.slice(of_group.start, of_group.stop).to_list()
                until_ms = needed_until_ms(self.plans[group_id].group, stored_entries)
                needed_ms[indices] = np.maximum(needed_ms[indices], until_ms)
        stays = self.schedule.enter_visited(visited, needed_ms, self._horizons_ms)
        for group_id, of_group in keys.stretches():
            if group_id in self.plans:
                settled = are_settled(self.plans[group_id], stored.heads.slice(of_group.start, of_group.stop), PAGING)
                trimmed = of_group.start + np.flatnonzero(stays[of_group] & ~settled)
                if len(trimmed):  # Brings them to the horizon and the tiers that are in force.
                    plan, heads = self.plans[group_id], stored.take(trimmed)
                    nothing = no_events(heads.heads.size, len(plan.group.measures))
                    joined = join_plans([plan])
                    heads.write(score_all([plan], joined, heads.heads, heads.read_pages, nothing, emit_all=False))
                gone = np.count_nonzero(~stays[of_group] & (stored.heads.lengths[of_group] > 0))
                if gone:
                    self.evicted[self.plans[group_id].group.name] += int(gone)
        stored.take(np.flatnonzero(~stays)).remove()
        self.store.policies.remove(keys.state_keys.take(remembered[~stays[remembered]]))


class PolicyEviction:
    """The eviction that follows the cross-group stage of one batch."""

    def __init__(self, store: ShardStore, rule_set: RuleSet, lateness_ms: int) -> None:
        """Read the schedule.

        Args:
            store: the store of policy entries.
            rule_set: the rules of the batch.
            lateness_ms: the allowed lateness, which the horizon adds to the longest window.
        """
        self._store = store
        self._groups = {group.group_id: group for group in rule_set.groups}
        self._horizons_ms = {
            group_id: group.longest_window_ms + lateness_ms for group_id, group in self._groups.items()
        }
        self._schedule = EvictionSchedule.load(store.schedule)
        self._events = 0

    def note(self, table: KeyedTable, new_ms: Mapping[str, int]) -> None:
        """Note the events of a group, and the keys that got their first policy entry.

        Args:
            table: the events.
            new_ms: by such a key, the time of the latest event that changed its entry.
        """
        group_id, clocks_ms = table.group.group_id, np.full(len(table.keys), NO_CLOCK, np.int64)
        np.maximum.at(clocks_ms, table.codes, table.column("time_ms"))
        state_keys = strings_of(table.keys).with_prefix(bytes.fromhex(group_id))
        self._schedule.clock.note([group_id], np.array([0, state_keys.size]), state_keys, clocks_ms)
        self._events += len(table)
        keys = GroupedKeys.of(group_id, ByteStrings.of(head_keys(group_id, new_ms)))
        self._schedule.enter(keys, np.array([*new_ms.values()], np.int64), self._horizons_ms)

    def end(self) -> None:
        """Visit keys that are due, and write the schedule."""
        due = self._schedule.take_due(self._store.schedule, self._horizons_ms, self._events + SPARE_VISITS)
        stored = self._store.policies.read(due.keys.state_keys)
        needed_ms = np.full(due.keys.size, NO_CLOCK)
        for group_id, of_group in due.keys.stretches():
            if group_id in self._groups:
                group, entries = self._groups[group_id], stored.slice(of_group.start, of_group.stop).to_list()
                read = (read_entry(entry, group) for entry in entries)
                needed_ms[of_group] = [
                    NO_CLOCK if entry is None else max(entry.latest_ms, entry.needed_until_ms(group)) for entry in read
                ]
        stays = self._schedule.enter_visited(due, needed_ms, self._horizons_ms)
        self._store.policies.remove(due.keys.state_keys.take(np.flatnonzero(~stays)))
        self._schedule.leave(self._store.schedule, self._groups.keys())
