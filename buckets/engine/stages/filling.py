"""Filling in a shard: history, and then what arrived meanwhile, goes into the timelines of a fill in order.

    chunk 0, chunk 1, … chunk n-1      history, cut into chunks by the builder, each with a part for every shard
    arrivals of batch B, B+1, …        they wait in the state until the history is in, and follow in their order
    arrivals of this batch             once nothing waits any more, they go in at once: the fill has caught up

How far a fill has come lies in the state of the shard, and so it is right after whatever happens to a batch. A batch
takes as much as it is told to, and results do not depend on how much that is.

In the state: in the map `schedule` an overview, `{number of a fill: [chunks taken, first that waits, next that will]}`
as JSON; in the map `pages`, under an identity of the fill, the arrivals that wait, an entry a batch.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from buckets.byte_strings import ByteStrings
from buckets.engine.batch import payload
from buckets.engine.batch.keyed_table import stored_table, without
from buckets.engine.batch.shard_events import EventsByKey, by_key
from buckets.engine.storage.shard_store import ShardStore
from buckets.events.arrivals import INGESTED
from buckets.kernel.plan import GroupPlan
from buckets.lists.index import Lists
from buckets.rules.completeness import Fill, Filled, Piece, fill_identity

FILLS = "fills"  # The output that says how far a shard has come with a fill, as JSON
OVERVIEW = b"fills"
READ_AT_ONCE = 16  # So many entries that wait are read in one call
MOST_REMOVED = 64  # So many entries that wait are removed in one batch of a fill that has ended early
_NUMBER_BYTES = 8


class FillSource(Protocol):
    """Where the history of a fill comes from, for one shard and batch."""

    @property
    def ready(self) -> int:
        """How many chunks there are."""

    @property
    def total(self) -> int | None:
        """How many there are in all; None while that is not known."""

    @property
    def rows(self) -> int:
        """About how many rows of history, and of what has waited, the batch takes; 0: none."""

    @property
    def lists(self) -> str:
        """As JSON, by name the versions of the lists that the batch sees."""

    def chunk(self, number: int) -> Piece:
        """Return a chunk that is there."""

    def lists_of(self, versions: str) -> Lists:
        """Return lists in their versions."""


FillSources = Mapping[int, FillSource]  # By the number of a fill
NO_SOURCES: FillSources = MappingProxyType({})
TakeIn = Callable[[GroupPlan, EventsByKey, Lists], None]


@dataclass
class Progress:
    """How far a shard has come with a fill."""

    chunk: int = 0  # the next chunk of history
    first: int = 0  # the number of the first entry that waits
    next: int = 0  # of the next that will


class Filling:
    """The fills of a shard during one batch."""

    def __init__(self, store: ShardStore, take_in: TakeIn) -> None:
        """Read how far they are.

        Args:
            store: the shard's state.
            take_in: scores events for nothing but the state.
        """
        self._store, self._take_in = store, take_in
        (self._stored,) = store.schedule.get([OVERVIEW])
        known = json.loads(self._stored) if self._stored else {}
        self._progress = {int(number): Progress(*numbers) for number, (_, *numbers) in known.items()}
        self._groups = {int(number): group_id for number, (group_id, *_) in known.items()}

    def go_on(self, fill: Fill, plan: GroupPlan, arrived: EventsByKey | None, source: FillSource | None) -> bytes:
        """Take in what comes next.

        Args:
            fill: the fill.
            plan: of its group, over the timelines that are filled.
            arrived: what has arrived of the group in this batch; None for nothing.
            source: its history; None where there is none in this batch.

        Returns:
            How far it is now, as JSON.
        """
        progress = self._progress.setdefault(fill.number, Progress())
        self._groups[fill.number] = fill.group_id
        if source is not None and _has_caught_up(progress, source):
            if arrived is not None:
                self._take_in(plan, arrived, source.lists_of(source.lists))
        else:
            if arrived is not None:
                self._let_wait(
                    fill, progress, stored_table(arrived, plan.group), "{}" if source is None else source.lists
                )
            if source is not None:
                self._take_next(fill, progress, plan, source)
        done = source is not None and _has_caught_up(progress, source)
        waiting = progress.next - progress.first
        return json.dumps({"fill": fill.number, "chunk": progress.chunk, "waiting": waiting, "done": done}).encode()

    def end(self, fills: Collection[Fill]) -> None:
        """Forget fills that have ended, and write how far the others are."""
        live = {fill.number for fill in fills}
        for number in [each for each in self._progress if each not in live]:
            self._forget(number)
        overview = {
            str(number): [self._groups[number], each.chunk, each.first, each.next]
            for number, each in sorted(self._progress.items())
        }
        data = json.dumps(overview).encode() if overview else b""
        if data == self._stored:
            return
        if data:
            self._store.schedule.put([(OVERVIEW, data)])
        else:
            self._store.schedule.remove(ByteStrings.of([OVERVIEW]))

    def _let_wait(self, fill: Fill, progress: Progress, arrived: pa.Table, lists: str) -> None:
        packed = payload.pack(payload.EVENTS, _in_turn(arrived), fill.group_id)
        entry = len(lists.encode()).to_bytes(_NUMBER_BYTES, "big") + lists.encode() + packed
        self._store.pages.put([(_waiting_key(fill.waiting, progress.next), entry)])
        progress.next += 1

    def _take_next(self, fill: Fill, progress: Progress, plan: GroupPlan, source: FillSource) -> None:
        """Take in history, and then what waits, about as much as the batch is told to."""
        taken, found = 0, list[tuple[str, pa.Table]]()
        while taken < source.rows and progress.chunk < source.ready:
            piece = source.chunk(progress.chunk)
            progress.chunk, taken = progress.chunk + 1, taken + piece.rows
            if piece.packed is not None:
                found.append((piece.lists, payload.unpack(piece.packed)))
        while progress.chunk == source.total and taken < source.rows and progress.first < progress.next:
            numbers = range(progress.first, min(progress.first + READ_AT_ONCE, progress.next))
            keys = [_waiting_key(fill.waiting, number) for number in numbers]
            for key, entry in zip(keys, self._store.pages.get(keys), strict=True):
                if taken >= source.rows:
                    break
                lists, table = _read_waiting(entry)
                found.append((lists, table))
                self._store.pages.remove(ByteStrings.of([key]))
                progress.first, taken = progress.first + 1, taken + len(table)
        for (lists, _), several in groupby(found, key=lambda each: (each[0], each[1].schema.remove_metadata())):
            self._take_in(plan, by_key(_one_after_another([table for _, table in several])), source.lists_of(lists))

    def _forget(self, number: int) -> None:
        """Remove what waits of a fill that has ended, some of it in each batch."""
        progress = self._progress[number]
        waiting = fill_identity(self._groups[number], number, "waiting")
        numbers = range(progress.first, min(progress.first + MOST_REMOVED, progress.next))
        if numbers:
            self._store.pages.remove(ByteStrings.of([_waiting_key(waiting, each) for each in numbers]))
            progress.first = numbers.stop
        if progress.first == progress.next:
            del self._progress[number], self._groups[number]


def how_far(reports: Iterable[bytes], shards: int) -> dict[int, Filled]:
    """Return how far fills are after a batch.

    Args:
        reports: what the shards have said of it.
        shards: how many there are.
    """
    said: dict[int, list[dict[str, Any]]] = {}
    for report in map(json.loads, reports):
        said.setdefault(report["fill"], []).append(report)
    return {
        number: Filled(
            chunk=min(each["chunk"] for each in of_shards),
            waiting=sum(each["waiting"] for each in of_shards),
            done=len(of_shards) == shards and all(each["done"] for each in of_shards),
        )
        for number, of_shards in said.items()
    }


def _has_caught_up(progress: Progress, source: FillSource) -> bool:
    return progress.chunk == source.total and progress.first == progress.next


def _waiting_key(identity: str, number: int) -> bytes:
    return bytes.fromhex(identity) + number.to_bytes(_NUMBER_BYTES, "big")


def _read_waiting(entry: bytes) -> tuple[str, pa.Table]:
    end = _NUMBER_BYTES + int.from_bytes(entry[:_NUMBER_BYTES], "big")
    return entry[_NUMBER_BYTES:end].decode(), payload.unpack(entry[end:])


def _in_turn(events: pa.Table) -> pa.Table:
    """Return events of a group, each with its rank in place of where it stood in its source."""
    events = without(events, [INGESTED])
    for name, column in _ranks(len(events)).items():
        events = events.set_column(events.column_names.index(name), name, column)
    return events


def _ranks(rows: int) -> dict[str, pa.Array]:
    """Return columns that say that rows have arrived one after the other."""
    return {
        "source": pa.array([""] * rows, pa.string()).dictionary_encode(),
        "source_order": pa.array(np.zeros(rows, np.int64)),
        "position": pa.array(np.arange(rows, dtype=np.int64)),
    }


def _one_after_another(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """Return tables of a group such that each has arrived after all before it."""
    if len(tables) == 1:
        return list(tables)
    return [
        table.set_column(
            table.column_names.index("source_order"), "source_order", pa.array(np.full(len(table), turn, np.int64))
        )
        for turn, table in enumerate(tables)
    ]
