"""Turns the archive into the chunks of a fill, in the order of arrival."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from buckets.archive.archive import ARRIVAL, BATCH, by_batch
from buckets.archive.arrival_rows import arrivals_of
from buckets.archive.history import History
from buckets.backfill.fill_chunks import CHUNK_ROWS, Chunk
from buckets.checkpoint.list_versions import lists_in
from buckets.engine.batch.fan_out import fan_out_group
from buckets.events.arrivals import INGESTED, POSITION, SOURCE, SOURCE_ORDER
from buckets.events.schema import EventSchema
from buckets.lists.lists import Lists
from buckets.rules.fill import Fill
from buckets.rules.group import Group

ListsOf = Callable[[Mapping[str, int]], Lists]


def rows_of_fill(history: History, fill: Fill) -> int | None:
    """Return how many rows of the archive go into a fill; None while it does not reach that far."""
    rows = history.archive.query(f"select min({ARRIVAL}) as first from archive where {BATCH} >= {fill.first_batch}")
    first: int | None = rows["first"][0].as_py()
    return first


def chunks_of_fill(history: History, fill: Fill, first: int, end: int) -> Iterator[Chunk]:
    """Return the chunks of a fill, by the rules and settings of the batch with which it began.

    It takes in the arrivals from `first` to before `end`, which is as `rows_of_fill` says.
    """
    recorded, checkpoint = history.recorded, history.job.checkpoint
    begun = next(cut for cut in recorded.cuts if cut.batch_id >= fill.first_batch)
    rule_set, terms = recorded.rule_set(begun.ruleset_version), recorded.terms(begun.batch_id)
    group = rule_set.filling[fill.number]
    required = terms.engine.required(rule_set.needed_fields)
    builder = Builder(group, required, terms.event_schema, terms.engine.shards)
    pinned = {cut.batch_id: cut.lists for cut in recorded.cuts}
    return builder.chunks(history.archive.tables(first, end), pinned, partial(lists_in, checkpoint))


@dataclass(frozen=True)
class Builder:
    """Makes chunks of up to `rows` rows of the archive for a group; no field of `required` may be null in an event."""

    group: Group
    required: frozenset[str]
    schema: EventSchema
    shards: int
    rows: int = CHUNK_ROWS

    def chunks(
        self, tables: Iterable[pa.Table], pinned: Mapping[int, Mapping[str, int]], lists_of: ListsOf
    ) -> Iterator[Chunk]:
        """Yield the chunks of some arrivals.

        Args:
            tables: rows of the archive in the order of arrival.
            pinned: by batch, the versions of the lists that it saw.
            lists_of: gives lists in their versions.
        """
        waiting: list[pa.Table] = []
        seen: Mapping[str, int] = {}
        for batch_id, found in by_batch(iter(tables)):
            lists, rows = pinned.get(batch_id, {}), found
            if waiting and lists != seen:
                yield self._chunk(waiting, seen, lists_of)
                waiting = []
            seen = lists
            while len(rows):
                room = self.rows - sum(map(len, waiting))
                waiting.append(rows.slice(0, room))
                rows = rows.slice(room)
                if sum(map(len, waiting)) == self.rows:
                    yield self._chunk(waiting, seen, lists_of)
                    waiting = []
        if waiting:
            yield self._chunk(waiting, seen, lists_of)

    def _chunk(self, rows: list[pa.Table], pinned: Mapping[str, int], lists_of: ListsOf) -> Chunk:
        table = pa.concat_tables(rows, promote_options="default").combine_chunks()
        packed: dict[int, bytes] = {}
        for arrived in arrivals_of(table, self.schema):
            for message in fan_out_group(
                _in_turn(arrived), self.group, self.required, self.schema, self.shards, lists_of(pinned)
            ):
                packed[message.shard] = message.payload
        return Chunk(packed, len(table), table[ARRIVAL][-1].as_py() + 1, pinned)


def _in_turn(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Number arrivals anew, so that they say only that they came one after the other, across batches and sources."""
    ranks = {
        SOURCE: pa.array([""] * len(rows), pa.string()),
        SOURCE_ORDER: pa.array(np.zeros(len(rows), np.int64)),
        POSITION: pa.array(np.arange(len(rows), dtype=np.int64)),
    }
    columns = {name: ranks.get(name, rows.column(name)) for name in rows.schema.names if name != INGESTED}
    return pa.record_batch(columns)
