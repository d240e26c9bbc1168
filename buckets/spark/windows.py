"""The stages of a batch in tasks: rows become messages to shards, whose timelines are in Spark's state store.

The first stage, `FanOut`, is stateless. A second-stage task gets the messages to all shards of its partition, and a
store for them; an import writes carried state to such stores too. Workers load this, so it imports no driver code.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa

from buckets.archive.arrived_rows import ArrivedInTask, archived_rows
from buckets.checkpoint.identity import Terms
from buckets.engine.batch import payload
from buckets.engine.batch.fan_out import FannedOut, ShardMessage, fan_out
from buckets.engine.batch.payload import PASSING
from buckets.engine.batch.shard_events import ShardEvents, ShardPayload, joined_shards, unpack_shard
from buckets.engine.stages.accounting import shard_count
from buckets.engine.stages.shard import COUNTS, Produced, Scorer, passing
from buckets.engine.stages.shard_plans import shard_plans
from buckets.engine.storage.shard_store import HEADS, PAGES, POLICIES, SCHEDULE, Entries, Section, ShardStore
from buckets.events.arrivals import convert
from buckets.lists.index import NO_LISTS, Lists
from buckets.rules.rule_set import RuleSet
from buckets.spark.batch_properties import (
    lists_of_task,
    rule_set_of_task,
    sources_of_task,
    spill_of_task,
    terms_of_task,
)
from buckets.spark.frame_rows import ROW, rows_payload
from buckets.spark.machine_caches import MOST_MAPPED, caches_of_worker
from buckets.spark.sources import Normalise
from buckets.spark.spilled import beyond_share
from buckets.spark.state_client import StateConnection, StateEntries
from buckets.state.layer import Bounds, Layer, begin_log

if TYPE_CHECKING:
    from buckets.state_transfer.export_manifest import Regrouping

COLUMNS = "shard int, payload binary"


@dataclass(frozen=True)
class FanOut:
    """The first stage in a task: rows of a source become messages to shards, in `COLUMNS`."""

    normalise: Normalise  # converts the rows to `events.arrivals`
    is_archived: bool = False  # whether to put out rows of the archive as well

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a task's messages, packed for another task."""
        for fanned in self.fanned(batches):
            messages = list(fanned.messages())
            shards = pa.array([message.shard for message in messages], pa.int32())
            payloads = pa.array([message.payload for message in messages], pa.binary())
            yield pa.RecordBatch.from_arrays([shards, payloads], names=["shard", "payload"])

    def fanned(self, batches: Iterable[pa.RecordBatch]) -> Iterator[FannedOut]:
        """Yield the unpacked result of each piece of rows."""
        rule_set, terms, lists = rule_set_of_task(), terms_of_task(), lists_of_task()
        arrived = ArrivedInTask() if self.is_archived else None
        yield from fan_out_rows(self.normalise(batches, terms.event_schema), rule_set, terms, lists, arrived)
        handed_over = None if arrived is None else arrived.handed_over(spill_of_task()[0] / f"{uuid.uuid4()}.arrived")
        if handed_over is not None:
            yield FannedOut(None, [ShardMessage(PASSING, payload.ARRIVED + handed_over.packed())])


def fan_out_rows(
    arrivals: Iterable[pa.RecordBatch],
    rule_set: RuleSet,
    terms: Terms,
    lists: Lists = NO_LISTS,
    arrived: ArrivedInTask | None = None,
) -> Iterator[FannedOut]:
    """Fan out each piece of a task's arrivals, as in `events.arrivals`; rows to archive are collected in `arrived`."""
    schema, engine = terms.event_schema, terms.engine
    required = engine.required(rule_set.needed_fields)
    for rows in arrivals:
        if rows.num_rows:
            parsed = convert(rows, schema, required)
            fanned = fan_out(rows, rule_set, schema, engine, lists, parsed=parsed)
            if ROW in rows.schema.names:
                fanned = replace(fanned, others=[*fanned.others, ShardMessage(PASSING, rows_payload(rows))])
            if arrived is not None:
                arrived.take(archived_rows(rows, parsed, schema))
            yield fanned


PRODUCED = pa.schema([("output", pa.string()), ("rows", pa.int64()), ("payload", pa.binary())])
"""The columns of a task's results: the name of an output, the number of rows, and a payload."""


