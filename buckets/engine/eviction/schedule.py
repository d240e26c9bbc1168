"""When the keys of a shard are visited again, so that idle ones do not stay for ever.

Every key is in the schedule once, in a *slot* of its group: the first multiple of an eighth of the horizon after its
clock. A slot is due when the shard's clock (`shard_clock`) has passed it by the horizon. Its keys are visited then: one
whose own clock is still within the horizon goes to the slot of that clock. So a key costs one visit per horizon,
however many events it has.

A key whose own clock has fallen out of the horizon may be idle. Or it lags: its source is slow, or another source has
just begun far ahead. So its clock is noted, and it is visited once more an eighth of the horizon later. If its clock
has moved on by then, it lags: it stays for another horizon, and so on as long as it moves. Otherwise it is evicted.

A batch visits at most as many keys as it holds events (and `SPARE_VISITS` more); what is left stays due. As every key
came to its slot by an event, the backlog is never long, and no batch pays for visiting all keys. Only event time moves
the schedule: no timers, no watermark.

In the state: an *overview* as JSON, `{"version", "slots": {group: {until_ms: keys}}, "evicted_until_ms": {group: ms}}`,
the voters of the shard's clock, and the keys of each slot in chunks of `CHUNK_KEYS`, as JSON lists, appended to and
taken from the end. A key whose clock is noted is a list of both there. Version 1 had no voters, and no such keys. Where
policies remember something of keys, the overview has `"remembered": [group]` too.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from buckets.engine.eviction.shard_clock import ShardClock
from buckets.engine.storage.shard_store import Entries, head_key, split_head_key
from buckets.errors import BucketsError
from buckets.timeline.head import NO_CLOCK

SCHEDULE_VERSION = 2
OVERVIEW, CLOCK = b"overview", b"clock"
CHUNK_KEYS = 256
SPARE_VISITS = 64
SLOTS_IN_HORIZON = 8
LONG_AGO_MS = -(2**62)
Int64s = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


Noted = dict[str, int | None]
"""Keys, each with its clock in ms when it was entered, if it was out of the horizon then; None otherwise."""
Written = str | tuple[str, int]
"""An entry as a chunk has it: a key, with its clock where that is noted."""
_KEYS: Final = msgspec.json.Decoder(list[str])
"""Reads a chunk of keys whose clocks are not noted, as most are."""


@dataclass
class EvictionSchedule:
    """The eviction schedule of a shard during one batch.

    Attributes:
        clock: the shard's clock.
        slots: by group and end of a slot in ms, how many keys are in it.
        evicted_until_ms: by group, the time of the latest event of all timelines that were evicted, in ms.
        remembered: the groups of whose keys policies remember something.
    """

    clock: ShardClock = field(default_factory=ShardClock)
    slots: dict[str, dict[int, int]] = field(default_factory=dict)
    evicted_until_ms: dict[str, int] = field(default_factory=dict)
    remembered: set[str] = field(default_factory=set)
    _stored: dict[bytes, bytes] = field(default_factory=dict)
    _added: dict[tuple[str, int], list[Written]] = field(default_factory=dict)

    @classmethod
    def load(cls, entries: Entries, heads: Entries, apart: frozenset[str] = frozenset()) -> "EvictionSchedule":
        """Read the schedule of a shard.

        Args:
            entries: the map of the state that keeps the schedule.
            heads: the shard's heads; a checkpoint from before there were schedules has all of them entered at once.
            apart: groups that have a time of their own.

        Raises:
            BucketsError: a later release wrote it.
        """
        stored, voters = entries.get([OVERVIEW, CLOCK])
        if not stored:
            schedule = cls(ShardClock(apart))
            keys_of: dict[str, list[str]] = {}
            for stored_key in heads.list_keys():
                group_id, key = split_head_key(stored_key)
                keys_of.setdefault(group_id, []).append(key)
            for group_id, keys in keys_of.items():
                schedule._add(group_id, keys, np.full(len(keys), LONG_AGO_MS, np.int64))
            return schedule
        data = json.loads(stored)
        if data["version"] not in (1, SCHEDULE_VERSION):
            message = (
                f"the shard's eviction schedule has version {data['version']}, and this release reads 1 to "
                f"{SCHEDULE_VERSION}; run the release that wrote the checkpoint, or start with a new checkpoint"
            )
            raise BucketsError(message)
        slots = {
            group: {int(until): keys for until, keys in of_group.items()} for group, of_group in data["slots"].items()
        }
        evicted_until_ms = data.get("evicted_until_ms", {})
        remembered = set(data.get("remembered", ()))
        read = {OVERVIEW: stored, CLOCK: voters}
        return cls(ShardClock.from_bytes(voters, apart), slots, evicted_until_ms, remembered, read)

    def save(self, entries: Entries, live: Collection[str]) -> None:
        """Write what has changed.

        Args:
            entries: the map of the state that keeps the schedule.
            live: the live groups.
        """
        self._write_added(entries)
        self.clock.keep(live)
        self.evicted_until_ms = {group: until for group, until in self.evicted_until_ms.items() if group in live}
        self.remembered = {group for group in self.remembered if group in live or group in self.slots}
        overview = {"version": SCHEDULE_VERSION, "slots": self.slots, "evicted_until_ms": self.evicted_until_ms}
        overview |= {"remembered": sorted(self.remembered)} if self.remembered else {}
        now = {OVERVIEW: json.dumps(overview, sort_keys=True).encode(), CLOCK: self.clock.to_bytes()}
        changed = [(name, data) for name, data in now.items() if data != self._stored.get(name, b"")]
        if changed:
            entries.put(changed)
        self._stored = now

    def note_evicted(self, group_id: str, until_ms: int) -> None:
        """Note that a timeline of a group was evicted, and the time of its latest event."""
        self.evicted_until_ms[group_id] = max(until_ms, self.evicted_until_ms.get(group_id, until_ms))

    def enter(self, group_id: str, keys: Sequence[str], clocks_ms: Int64s, horizon_ms: int) -> None:
        """Enter keys of a group; one that is out of the horizon stays another horizon.

        Args:
            group_id: the group.
            keys: the keys.
            clocks_ms: int64 `(keys,)`, the clock of each.
            horizon_ms: of the group.
        """
        step_ms, shard_ms = _step_ms(horizon_ms), self.clock.time_of(group_id)
        if shard_ms is None:
            self._add(group_id, keys, (clocks_ms // step_ms + 1) * step_ms)
            return
        lags = clocks_ms < shard_ms - horizon_ms
        entries: list[Written] = [*keys]
        for index in np.flatnonzero(lags).tolist():
            entries[index] = keys[index], clocks_ms[index].item()
        self._add(group_id, entries, (np.where(lags, shard_ms, clocks_ms) // step_ms + 1) * step_ms)

    def enter_once_more(self, group_id: str, keys: Sequence[str], clocks_ms: Int64s, horizon_ms: int) -> None:
        """Enter keys of a group that may be idle, as `enter` does, for an eighth of the horizon."""
        step_ms, shard_ms = _step_ms(horizon_ms), self.clock.time_of(group_id)
        assert shard_ms is not None
        until_ms = (shard_ms // step_ms + 1) * step_ms - horizon_ms
        entries = [*zip(keys, clocks_ms.tolist(), strict=True)]
        self._add(group_id, entries, np.full(len(entries), until_ms, np.int64))

    def enter_visited(
        self, group_id: str, keys: Sequence[str], clocks_ms: Int64s, noted_ms: Noted, horizon_ms: int
    ) -> Booleans:
        """Enter those of visited keys of a group that stay, and note until when the others were needed.

        Args:
            group_id: the group.
            keys: the keys.
            clocks_ms: int64 `(keys,)`, until when each is needed; NO_CLOCK where it is not at all.
            noted_ms: of each key, as `take_due` gave it.
            horizon_ms: of the group.

        Returns:
            Which of the keys stay, `(keys,)`.
        """
        before, shard_ms = [noted_ms[key] for key in keys], self.clock.time_of(group_id)
        assert shard_ms is not None
        is_noted = np.array([clock_ms is not None for clock_ms in before], np.bool_)
        before_ms = np.array([0 if clock_ms is None else clock_ms for clock_ms in before], np.int64)
        is_known = clocks_ms != NO_CLOCK
        live = (clocks_ms >= shard_ms - horizon_ms) | (is_noted & (clocks_ms > before_ms))
        doubtful = ~live & is_known & ~is_noted
        gone_ms = clocks_ms[~live & is_known & is_noted]
        if len(gone_ms):
            self.note_evicted(group_id, gone_ms.max().item())
        for enter, chosen in ((self.enter, live), (self.enter_once_more, doubtful)):
            enter(group_id, [*compress(keys, chosen)], clocks_ms[chosen], horizon_ms)
        return live | doubtful

    def _add(self, group_id: str, entries: Sequence[Written], until_ms: Int64s) -> None:
        ends = np.unique(until_ms).tolist()
        for end_ms in ends:
            ending = entries if len(ends) == 1 else [entries[at] for at in np.flatnonzero(until_ms == end_ms).tolist()]
            self._added.setdefault((group_id, end_ms), []).extend(ending)

    def take_due(self, entries: Entries, horizons_ms: Mapping[str, int], most: int) -> dict[str, Noted]:
        """Take keys whose slot is due, and those of groups that are gone.

        Args:
            entries: the map of the state that keeps the schedule.
            horizons_ms: by live group.
            most: about how many keys; chunks are taken whole.

        Returns:
            Keys by group.
        """
        wanted: list[tuple[str, int, int]] = []
        for group_id, of_group in self.slots.items():
            horizon_ms, shard_ms = horizons_ms.get(group_id), self.clock.time_of(group_id)
            for until_ms in sorted(of_group):
                if horizon_ms is not None and (shard_ms is None or until_ms + horizon_ms >= shard_ms):
                    break
                while of_group[until_ms] and most > 0:
                    number = (of_group[until_ms] - 1) // CHUNK_KEYS
                    taken = of_group[until_ms] - number * CHUNK_KEYS
                    of_group[until_ms] -= taken
                    most -= taken
                    wanted.append((group_id, until_ms, number))
        self.slots = {
            group_id: left
            for group_id, of_group in self.slots.items()
            if (left := {until_ms: keys for until_ms, keys in of_group.items() if keys})
        }
        state_keys = [_chunk_key(*chunk) for chunk in wanted]
        due: dict[str, Noted] = {}
        for (group_id, _, _), chunk in zip(wanted, entries.get(state_keys), strict=True):
            due.setdefault(group_id, {}).update(_noted_in(chunk))
        entries.remove(state_keys)
        return due

    def _write_added(self, entries: Entries) -> None:
        """Append the keys that were entered to the chunks of their slots."""
        begun = {}
        for group_id, until_ms in self._added:
            count = self.slots.get(group_id, {}).get(until_ms, 0)
            if count % CHUNK_KEYS:
                begun[group_id, until_ms] = _chunk_key(group_id, until_ms, count // CHUNK_KEYS)
        chunks = dict(zip(begun, entries.get(list(begun.values())), strict=True)) if begun else {}
        written: list[tuple[bytes, bytes]] = []
        for (group_id, until_ms), keys in self._added.items():
            of_group = self.slots.setdefault(group_id, {})
            count = of_group.get(until_ms, 0)
            before = msgspec.json.decode(chunks[group_id, until_ms]) if count % CHUNK_KEYS else []
            together, first = [*before, *keys], count // CHUNK_KEYS
            for number in range(-(-len(together) // CHUNK_KEYS)):
                chunk = msgspec.json.encode(together[number * CHUNK_KEYS : (number + 1) * CHUNK_KEYS])
                written.append((_chunk_key(group_id, until_ms, first + number), chunk))
            of_group[until_ms] = count + len(keys)
        if written:
            entries.put(written)
        self._added = {}


def _noted_in(chunk: bytes) -> Noted:
    """Return the keys of a chunk."""
    try:
        return dict.fromkeys(_KEYS.decode(chunk))
    except msgspec.ValidationError:  # of some the clock is noted
        written: list[Written] = msgspec.json.decode(chunk)
        return dict((entry, None) if isinstance(entry, str) else entry for entry in written)


def _step_ms(horizon_ms: int) -> int:
    """Return how far apart slots of a group are."""
    return max(1, horizon_ms // SLOTS_IN_HORIZON)


def _chunk_key(group_id: str, until_ms: int, number: int) -> bytes:
    return head_key(group_id, f"{until_ms}/{number}")
