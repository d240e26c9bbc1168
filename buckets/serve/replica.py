"""A copy of a job's timelines that runs ahead of the job: it scores messages at once, and follows the job's cuts.

A message is scored at once, by the rules of the job's newest batch. When the job begins a batch, its messages, their
order, and its rules, lists and settings are known. If these differ from the ones used here, the later messages are
undone and scored again. So the copy always converges to the state that the job will reach.

A dry run is answered by scoring too, which is undone at once.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from buckets.byte_strings import ByteStrings
from buckets.checkpoint.identity import Terms
from buckets.engine.eviction.eviction import Eviction
from buckets.engine.stages.in_memory import BatchResults, InMemoryJob
from buckets.engine.storage.shard_store import DriverStores, Entries, InColumns, ShardStore
from buckets.events.arrivals import INGESTED, POSITION, RAW, SOURCE, SOURCE_ORDER
from buckets.events.message_fields import HEADERS, STAMPED, columns_beside_value
from buckets.events.schema import KEY, EventSchema
from buckets.serve.job_batches import JobBatch, Place, ScoredBy

MOST_UNSETTLED = 5_000
"""The most messages that can be undone; if the job is further behind and its rules change, its state is read again."""
MOST_UNDO_BYTES = 256 << 20  # The most bytes of records for undoing
MOST_AT_ONCE = 500
EVICTED_AFTER = 500  # Events scored between visits of due keys
CHECK = "check"  # The topic of payments that are not in a topic
_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
_KINDS = {KEY: pa.binary(), HEADERS: pa.list_(_HEADER), STAMPED: pa.int32()}


class TakenMessage(NamedTuple):
    """A message of a topic."""

    place: Place
    offset: int
    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    stamped: int = -1  # the type of its timestamp, as Kafka numbers it
    time_ms: int = -1
    call: int = 0  # the number of the call that sent it; 0 for none


class NeedsState(Exception):
    """The job has continued in a way that cannot be repeated here: its state must be read again."""


ReadMessages = Callable[[pa.RecordBatch, EventSchema, Terms], pa.RecordBatch]
"""Reads messages, in the columns that a job's tasks get, into the declared fields."""


@dataclass(frozen=True)
class ScoredMessages:
    """Messages of one partition that were scored together, and their results."""

    messages: Sequence[TakenMessage]
    arrivals: pa.RecordBatch
    results: BatchResults
    scored_by: ScoredBy
    again: frozenset[int] = frozenset()  # the offsets of those scored before; these results replace the earlier ones


Journal = list[tuple[Entries, ByteStrings, ByteStrings]]  # Writes, oldest first: the map, the keys, the old values
_NOTE_BYTES = 300  # Of two arrays, beside what they hold


@dataclass
class Undoing:
    """Records the writes of the maps that it has wrapped, with the earlier values."""

    journal: Journal = field(default_factory=list)  # since the last `cut`

    def store(self, store: ShardStore) -> ShardStore:
        """Wrap a store, recording its writes."""
        return ShardStore(
            **{each.name: UndoableEntries(getattr(store, each.name), self) for each in fields(ShardStore)}
        )

    def stores(self, stores: DriverStores) -> DriverStores:
        """Wrap stores, recording their writes."""
        return DriverStores(**{each.name: self.store(getattr(stores, each.name)) for each in fields(DriverStores)})

    def cut(self) -> Journal:
        """Return the writes recorded since the last call."""
        noted, self.journal = self.journal, []
        return noted


def size_of(journal: Journal) -> int:
    """Return the approximate size of recorded writes in bytes."""
    return sum(_NOTE_BYTES + int(each.start[-1] - each.start[0]) for _, *pair in journal for each in pair)


def undo(journal: Journal) -> None:
    """Revert recorded writes of maps, which must be their latest ones."""
    for entries, keys, before in reversed(journal):
        was_there = before.lengths > 0
        there, gone = np.flatnonzero(was_there), np.flatnonzero(~was_there & (entries.read(keys).lengths > 0))
        if len(gone):
            entries.remove(keys.take(gone))
        if len(there):
            entries.write(keys.take(there), before.take(there))


