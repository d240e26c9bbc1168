"""A job without Spark: both stages in this process, with timelines in dictionaries.

It compiles the kernels ahead of time, evaluates tables of events for people who write Python, and runs in tests.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from buckets.engine.batch.fan_out import fan_out
from buckets.engine.stages.accounting import BatchAccount, account_batch
from buckets.engine.stages.alert_stage import alert_outputs
from buckets.engine.stages.cross_group import PARTS
from buckets.engine.stages.filling import FILLS, NO_FEEDS, Feeds
from buckets.engine.stages.shard import COUNTS, Produced, Scorer, meeting_outputs
from buckets.engine.storage.shard_store import DriverStores, ShardStore
from buckets.outputs import columns
from buckets.rules.rule_set import RuleSet


class MemoryEntries:
    """A map from bytes to bytes, in a dictionary.

    Attributes:
        data: the dictionary.
    """

    def __init__(self) -> None:
        """Begin empty."""
        self.data: dict[bytes, bytes] = {}

    def get(self, keys: Sequence[bytes]) -> list[bytes]:
        """The values of keys; empty bytes where there is none."""
        return [self.data.get(key, b"") for key in keys]

    def put(self, entries: Sequence[tuple[bytes, bytes]]) -> None:
        """Keep values."""
        self.data.update(entries)

    def remove(self, keys: Sequence[bytes]) -> None:
        """Forget keys."""
        for key in keys:
            del self.data[key]

    def list_keys(self) -> list[bytes]:
        """All keys."""
        return list(self.data)


def memory_store() -> ShardStore:
    """An empty store for one shard."""
    return ShardStore(MemoryEntries(), MemoryEntries(), MemoryEntries(), MemoryEntries())


def memory_stores() -> DriverStores:
    """Empty stores for what is kept outside the shards."""
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


def finish_batch(
    batch_id: int, produced: Iterable[Produced], scorer: Scorer, rule_set: RuleSet, stores: DriverStores
) -> BatchResults:
    """What comes after the shards: rules whose parts meet, rules over alerts, and the accounts.

    Args:
        batch_id: the batch.
        produced: what both stages put out.
        scorer: the settings.
        rule_set: the rules of the batch.
        stores: what is kept outside the shards.

    Raises:
        RuntimeError: an event is unaccounted for, which is a defect of this project.
    """
    found: dict[str, list[bytes]] = {COUNTS: []}
    for each in produced:
        found.setdefault(each.output, []).append(each.payload)
    for each in meeting_outputs(scorer, found.pop(PARTS, []), rule_set, stores.meeting):
        found.setdefault(each.output, []).append(each.payload)
    for each in list(alert_outputs(scorer, found.get(columns.ALERTS, []), rule_set, stores)):
        found.setdefault(each.output, []).append(each.payload)
    account = account_batch(batch_id, rule_set, found.pop(COUNTS))
    account.check()
    fills = found.pop(FILLS, [])
    return BatchResults(found, account, fills)


@dataclass
class InMemoryJob:
    """Scores micro-batches one after the other, and keeps the timelines between them.

    Attributes:
        scorer: the event schema and the settings.
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
        feeds_of: Callable[[int], Feeds] = lambda shard: NO_FEEDS,
    ) -> BatchResults:
        """Score one micro-batch.

        Args:
            arrivals: the rows, in the form of `events.arrivals`, in one or more record batches.
            rule_set: the rules of this batch.
            feeds_of: gives the history of what is being filled, for a shard.

        Raises:
            RuntimeError: an event is unaccounted for, which is a defect of this project.
        """
        produced = self._produced(arrivals, rule_set, feeds_of)
        results = finish_batch(self.batches, produced, self.scorer, rule_set, self.driver)
        self.batches += 1
        return results

    def _produced(
        self, arrivals: Iterable[pa.RecordBatch], rule_set: RuleSet, feeds_of: Callable[[int], Feeds]
    ) -> Iterator[Produced]:
        """What both stages put out, shard by shard."""
        scorer = self.scorer
        by_shard: dict[int, list[bytes]] = {}
        for rows in arrivals:
            for message in fan_out(rows, rule_set, scorer.schema, scorer.engine, scorer.lists):
                by_shard.setdefault(message.shard, []).append(message.payload)
        for shard, payloads in by_shard.items():
            if shard not in self.stores:
                self.stores[shard] = self.new_store()
            yield from scorer.score(payloads, rule_set, self.stores[shard], feeds_of(shard))
