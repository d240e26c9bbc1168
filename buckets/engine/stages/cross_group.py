"""Joins, by event, the parts of rules that have features of several groups; and fills shards with history.

The keys of one event in different groups lie in different shards. Each shard puts out the parts that it has computed
for such rules; the group of the rule's own key also puts out the events. They are joined here in the same micro-batch,
which needs no state, since every part was computed at that event.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.aggregates.component import NOTHING_COMPUTED
from buckets.arrays import Flags, Int64s
from buckets.byte_strings import ByteStrings
from buckets.engine.batch import payload
from buckets.engine.batch.fan_out import KeyedTable, stored_table, without
from buckets.engine.batch.shard_events import EventsByKey, by_key
from buckets.engine.stages.accounting import ARRIVAL
from buckets.engine.storage.shard_store import ShardStore
from buckets.engine.values.feature_rules import Judged, judge
from buckets.engine.values.group_parts import ComputedPart, GroupParts, ScoredGroup, from_columns, joined, to_columns
from buckets.engine.values.track_values import counts
from buckets.events.arrivals import INGESTED
from buckets.events.schema import EventSchema
from buckets.kernel.plan import GroupPlan
from buckets.lists.index import NO_LISTS, Lists
from buckets.rules.completeness import Fill, Filled, Piece, fill_identity
from buckets.rules.feature import Part
from buckets.rules.group import Group
from buckets.rules.role import asked_field
from buckets.rules.rule_set import RuleSet

FILLS = "fills"  # The output that says how far a shard has come with a fill, as JSON
OVERVIEW = b"fills"
READ_AT_ONCE = 16  # So many entries that wait are read in one call
MOST_REMOVED = 64  # So many entries that wait are removed in one batch of a fill that has ended early
_NUMBER_BYTES = 8


class FillSource(Protocol):
    """The history of a fill, for one shard and batch."""

    @property
    def ready(self) -> int:
        """The number of chunks that can be read."""

    @property
    def total(self) -> int | None:
        """The number of all chunks; None while unknown."""

    @property
    def rows(self) -> int:
        """About how many rows, of history and of waiting events, the batch takes in; 0 for none."""

    @property
    def lists(self) -> str:
        """The versions of the lists that the batch uses, by name, as JSON."""

    def chunk(self, number: int) -> Piece:
        """Return a chunk, whose number is below `ready`."""

    def lists_of(self, versions: str) -> Lists:
        """Return the lists in these versions, which are given as in `lists`."""


FillSources = Mapping[int, FillSource]  # By the number of a fill
NO_SOURCES: FillSources = MappingProxyType({})
TakeIn = Callable[[GroupPlan, EventsByKey, Lists], None]


@dataclass
class Progress:
    """The progress of a fill in a shard."""

    chunk: int = 0  # the next chunk of history
    first: int = 0  # the number of the first waiting entry
    next: int = 0  # the number of the next entry that will wait


class Filling:
    """The fills of a shard during one batch."""

    def __init__(self, store: ShardStore, take_in: TakeIn) -> None:
        self._store, self._take_in = store, take_in
        (self._stored,) = store.schedule.get([OVERVIEW])
        known = json.loads(self._stored) if self._stored else {}
        self._progress = {int(number): Progress(*numbers) for number, (_, *numbers) in known.items()}
        self._groups = {int(number): group_id for number, (group_id, *_) in known.items()}

    def go_on(self, fill: Fill, plan: GroupPlan, arrived: EventsByKey | None, source: FillSource | None) -> bytes:
        """Take in history, waiting or arrived events, and return the fill's progress as JSON.

        The plan is for the timelines that are filled. `arrived` is None if no event of the group arrived in this batch,
        and `source` is None if the batch has no history.
        """
        progress = self._progress.setdefault(fill.number, Progress())
        self._groups[fill.number] = fill.group_id
        if source is not None and _has_caught_up(progress, source):
            if arrived is not None:
                self._take_in(plan, arrived, source.lists_of(source.lists))
        else:
            if arrived is not None:
                packed = payload.pack(payload.EVENTS, _in_turn(stored_table(arrived, plan.group)), fill.group_id)
                lists = b"{}" if source is None else source.lists.encode()
                entry = len(lists).to_bytes(_NUMBER_BYTES, "big") + lists + packed
                self._store.pages.put([(_waiting_key(fill.waiting, progress.next), entry)])
                progress.next += 1
            if source is not None:
                self._take_next(fill, progress, plan, source)
        done = source is not None and _has_caught_up(progress, source)
        waiting = progress.next - progress.first
        return json.dumps({"fill": fill.number, "chunk": progress.chunk, "waiting": waiting, "done": done}).encode()

    def end(self, fills: Collection[Fill]) -> None:
        """Forget fills that have ended, and write the progress of the others."""
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

    def _take_next(self, fill: Fill, progress: Progress, plan: GroupPlan, source: FillSource) -> None:
        """Take in history, then waiting events, about `source.rows` rows together."""
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
                end = _NUMBER_BYTES + int.from_bytes(entry[:_NUMBER_BYTES], "big")
                table = payload.unpack(entry[end:])
                found.append((entry[_NUMBER_BYTES:end].decode(), table))
                self._store.pages.remove(ByteStrings.of([key]))
                progress.first, taken = progress.first + 1, taken + len(table)
        for (lists, _), several in groupby(found, key=lambda each: (each[0], each[1].schema.remove_metadata())):
            tables = [table for _, table in several]
            if len(tables) > 1:  # Each has arrived after all before it.
                turns = (pa.array(np.full(len(table), turn)) for turn, table in enumerate(tables))
                tables = [_with_column(table, "source_order", turn) for table, turn in zip(tables, turns, strict=True)]
            self._take_in(plan, by_key(tables), source.lists_of(lists))

    def _forget(self, number: int) -> None:
        """Remove the waiting entries of a fill that has ended, up to `MOST_REMOVED` in each batch."""
        progress = self._progress[number]
        waiting = fill_identity(self._groups[number], number, "waiting")
        numbers = range(progress.first, min(progress.first + MOST_REMOVED, progress.next))
        if numbers:
            self._store.pages.remove(ByteStrings.of([_waiting_key(waiting, each) for each in numbers]))
            progress.first = numbers.stop
        if progress.first == progress.next:
            del self._progress[number], self._groups[number]


def how_far(reports: Iterable[bytes], shards: int) -> dict[int, Filled]:
    """Combine the shards' reports of a batch into the progress of each fill, by its number."""
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


