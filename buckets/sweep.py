"""The sweep of a shard: keys that are due on its agenda are trimmed to their horizon, or evicted.

What was evicted may be asked for again, by an event that is older than the shard's clock by more than the allowed
lateness, of a key that had been idle. It begins a new timeline, which knows that it is complete only behind the latest
event that was ever evicted of its group: windows that reach further back say `warm: false`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from buckets.agenda import SPARE_VISITS, Agenda, Entry
from buckets.head import LEAST_INT64
from buckets.plan import GroupPlan
from buckets.scoring import EventIds, KeyBatch, PageReader, Scored, score
from buckets.store import ShardStore, head_key, page_key
from buckets.view import clocks_of, pages_of

Int64s = npt.NDArray[np.int64]


def page_reader(store: ShardStore, places: Sequence[bytes]) -> PageReader:
    """What reads pages of keys, whose heads lie at `places`."""
    return lambda wanted: store.pages.get([page_key(places[key], number) for key, number in wanted])


def write_back(store: ShardStore, places: Sequence[bytes], before: Sequence[bytes], scored: Scored) -> None:
    """Write what has changed of timelines.

    Args:
        store: where they lie.
        places: where the heads lie.
        before: the heads as they were.
        scored: heads and pages as they are now.
    """
    heads = zip(places, before, scored.heads, strict=True)
    store.heads.put([(place, new) for place, old, new in heads if new != old])
    kept = [(page_key(places[page.key], page.number), page.data) for page in scored.pages if page.data is not None]
    store.pages.put(kept)
    store.pages.remove([page_key(places[page.key], page.number) for page in scored.pages if page.data is None])


@dataclass
class Sweep:
    """The sweep that follows the scoring of one shard's share of a batch.

    Attributes:
        store: the shard's state.
        plans: the live groups' plans.
        agenda: the shard's agenda.
    """

    store: ShardStore
    plans: Mapping[str, GroupPlan]
    agenda: Agenda
    _events: int = 0
    _seen_ms: dict[bytes, int] = field(default_factory=dict)

    @classmethod
    def begin(cls, store: ShardStore, plans: Mapping[str, GroupPlan]) -> "Sweep":
        """Read the agenda, before anything of the batch is written."""
        return cls(store, plans, Agenda.load(store.agenda, store.heads))

    def note(
        self,
        plan: GroupPlan,
        keys: Sequence[str],
        places: Sequence[bytes],
        before: Sequence[bytes],
        clocks_ms: Int64s,
        events: int,
    ) -> None:
        """Take note of keys that were scored: new ones are entered, none of them needs a visit.

        Args:
            plan: their group's plan.
            keys: the keys.
            places: where their heads lie.
            before: their heads as they were.
            clocks_ms: the clocks that they have come to.
            events: how many events they had.
        """
        clocks = clocks_ms.tolist()
        self._events += events
        self._seen_ms.update(zip(places, clocks, strict=True))
        self.agenda.clock.note(plan.group.group_id, keys, clocks_ms)
        new = [(key, clock) for key, clock, head in zip(keys, clocks, before, strict=True) if not head]
        if new:
            self.agenda.enter(plan.group.group_id, new, plan.horizon_ms)

    def end(self) -> None:
        """Visit keys that are due, and write the agenda."""
        horizons_ms = {group_id: plan.horizon_ms for group_id, plan in self.plans.items()}
        due = self.agenda.take_due(self.store.agenda, horizons_ms, self._events + SPARE_VISITS)
        for group_id, entries in due.items():
            self._visit(group_id, entries)
        self.agenda.save(self.store.agenda, self.plans.keys())

    def evicted_until_ms(self, plan: GroupPlan) -> int | None:
        """The time of the latest event of a group's timelines that were evicted; None where none was."""
        return self.agenda.evicted_until_ms.get(plan.group.group_id)

    def _visit(self, group_id: str, entries: Sequence[Entry]) -> None:
        """Look at keys of one group; those that were scored just now need no look."""
        plan = self.plans.get(group_id)
        noted_ms = dict(entries)
        places = {key: head_key(group_id, key) for key in noted_ms}
        if plan is not None:
            seen = [(key, self._seen_ms[place]) for key, place in places.items() if place in self._seen_ms]
            self.agenda.enter(group_id, seen, plan.horizon_ms)
        unseen = [key for key, place in places.items() if place not in self._seen_ms]
        if not unseen:
            return
        heads = dict(zip(unseen, self.store.heads.get([places[key] for key in unseen]), strict=True))
        stays: list[str] = []
        if plan is not None:
            stays = self._stay(plan, heads, noted_ms)
            self._trim(plan, [places[key] for key in stays], [heads[key] for key in stays])
        gone = sorted(set(unseen) - set(stays))
        self._evict([places[key] for key in gone], [heads[key] for key in gone])

    def _stay(self, plan: GroupPlan, heads: Mapping[str, bytes], noted_ms: Mapping[str, int | None]) -> list[str]:
        """Enter those of the keys that stay, and take note of what the others had.

        Args:
            plan: their group's plan.
            heads: by key.
            noted_ms: by key, its clock when it was entered; None where it was inside the horizon then.

        Returns:
            The keys that stay.
        """
        group_id, shard_ms = plan.group.group_id, self.agenda.clock.time_ms
        assert shard_ms is not None
        live: list[tuple[str, int]] = []
        doubtful: list[tuple[str, int]] = []
        for key, clock_ms in zip(heads, clocks_of(list(heads.values()), plan.group.generation), strict=True):
            before_ms = noted_ms[key]
            if clock_ms >= shard_ms - plan.horizon_ms or (before_ms is not None and clock_ms > before_ms):
                live.append((key, clock_ms))
            elif clock_ms != LEAST_INT64 and before_ms is None:
                doubtful.append((key, clock_ms))
            elif clock_ms != LEAST_INT64:
                self.agenda.note_evicted(group_id, clock_ms)
        self.agenda.enter(group_id, live, plan.horizon_ms)
        self.agenda.enter_once_more(group_id, doubtful, plan.horizon_ms)
        return [key for key, _ in (*live, *doubtful)]

    def _trim(self, plan: GroupPlan, places: Sequence[bytes], heads: Sequence[bytes]) -> None:
        """Bring timelines to the horizon and the tiers that are in force."""
        if not places:
            return
        columns = len(plan.group.measures)
        nothing = KeyBatch(
            key_start=np.zeros(len(places) + 1, np.int64),
            times_ms=np.empty(0, np.int64),
            values=np.empty((columns, 0), np.int64),
            ids=EventIds.of([]),
        )
        scored = score(plan, heads, page_reader(self.store, places), nothing, emit_all=False)
        write_back(self.store, places, heads, scored)

    def _evict(self, places: Sequence[bytes], heads: Sequence[bytes]) -> None:
        """Remove timelines."""
        pages = [
            page_key(place, number) for place, head in zip(places, heads, strict=True) for number in pages_of(head)
        ]
        self.store.pages.remove(pages)
        self.store.heads.remove([place for place, head in zip(places, heads, strict=True) if head])
