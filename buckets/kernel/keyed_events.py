"""The events of a micro-batch that a shard scores, each once; and which timelines need not be written again."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from buckets.arrays import Flags, Int64s
from buckets.byte_strings import ByteStrings
from buckets.compiled import allocating, compiled, leaf
from buckets.kernel.group_plans import GroupPlans
from buckets.kernel.plan import GroupPlan
from buckets.numbers import varint
from buckets.timeline.codec import CODEC_VERSION
from buckets.timeline.head import FROM_THE_BEGINNING, Directory, new_directory, read_entry_count, read_head
from buckets.timeline.tiers import Paging, Tiers, kept_from_ms, set_borders, width_at
from buckets.timeline.timeline import text_place

NO_TRACK = -1
FILLS: Final = 0  # Ways of an event into a timeline: it counts, and nothing is evaluated at it
COUNTS: Final = 1  # It counts, and is evaluated
ASKS: Final = 2  # It is evaluated, and leaves no trace
MOST_ROWS = 1_000_000  # Of some 90 bytes each


class KeyedEvents(NamedTuple):
    """Events group by group, key by key, each key's in arrival order."""

    plan: Int64s  # int64 `(groups,)`, the index of each group's plan
    group_start: Int64s  # int64 `(groups + 1,)`, where each group's keys begin
    key_start: Int64s  # int64 `(keys + 1,)`, where each key's events begin
    rows: Int64s  # int64 `(events,)`, the row of each event; a row has one event for each of its groups
    times_ms: Int64s  # int64 `(rows,)`
    # int64 `(tracks, rows)`, scaled measures and other tracks; for a text its `timeline.text_place` in the bytes of
    # `ids`, behind the ids
    values: Int64s
    nulls: Flags  # bool `(tracks, rows)`, where an event has no value; `values` is meaningless there
    track: Int64s  # int64 `(columns,)`, the track of each column of all plans; NO_TRACK if no rule reads it any more
    ids: ByteStrings  # the events' ids, in UTF-8
    judged: Flags  # bool `(rows,)`, whether rules are evaluated at an event; others only fill timelines
    # int8 `(events,)`, FILLS | COUNTS | ASKS, for events that are judged; empty where all of them count
    ways: npt.NDArray[np.int8]

    def between(self, first: int, end: int) -> "KeyedEvents":
        """Return the events of groups `[first, end)`."""
        if first == 0 and end == len(self.plan):
            return self
        first_key, end_key = self.group_start[[first, end]].tolist()
        first_event, end_event = self.key_start[[first_key, end_key]].tolist()
        return self._replace(
            plan=self.plan[first:end],
            group_start=self.group_start[first : end + 1] - first_key,
            key_start=self.key_start[first_key : end_key + 1] - first_event,
            rows=self.rows[first_event:end_event],
            ways=self.ways[first_event:end_event],
        )

    @classmethod
    def of_group(
        cls, key_start: Int64s, times_ms: Int64s, values: Int64s, nulls: Flags, ids: ByteStrings
    ) -> "KeyedEvents":
        """Return the events of one group, one row each, with its columns as tracks."""
        group_start, rows = np.array([0, len(key_start) - 1]), np.arange(len(times_ms))
        no_plan, tracks = np.zeros(1, np.int64), np.arange(len(values))
        judged = np.ones(len(times_ms), np.bool_)
        no_ways = np.empty(0, np.int8)
        return cls(no_plan, group_start, key_start, rows, times_ms, values, nulls, tracks, ids, judged, no_ways)


def bundles(events: KeyedEvents, plans: Sequence[GroupPlan], emit_all: bool) -> Iterator[tuple[int, int]]:
    """Yield ranges `[first, end)` of groups to score in one call.

    With `emit_all`, a call of several groups has at most `MOST_ROWS` rows; a group is never divided.
    """
    first, rows, groups = 0, 0, len(plans)
    if emit_all:
        counts = np.diff(events.key_start[events.group_start]).tolist()
        for group, (count, plan) in enumerate(zip(counts, plans, strict=True)):
            of_group = count * len(plan.rule_arrays.number)
            if rows and rows + of_group > MOST_ROWS:
                yield first, group
                first, rows = group, 0
            rows += of_group
    yield first, groups


def no_events(keys: int, columns: int) -> KeyedEvents:
    """Return no events, for this many keys of one group and this many measures."""
    no_values, no_nulls = np.empty((columns, 0), np.int64), np.empty((columns, 0), np.bool_)
    nothing = np.empty(0, np.int64)
    return KeyedEvents.of_group(np.zeros(keys + 1, np.int64), nothing, no_values, no_nulls, ByteStrings.of([]))