def _in_turn(events: pa.Table) -> pa.Table:
    """Return events of a group with their rank in place of their origin in a source."""
    rows = len(events)
    events = _with_column(events, "source", pa.array([""] * rows, pa.string()).dictionary_encode())
    events = _with_column(events, "source_order", pa.array(np.zeros(rows, np.int64)))
    return without(_with_column(events, "position", pa.array(np.arange(rows))), [INGESTED])


def _with_column(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, column)


PARTS = "parts"  # The output that carries parts to where they are joined
CLOCK = "clock_ms"  # The column with the clock of its key after each event
_NO_FLAGS = np.empty(0, np.bool_)
_NO_PART = ComputedPart(NOTHING_COMPUTED, _NO_FLAGS, _NO_FLAGS)
_EVENT_TYPES = {"position": pa.int64(), "source": pa.string(), "source_order": pa.int64(), "event_id": pa.string()}
_EVENT = tuple(_EVENT_TYPES)  # What identifies an event within a batch; the first of these are almost always enough


def parts_payload(group: ScoredGroup, found: GroupParts) -> bytes | None:
    """Pack a group's parts for rules that span groups, at the events to which these apply; None without such events."""
    table, of = group.table, group.plan.group
    wanted = np.zeros(len(found.events), np.bool_)
    for where in dict.fromkeys(rule.where for rule in of.spanning_rules):
        wanted |= counts(where, table, found.events)
    rows = np.flatnonzero(wanted)
    if not len(rows):
        return None
    events = found.events[rows]
    if any(map(of.is_home_of, of.spanning_rules)):
        codes = pa.array(table.codes[events].astype(np.int32))
        key = pa.DictionaryArray.from_arrays(codes, table.keys)
        clocks = pa.array(group.clocks_ms[events])
        taken = table.take(events).append_column("key", key).append_column(CLOCK, clocks)
    else:
        taken = table.take(events, _EVENT)
    for name, column in to_columns([found.parts[part].take(rows) for part in of.spanning_parts]).items():
        taken = taken.append_column(name, column)
    return payload.pack(payload.EVENTS, taken, of.group_id)