class UndoableEntries(InColumns):
    """A map from bytes to bytes over another one, which records writes."""

    def __init__(self, entries: Entries, undoing: Undoing) -> None:
        self._entries, self._undoing = entries, undoing

    def read(self, keys: ByteStrings) -> ByteStrings:
        """Return the values of keys; empty if missing."""
        return self._entries.read(keys)

    def write(self, keys: ByteStrings, values: ByteStrings) -> None:
        """Store values."""
        self._note(keys)
        self._entries.write(keys, values)

    def remove(self, keys: ByteStrings) -> None:
        """Remove keys."""
        self._note(keys)
        self._entries.remove(keys)

    def list_keys(self) -> list[bytes]:
        """Return all keys, in no particular order. Cost: O(entries)."""
        return [*self._entries.list_keys()]

    def _note(self, keys: ByteStrings) -> None:
        self._undoing.journal.append((self._entries, keys, self._entries.read(keys)))


@dataclass(frozen=True)
class _Step:
    """Messages that were scored together."""

    messages: Sequence[TakenMessage]
    scored_by: ScoredBy
    journal: Journal
    size_bytes: int  # of the records for undoing it


class Replica:
    """The timelines of a job, and their position in the topics.

    Attributes:
        newest: the newest known batch of the job; new messages are scored by its rules and settings.
        at: by partition, the offset after the last scored message.
        unsettled: how many scored messages the job is not known to have reached.
    """

    def __init__(self, store: ShardStore, driver: DriverStores, batch: JobBatch, read: ReadMessages) -> None:
        """Begin with the state of the job after a batch."""
        self._undoing, self._read = Undoing(), read
        self._names = lambda topic: batch.names.get(topic, topic)
        # The times of visits affect no result: they are not undone, and written occasionally.
        stores = {0: replace(self._undoing.store(store), schedule=store.schedule)}
        self._job = InMemoryJob(batch.scored_by.scorer, stores=stores, driver=self._undoing.stores(driver))
        self.newest, self._begun, self._steps = batch, list[JobBatch](), deque[_Step]()
        self.at, self._forgotten = dict(batch.end), dict[Place, int]()
        self.unsettled = self._undo_bytes = 0
        self._eviction: Eviction | None = None

    def take(self, messages: Iterable[TakenMessage], features: bool = False) -> Iterator[ScoredMessages]:
        """Score new messages; those already scored are skipped.

        Raises:
            NeedsState: the rules in force for them cannot be reproduced here.
        """
        new = [message for message in messages if message.offset >= self.at.get(message.place, 0)]
        for message in new:
            self.at[message.place] = message.offset + 1
        if self._begun:
            new.sort(key=self._in_job)
        if new and self._steps and self._in_job(new[0]) < self._in_job(self._steps[-1].messages[-1]):
            yield from self._follow(new, features)  # The job places it before messages scored here
        else:
            yield from self._score(new, features)
        self._settle()

    def begin_batch(self, batch: JobBatch) -> Iterator[ScoredMessages]:
        """Follow a batch that the job has begun, and yield the results that have changed."""
        goes_on = batch.number == self.newest.number + 1 and batch.names == self.newest.names
        if not goes_on or batch.scored_by.takes_over_fill(self.newest.scored_by):
            raise NeedsState
        before = self.newest
        is_cut_otherwise = batch.scored_by != before.scored_by or len(batch.end) > 1
        if is_cut_otherwise and any(before.end.get(at, 0) < end for at, end in self._forgotten.items()):
            raise NeedsState
        self.newest = batch
        self._begun.append(batch)
        if is_cut_otherwise:
            yield from self._follow([], features=False)
        self._settle()

    def check(self, payments: Sequence[TakenMessage], features: bool = False) -> Iterator[ScoredMessages]:
        """Yield the results of payments if they came now, each separately; the state does not change.

        They are numbered from 0, as messages of `CHECK`.
        """
        at_once = 1 if self.newest.scored_by.rule_set.needs_driver_state else MOST_AT_ONCE
        for begin in range(0, len(payments), at_once):
            journal = self._undoing.cut()
            assert not journal
            try:
                scored = self._scored(payments[begin : begin + at_once], self.newest.scored_by, features, keeps=False)
            finally:
                undo(self._undoing.cut())
            yield scored

    def _batch_of(self, message: TakenMessage) -> int:
        """Return the index of a message's batch among the unsettled ones; their number if it is in none."""
        for number, batch in enumerate(self._begun):
            if batch.has(message.place, message.offset):
                return number
        return len(self._begun)

    def _in_job(self, message: TakenMessage) -> tuple[Any, ...]:
        """Return the sort key of messages in the job; those that it has not reached keep their order of arrival."""
        batch = self._batch_of(message)
        return (batch, *message.place, message.offset) if batch < len(self._begun) else (batch,)

    def _by(self, message: TakenMessage) -> ScoredBy:
        number = self._batch_of(message)
        return self._begun[number].scored_by if number < len(self._begun) else self.newest.scored_by

    def _follow(self, new: Sequence[TakenMessage], features: bool) -> Iterator[ScoredMessages]:
        """Score all unsettled messages as the job does, from the first difference on, and the new ones."""
        there = [message for step in self._steps for message in step.messages]
        wanted = sorted((*there, *new), key=self._in_job)
        kept = same = 0
        for step in self._steps:
            end = same + len(step.messages)
            if [*step.messages] != wanted[same:end] or any(self._by(one) != step.scored_by for one in step.messages):
                break
            kept, same = kept + 1, end
        while len(self._steps) > kept:
            undo(self._dropped(self._steps.pop()).journal)
        before = {(message.place, message.offset) for message in there}
        for scored in self._score(wanted[same:], features):
            again = frozenset(one.offset for one in scored.messages if (one.place, one.offset) in before)
            yield replace(scored, again=again)

    def _score(self, messages: Sequence[TakenMessage], features: bool) -> Iterator[ScoredMessages]:
        """Score messages in order, consecutive ones together where possible."""
        for (_, scored_by), together in groupby(messages, lambda message: (message.place, self._by(message))):
            every = [*together]
            for begin in range(0, len(every), MOST_AT_ONCE):
                piece = every[begin : begin + MOST_AT_ONCE]
                scored = self._scored(piece, scored_by, features)
                journal = self._undoing.cut()
                self._steps.append(_Step(piece, scored_by, journal, size_of(journal)))
                self.unsettled += len(piece)
                self._undo_bytes += self._steps[-1].size_bytes
                yield scored

    def _scored(
        self, messages: Sequence[TakenMessage], scored_by: ScoredBy, features: bool, keeps: bool = True
    ) -> ScoredMessages:
        terms = scored_by.terms
        arrivals = self._read(message_rows(messages, self._names, terms.event_schema), terms.event_schema, terms)
        self._job.scorer = replace(scored_by.scorer, features=features, keeps=keeps)
        self._job.evictions = {0: self._eviction_for(scored_by)} if keeps else {}
        results = self._job.score_batch([arrivals], scored_by.rule_set, batch_id=self.newest.number)
        return ScoredMessages(messages, arrivals, results, scored_by)

    def _eviction_for(self, scored_by: ScoredBy) -> Eviction:
        """Return the eviction after scored messages; due keys are visited after some events."""
        plans, known = scored_by.plans.by_state_id, self._eviction
        if known is not None and (known.plans is not plans or known.events >= EVICTED_AFTER):
            known.end()
            known = known.next() if known.plans is plans else None
        self._eviction = known or Eviction.begin(self._job.stores[0], plans)
        return self._eviction

    def _settle(self) -> None:
        """Drop the records for undoing messages that the job has confirmed, and those beyond the limit."""
        complete = [batch for batch in self._begun if all(self.at.get(at, 0) >= end for at, end in batch.end.items())]
        while (
            complete and self._steps and all(complete[-1].has(one.place, one.offset) for one in self._steps[0].messages)
        ):
            self._dropped(self._steps.popleft())
        # Messages of a step that are scored again use the rules of their batch.
        first = self._steps[0].messages if self._steps else ()
        while self._begun[: len(complete)] and not any(self._begun[0].has(one.place, one.offset) for one in first):
            self._begun.pop(0)
            complete.pop(0)
        while self.unsettled > MOST_UNSETTLED or self._undo_bytes > MOST_UNDO_BYTES:
            step = self._dropped(self._steps.popleft())
            self._forgotten |= {message.place: message.offset + 1 for message in step.messages}

    def _dropped(self, step: _Step) -> _Step:
        """Return a step after removing it from the unsettled ones."""
        self.unsettled -= len(step.messages)
        self._undo_bytes -= step.size_bytes
        return step


def message_rows(messages: Sequence[TakenMessage], names: Callable[[str], str], schema: EventSchema) -> pa.RecordBatch:
    """Return messages of one partition in the form in which a job's tasks get them."""
    (partition, topic), size = messages[0].place, len(messages)
    columns: dict[str, pa.Array] = {
        RAW: pa.array([message.value for message in messages], pa.binary()),
        SOURCE: pa.array([f"{names(topic)}[{partition}]"] * size, pa.string()),
        SOURCE_ORDER: pa.array([partition] * size, pa.int64()),
        POSITION: pa.array([message.offset for message in messages], pa.int64()),
        INGESTED: pa.array([message.time_ms for message in messages], pa.int64()),
    }
    for name in columns_beside_value(schema):  # which are called as here
        columns[name] = pa.array([getattr(message, name) for message in messages], _KINDS[name])
    return pa.record_batch(columns)