class GroupEvents(NamedTuple):
    """The events of one group: key by key, each key's in arrival order."""

    first_key: np.int64  # the index of its first key among those of all groups
    key_start: Int64s  # int64 `(keys + 1,)`, where each key's events begin
    times_ms: Int64s  # int64 `(events,)`
    values: Int64s  # int64 `(columns, events)`, in the order of the group's layout
    nulls: Flags  # bool `(columns, events)`, where an event has no value; `values` is meaningless there
    pool: npt.NDArray[np.uint8]  # uint8, heads, loaded pages and ids
    id_start: Int64s  # int64 `(events,)`, where the id of each begins in the pool
    id_length: Int64s  # int64 `(events,)`
    way: npt.NDArray[np.int8]  # int8 `(events,)`, FILLS | COUNTS | ASKS


@allocating
def events_of(events: KeyedEvents, group, plans: GroupPlans, pool, ids_at) -> GroupEvents:
    """Return the events of one group; `ids_at` is the offset of all ids in the pool."""
    first_key, end_key = events.group_start[group], events.group_start[group + 1]
    first, end = events.key_start[first_key], events.key_start[end_key]
    first_column, end_column = plans.column_start[events.plan[group]], plans.column_start[events.plan[group] + 1]
    size, columns, ids = end - first, end_column - first_column, events.ids.start
    of_group = GroupEvents(
        first_key,
        np.empty(end_key - first_key + 1, np.int64),
        np.empty(size, np.int64),
        np.zeros((columns, size), np.int64),
        np.zeros((columns, size), np.bool_),
        pool,
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int8),
    )
    for key in range(end_key - first_key + 1):
        of_group.key_start[key] = events.key_start[first_key + key] - first
    for event in range(size):
        row = events.rows[first + event]
        of_group.times_ms[event] = events.times_ms[row]
        of_group.id_start[event] = ids_at + ids[row]
        of_group.id_length[event] = ids[row + 1] - ids[row]
        of_group.way[event] = COUNTS if events.judged[row] else FILLS
        if events.ways.shape[0] > 0 and events.ways[first + event] != COUNTS:
            of_group.way[event] = events.ways[first + event]
    for column in range(columns):
        track = events.track[first_column + column]
        if track != NO_TRACK:
            moved = text_place(ids_at, 0) if plans.is_text[first_column + column] else np.int64(0)
            for event in range(size):
                row = events.rows[first + event]
                value = events.values[track, row]
                of_group.values[column, event] = value + (moved if value != 0 else np.int64(0))
                of_group.nulls[column, event] = events.nulls[track, row]
    return of_group


def are_settled(plan: GroupPlan, heads: ByteStrings, paging: Paging) -> Flags:
    """Return which timelines of a group would surely not change if they were written now, bool `(keys,)`."""
    group = plan.group
    return _settled(*heads, group.generation, len(group.measures), plan.tiers, plan.horizon_ms, paging.hot_cells)


@compiled
def _settled(pool, head_start, generation, columns, tiers: Tiers, horizon_ms, most_cells):
    """Return which timelines would surely not change if they were written now."""
    keys = head_start.shape[0] - 1
    settled, borders = np.zeros(keys, np.bool_), np.zeros(tiers.after_ms.shape[0], np.int64)
    directory = new_directory(np.zeros(2, np.int64), 0)
    for key in range(keys):
        begin, end = head_start[key], head_start[key + 1]
        if begin < end and pool[begin] == CODEC_VERSION and read_entry_count(pool, begin, end) == 0:
            settled[key] = _is_settled(
                pool, begin, end, directory, generation, columns, tiers, borders, horizon_ms, most_cells
            )
    return settled


@leaf
def _is_settled(
    pool, begin, end, directory: Directory, generation, columns, tiers: Tiers, borders, horizon_ms, most_cells
):
    """Return whether a timeline without pages is in the current form, and all of its cells are raw and stay so."""
    clock_ms, since_ms, written_by, _, at, cells, _ = read_head(pool, begin, end, directory, 0)
    if written_by != generation or cells == 0 or cells > most_cells:
        return False
    if since_ms != FROM_THE_BEGINNING and since_ms <= clock_ms - horizon_ms:
        return False
    known, at = varint.read_count(pool, at)
    combined, at = varint.read_count(pool, at)
    _, at = varint.read_count(pool, at)
    first_ms, _ = varint.read_signed(pool, at)
    if known != columns or combined != 0 or first_ms < kept_from_ms(tiers, clock_ms, horizon_ms):
        return False
    set_borders(borders, tiers, clock_ms)
    return width_at(tiers, borders, first_ms) == 1
