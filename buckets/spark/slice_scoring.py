"""Slices of history on their way through the tasks of a batch query: out to the shards of their keys, and back.

slices --fan out--> shards --score--> slices --complete--> what is wanted of each

A slice plays the role of a job's micro-batch. Each shard is a partition, whose task scores one slice after the other
over timelines in memory. These grow with keys and windows, not with events.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from functools import lru_cache, partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark import TaskContext, cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from buckets.engine.batch import payload
from buckets.engine.stages.cross_group import NO_SOURCES, FillSources
from buckets.engine.stages.in_memory import BatchResults, completed, memory_store, memory_stores
from buckets.engine.stages.shard import Produced, Scorer
from buckets.engine.storage.shard_store import DriverStores
from buckets.rules.rule_set import RuleSet
from buckets.spark.arrow_types import from_arrow_schema
from buckets.spark.worker import settle

if TYPE_CHECKING:
    from buckets.history.scoring import KeptTimelines

ROWS, _TO_SHARD, _PASSING = "rows", "to shard", "passing"  # Payloads that are not the results of a shard
SENT = pa.schema([("target", pa.int32()), ("slice", pa.int64()), ("output", pa.string()), ("payload", pa.binary())])
Sent = tuple[int, int, str, bytes]  # A row of `SENT`
Payloads = Sequence[tuple[str, bytes]]  # Output names with payloads
FoundIn = Callable[[int, Payloads, BatchResults], Any]
"""Takes a slice's number, payloads and results; returns what the caller wants from it."""


class Slice(NamedTuple):
    """What a slice is scored with."""

    scorer: Scorer
    rule_set: RuleSet
    batch_id: int = 0  # the number of its last batch
    sources_of: Callable[[int], FillSources] = lambda shard: NO_SOURCES  # by shard, the history for running fills


class SliceScoring(ABC):
    """Scores slices in the order of their numbers; a dataclass of what tasks need."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[type, bytes]]:
        """Pickle as bytes, under which a worker finds what an earlier task has already unpacked and planned."""
        known = [getattr(self, field.name) for field in fields(self)]  # type: ignore[arg-type]
        return _unpacked, (type(self), cloudpickle.dumps(known))

    @abstractmethod
    def of(self, number: int) -> Slice:
        """Return what a slice is scored with."""

    def sent(self, number: int, arrivals: Iterable[pa.RecordBatch]) -> list[Sent]:
        """Return the messages to the shards for the arrivals of a slice."""
        scorer, rule_set, *_ = self.of(number)
        sent = list[Sent]()
        for rows in arrivals:
            for message in scorer.fan_out(rows, rule_set).messages():
                passes = message.shard == payload.PASSING
                target = number % scorer.engine.shards if passes else message.shard
                sent.append((target, number, _PASSING if passes else _TO_SHARD, message.payload))
        return sent

    def scored(self, fanned: DataFrame, shards: int, kept: "KeptTimelines | None" = None) -> DataFrame:
        """Score rows of `SENT` and return the shards' results, also as rows of `SENT`; timelines are kept in `kept`."""
        by_shard = fanned.repartitionById(shards, "target").sortWithinPartitions("slice")
        return by_shard.mapInArrow(partial(self._score, kept), from_arrow_schema(SENT))

    def _score(self, kept: "KeptTimelines | None", batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Score the slices of a shard in order, and pass on messages for no shard."""
        task = TaskContext.get()
        own_shard = 0 if task is None else task.partitionId()
        store = memory_store() if kept is None else kept.load(own_shard)
        for number, shard, payloads in by_slice(batches):
            sent = [(0, number, output, packed) for output, packed in payloads if output != _TO_SHARD]
            own = [packed for output, packed in payloads if output == _TO_SHARD]
            if own:
                scorer, rule_set, _, sources_of = self.of(number)
                scored = scorer.score(own, rule_set, store, sources_of(shard))
                sent += [(0, number, one.output, one.payload) for one in scored]
            yield from batches_of(sent)
        if kept is not None:
            kept.save(own_shard, store)
        settle()

    def complete(self, number: int, payloads: Payloads, stores: DriverStores) -> BatchResults:
        """Complete a slice from the results of all its shards."""
        scorer, rule_set, batch_id, _ = self.of(number)
        passing = [packed for output, packed in payloads if output == _PASSING]
        produced = list(scorer.score(passing, rule_set, memory_store()))
        produced += [Produced(output, 0, packed) for output, packed in payloads if output not in (ROWS, _PASSING)]
        return completed(batch_id, produced, scorer, rule_set, stores)

    def found(self, scored: DataFrame, tasks: int, task_of: str, found_in: FoundIn) -> Iterator[Any]:
        """Yield what `found_in` returns for each slice, in order; the SQL `task_of` assigns slices to tasks."""
        in_order = scored.repartitionById(tasks, F.expr(f"int({task_of})")).sortWithinPartitions("slice")
        found = in_order.mapInArrow(partial(self._find, found_in), "slice long, found binary")
        return (cloudpickle.loads(row["found"]) for row in found.toLocalIterator(prefetchPartitions=True))

    def _find(self, found_in: FoundIn, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Complete the slices of a task, and yield what `found_in` returns for each."""
        stores = memory_stores()
        for number, _, payloads in by_slice(batches):
            found = found_in(number, payloads, self.complete(number, payloads, stores))
            yield pa.record_batch({"slice": [number], "found": [cloudpickle.dumps(found)]})
        settle()


@lru_cache(maxsize=4)
def _unpacked(kind: type, packed: bytes) -> Any:
    return kind(*cloudpickle.loads(packed))


def by_slice(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, int, Payloads]]:
    """Yield each slice's number, target shard and payloads."""
    rows = (
        row for batch in batches for row in zip(*(batch.column(name).to_pylist() for name in SENT.names), strict=True)
    )
    for number, of_slice in groupby(rows, lambda row: row[1]):
        sent = list(of_slice)
        yield number, sent[0][0], [(output, packed) for *_, output, packed in sent]


def batches_of(sent: Iterable[Sent]) -> Iterator[pa.RecordBatch]:
    """Yield the rows to send, each as a batch of its own, so that its payload is not copied."""
    for *others, packed in sent:
        _, ends = pa.array([0, len(packed)], pa.int32()).buffers()
        payload_of = pa.Array.from_buffers(pa.binary(), 1, [None, ends, pa.py_buffer(packed)])
        values = [pa.array([value], kind) for value, kind in zip(others, SENT.types, strict=False)]
        yield pa.RecordBatch.from_arrays([*values, payload_of], schema=SENT)
