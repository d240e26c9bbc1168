"""A job without Spark: both stages in this process, with timelines in arenas.

It evaluates tables and files of events, scores archives again, compiles the kernels ahead of time, and runs in tests.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import pyarrow as pa

from buckets.byte_strings import ByteStrings
from buckets.engine.batch.fan_out import fan_out
from buckets.engine.batch.payload import PASSING
from buckets.engine.stages.accounting import BatchAccount
from buckets.engine.stages.completion import complete_batch
from buckets.engine.stages.cross_group import PARTS
from buckets.engine.stages.filling import FILLS, NO_SOURCES, FillSources
from buckets.engine.stages.shard import COUNTS, Produced, Scorer
from buckets.engine.storage.arena_entries import ArenaEntries
from buckets.engine.storage.shard_store import DriverStores, InObjects, ShardStore
from buckets.rules.rule_set import RuleSet


class MemoryEntries(InObjects):
    """A map from bytes to bytes, in a dictionary."""

    def __init__(self) -> None:
        """Begin empty."""
        self.data: dict[bytes, bytes] = {}

    def get(self, keys: Sequence[bytes]) -> list[bytes]:
        """Return the values of keys; empty bytes where there is none."""
        return [self.data.get(key, b"") for key in keys]

    def put(self, entries: Sequence[tuple[bytes, bytes]]) -> None:
        """Keep values."""
        self.data.update(entries)

    def remove(self, keys: ByteStrings) -> None:
        """Forget keys."""
        for key in keys.to_list():
            del self.data[key]

    def list_keys(self) -> list[bytes]:
        """Return all keys."""
        return list(self.data)


def memory_store() -> ShardStore:
    """Return an empty store for one shard."""
    return ShardStore(ArenaEntries(), MemoryEntries(), MemoryEntries(), MemoryEntries())


def memory_stores() -> DriverStores:
    """Return empty stores for what is kept outside the shards."""
    return DriverStores(memory_store(), memory_store(), memory_store())


@dataclass(frozen=True)
class BatchResults:
    """What came out of one micro-batch.

    Attributes:
        payloads: by output, what the shards produced of it, for `OutputDecoder`; outputs without rows are left out.
        account: what became of each event.
        fills: how far each shard has come with each fill, as JSON.
    """

    payloads: dict[str, list[bytes]]
    account: BatchAccount
    fills: list[bytes] = field(default_factory=list)


Pending = Callable[[], Iterable[Produced]]
"""Waits for what shards put out."""
SourcesOf = Callable[[int], FillSources]
"""By shard, the history of what is being filled."""


@dataclass
class InMemoryJob:
    """Scores micro-batches one after the other, and keeps the timelines between them.

    Attributes:
        scorer: the event schema and the settings of the batches that begin now.
        new_store: makes the store of a shard when its first event comes.
        stores: by shard, its timelines.
        driver: what a job keeps on its driver.
        batches: how many micro-batches there have been.
    """

    scorer: Scorer
    new_store: Callable[[], ShardStore] = memory_store
    stores: dict[int, ShardStore] = field(default_factory=dict)
    driver: DriverStores = field(default_factory=memory_stores)
    batches: int = 0

    def score_batch(
        self,
        arrivals: Iterable[pa.RecordBatch],
        rule_set: RuleSet,
        sources_of: SourcesOf = lambda shard: NO_SOURCES,
    ) -> BatchResults:
        """Score one micro-batch.

        Args:
            arrivals: the rows, in the form of `events.arrivals`, in one or more record batches.
            rule_set: the rules of this batch.
            sources_of: gives the history of what is being filled, for a shard.

        Raises:
            RuntimeError: an event is unaccounted for, which is a defect of this project.
        """
        finish = self.begin_batch(arrivals, rule_set, sources_of, self.batches)
        results = finish()
        self.batches += 1
        return results

    def begin_batch(
        self, arrivals: Iterable[pa.RecordBatch], rule_set: RuleSet, sources_of: SourcesOf, batch_id: int
    ) -> Callable[[], BatchResults]:
        """Hand a batch to the shards, and return what waits for them and completes it.

        Batches are completed in the order in which they began; several may have begun.
        """
        scorer = self.scorer
        messages: dict[int, list[bytes]] = {}
        for rows in arrivals:
            for message in fan_out(rows, rule_set, scorer.schema, scorer.engine, scorer.lists):
                messages.setdefault(message.shard, []).append(message.payload)
        passing = list(scorer.score(messages.pop(PASSING, []), rule_set, memory_store()))
        pending = self.score_shards(messages, rule_set, sources_of)
        return lambda: self._completed(batch_id, chain(passing, pending()), scorer, rule_set)

    def score_shards(
        self, messages: Mapping[int, Sequence[bytes]], rule_set: RuleSet, sources_of: SourcesOf
    ) -> Pending:
        """Score what shards are sent: here and now.

        Args:
            messages: by shard, the payloads that it is sent.
            rule_set: the rules of this batch.
            sources_of: gives the history of what is being filled, for a shard.
        """
        produced: list[Produced] = []
        for shard, payloads in messages.items():
            if shard not in self.stores:
                self.stores[shard] = self.new_store()
            produced += self.scorer.score(payloads, rule_set, self.stores[shard], sources_of(shard))
        return lambda: produced

    def _completed(
        self, batch_id: int, produced: Iterable[Produced], scorer: Scorer, rule_set: RuleSet
    ) -> BatchResults:
        of_shards = list(produced)
        besides, account = complete_batch(batch_id, of_shards, scorer, rule_set, self.driver)
        account.check()
        payloads: dict[str, list[bytes]] = {}
        for one in (*of_shards, *besides):
            payloads.setdefault(one.output, []).append(one.payload)
        for internal in (COUNTS, PARTS):
            payloads.pop(internal, None)
        return BatchResults(payloads, account, payloads.pop(FILLS, []))
