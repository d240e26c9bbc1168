"""When the keys of a shard are looked at again, so that idle ones do not stay for ever.

Every key stands on the agenda once, in a *slot* of its group: under the first multiple of an eighth of the horizon
behind its clock. A slot falls due when the shard's clock (`shard_clock`) has passed it by the horizon. Its keys are
visited then: one whose own clock is still inside the horizon goes to the slot of that clock. So a key costs one visit a
horizon, whatever its number of events.

A key whose own clock is behind the horizon may be idle, or lag behind the others: its source is slow, or another has
just begun far ahead. So its clock is noted, and it is visited once more an eighth of the horizon later. Where its clock
has moved on by then, it lags: it stays for another horizon, and so on as long as it moves. Else it is evicted.

A batch visits at the most as many keys as it holds events (and `SPARE_VISITS` more); what is left stays due. As every
key came to its slot by an event, the agenda never falls behind for long, and no batch pays for a whole sweep. Nothing
but event time moves the agenda: no timers, no watermark.

In the state: an *overview* as JSON, `{"version", "slots": {group: {until_ms: keys}}, "evicted_until_ms": {group: ms}}`,
the voters of the shard's clock, and the keys of each slot in chunks of `CHUNK_KEYS`, as JSON lists, appended to and
taken from the end. A key whose clock is noted is a list of both there. In version 1 there were no voters, and no such
keys.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from buckets.errors import BucketsError
from buckets.shard_clock import ShardClock
from buckets.store import Entries, head_key, split_head_key

AGENDA_VERSION = 2
OVERVIEW, CLOCK = b"overview", b"clock"
CHUNK_KEYS = 256
SPARE_VISITS = 64
SLOTS_IN_HORIZON = 8
LONG_AGO_MS = -(2**62)


class Entry(NamedTuple):
    """A key on the agenda.

    Attributes:
        key: the key.
        noted_ms: its clock when it was entered, of one that was behind the horizon; None of others.
    """

    key: str
    noted_ms: int | None


Written = str | tuple[str, int]
"""An entry as it stands in a chunk: a key, with its clock where that is noted."""


@dataclass
class Agenda:
    """The agenda of a shard during one batch.

    Attributes:
        clock: the shard's clock.
        slots: by group, how many keys stand in the slot that ends at a time.
        evicted_until_ms: by group, the time of the latest event of all timelines that were evicted.
    """

    clock: ShardClock = field(default_factory=ShardClock)
    slots: dict[str, dict[int, int]] = field(default_factory=dict)
    evicted_until_ms: dict[str, int] = field(default_factory=dict)
    _stored: dict[bytes, bytes] = field(default_factory=dict)
    _added: dict[tuple[str, int], list[Written]] = field(default_factory=dict)

    @classmethod
    def load(cls, entries: Entries, heads: Entries) -> "Agenda":
        """Read a shard's agenda.

        Args:
            entries: where agendas lie.
            heads: the shard's heads; those of a checkpoint from before there were agendas are entered at once.

        Raises:
            BucketsError: a later release wrote it.
        """
        stored, voters = entries.get([OVERVIEW, CLOCK])
        if not stored:
            agenda = cls()
            for stored_key in heads.list_keys():
                group_id, key = split_head_key(stored_key)
                agenda._add(group_id, key, LONG_AGO_MS)
            return agenda
        data = json.loads(stored)
        if data["version"] not in (1, AGENDA_VERSION):
            message = (
                f"the shard's agenda has version {data['version']}, and this release reads 1 to {AGENDA_VERSION}; "
                "run the release that wrote the checkpoint, or start with a new checkpoint"
            )
            raise BucketsError(message)
        slots = {
            group: {int(until): keys for until, keys in of_group.items()} for group, of_group in data["slots"].items()
        }
        evicted_until_ms = data.get("evicted_until_ms", {})
        return cls(ShardClock.from_bytes(voters), slots, evicted_until_ms, {OVERVIEW: stored, CLOCK: voters})

    def save(self, entries: Entries, live: Collection[str]) -> None:
        """Write what has changed.

        Args:
            entries: where agendas lie.
            live: the live groups.
        """
        self._write_added(entries)
        self.clock.keep(live)
        self.evicted_until_ms = {group: until for group, until in self.evicted_until_ms.items() if group in live}
        overview = {"version": AGENDA_VERSION, "slots": self.slots, "evicted_until_ms": self.evicted_until_ms}
        now = {OVERVIEW: json.dumps(overview, sort_keys=True).encode(), CLOCK: self.clock.to_bytes()}
        changed = [(name, data) for name, data in now.items() if data != self._stored.get(name, b"")]
        if changed:
            entries.put(changed)
        self._stored = now

    def note_evicted(self, group_id: str, until_ms: int) -> None:
        """Take note that a timeline of a group was evicted, whose latest event was at a time."""
        self.evicted_until_ms[group_id] = max(until_ms, self.evicted_until_ms.get(group_id, until_ms))

    def enter(self, group_id: str, keys: Iterable[tuple[str, int]], horizon_ms: int) -> None:
        """Enter keys of a group, each with its clock in ms; one that is behind the horizon stays for another."""
        step_ms, shard_ms = _step_ms(horizon_ms), self.clock.time_ms
        for key, clock_ms in keys:
            if shard_ms is not None and clock_ms < shard_ms - horizon_ms:
                self._add(group_id, (key, clock_ms), (shard_ms // step_ms + 1) * step_ms)
            else:
                self._add(group_id, key, (clock_ms // step_ms + 1) * step_ms)

    def enter_once_more(self, group_id: str, keys: Iterable[tuple[str, int]], horizon_ms: int) -> None:
        """Enter keys of a group that may be idle, each with its clock in ms, for an eighth of the horizon."""
        step_ms, shard_ms = _step_ms(horizon_ms), self.clock.time_ms
        assert shard_ms is not None
        for key, clock_ms in keys:
            self._add(group_id, (key, clock_ms), (shard_ms // step_ms + 1) * step_ms - horizon_ms)

    def _add(self, group_id: str, entry: Written, until_ms: int) -> None:
        self._added.setdefault((group_id, until_ms), []).append(entry)

    def take_due(self, entries: Entries, horizons_ms: Mapping[str, int], most: int) -> dict[str, list[Entry]]:
        """Take keys whose slot is due, and those of groups that are no more.

        Args:
            entries: where agendas lie.
            horizons_ms: by live group.
            most: about how many keys; whole chunks are taken.

        Returns:
            Keys by group.
        """
        shard_ms = self.clock.time_ms
        wanted: list[tuple[str, int, int]] = []
        for group_id, of_group in self.slots.items():
            horizon_ms = horizons_ms.get(group_id)
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
        places = [_chunk_key(*each) for each in wanted]
        due: dict[str, list[Entry]] = {}
        for (group_id, _, _), chunk in zip(wanted, entries.get(places), strict=True):
            due.setdefault(group_id, []).extend(map(_entry, json.loads(chunk)))
        entries.remove(places)
        return due

    def _write_added(self, entries: Entries) -> None:
        """Append the keys that were entered to the chunks of their slots."""
        open_chunks = {}
        for group_id, until_ms in self._added:
            held = self.slots.get(group_id, {}).get(until_ms, 0)
            if held % CHUNK_KEYS:
                open_chunks[group_id, until_ms] = _chunk_key(group_id, until_ms, held // CHUNK_KEYS)
        found = dict(zip(open_chunks, entries.get(list(open_chunks.values())), strict=True)) if open_chunks else {}
        written: list[tuple[bytes, bytes]] = []
        for (group_id, until_ms), keys in self._added.items():
            of_group = self.slots.setdefault(group_id, {})
            held = of_group.get(until_ms, 0)
            before = json.loads(found[group_id, until_ms]) if held % CHUNK_KEYS else []
            together, first = [*before, *keys], held // CHUNK_KEYS
            for number in range(-(-len(together) // CHUNK_KEYS)):
                chunk = json.dumps(together[number * CHUNK_KEYS : (number + 1) * CHUNK_KEYS], ensure_ascii=False)
                written.append((_chunk_key(group_id, until_ms, first + number), chunk.encode()))
            of_group[until_ms] = held + len(keys)
        if written:
            entries.put(written)
        self._added = {}


def _entry(written: str | list[Any]) -> Entry:
    """An entry as it stands in a chunk."""
    return Entry(written, None) if isinstance(written, str) else Entry(*written)


def _step_ms(horizon_ms: int) -> int:
    """How far apart slots of a group are."""
    return max(1, horizon_ms // SLOTS_IN_HORIZON)


def _chunk_key(group_id: str, until_ms: int, number: int) -> bytes:
    return head_key(group_id, f"{until_ms}/{number}")