@dataclass(frozen=True)
class Score:
    """The second stage in a task: messages to the shards of a partition become rows of `PRODUCED`."""

    bounds: Bounds  # of caches

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Score messages in `COLUMNS`."""
        rows = (zip(*(column.to_pylist() for column in batch.columns), strict=True) for batch in batches)
        yield from self.scored(
            (shard, unpack_shard(message) if message[:1] == payload.SHARD else message)
            for shard, message in chain.from_iterable(rows)
        )

    def scored(self, sent: Iterable[tuple[int, bytes | ShardPayload]]) -> Iterator[pa.RecordBatch]:
        """Score unpacked messages, each given with its shard."""
        messages, passed = dict[int, list[bytes | ShardPayload]](), list[bytes]()
        for shard, message in sent:
            if isinstance(message, bytes) and shard == PASSING:
                passed.append(message)
            else:
                messages.setdefault(shard, []).append(message)
        if not (messages or passed):
            return
        connection, terms, rule_set = StateConnection.of_task(), terms_of_task(), rule_set_of_task()
        caches_of_worker().let_go()
        scorer = Scorer(terms.event_schema, terms.engine, terms.evaluations, lists_of_task(), terms.features)

        def opened(shard: int) -> tuple[Layer, ShardStore]:
            entries = StateEntries(connection, shard)
            layer = Layer(entries, caches_of_worker(), self.bounds)
            return layer, _store(layer, entries)

        def rows_of(scored: Iterable[Produced], shards: int) -> pa.RecordBatch:
            shares = max(1, terms.engine.shards // shards)
            return as_rows(beyond_share(scored, shares, rule_set, terms))

        if passed:
            yield rows_of(map(passing, passed), 1)
        shards = sorted(messages)
        group_ids = shard_plans(rule_set, terms.event_schema, terms.engine).group_ids
        together = _together([messages[shard] for shard in shards], group_ids)

        def stored(layers: Mapping[int, Layer]) -> Iterator[Produced]:
            yield from _kept(layers)
            if shards[-1] in layers:
                connection.commit()

        if together is not None:
            layers, stores = zip(*map(opened, shards), strict=True)
            on_stored = partial(stored, dict(zip(shards, layers, strict=True)))
            scored = scorer.score_together(together, rule_set, stores, [None] * len(stores), on_stored)
            yield rows_of(scored, len(shards))
            return
        for shard in shards:
            layer, store = opened(shard)
            on_stored = partial(stored, {shard: layer})
            scored = scorer.score(messages.pop(shard), rule_set, store, sources_of_task(shard), on_stored=on_stored)
            yield rows_of(scored, 1)


def both_stages(first: FanOut, second: Score, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run a whole batch in one task: rows of a source become rows of `PRODUCED`."""
    return second.scored(chain.from_iterable(each.unpacked() for each in first.fanned(batches)))


def as_rows(produced: Iterable[Produced]) -> pa.RecordBatch:
    """Return results as rows of `PRODUCED`."""
    rows = [(one.output, one.rows, one.payload) for one in produced]
    columns = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.RecordBatch.from_arrays(list(map(pa.array, columns, PRODUCED.types)), schema=PRODUCED)


def _store(entries: Entries, pages: Entries) -> ShardStore:
    """Return the store of a shard, which keeps pages separately."""
    return ShardStore(
        heads=Section(entries, HEADS),
        pages=Section(pages, PAGES),
        schedule=Section(entries, SCHEDULE),
        policies=Section(entries, POLICIES),
    )


def _together(sent: Sequence[Sequence[bytes | ShardPayload]], group_ids: Sequence[str]) -> ShardEvents | None:
    """Join the messages of several shards for one call; None for one shard, for many, or if something is filled."""
    pieces = [[each for each in of_shard if isinstance(each, ShardPayload)] for of_shard in sent]
    is_filled = [*map(len, pieces)] != [*map(len, sent)]
    return None if is_filled or len(sent) > MOST_MAPPED else joined_shards(pieces, group_ids)


def _kept(layers: Mapping[int, Layer]) -> Iterator[Produced]:
    """Write the state of shards, and yield its size."""
    for shard, layer in layers.items():
        held = layer.commit()
        if held is not None:
            yield Produced(COUNTS, 0, shard_count(shard, held))


MESSAGES = pa.schema(
    [("shard", pa.int32())]
    + [(name, pa.binary()) for name in ("state_key", "head", "policies", "page", "overview", "voters")]
)
"""Each row is a key (`head`, `policies`), a page, or the shard's times (no `state_key`)."""
_AT_ONCE = 10_000


def install(carried: "Regrouping", batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Put the `MESSAGES` of a partition into its store."""
    connection, shards = StateConnection.of_task(), dict[int, _Installing]()
    for batch in batches:
        for begin in range(0, batch.num_rows, _AT_ONCE):
            by_shard: dict[int, list[tuple[bytes | None, ...]]] = {}
            columns = (column.to_pylist() for column in batch.slice(begin, _AT_ONCE).columns)
            for shard, *row in zip(*columns, strict=True):
                by_shard.setdefault(shard, []).append(tuple(row))
            for shard, rows in by_shard.items():
                if shard not in shards:
                    shards[shard] = _Installing(StateEntries(connection, shard), carried)
                shards[shard].take(rows)
    for installing in shards.values():
        installing.end()
    yield from ()


class _Installing:
    """A shard whose state is being written to its store."""

    def __init__(self, entries: StateEntries, carried: "Regrouping") -> None:
        from buckets.state_transfer.shard_times import Installer, ShardTimes

        self._entries, self._times = entries, ShardTimes()
        self._installer = Installer(_store(entries, entries), carried)

    def take(self, rows: Iterable[tuple[bytes | None, ...]]) -> None:
        from buckets.state_transfer.shard_times import CarriedKey, ShardTimes

        keys, pages = [], []
        for state_key, head, policies, page, overview, voters in rows:
            if state_key is None:
                self._times = ShardTimes.read(overview or b"", voters or b"")
            elif page is not None:
                pages.append((state_key, page))
            else:
                keys.append(CarriedKey(state_key, head or b"", policies or b""))
        self._installer.put_pages(pages)
        self._installer.put_keys(keys)

    def end(self) -> None:
        self._installer.end(self._times)
        begin_log(self._entries)
