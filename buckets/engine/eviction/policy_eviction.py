"""Eviction of what policies remember outside the shards, of keys of rules that have features of several groups.

It goes by the schedule of the shards, over keys and times of events at which such rules were evaluated. A key stays as
long as its last cooldown, or the last event that changed what is remembered of it, and the horizon of its group.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from buckets.byte_strings import ByteStrings
from buckets.engine.batch.keyed_table import KeyedTable
from buckets.engine.eviction.schedule import SPARE_VISITS, EvictionSchedule
from buckets.engine.policies.policy_state import read_entry
from buckets.engine.storage.grouped_keys import GroupedKeys
from buckets.engine.storage.shard_store import ShardStore, head_keys
from buckets.engine.storage.text_column import strings_of
from buckets.rules.group import Group
from buckets.rules.rule_set import RuleSet
from buckets.timeline.head import NO_CLOCK

Int64s = npt.NDArray[np.int64]


class PolicyEviction:
    """The eviction that follows the cross-group stage of one batch."""

    def __init__(self, store: ShardStore, rule_set: RuleSet, lateness_ms: int) -> None:
        """Read the schedule.

        Args:
            store: what is remembered.
            rule_set: the rules of the batch.
            lateness_ms: the allowed lateness, which the horizon adds to the longest window.
        """
        self._store = store
        self._groups = {group.group_id: group for group in rule_set.groups}
        self._horizons_ms = {
            group_id: group.longest_window_ms + lateness_ms for group_id, group in self._groups.items()
        }
        self._schedule = EvictionSchedule.load(store.schedule, store.heads)
        self._events = 0

    def note(self, table: KeyedTable, new_ms: Mapping[str, int]) -> None:
        """Note the events of a group, and keys of which something is remembered now and was not before.

        Args:
            table: the events.
            new_ms: by key, the time of the event that made the difference.
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
                entries = stored.slice(of_group.start, of_group.stop).to_list()
                needed_ms[of_group] = _needed_ms(self._groups[group_id], entries)
        stays = self._schedule.enter_visited(due, needed_ms, self._horizons_ms)
        self._store.policies.remove(due.keys.state_keys.take(np.flatnonzero(~stays)))
        self._schedule.save(self._store.schedule, self._groups.keys())


def _needed_ms(group: Group, stored: list[bytes]) -> Int64s:
    """Return until when what is remembered of keys is needed, or when it changed last; NO_CLOCK where nothing is."""
    entries = (read_entry(entry, group) for entry in stored)
    return np.array(
        [NO_CLOCK if entry is None else max(entry.latest_ms, entry.needed_until_ms(group)) for entry in entries],
        np.int64,
    )
