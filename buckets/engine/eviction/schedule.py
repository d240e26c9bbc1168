"""The eviction schedule: when each key of a shard is visited again, so that idle keys are evicted.

Every key is in the schedule once, in a *slot* of its group: the first multiple of an eighth of the horizon after its
clock. A slot is due when the shard's clock (`shard_clock`) has passed it by the horizon. Its keys are then visited: a
key whose own clock is still within the horizon moves to the slot of that clock. So a key costs one visit per horizon,
however many events it has.

A key whose clock has fallen out of the horizon may be idle. Or it lags, because its source is slow or another source
started far ahead. So its clock is noted, and it is visited again an eighth of the horizon later. If its clock has moved
by then, it lags and stays for another horizon, and so on as long as it moves. Otherwise it is evicted.

A batch visits at most as many keys as it holds events, plus `SPARE_VISITS`; the others stay due. As every key entered
its slot by an event, the backlog stays short, and no batch pays for visiting all keys. Only event time advances the
schedule: it has no timers and no watermark.

In the state: an *overview* as JSON, `{"version", "slots": {group: {until_ms: keys}}, "evicted_until_ms": {group: ms}}`,
the voters of the shard's clock, and the keys of each slot in chunks of `CHUNK_KEYS`, appended to and taken from the
end. Where policies remember something of keys, the overview has `"remembered": [group]` too.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np

from buckets.arrays import Flags, Int64s
from buckets.byte_strings import ByteStrings
from buckets.engine.batch.partitioner import number_pairs, sort_by_code
from buckets.engine.eviction.chunks import NOT_NOTED, read_chunks, write_chunks
from buckets.engine.eviction.shard_clock import ClockKind, ShardClock, clock_kind
from buckets.engine.storage.shard_store import GROUP_BYTES, Entries, GroupedKeys
from buckets.errors import BucketsError
from buckets.timeline.head import NO_CLOCK

SCHEDULE_VERSION = 1
OVERVIEW, CLOCK = b"overview", b"clock"
CHUNK_KEYS = 256
SPARE_VISITS = 64
MOST_LEFT = 64  # So many schedules stay in the memory of a process
SLOTS_IN_HORIZON = 8
LONG_AGO_MS = -(2**62)


class Scheduled(NamedTuple):
    """Keys with their noted clocks, taken from the schedule or to be entered."""

    keys: GroupedKeys  # the keys; those that are due are grouped
    # int64 `(keys,)`, in ms, the clock of each when it was entered, if that was out of the horizon; NOT_NOTED
    # otherwise
    noted_ms: Int64s

    def take(self, indices: Int64s) -> "Scheduled":
        """Return the keys at these indices."""
        return Scheduled(self.keys.take(indices), self.noted_ms[indices])


NOTHING_DUE = Scheduled(GroupedKeys([], np.empty(0, np.int64), ByteStrings.of([])), np.empty(0, np.int64))
Times = Mapping[str, int | None]  # By group, what time it is for it, in ms; None where too few keys are known to say


@dataclass
class EvictionSchedule:
    """The eviction schedule of a shard during one batch."""

    clock: ShardClock = field(default_factory=ShardClock)  # the shard's clock
    # by group and end of a slot in ms, how many keys are in it
    slots: dict[str, dict[int, int]] = field(default_factory=dict)
    # by group, the time of the latest event of all timelines that were evicted, in ms
    evicted_until_ms: dict[str, int] = field(default_factory=dict)
    remembered: set[str] = field(default_factory=set)  # the groups of whose keys policies remember something
    _stored: tuple[bytes, bytes] = (b"", b"")
    _besides: tuple[dict[str, int], set[str]] | None = None  # what is stored of evicted and remembered keys
    _has_other_slots: bool = True  # than are stored
    _added: list[tuple[Scheduled, Int64s]] = field(default_factory=list)

    @classmethod
    def load(cls, entries: Entries, apart: frozenset[str] = frozenset()) -> "EvictionSchedule":
        """Read the schedule of a shard; groups in `apart` have clocks of their own.

        Raises:
            BucketsError: a later release wrote it.
        """
        stored, voters = entries.get([OVERVIEW, CLOCK])
        known = _LEFT.pop((stored, voters, clock_kind(apart)), None)
        if known is not None:
            return known
        if not stored:
            return cls(ShardClock(apart))
        data = msgspec.json.decode(stored)
        if data["version"] != SCHEDULE_VERSION:
            message = (
                f"the shard's eviction schedule has version {data['version']}, and this release reads "
                f"{SCHEDULE_VERSION}; run the release that wrote the checkpoint, or start with a new checkpoint"
            )
            raise BucketsError(message)
        slots = {
            group: {int(until): keys for until, keys in of_group.items()} for group, of_group in data["slots"].items()
        }
        clock, remembered = ShardClock.from_bytes(voters, apart), set(data.get("remembered", ()))
        besides = dict(data["evicted_until_ms"]), {*remembered}
        return cls(clock, slots, data["evicted_until_ms"], remembered, (stored, voters), besides, False)

    @classmethod
    def of_evicted(cls, entries: Entries) -> "EvictionSchedule":
        """Read only the times up to which a shard's groups were evicted."""
        return cls(evicted_until_ms=_evicted_until_ms(entries.get([OVERVIEW])[0]))

    def save(self, entries: Entries, live: Collection[str]) -> None:
        """Write the changes; forget groups that are not `live`."""
        self._write_added(entries)
        self.clock.keep(live)
        self.evicted_until_ms = {group: until for group, until in self.evicted_until_ms.items() if group in live}
        self.remembered = {group for group in self.remembered if group in live or group in self.slots}
        overview, besides = self._stored[0], (dict(self.evicted_until_ms), set(self.remembered))
        if self._has_other_slots or besides != self._besides:
            slots = {group_id: dict(sorted(of_group.items())) for group_id, of_group in sorted(self.slots.items())}
            evicted_until_ms = dict(sorted(self.evicted_until_ms.items()))
            shown = {"version": SCHEDULE_VERSION, "slots": slots, "evicted_until_ms": evicted_until_ms}
            shown |= {"remembered": sorted(self.remembered)} if self.remembered else {}
            overview = msgspec.json.encode(shown)
        now = overview, self.clock.to_bytes()
        names = zip((OVERVIEW, CLOCK), now, self._stored, strict=True)
        changed = [(name, data) for name, data, before in names if data != before]
        if changed:
            entries.put(changed)
        self._stored, self._besides, self._has_other_slots = now, besides, False

    def leave(self, entries: Entries, live: Collection[str]) -> None:
        """Write the changes, and hand this schedule over to the next reader in this process."""
        self.save(entries, live)
        _LEFT[*self._stored, self.clock.kind] = self
        while len(_LEFT) > MOST_LEFT:
            _LEFT.pop(next(iter(_LEFT)), None)

    def note_evicted(self, group_id: str, until_ms: int) -> None:
        """Note the eviction of a timeline whose latest event was at `until_ms`."""
        self.evicted_until_ms[group_id] = max(until_ms, self.evicted_until_ms.get(group_id, until_ms))

    def enter(
        self, keys: GroupedKeys, clocks_ms: Int64s, horizons_ms: Mapping[str, int], now_ms: Times | None = None
    ) -> None:
        """Enter keys by their clocks; a key whose clock is out of its group's horizon stays for another horizon.

        `now_ms` gives the time of each group, by default from the shard's clock.
        """
        step_ms, shard_ms, from_ms, _ = self._times(keys, horizons_ms, now_ms)
        lags = clocks_ms < from_ms
        until_ms = (np.where(lags, shard_ms, clocks_ms) // step_ms + 1) * step_ms
        self._add(keys, until_ms, np.where(lags, clocks_ms, NOT_NOTED))

    def enter_visited(self, visited: Scheduled, clocks_ms: Int64s, horizons_ms: Mapping[str, int]) -> Flags:
        """Enter the visited keys that stay again, and note until when the others were needed.

        A key that may be idle is entered with its clock, an eighth of the horizon ahead.

        Args:
            visited: the keys from `take_due`.
            clocks_ms: int64 `(keys,)`, until when each key is needed; NO_CLOCK if it is not.
            horizons_ms: the horizon of each group.

        Returns:
            Which of the keys stay, `(keys,)`.
        """
        keys, noted_ms = visited
        _, _, from_ms, doubtful_until_ms = self._times(keys, horizons_ms)
        is_known = clocks_ms != NO_CLOCK
        live = is_known & ((clocks_ms >= from_ms) | (clocks_ms > noted_ms))
        doubtful = ~live & is_known & (noted_ms == NOT_NOTED)
        stays: Flags = live | doubtful
        gone = np.flatnonzero(is_known & ~stays)
        latest_ms = np.full(len(keys.group_ids), NO_CLOCK)
        np.maximum.at(latest_ms, keys.groups[gone], clocks_ms[gone])
        for index in np.flatnonzero(latest_ms != NO_CLOCK).tolist():
            self.note_evicted(keys.group_ids[index], latest_ms[index].item())
        chosen = np.flatnonzero(live)
        self.enter(keys.take(chosen), clocks_ms[chosen], horizons_ms)
        chosen = np.flatnonzero(doubtful)
        self._add(keys.take(chosen), doubtful_until_ms[chosen], clocks_ms[chosen])
        return stays

    def _times(self, keys: GroupedKeys, horizons_ms: Mapping[str, int], now_ms: Times | None = None) -> Int64s:
        """Return times for each key, int64 `(4, keys)`, in ms.

        They are the width of its group's slots, the shard's clock, the earliest clock within the horizon, and the slot
        that becomes due an eighth of the horizon from now. While too few keys are known for a clock, every key is
        within the horizon.
        """
        now_ms = self.clock.times(keys.group_ids) if now_ms is None else now_ms
        times_ms: list[tuple[int, int, int, int]] = []
        for group_id in keys.group_ids:
            horizon_ms, shard_ms = horizons_ms.get(group_id, 0), now_ms[group_id]
            step_ms = max(1, horizon_ms // SLOTS_IN_HORIZON)
            if shard_ms is None:
                times_ms.append((step_ms, 0, NO_CLOCK, 0))
            else:
                until_ms = (shard_ms // step_ms + 1) * step_ms - horizon_ms
                times_ms.append((step_ms, shard_ms, shard_ms - horizon_ms, until_ms))
        return np.array(times_ms, np.int64).reshape(-1, 4).T[:, keys.groups]

    def _add(self, keys: GroupedKeys, until_ms: Int64s, noted_ms: Int64s) -> None:
        if keys.size:
            self._added.append((Scheduled(keys, noted_ms), until_ms))

    def take_due(self, entries: Entries, horizons_ms: Mapping[str, int], most: int) -> Scheduled:
        """Take up to about `most` keys whose slot is due or whose group is gone."""
        wanted: list[tuple[str, int, int]] = []
        times_ms = self.clock.times(self.slots)
        for group_id, of_group in sorted(self.slots.items()):  # as one that is read has them
            horizon_ms, shard_ms = horizons_ms.get(group_id), times_ms[group_id]
            for until_ms in sorted(of_group):
                if horizon_ms is not None and (shard_ms is None or until_ms + horizon_ms >= shard_ms):
                    break
                while of_group[until_ms] and most > 0:
                    number = (of_group[until_ms] - 1) // CHUNK_KEYS
                    taken = of_group[until_ms] - number * CHUNK_KEYS
                    of_group[until_ms] -= taken
                    most -= taken
                    wanted.append((group_id, until_ms, number))
        if not wanted:
            return NOTHING_DUE
        self._has_other_slots = True
        self.slots = {
            group_id: left
            for group_id, of_group in self.slots.items()
            if (left := {until_ms: keys for until_ms, keys in of_group.items() if keys})
        }
        chunk_keys = ByteStrings.of([_chunk_key(*chunk) for chunk in wanted])
        group_ids = list(dict.fromkeys(group_id for group_id, _, _ in wanted))
        of_chunks = np.array([group_ids.index(group_id) for group_id, _, _ in wanted], np.int64)
        prefixes = ByteStrings.of([bytes.fromhex(group_id) for group_id, _, _ in wanted])
        state_keys, noted_ms, first = read_chunks(entries.read(chunk_keys), prefixes)
        entries.remove(chunk_keys)
        return Scheduled(GroupedKeys(group_ids, np.repeat(of_chunks, np.diff(first)), state_keys), noted_ms)

    def _write_added(self, entries: Entries) -> None:
        """Append the entered keys to the chunks of their slots."""
        if not self._added:
            return
        self._has_other_slots = True
        keys = GroupedKeys.joined([added.keys for added, _ in self._added])
        noted_ms = np.concatenate([added.noted_ms for added, _ in self._added])
        until_ms = np.concatenate([until_ms for _, until_ms in self._added])
        slots, seen = number_pairs(keys.groups, until_ms)
        order, slot_start = sort_by_code(slots, len(seen))
        chunk_keys: list[bytes] = []
        begun: list[int] = []
        first: list[int] = [0]
        columns = (keys.groups[seen].tolist(), until_ms[seen].tolist(), pairwise(slot_start.tolist()))
        for group, end_ms, (start, end) in zip(*columns, strict=True):
            group_id = keys.group_ids[group]
            of_group = self.slots.setdefault(group_id, {})
            before = of_group.get(end_ms, 0)
            of_group[end_ms] = before + end - start
            if before % CHUNK_KEYS:
                begun.append(len(chunk_keys))
            for number in range(before // CHUNK_KEYS, -(-of_group[end_ms] // CHUNK_KEYS)):
                chunk_keys.append(_chunk_key(group_id, end_ms, number))
                first.append(min(start + (number + 1) * CHUNK_KEYS - before, end))
        texts = [b""] * len(chunk_keys)
        for chunk, text in zip(begun, entries.get([chunk_keys[chunk] for chunk in begun]), strict=True):
            texts[chunk] = text
        state_keys, starts = keys.state_keys.take(order), np.array(first, np.int64)
        chunks = write_chunks(ByteStrings.of(texts), state_keys, noted_ms[order], starts, GROUP_BYTES)
        entries.write(ByteStrings.of(chunk_keys), chunks)
        self._added = []


_LEFT: dict[tuple[bytes, bytes, ClockKind], EvictionSchedule] = {}
"""Schedules by their written form: most are read in the process that wrote them, and need not be decoded."""


@lru_cache(maxsize=8)
def _evicted_until_ms(overview: bytes) -> dict[str, int]:
    until_ms: dict[str, int] = msgspec.json.decode(overview)["evicted_until_ms"] if overview else {}
    return until_ms


@lru_cache(maxsize=4096)
def _chunk_key(group_id: str, until_ms: int, number: int) -> bytes:
    return bytes.fromhex(group_id) + f"{until_ms}/{number}".encode()
