"""A copy of a job's timelines that is ahead of the job: it takes in messages as they come, and goes by the job's cuts.

A message is scored at once, by the rules that the job's newest batch has. When the job begins a batch, it is known
which messages are in it, in which order, and by which rules, lists and settings it scores them. Where that differs from
what was done here, what was taken in since is undone and done again. So what is here is what the job will come to.

Who asks what would come out is answered by scoring, too, which is undone at once.
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
"""So many messages can be undone at most; where the job is further behind, and other rules follow, it begins anew."""
MOST_UNDO_BYTES = 256 << 20  # What it takes to undo them takes no more than this
MOST_AT_ONCE = 500
EVICTED_AFTER = 500  # So many events are scored before keys that are due are visited
CHECK = "check"  # The topic of what is not in a topic
_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
_KINDS = {KEY: pa.binary(), HEADERS: pa.list_(_HEADER), STAMPED: pa.int32()}


class TakenMessage(NamedTuple):
    """A message of a topic."""

    place: Place
    offset: int
    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    stamped: int = -1  # what its time is, as Kafka numbers it
    time_ms: int = -1
    call: int = 0  # the number of the call that has sent it; 0 for none


class NeedsState(Exception):
    """The job has gone on otherwise than what can be done again here: its state must be read anew."""


ReadMessages = Callable[[pa.RecordBatch, EventSchema, Terms], pa.RecordBatch]
"""Reads messages, in the columns that a job's tasks get, into the declared fields."""


@dataclass(frozen=True)
class ScoredMessages:
    """Messages of one partition that were scored together, and what came out."""

    messages: Sequence[TakenMessage]
    arrivals: pa.RecordBatch
    results: BatchResults
    scored_by: ScoredBy
    again: frozenset[int] = frozenset()  # the offsets of those that had been scored before; this is what counts


Journal = list[tuple[Entries, ByteStrings, ByteStrings]]  # Writes, oldest first: where, the keys, what was there before
_NOTE_BYTES = 300  # Of two arrays, beside what they hold


@dataclass
class Undoing:
    """Notes what the maps that it has made write, and what was there before."""

    journal: Journal = field(default_factory=list)  # since the last `cut`

    def store(self, store: ShardStore) -> ShardStore:
        """Return a store over another one, whose writes are noted."""
        return ShardStore(
            **{each.name: UndoableEntries(getattr(store, each.name), self) for each in fields(ShardStore)}
        )

    def stores(self, stores: DriverStores) -> DriverStores:
        """Return stores over others, whose writes are noted."""
        return DriverStores(**{each.name: self.store(getattr(stores, each.name)) for each in fields(DriverStores)})

    def cut(self) -> Journal:
        """Return what was noted since the last time."""
        noted, self.journal = self.journal, []
        return noted


def size_of(journal: Journal) -> int:
    """Return how many bytes it takes to remember writes, about."""
    return sum(_NOTE_BYTES + int(each.start[-1] - each.start[0]) for _, *pair in journal for each in pair)


def undo(journal: Journal) -> None:
    """Let maps be as they were before a stretch of writes, after which there must have been none."""
    for entries, keys, before in reversed(journal):
        was_there = before.lengths > 0
        there, gone = np.flatnonzero(was_there), np.flatnonzero(~was_there & (entries.read(keys).lengths > 0))
        if len(gone):
            entries.remove(keys.take(gone))
        if len(there):
            entries.write(keys.take(there), before.take(there))


class UndoableEntries(InColumns):
    """A map from bytes to bytes over another one."""

    def __init__(self, entries: Entries, undoing: Undoing) -> None:
        self._entries, self._undoing = entries, undoing

    def read(self, keys: ByteStrings) -> ByteStrings:
        """Return the values of keys; empty where there is none."""
        return self._entries.read(keys)

    def write(self, keys: ByteStrings, values: ByteStrings) -> None:
        """Keep values."""
        self._note(keys)
        self._entries.write(keys, values)

    def remove(self, keys: ByteStrings) -> None:
        """Forget keys."""
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
    size_bytes: int  # of what it takes to undo it


