"""Eviction in a shard: keys that are due by its schedule are trimmed to their horizon, or evicted.

What was evicted may be asked for again, by an event that is older than the shard's clock by more than the allowed
lateness, of a key that had been idle. It begins a new timeline, which knows that it is complete only after the latest
event that was ever evicted of its group: windows that reach further back say `warm: false`.

What policies remember of a key goes with its timeline. A key stays as long as if it had had an event at the last time
at which a policy needs that, the end of its last cooldown, however short its windows are. Only an event that is older
than the shard's clock by more than the horizon can come to an evicted key within its cooldown, and what it finds says
`warm: false`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from buckets.engine.eviction.schedule import SPARE_VISITS, EvictionSchedule, Noted
from buckets.engine.policies.policy_state import needed_until_ms
from buckets.engine.storage.shard_store import ShardStore
from buckets.engine.storage.stored_heads import StoredHeads
from buckets.kernel.keyed_events import no_events
from buckets.kernel.plan import GroupPlan
from buckets.kernel.score import score
from buckets.timeline.inspection import clocks_of

Int64s = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


@dataclass
class Eviction:
    """The eviction that follows the scoring of one shard's share of a batch.

    Attributes:
        store: the shard's state.
        plans: the live groups' plans, by the identity of their timelines.
        schedule: the shard's eviction schedule.
    """

    store: ShardStore
    plans: Mapping[str, GroupPlan]
    schedule: EvictionSchedule
    _events: int = 0
    _scored: dict[str, list[tuple[pa.Array, Int64s]]] = field(default_factory=dict)

    @classmethod
    def begin(
        cls, store: ShardStore, plans: Mapping[str, GroupPlan], apart: frozenset[str] = frozenset()
    ) -> "Eviction":
        """Read the schedule, before anything of the batch is written.

        Args:
            store: the shard's state.
            plans: the live groups' plans, by the identity of their timelines.
            apart: the timelines that are being filled, which have a time of their own.
        """
        return cls(store, plans, EvictionSchedule.load(store.schedule, store.heads, apart))

    def note(self, plan: GroupPlan, stored: StoredHeads, clocks_ms: Int64s, events: int) -> None:
        """Note keys that were scored: new ones are entered, and none of them needs a visit.

        Args:
            plan: their group's plan.
            stored: their heads before they were scored.
            clocks_ms: the clock of each key now, `(keys,)`.
            events: how many events they had.
        """
        self._events += events
        self._scored.setdefault(plan.group.state_id, []).append((stored.keys, clocks_ms))
        self.schedule.clock.note(plan.group.state_id, stored.keys, clocks_ms)
        new = np.flatnonzero(stored.heads.lengths == 0)
        if len(new):
            keys = stored.keys.take(pa.array(new)).to_pylist()
            self.schedule.enter(plan.group.state_id, keys, clocks_ms[new], plan.horizon_ms)

    def end(self) -> None:
        """Visit keys that are due, and write the schedule."""
        horizons_ms = {group_id: plan.horizon_ms for group_id, plan in self.plans.items()}
        due = self.schedule.take_due(self.store.schedule, horizons_ms, self._events + SPARE_VISITS)
        for group_id, noted_ms in due.items():
            self._visit(group_id, noted_ms)
        self.schedule.save(self.store.schedule, self.plans.keys())

    def evicted_until_ms(self, plan: GroupPlan) -> int | None:
        """Return the time of the latest event of a group's timelines that were evicted; None where none was."""
        return self.schedule.evicted_until_ms.get(plan.group.state_id)

    def note_policies(self, plan: GroupPlan) -> None:
        """Note that policies remember something of keys of a group."""
        self.schedule.remembered.add(plan.group.state_id)

    def _visit(self, group_id: str, noted_ms: Noted) -> None:
        """Look at keys of one group; those that were scored just now need no look."""
        plan, keys = self.plans.get(group_id), pa.array([*noted_ms], pa.string())
        is_scored, clocks_ms = self._scored_ms(group_id, keys)
        if plan is not None:
            self.schedule.enter(group_id, keys.filter(is_scored).to_pylist(), clocks_ms[is_scored], plan.horizon_ms)
        unseen = keys.filter(~is_scored)
        if not len(unseen):
            return
        stored = StoredHeads.read(self.store, group_id, unseen)
        remembered = [b""] * len(unseen)
        if group_id in self.schedule.remembered:
            remembered = self.store.policies.get(stored.state_keys.to_list())
        stays = np.zeros(len(unseen), np.bool_)
        if plan is not None:
            stays = self._stay(plan, stored, remembered, noted_ms)
            _trim(plan, stored.chosen(stays))
        stored.chosen(~stays).remove()
        gone = np.flatnonzero(~stays & np.array([*map(bool, remembered)], np.bool_))
        if len(gone):
            self.store.policies.remove(stored.state_keys.take(gone).to_list())

    def _scored_ms(self, group_id: str, keys: pa.Array) -> tuple[Booleans, Int64s]:
        """Return which keys of a group have been scored in this batch, and their clocks since."""
        is_scored, clocks_ms = np.zeros(len(keys), np.bool_), np.zeros(len(keys), np.int64)
        for scored, scored_ms in self._scored.get(group_id, ()):
            index = pc.index_in(keys, scored).fill_null(-1).to_numpy()
            is_among = index >= 0
            is_scored |= is_among
            clocks_ms[is_among] = scored_ms[index[is_among]]
        return is_scored, clocks_ms

    def _stay(self, plan: GroupPlan, stored: StoredHeads, remembered: Sequence[bytes], noted_ms: Noted) -> Booleans:
        """Return which of the keys stay, `(keys,)`; these are in the schedule again."""
        clocks_ms = clocks_of(stored.heads, plan.group.generation)
        needed_ms = np.maximum(clocks_ms, needed_until_ms(plan.group, remembered)) if any(remembered) else clocks_ms
        return self.schedule.enter_visited(
            plan.group.state_id, stored.keys.to_pylist(), needed_ms, noted_ms, plan.horizon_ms
        )


def _trim(plan: GroupPlan, stored: StoredHeads) -> None:
    """Bring timelines to the horizon and the tiers that are in force."""
    if not len(stored.keys):
        return
    nothing = no_events(len(stored.keys), len(plan.group.measures))
    stored.write(score(plan, stored.heads, stored.read_pages, nothing, emit_all=False))
