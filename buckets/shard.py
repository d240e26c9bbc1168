"""One shard's share of a micro-batch, as a pure function over a store of timelines.

1. The payloads of each group become one table, key by key, each key's events in arrival order.
2. The keys' heads are read, and the pages that their windows need; the kernel scores, what has changed is written:
   one read and one write a key, and few pages.
3. What came out leaves as tables, one for each kind of output that is not empty, and a count of every outcome.
4. Keys that are due on the shard's agenda are visited: trimmed, or evicted.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets import outputs, payload
from buckets.engine_settings import EngineSettings
from buckets.event_schema import EventSchema
from buckets.fan_out import dead_letter_table, measure_column
from buckets.grouping import sort_by_code
from buckets.plan import GroupPlan, plan_group
from buckets.results import GroupResults, expand
from buckets.rule_set import Group, RuleSet
from buckets.scoring import EventIds, KeyBatch, score
from buckets.store import ShardStore, head_key
from buckets.sweep import Sweep, page_reader, write_back
from buckets.verdict import DUPLICATE, LATE, TOO_LATE

COUNTS = "counts"
"""The output that carries counts of events, as JSON."""
Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Produced:
    """Something that came out: the name of its output, how many rows, and the rows as a payload."""

    output: str
    rows: int
    payload: bytes


@dataclass(frozen=True)
class Scorer:
    """Scores shards under fixed settings.

    Attributes:
        schema: the event schema.
        engine: the settings that decide results.
        evaluations: whether every evaluation is put out, or alerts only.
    """

    schema: EventSchema
    engine: EngineSettings
    evaluations: bool

    def score(self, payloads: Iterable[bytes], rule_set: RuleSet, store: ShardStore) -> Iterator[Produced]:
        """Score what arrived for one shard.

        Args:
            payloads: parcels of `fan_out` for this shard.
            rule_set: the rules of this batch.
            store: the shard's state.
        """
        tables: dict[str, list[pa.Table]] = {}
        for parcel in payloads:
            if parcel[:1] == payload.EVENTS:
                table = payload.unpack(parcel)
                tables.setdefault(payload.group_of(table), []).append(table)
            elif parcel[:1] == payload.COUNTS:
                yield Produced(COUNTS, 0, parcel[1:])
            else:
                table = payload.unpack(parcel)
                yield Produced(outputs.DEAD_LETTERS, table.num_rows, parcel)
        if not tables:
            return
        plans = {
            group.group_id: _plan(_Hashed(group, rule_set.version), self.schema, self.engine)
            for group in rule_set.groups
        }
        sweep = Sweep.begin(store, plans)
        for group in rule_set.groups:
            if group.group_id in tables:
                plan = plans[group.group_id]
                yield from self._score_group(plan, tables[group.group_id], rule_set.version, store, sweep)
        sweep.end()

    def _score_group(
        self, plan: GroupPlan, tables: list[pa.Table], version: int, store: ShardStore, sweep: Sweep
    ) -> Iterator[Produced]:
        group = plan.group
        events, codes, key_start, keys = by_key(tables)
        places = [head_key(group.group_id, key) for key in keys]
        before = store.heads.get(places)
        batch = KeyBatch(key_start, events["time_ms"].to_numpy(), _values(events, group), ids_of(events["event_id"]))
        read_pages, evicted_until_ms = page_reader(store, places), sweep.evicted_until_ms(plan)
        scored = score(plan, before, read_pages, batch, self.evaluations, evicted_until_ms=evicted_until_ms)
        write_back(store, places, before, scored)
        sweep.note(plan, keys, places, before, scored.clocks_ms, events.num_rows)
        results = GroupResults(plan, self.schema, version, events, keys, codes, scored)
        yield from self._produced(results, group)

    def _produced(self, results: GroupResults, group: Group) -> Iterator[Produced]:
        outcomes = results.counts()
        makers: dict[str, Callable[[], pa.Table]] = {
            outputs.ALERTS: lambda: results.alerts("ACTIVE"),
            outputs.SHADOW_ALERTS: lambda: results.alerts("SHADOW"),
        }
        # A small batch is mostly the making of tables: those that would be empty are left out.
        if outcomes[LATE] or outcomes[TOO_LATE]:
            makers[outputs.LATE_EVENTS] = results.late_events
        if results.has_collisions():
            makers[outputs.COLLISIONS] = results.collisions
        if outcomes[DUPLICATE]:
            makers[outputs.DUPLICATES] = results.duplicates
        if results.has_dead_letters():
            makers[outputs.DEAD_LETTERS] = lambda: dead_letter_table(results.dead_letters())
        if self.evaluations:
            makers[outputs.EVALUATIONS] = results.evaluations
        alerts = 0
        for output, make in makers.items():
            table = make()
            if table.num_rows:
                packed = payload.pack(payload.EVENTS, table, group.group_id)
                alerts += table.num_rows if output == outputs.ALERTS else 0
                yield Produced(output, table.num_rows, packed)
        counts = {"group_id": group.group_id, "outcomes": outcomes, "alerts": alerts}
        yield Produced(COUNTS, 0, json.dumps(counts).encode())


class _Hashed:
    """A group with a hash that is cheap to take."""

    def __init__(self, group: Group, version: int) -> None:
        self.group = group
        self._hash = hash((group.group_id, version))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Hashed) and self.group == other.group


@lru_cache(maxsize=1024)
def _cached_plan(hashed: _Hashed, schema_json: str, engine: EngineSettings) -> GroupPlan:
    return plan_group(hashed.group, EventSchema.model_validate_json(schema_json), engine)


def _plan(hashed: _Hashed, schema: EventSchema, engine: EngineSettings) -> GroupPlan:
    return _cached_plan(hashed, schema.model_dump_json(), engine)


def evaluation_rows(packed: bytes, rule_set: RuleSet, schema: EventSchema, engine: EngineSettings) -> pa.Table:
    """A payload of evaluations, which come out compactly, as one row for an event and a rule.

    Args:
        packed: a payload of output `evaluations`.
        rule_set: the rules of its batch.
        schema: the event schema.
        engine: the settings of the engine.
    """
    compact = payload.unpack(packed)
    group = next(each for each in rule_set.groups if each.group_id == payload.group_of(compact))
    return expand(compact, _plan(_Hashed(group, rule_set.version), schema, engine), schema, rule_set.version)


def by_key(tables: list[pa.Table]) -> tuple[pa.Table, Int64s, Int64s, list[str]]:
    """Parcels of one group as one table, key by key, each key's events in arrival order.

    Returns:
        The events, their keys' codes int64 `(events,)`, where each key's events begin, and the keys.
    """
    tables = sorted(tables, key=_first_arrival)
    table = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
    table = _in_arrival_order(table)
    key = whole(table["key"])
    codes = key.indices.to_numpy()
    order, key_start = sort_by_code(codes, len(key.dictionary))
    sorted_events = table.drop_columns(["key"]).take(pa.array(order)).combine_chunks()
    return sorted_events, codes[order].astype(np.int64), key_start, key.dictionary.to_pylist()


def whole(column: pa.ChunkedArray) -> pa.Array:
    """A column of numbers or of a dictionary in one piece."""
    return pa.concat_arrays(column.unify_dictionaries().chunks)


def _first_arrival(table: pa.Table) -> tuple[int, str, int]:
    return table["source_order"][0].as_py(), table["source"][0].as_py(), table["position"][0].as_py()


def _in_arrival_order(table: pa.Table) -> pa.Table:
    """The rows by (source_order, source, position); as they are where they already stand so."""
    position, order = table["position"].to_numpy(), table["source_order"].to_numpy()
    source = whole(table["source"])
    if len(source.dictionary) == 1 and order[0] == order[-1]:
        rank = np.zeros(len(table), np.int64)
    else:
        names = source.dictionary.to_pylist()
        place = {name: index for index, name in enumerate(sorted(names))}
        rank = np.array([place[name] for name in names], np.int64)[source.indices.to_numpy()]
    order_step, rank_step = np.diff(order), np.diff(rank)
    in_place = (rank_step > 0) | ((rank_step == 0) & (np.diff(position) >= 0))
    forward = (order_step > 0) | ((order_step == 0) & in_place)
    if bool(forward.all()):
        return table
    return table.take(pa.array(np.lexsort((position, rank, order))))


def _values(events: pa.Table, group: Group) -> npt.NDArray[np.int64]:
    columns = [events[measure_column(name)].fill_null(0).to_numpy() for name in group.measures]
    return np.array(columns, np.int64).reshape(len(columns), len(events))


def ids_of(column: pa.ChunkedArray) -> EventIds:
    """The ids of a column, however many pieces it has: Arrow has no piece of text with more than 2 GB."""
    texts, start = [], [np.zeros(1, np.int64)]
    for piece in column.chunks:
        _, offsets, data = piece.buffers()
        if not len(piece):
            continue
        place = np.frombuffer(offsets, np.int32)[piece.offset : piece.offset + len(piece) + 1].astype(np.int64)
        text = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
        texts.append(text[place[0] : place[-1]])
        start.append(place[1:] - place[0] + start[-1][-1])
    data = texts[0] if len(texts) == 1 else np.concatenate([np.empty(0, np.uint8), *texts])
    return EventIds(data, np.concatenate(start))