def meet(
    payloads: Iterable[bytes], rule_set: RuleSet, schema: EventSchema, lists: Lists = NO_LISTS
) -> Iterator[tuple[Group, Judged]]:
    """Evaluate the rules that span groups at their events; yield each with the group of its own key.

    `payloads` are the whole output `PARTS` of a batch.
    """
    tables: dict[str, list[pa.Table]] = {}
    for packed in payloads:
        table = payload.unpack(packed)
        tables.setdefault(payload.group_of(table), []).append(table)
    groups = {group.group_id: group for group in rule_set.groups}
    arrived = {
        identity: _Arrived.of(groups[identity], found, schema, lists)
        for identity, found in tables.items()
        if identity in groups
    }
    for needed, prepared in rule_set.spanning_rules.items():
        if needed[0] not in arrived:
            continue
        of_groups = [arrived.get(identity) or _Arrived.nothing_of(groups[identity]) for identity in needed]
        home = of_groups[0]
        assert home.table is not None
        rows = [home.rows_in(other) for other in of_groups]
        # Rules are evaluated at events for which each group has its parts, or to which the event does not belong.
        known = [(of_other >= 0) | home.lacks_key_of(other) for other, of_other in zip(of_groups, rows, strict=True)]
        there = np.flatnonzero(np.all(known, axis=0))
        parts = {
            frozenset(other.fields): {part: each.take_or_outside(of_other[there]) for part, each in other.parts.items()}
            for other, of_other in zip(of_groups, rows, strict=True)
        }
        for judged in judge(prepared, home.table, there, parts):
            yield groups[needed[0]], judged


@dataclass(frozen=True)
class _Arrived:
    """The parts, and perhaps the events, of a group."""

    fields: tuple[str, ...]  # by which it groups
    known: pa.Table  # the columns of `_EVENT`
    parts: Mapping[Part, ComputedPart]  # its parts, at these events
    table: KeyedTable | None  # the events themselves, if some rule has its key in this group

    @classmethod
    def of(cls, group: Group, tables: list[pa.Table], schema: EventSchema, lists: Lists) -> "_Arrived":
        """Join the tables of a group."""
        parts = group.spanning_parts
        pieces = zip(*(from_columns(table, len(parts)) for table in tables), strict=True)
        of_parts_alone = re.compile(r"\d+:")
        plain = [without(table, filter(of_parts_alone.match, table.column_names)) for table in tables]
        whole = pa.concat_tables(plain).unify_dictionaries().combine_chunks()
        known = whole.select(_EVENT).set_column(1, "source", whole["source"].cast(pa.string()))
        of_parts = dict(zip(parts, map(joined, pieces), strict=True))
        if group.policies and len(tables) > 1:
            # A key's events may be in several tables, and what policies decide depends on their order.
            rows = pc.sort_indices(known, [(name, "ascending") for name in ARRIVAL])
            whole, known = whole.take(rows).combine_chunks(), known.take(rows)
            of_parts = {part: each.take(rows.to_numpy()) for part, each in of_parts.items()}
        keyed = None
        if "key" in whole.column_names:
            key = pa.concat_arrays(whole["key"].chunks)
            codes = key.indices.to_numpy().astype(np.int64)
            events = whole.drop_columns(["key"])
            keyed = KeyedTable(schema, events, lists, group=group, keys=key.dictionary, codes=codes)
        return cls(group.fields, known, of_parts, keyed)

    @classmethod
    def nothing_of(cls, group: Group) -> "_Arrived":
        """Return empty parts, for a group to which no event belongs."""
        known = pa.table({name: pa.array([], _EVENT_TYPES[name]) for name in _EVENT})
        return cls(group.fields, known, dict.fromkeys(group.spanning_parts, _NO_PART), None)

    def lacks_key_of(self, other: "_Arrived") -> Flags:
        """Return which events have no key in another group, bool `(events,)`."""
        assert self.table is not None
        lacking = np.zeros(len(self.known), np.bool_)
        for column in self.table.fields(map(asked_field, other.fields)).values():
            if column.null_count:
                lacking |= column.is_null().to_numpy(zero_copy_only=False)
        return lacking

    def rows_in(self, other: "_Arrived") -> Int64s:
        """Return the row of each event in another group, int64 `(events,)`; -1 if it is not there."""
        if other is self:
            return np.arange(len(self.known))
        both, size = pa.concat_tables([self.known, other.known]), len(self.known)
        numbers = np.zeros(len(both), np.int64)
        for name in _EVENT:
            codes = both[name].combine_chunks().dictionary_encode().indices.to_numpy()
            # Both are less than the number of rows, so that the product has room.
            _, numbers = np.unique(numbers * len(both) + codes, return_inverse=True) if numbers.any() else (None, codes)
            if max(np.bincount(part).max(initial=0) for part in (numbers[:size], numbers[size:])) <= 1:
                break
        row_of = np.full(int(numbers.max(initial=-1)) + 1, -1, np.int64)
        row_of[numbers[size:]] = np.arange(len(both) - size)
        return row_of[numbers[:size]]
