"""A job without Spark: both stages in this process, with timelines in arenas.

It evaluates tables and files of events, rescores archives, compiles kernels ahead of time, and runs in tests.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Protocol

import pyarrow as pa

from buckets.byte_strings import ByteStrings
from buckets.config.engine import EngineSettings
from buckets.engine.batch import payload
from buckets.engine.batch.dead_letters import one_dead_letter_per_event
from buckets.engine.batch.payload import PASSING
from buckets.engine.batch.shard_events import ShardEvents, ShardPayload, joined_shards
from buckets.engine.eviction.eviction import Eviction
from buckets.engine.stages.accounting import BatchAccount
from buckets.engine.stages.alert_stage import complete_batch
from buckets.engine.stages.cross_group import FILLS, NO_SOURCES, PARTS, FillSources
from buckets.engine.stages.shard import COUNTS, Produced, Scorer, evaluation_rows, passing
from buckets.engine.stages.shard_plans import shard_plans
from buckets.engine.storage.shard_store import ArenaEntries, DriverStores, InObjects, ShardStore
from buckets.events.schema import EventSchema
from buckets.outputs import columns
from buckets.rules.rule_set import RuleSet


class MemoryEntries(InObjects):
    """A map from bytes to bytes in a dictionary."""

    def __init__(self) -> None:
        self.data: dict[bytes, bytes] = {}

    def get(self, keys: Sequence[bytes]) -> list[bytes]:
        """Return the values of keys; empty bytes for a missing key."""
        return [self.data.get(key, b"") for key in keys]

    def put(self, entries: Sequence[tuple[bytes, bytes]]) -> None:
        """Store entries."""
        self.data.update(entries)

    def remove(self, keys: ByteStrings) -> None:
        """Remove keys."""
        for key in keys.to_list():
            del self.data[key]

    def list_keys(self) -> list[bytes]:
        """Return all keys."""
        return list(self.data)


def memory_store() -> ShardStore:
    """Return an empty store for one shard."""
    return ShardStore(ArenaEntries(), MemoryEntries(), MemoryEntries(), MemoryEntries())


def memory_stores() -> DriverStores:
    """Return empty stores for the state outside the shards."""
    return DriverStores(memory_store(), memory_store(), memory_store())


@dataclass(frozen=True)
class BatchResults:
    """The results of one micro-batch."""

    # by output, its payloads for `OutputDecoder`; outputs without rows are left out
    payloads: dict[str, list[bytes]]
    account: BatchAccount  # what became of each event
    fills: list[bytes] = field(default_factory=list)  # the progress of each fill in each shard, as JSON


def completed(
    batch_id: int, produced: Iterable[Produced], scorer: Scorer, rule_set: RuleSet, driver: DriverStores
) -> BatchResults:
    """Complete a batch from the outputs of its shards; RuntimeError if an event is unaccounted for."""
    of_shards = list(produced)
    besides, account = complete_batch(batch_id, of_shards, scorer, rule_set, driver)
    account.check()
    payloads: dict[str, list[bytes]] = {}
    for one in (*of_shards, *besides):
        payloads.setdefault(one.output, []).append(one.payload)
    for internal in (COUNTS, PARTS):
        payloads.pop(internal, None)
    return BatchResults(payloads, account, payloads.pop(FILLS, []))


SourcesOf = Callable[[int], FillSources]  # By shard, the history of what is being filled


@dataclass
class InMemoryJob:
    """Scores micro-batches one after the other, and keeps the timelines between them."""

    scorer: Scorer  # the event schema and the settings of the batches that begin now
    new_store: Callable[[], ShardStore] = memory_store  # makes the store of a shard when its first event comes
    stores: dict[int, ShardStore] = field(default_factory=dict)  # by shard, its timelines
    driver: DriverStores = field(default_factory=memory_stores)  # what a job keeps on its driver
    batches: int = 0  # how many micro-batches there have been
    evictions: dict[int, Eviction] = field(default_factory=dict)  # by shard, those that go on over several batches

    def score_batch(
        self,
        arrivals: Iterable[pa.RecordBatch],
        rule_set: RuleSet,
        sources_of: SourcesOf = lambda shard: NO_SOURCES,
        batch_id: int | None = None,
    ) -> BatchResults:
        """Score one micro-batch of arrivals in the form of `events.arrivals`; without `batch_id`, count batches.

        Raises:
            RuntimeError: an event is unaccounted for, which is a defect of this project.
        """
        scorer = self.scorer
        fanned = [scorer.fan_out(rows, rule_set) for rows in arrivals]
        others = [message for each in fanned for message in each.others]
        produced = [passing(message.payload) for message in others if message.shard == PASSING]
        sent = [each.sent for each in fanned if each.sent is not None]
        filling = {message.shard: [message.payload] for message in others if message.shard != PASSING}
        shards = sorted({shard for each in sent for shard in each.shards} | filling.keys())
        for shard in shards:
            if shard not in self.stores:
                self.stores[shard] = self.new_store()
        group_ids = shard_plans(rule_set, scorer.schema, scorer.engine).group_ids
        pieces, together = dict[int, list[ShardPayload]](), None
        if not filling and len(sent) == 1 and sent[0].are_few_and_plain(group_ids):
            together = ShardEvents.of_all(sent[0])
        else:
            pieces = {shard: [each.of_shard(shard) for each in sent if shard in each.shards] for shard in shards}
            together = None if filling else joined_shards([*pieces.values()], group_ids)
        if together is not None:
            stores = [self.stores[shard] for shard in shards]
            produced += scorer.score_together(together, rule_set, stores, [*map(self.evictions.get, shards)])
        else:
            for shard in shards:
                payloads = [*pieces.pop(shard), *filling.get(shard, ())]
                store, going_on = self.stores[shard], self.evictions.get(shard)
                produced += scorer.score(payloads, rule_set, store, sources_of(shard), going_on)
        results = completed(self.batches if batch_id is None else batch_id, produced, scorer, rule_set, self.driver)
        self.batches += 1
        return results


Values = Mapping[tuple[str, bytes], bytes]  # By the names of a store and of a map in it, and a key
Changes = Mapping[tuple[str, bytes], bytes | None]  # The same; None where an entry is gone
_STORES = [field.name for field in fields(DriverStores)]
_MAPS = [field.name for field in fields(ShardStore)]


class StateFiles(Protocol):
    """The state between batches."""

    def read(self, batch_id: int) -> Values:
        """Return the state after a batch."""

    def write(self, batch_id: int, changes: Changes, whole: Callable[[], Values]) -> None:
        """Write the changes of a batch, and forget those of later batches."""


class ChangedEntries(InObjects):
    """Changes over a map in memory, which is not modified before `settle`."""

    def __init__(self, before: MemoryEntries) -> None:
        self.before = before  # the map in memory
        self.changes: dict[bytes, bytes | None] = {}  # changed entries; None for a removed one

    def get(self, keys: Sequence[bytes]) -> list[bytes]:
        """Return the values of keys; empty bytes for a missing key."""
        changes, data = self.changes, self.before.data
        return [(changes[key] or b"") if key in changes else data.get(key, b"") for key in keys]

    def put(self, entries: Sequence[tuple[bytes, bytes]]) -> None:
        """Store entries."""
        self.changes.update(entries)

    def remove(self, keys: ByteStrings) -> None:
        """Remove keys."""
        self.changes.update(dict.fromkeys(keys.to_list()))

    def list_keys(self) -> Iterator[bytes]:
        """Yield all keys, in no particular order. Cost: O(entries)."""
        yield from (key for key in self.before.data if key not in self.changes)
        yield from (key for key, value in self.changes.items() if value is not None)

    def settle(self) -> None:
        """Apply the changes to the map in memory."""
        for key, value in self.changes.items():
            if value is None:
                self.before.data.pop(key, None)
            else:
                self.before.data[key] = value
        self.changes = {}


class DriverStore:
    """The state on the driver, batch by batch."""

    def __init__(self, files: StateFiles) -> None:
        self._files = files
        self._maps: dict[str, ChangedEntries] = {}
        self._after: int | None = None

    def of_batch(self, batch_id: int) -> DriverStores:
        """Return the state after the previous batch, for this batch to change; changes without `keep` are dropped."""
        if self._after is None or self._after >= batch_id:
            loaded = {f"{store}.{name}": MemoryEntries() for store in _STORES for name in _MAPS}
            for (name, key), value in self._files.read(batch_id - 1).items():
                loaded[name].data[key] = value
            self._maps = {name: ChangedEntries(entries) for name, entries in loaded.items()}
            self._after = batch_id - 1
        self._maps = {name: ChangedEntries(entries.before) for name, entries in self._maps.items()}
        stores = ({name: self._maps[f"{store}.{name}"] for name in _MAPS} for store in _STORES)
        return DriverStores(*(ShardStore(**maps) for maps in stores))

    def keep(self, batch_id: int) -> None:
        """Write the changes of a batch, and continue from them."""
        changes = {
            (name, key): value
            for name, entries in self._maps.items()
            for key, value in entries.changes.items()
            if value != entries.before.data.get(key)
        }
        self._files.write(batch_id, changes, lambda: self._whole(changes))
        for entries in self._maps.values():
            entries.settle()
        self._after = batch_id

    def _whole(self, changes: Changes) -> dict[tuple[str, bytes], bytes]:
        before = {(name, key): value for name, maps in self._maps.items() for key, value in maps.before.data.items()}
        return {at: value for at, value in (before | dict(changes)).items() if value is not None}


@dataclass(frozen=True)
class OutputDecoder:
    """Decodes the outputs of one batch."""

    rule_set: RuleSet  # the rules of the batch
    schema: EventSchema  # its event schema
    engine: EngineSettings  # its settings

    def tables(self, output: str, payloads: Iterable[bytes]) -> Iterator[pa.Table]:
        """Yield the rows of an output, one table per payload, decoded lazily.

        Dead letters come as one table of all payloads, with one row per event: it may have failed in several groups and
        shards.
        """
        decoded = (
            evaluation_rows(packed, self.rule_set, self.schema, self.engine)
            if output == columns.EVALUATIONS
            else payload.unpack(packed).replace_schema_metadata()
            for packed in payloads
        )
        if output != columns.DEAD_LETTERS:
            yield from decoded
        elif dead_letters := list(decoded):
            yield one_dead_letter_per_event(pa.concat_tables(dead_letters))

    def table(self, output: str, payloads: Iterable[bytes]) -> pa.Table:
        """Return the rows of an output as one table; at least one payload is needed."""
        return pa.concat_tables(self.tables(output, payloads), promote_options="permissive")