class Replica:
    """The timelines of a job, and how far they have come.

    Attributes:
        newest: the newest batch of the job that is known here; what comes now is scored as it is.
        at: by partition, the offset after the last message that was taken in.
        unsettled: how many messages the job has not come to, as far as is known.
    """

    def __init__(self, store: ShardStore, driver: DriverStores, batch: JobBatch, read: ReadMessages) -> None:
        """Begin with the state of the job after a batch."""
        self._undoing, self._read = Undoing(), read
        self._names = lambda topic: batch.names.get(topic, topic)
        # When keys are visited decides no result: it is not undone, and written now and then.
        stores = {0: replace(self._undoing.store(store), schedule=store.schedule)}
        self._job = InMemoryJob(batch.scored_by.scorer, stores=stores, driver=self._undoing.stores(driver))
        self.newest, self._begun, self._steps = batch, list[JobBatch](), deque[_Step]()
        self.at, self._forgotten = dict(batch.end), dict[Place, int]()
        self.unsettled = self._undo_bytes = 0
        self._eviction: Eviction | None = None

    def take(self, messages: Iterable[TakenMessage], features: bool = False) -> Iterator[ScoredMessages]:
        """Score messages that come now; those that were taken in already are passed over.

        Raises:
            NeedsState: other rules were in force for them than what can be brought about.
        """
        new = [message for message in messages if message.offset >= self.at.get(message.place, 0)]
        for message in new:
            self.at[message.place] = message.offset + 1
        if self._begun:
            new.sort(key=self._in_job)
        if new and self._steps and self._in_job(new[0]) < self._in_job(self._steps[-1].messages[-1]):
            yield from self._follow(new, features)  # The job has it before what is here
        else:
            yield from self._score(new, features)
        self._settle()

    def begin_batch(self, batch: JobBatch) -> Iterator[ScoredMessages]:
        """Take note of a batch that the job has begun, and yield what comes out otherwise now."""
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
        """Yield what would come out if a payment came now, of each by itself; nothing stays of them.

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
        """Return which of the unsettled batches a message is in, from 0; their number where it is in none of them."""
        for number, batch in enumerate(self._begun):
            if batch.has(message.place, message.offset):
                return number
        return len(self._begun)

    def _in_job(self, message: TakenMessage) -> tuple[Any, ...]:
        """Return what orders messages as the job does; what it has not come to stays in the order of its coming."""
        batch = self._batch_of(message)
        return (batch, *message.place, message.offset) if batch < len(self._begun) else (batch,)

    def _by(self, message: TakenMessage) -> ScoredBy:
        number = self._batch_of(message)
        return self._begun[number].scored_by if number < len(self._begun) else self.newest.scored_by

    def _follow(self, new: Sequence[TakenMessage], features: bool) -> Iterator[ScoredMessages]:
        """Score all that is unsettled as the job does it, as far as it was done otherwise, and what is new."""
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
        """Score messages in their order, those that go together at once."""
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
        """Return the eviction that follows what is scored; keys that are due are visited after some events."""
        plans, known = scored_by.plans.by_state_id, self._eviction
        if known is not None and (known.plans is not plans or known.events >= EVICTED_AFTER):
            known.end()
            known = known.next() if known.plans is plans else None
        self._eviction = known or Eviction.begin(self._job.stores[0], plans)
        return self._eviction

    def _settle(self) -> None:
        """Forget how to undo what the job has come to in the same way, and what is too much."""
        complete = [batch for batch in self._begun if all(self.at.get(at, 0) >= end for at, end in batch.end.items())]
        while (
            complete and self._steps and all(complete[-1].has(one.place, one.offset) for one in self._steps[0].messages)
        ):
            self._dropped(self._steps.popleft())
        # Should some of a step have to be done again, it is by what their batch is scored by.
        first = self._steps[0].messages if self._steps else ()
        while self._begun[: len(complete)] and not any(self._begun[0].has(one.place, one.offset) for one in first):
            self._begun.pop(0)
            complete.pop(0)
        while self.unsettled > MOST_UNSETTLED or self._undo_bytes > MOST_UNDO_BYTES:
            step = self._dropped(self._steps.popleft())
            self._forgotten |= {message.place: message.offset + 1 for message in step.messages}

    def _dropped(self, step: _Step) -> _Step:
        """Return a step that is not among them any more."""
        self.unsettled -= len(step.messages)
        self._undo_bytes -= step.size_bytes
        return step


def message_rows(messages: Sequence[TakenMessage], names: Callable[[str], str], schema: EventSchema) -> pa.RecordBatch:
    """Return messages of one partition as a job's tasks get them."""
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
