"""When the keys of a shard are looked at again, so that idle ones do not stay for ever.

Every key stands on the agenda once, in a *slot* of its group: under the first multiple of an eighth of the horizon
behind its clock. A slot falls due when the shard's clock, the greatest event time that has arrived for the shard, has
passed it by the horizon. Its keys are visited then: one whose own clock is still inside the horizon goes to the slot of
that clock, another is evicted. So a key costs one visit a horizon, whatever its number of events.

A batch visits at the most as many keys as it holds events (and `SPARE_VISITS` more); what is left stays due. As every
key came to its slot by an event, the agenda never falls behind for long, and no batch pays for a whole sweep. Nothing
but event time moves the agenda: no timers, no watermark.

In the state: an *overview* as JSON, `{"version", "clock_ms", "slots": {group: {until_ms: keys}}}`, and the keys of each
slot in chunks of `CHUNK_KEYS`, as JSON lists, appended to and taken from the end.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from buckets.errors import BucketsError
from buckets.store import Entries, head_key, split_head_key

AGENDA_VERSION = 1
OVERVIEW = b"overview"
CHUNK_KEYS = 256
SPARE_VISITS = 64
SLOTS_IN_HORIZON = 8
LONG_AGO_MS = -(2**62)


@dataclass
class Agenda:
    """The agenda of a shard during one batch.

    Attributes:
        clock_ms: the shard's clock; None before its first event.
        slots: by group, how many keys stand in the slot that ends at a time.
    """

    clock_ms: int | None = None
    slots: dict[str, dict[int, int]] = field(default_factory=dict)
    _stored: str = ""
    _added: dict[tuple[str, int], list[str]] = field(default_factory=dict)

    @classmethod
    def load(cls, entries: Entries, heads: Entries) -> "Agenda":
        """Read a shard's agenda.

        Args:
            entries: where agendas lie.
            heads: the shard's heads; those of a checkpoint from before there were agendas are entered at once.

        Raises:
            BucketsError: a later release wrote it.
        """
        (stored,) = entries.get([OVERVIEW])
        if not stored:
            agenda = cls()
            for key in heads.list_keys():
                agenda._add(*split_head_key(key), until_ms=LONG_AGO_MS)
            return agenda
        data = json.loads(stored)
        if data["version"] != AGENDA_VERSION:
            message = (
                f"the shard's agenda has version {data['version']}, and this release reads {AGENDA_VERSION}; "
                "run the release that wrote the checkpoint, or start with a new checkpoint"
            )
            raise BucketsError(message)
        slots = {
            group: {int(until): keys for until, keys in of_group.items()} for group, of_group in data["slots"].items()
        }
        return cls(data["clock_ms"], slots, stored.decode())

    def save(self, entries: Entries, horizons_ms: Mapping[str, int]) -> None:
        """Write what has changed.

        Args:
            entries: where agendas lie.
            horizons_ms: by live group.
        """
        self._write_added(entries)
        step_ms = min((_step_ms(horizon_ms) for horizon_ms in horizons_ms.values()), default=1)
        clock_ms = None if self.clock_ms is None else self.clock_ms // step_ms * step_ms
        text = json.dumps({"version": AGENDA_VERSION, "clock_ms": clock_ms, "slots": self.slots}, sort_keys=True)
        if text != self._stored:
            entries.put([(OVERVIEW, text.encode())])
            self._stored = text

    def advance(self, clock_ms: int) -> None:
        """Move the shard's clock, never back."""
        self.clock_ms = clock_ms if self.clock_ms is None else max(self.clock_ms, clock_ms)

    def enter(self, group_id: str, keys: Iterable[tuple[str, int]], horizon_ms: int) -> None:
        """Enter keys of a group, each with its clock in ms."""
        step_ms = _step_ms(horizon_ms)
        for key, clock_ms in keys:
            self._add(group_id, key, (clock_ms // step_ms + 1) * step_ms)

    def _add(self, group_id: str, key: str, until_ms: int) -> None:
        self._added.setdefault((group_id, until_ms), []).append(key)

    def take_due(self, entries: Entries, horizons_ms: Mapping[str, int], most: int) -> dict[str, list[str]]:
        """Take keys whose slot is due, and those of groups that are no more.

        Args:
            entries: where agendas lie.
            horizons_ms: by live group.
            most: about how many keys; whole chunks are taken.

        Returns:
            Keys by group.
        """
        if self.clock_ms is None:
            return {}
        wanted: list[tuple[str, int, int]] = []
        for group_id, of_group in self.slots.items():
            horizon_ms = horizons_ms.get(group_id)
            for until_ms in sorted(of_group):
                if horizon_ms is not None and until_ms + horizon_ms >= self.clock_ms:
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
        due: dict[str, list[str]] = {}
        for (group_id, _, _), chunk in zip(wanted, entries.get(places), strict=True):
            due.setdefault(group_id, []).extend(json.loads(chunk))
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


def _step_ms(horizon_ms: int) -> int:
    """How far apart slots of a group are."""
    return max(1, horizon_ms // SLOTS_IN_HORIZON)


def _chunk_key(group_id: str, until_ms: int, number: int) -> bytes:
    return head_key(group_id, f"{until_ms}/{number}")
