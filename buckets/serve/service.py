"""Scores calls: one thread scores the messages of the topics, follows the job, and answers.

Three others send it work through one queue: one reads the topics, one follows the job's checkpoint, and one reads the
job's state again when needed.
"""

import asyncio
import contextlib
import ctypes
import gc
import queue
import sys
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa

from buckets.checkpoint.writer_schemas import RegisteredSchemas
from buckets.clock import epoch_ms
from buckets.config.job import Job
from buckets.config.settings import ServeSettings
from buckets.errors import BucketsError, kind_and_line
from buckets.events.messages import TopicMessages
from buckets.kafka.call_log import CallLog, NotWritten, Taken
from buckets.kafka.registry import Registry
from buckets.kafka.sender import key_of_line
from buckets.monitor.query_news import Histogram
from buckets.serve.answers import DEAD_LETTER, DUPLICATE, CallAnswer, answers
from buckets.serve.begin import read_entries, state_of
from buckets.serve.job_batches import JobBatch, JobBatches, Place
from buckets.serve.replica import CHECK, MOST_AT_ONCE, NeedsState, Replica, ScoredMessages, TakenMessage
from buckets.stores.store_path import StorePath

LOOK_EVERY_S = 0.1
STORE_EVERY_S = 2.0  # In an object store, which charges for each request
AGAIN_AFTER_S = 2.0
REMEMBERED = 20_000
"""The number of latest answers kept, for calls with the same id and for comparison with the job's results."""
_BOUNDS_S = (0.001, 0.002, 0.003, 0.005, 0.008, 0.012, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0)
_WAITS_S = 60.0  # How long a call may wait to appear in the topic; it has been answered by then
_OTHERWISE = "the job has gone on otherwise; its state is read again"
_GARBAGE = (20_000, 20, 100)  # Garbage is rarely collected: a full collection takes longer than many answers
_SWITCH_S = 0.0002
"""How soon a thread yields to a waiting one; with Python's 5 ms, calls would stall while others are scored."""
_FOLLOWED = 10_000  # The most batches of the job while its state is read


class NotNow(Exception):
    """A call cannot be accepted: `status` as in HTTP, and the reason in one line."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


@dataclass(eq=False)
class Call:
    """A payment that waits for its answer."""

    loop: asyncio.AbstractEventLoop
    features: bool
    value: bytes
    key: bytes | None
    number: int = 0
    since_s: float = field(default_factory=time.monotonic)
    is_written: bool = False

    def __post_init__(self) -> None:
        self.future: asyncio.Future[CallAnswer] = self.loop.create_future()

    def fail(self, reason: str, status: int = 503) -> None:
        """Answer that it cannot be accepted."""
        if not self.future.done():
            self.future.set_exception(NotNow(status, reason))

    def answer(self, answer: CallAnswer) -> None:
        """Answer it, if somebody still waits."""
        if not self.future.done():
            self.future.set_result(answer)


class Service:
    """Answers calls about the payments of a job.

    Attributes:
        counts: how many payments there were, by outcome, and how many results changed later.
        seconds: how long calls waited, by mode.
    """

    def __init__(self, job: Job, settings: ServeSettings, say: Callable[[str], None]) -> None:
        """Do nothing yet; `say` gets a line when a problem begins or ends."""
        kafka, source = job.settings.kafka, job.settings.source
        assert kafka is not None
        self._job, self._settings, self._tell_line = job, settings, say
        self.counts = Counter[str]()
        self.seconds = {mode: Histogram(_BOUNDS_S) for mode in ("score", "check")}
        self.fault: str | None = "the state of the job is being read"
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._topic = settings.topic or source.all_topics[0]  # the topic for payments
        self._log = CallLog(kafka, source.all_topics, self._topic, self._on_messages)
        self._batches = JobBatches(job.checkpoint)
        known = RegisteredSchemas(job.checkpoint)  # The job stores new ones
        ask = lru_cache(Registry(kafka.registry).schema) if kafka.registry is not None else lambda number: None
        messages = TopicMessages(
            source.format, source.envelope, source.decimals, lambda number: known(number) or ask(number)
        )
        self._read = messages.read
        self._replica: Replica | None = None
        self._reading, self._numbers, self._is_anew = 0, 0, True
        self._waiting: dict[int, Call] = {}
        self._asked: set[Call] = set()
        # Of earlier answers, in types that the garbage collector ignores
        self._given: OrderedDict[tuple[Place, int], int] = OrderedDict()
        self._known: OrderedDict[tuple[str, str | None], bytes] = OrderedDict()
        self._followed: deque[JobBatch] = deque(maxlen=_FOLLOWED)
        self._stopping, self._needs_state = threading.Event(), threading.Event()
        works = {"calls-scored": self._run, "job-followed": self._follow, "state-read": self._load}
        self._threads = [threading.Thread(target=work, name=name, daemon=True) for name, work in works.items()]

    def _say(self, line: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # A broken log must not end the service
            self._tell_line(line)

    def start(self) -> None:
        """Check the requirements, and start.

        Raises:
            BucketsError: topics are missing, or several partitions are possible and nothing selects one.
        """
        own = [partition for partition, topic in self._log.partitions() if topic == self._topic]
        if len(own) > 1 and self._settings.key is None:
            message = (
                f"topic {self._topic} has {len(own)} partitions, and nothing says which payments go together; name the "
                "field by which messages have their key as serve.key"
            )
            raise BucketsError(message)
        gc.set_threshold(*_GARBAGE)
        sys.setswitchinterval(_SWITCH_S)
        self._needs_state.set()
        self._log.start()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End."""
        self._stopping.set()
        self._needs_state.set()
        self._queue.put(None)
        self._log.stop()
        for thread in self._threads:
            thread.join()

    def not_ready(self) -> str | None:
        """Return why answers may differ from the job's at present, in one line; None if they do not."""
        if self._replica is None or self.fault is not None:
            return self.fault or "the state of the job is being read"
        if self._log.fault is not None:
            return self._log.fault
        if self._log.has_caught_up != self._reading:
            return f"{self.lag:,} messages are still to be taken in"
        return None

    @property
    def lag(self) -> int:
        """The known number of messages in the topics that are still to be scored."""
        at = {} if self._replica is None else self._replica.at
        return sum(max(end - at.get(place, 0), 0) for place, end in list(self._log.ends.items()))

    def status(self) -> dict[str, Any]:
        """Return the data for metrics."""
        replica = self._replica
        return {
            "ready": int(self.not_ready() is None),
            "behind": self.lag,
            "waiting": len(self._waiting) + len(self._asked),
            "unsettled": 0 if replica is None else replica.unsettled,
            "ruleset_version": 0 if replica is None else replica.newest.scored_by.rules,
            "batch": -1 if replica is None else replica.newest.number,
            "counts": dict(self.counts),
            "seconds": {mode: histogram.to_json() for mode, histogram in self.seconds.items()},
        }

    def as_of(self) -> dict[str, int]:
        """Return how far each partition has been scored."""
        at = {} if self._replica is None else dict(self._replica.at)
        return {f"{topic}[{partition}]": offset for (partition, topic), offset in sorted(at.items())}

    def score(self, values: Sequence[bytes], features: bool, key: str | None = None) -> list[Call]:
        """Write payments to the topic; their calls are answered once they have been scored.

        `key` is the key of their messages, if it is not the text of a field.

        Raises:
            NotNow: too many wait, or brokers do not answer; nothing was written.
        """
        if self._log.fault is not None:
            raise NotNow(503, self._log.fault)
        return [self._written(call) for call in self._calls(values, features, key)]

    def check(self, values: Sequence[bytes], features: bool, key: str | None = None) -> list[Call]:
        """Score payments as `score` would if they came now, without writing anything or changing state.

        Raises:
            NotNow: too many wait, or the state of the job is not there yet.
        """
        if self._replica is None:
            raise NotNow(503, self.fault or "the state of the job is being read")
        calls = self._calls(values, features, key)
        for call in calls:
            self._asked.add(call)
            self._queue.put(call)
        return calls

    def _calls(self, values: Sequence[bytes], features: bool, key: str | None) -> list[Call]:
        if len(self._waiting) + len(self._asked) + len(values) > self._settings.most_waiting:
            self._forget_calls(after_s=0.0)
        waiting = len(self._waiting) + len(self._asked)
        if waiting + len(values) > self._settings.most_waiting:
            self.counts["refused"] += len(values)
            raise NotNow(
                429, f"{waiting:,} payments wait, and the limit is {self._settings.most_waiting:,}; come again"
            )
        loop, field_name = asyncio.get_running_loop(), self._settings.key
        calls = []
        for value in values:
            text = key or ("" if field_name is None else key_of_line(value, field_name))
            calls.append(Call(loop, features, value, text.encode() or None))
        return calls

    def _written(self, call: Call) -> Call:
        self._numbers += 1
        call.number = self._numbers
        self._waiting[call.number] = call

        def on_written(fault: NotWritten | None) -> None:
            call.is_written = fault is None
            if fault is not None:
                self._waiting.pop(call.number, None)
                call.loop.call_soon_threadsafe(call.fail, fault.reason, 413 if fault.is_too_large else 503)

        self._log.write(call.value, call.key, call.number, on_written)
        return call

    def _on_messages(self, reading: int, messages: list[Taken] | None) -> None:
        self._queue.put((reading, messages))

    def _run(self) -> None:
        """Process the queue; work that arrived in the meantime is done together."""
        while not self._stopping.is_set():
            todo = [self._queue.get()]
            while len(todo) < MOST_AT_ONCE and not self._queue.empty():
                todo.append(self._queue.get())
            try:
                self._do([each for each in todo if each is not None])
            except Exception as error:  # It must not end the service, nor leave half-written state in use
                self._replica = None
                self._begin_anew(_line(error), todo)

    def _do(self, todo: Iterable[Any]) -> None:
        messages, checks = list[TakenMessage](), list[Call]()
        for each in todo:
            if isinstance(each, Call):
                checks.append(each)
            elif isinstance(each, tuple):
                reading, taken = each
                if reading == self._reading and taken is None:
                    self._begin_anew(_OTHERWISE, ())
                elif reading == self._reading:
                    messages += [TakenMessage(*of) for of in taken]
            elif self._replica is not None or isinstance(each, Replica):
                self._take(messages)
                messages = []
                try:
                    self._go_on(each)
                except NeedsState:  # Until it arrives, scoring continues without a gap, and reports that it is behind
                    self._begin_anew(_OTHERWISE, [each])
        self._take(messages)
        self._check(checks)

    def _go_on(self, with_: JobBatch | Replica) -> None:
        """Follow a batch of the job, or continue from a state that was read again."""
        if isinstance(with_, Replica):
            self._replica, self._is_anew = with_, False
            self._reading = self._log.read_from(with_.at)
            followed = list(self._followed)
        else:
            followed = [] if self._is_anew else [with_]
        assert self._replica is not None
        for batch in followed:
            if batch.number > self._replica.newest.number:
                self._tell(self._replica.begin_batch(batch))
        if isinstance(with_, Replica):
            self.fault = None
            gc.collect()
            gc.freeze()  # Long-lived objects are exempt from garbage collection

    def _take(self, messages: Sequence[TakenMessage]) -> None:
        if messages and self._replica is not None:
            called = (self._waiting.get(message.call) for message in messages if message.call)
            self._tell(self._replica.take(messages, any(call.features for call in called if call is not None)))

    def _tell(self, scored: Iterator[ScoredMessages]) -> None:
        """Answer the calls of scored payments, and compare results scored again with earlier answers."""
        for each in scored:
            now_ms, place = epoch_ms(), each.messages[0].place
            calls = {of.offset: call for of in each.messages if of.call and (call := self._waiting.pop(of.call, None))}
            again = {offset for offset in each.again if (place, offset) in self._given}
            if not calls and not again:
                continue
            found = answers(each, calls.keys() | again, now_ms, any(call.features for call in calls.values()))
            told, as_of = dict[asyncio.AbstractEventLoop, list[tuple[Call, CallAnswer]]](), self.as_of()
            for offset, answer in found.items():
                if offset in again and self._given[place, offset] != answer.digest:
                    self.counts["changed"] += 1
                answer.as_of = as_of
                self._remember(place, offset, answer)
                if offset in calls:
                    told.setdefault(calls[offset].loop, []).append((calls[offset], self._first(answer)))
            for loop, pairs in told.items():
                loop.call_soon_threadsafe(_answer_all, pairs)

    def _remember(self, place: Place, offset: int, answer: CallAnswer) -> None:
        self._given[place, offset] = answer.digest
        if answer.event_id is not None and answer.outcome not in (DUPLICATE, DEAD_LETTER):
            self._known[answer.event_id, answer.event_time] = msgspec.msgpack.encode(answer)
        for kept in (self._given, self._known):
            while len(kept) > REMEMBERED:
                kept.popitem(last=False)

    def _first(self, answer: CallAnswer) -> CallAnswer:
        """Return the first answer about a duplicate payment, while it is remembered.

        A payment that is a duplicate only for some groups, while others raise an alert, gets its own answer.
        """
        is_repeated = answer.outcome == DUPLICATE and not (answer.alerts or answer.held)
        known = self._known.get((answer.event_id or "", answer.event_time)) if is_repeated else None
        return answer if known is None else replace(msgspec.msgpack.decode(known, type=CallAnswer), is_repeated=True)

    def _check(self, calls: Sequence[Call]) -> None:
        waiting = [call for call in calls if not call.future.done()]
        self._asked.difference_update(calls)
        if not waiting or self._replica is None:
            return
        now_ms, features = epoch_ms(), any(call.features for call in waiting)
        payments = [
            TakenMessage((0, CHECK), number, call.value, call.key, time_ms=now_ms)
            for number, call in enumerate(waiting)
        ]
        try:
            for scored in self._replica.check(payments, features):
                found = answers(scored, {of.offset for of in scored.messages}, now_ms, features)
                for number, answer in found.items():
                    asked = replace(self._first(answer), partition=None, offset=None, as_of=self.as_of())
                    waiting[number].loop.call_soon_threadsafe(waiting[number].answer, asked)
        except Exception as error:  # Everything was undone
            for call in waiting:
                call.loop.call_soon_threadsafe(call.fail, _line(error))

    def _follow(self) -> None:
        """Poll for batches that the job has begun."""
        every_s, number, fault = LOOK_EVERY_S, None, ""
        if isinstance(self._job.checkpoint, StorePath):
            every_s = STORE_EVERY_S
        looked_s = time.monotonic()
        while not self._stopping.wait(every_s):
            try:
                self._forget_calls(_WAITS_S)
                if number is None:
                    ended = self._batches.ended()
                    if ended is None:
                        continue
                    self._followed.append(ended)
                    number = ended.number
                for batch in self._batches.after(number):
                    number = batch.number
                    batch.scored_by.prepare()
                    self._followed.append(batch)
                    self._queue.put(batch)
                if time.monotonic() - looked_s > AGAIN_AFTER_S:
                    looked_s = time.monotonic()
                    if self._batches.are_others(number):
                        number, self._batches = None, JobBatches(self._job.checkpoint)
                        self._followed.clear()  # Those of another job would be taken for batches of this one
                        self._queue.put((self._reading, None))
                fault = ""
            except Exception as error:  # For example if the job is restarted meanwhile
                if _line(error) != fault:
                    fault = _line(error)
                    self._say(f"the job is not followed: {fault}")
                self._stopping.wait(AGAIN_AFTER_S)

    def _forget_calls(self, after_s: float) -> None:
        """Forget calls without a waiting caller whose payments have not been seen for `after_s`.

        This happens if a newly read state contains them, or there is no state yet.
        """
        long_ago_s = time.monotonic() - after_s
        for number, call in list(self._waiting.items()):
            if call.since_s < long_ago_s and (after_s or call.future.done()):
                self._waiting.pop(number, None)

    def _begin_anew(self, reason: str, left: Sequence[Any]) -> None:
        """Request the state of the job again; pending work may be left undone."""
        self.fault = reason
        calls = [each for each in left if isinstance(each, Call)]
        self._asked.difference_update(calls)
        for call in calls:
            call.loop.call_soon_threadsafe(call.fail, reason)
        if not self._is_anew or any(isinstance(each, Replica) for each in left):
            self._is_anew = True
            self.counts["state_read"] += 1
            self._say(reason)
            self._needs_state.set()

    def _load(self) -> None:
        """Read the state of the job each time it is requested."""
        while self._needs_state.wait() and not self._stopping.is_set():
            self._needs_state.clear()
            try:
                replica = self._loaded()
                _give_back_memory()  # In the thread that has allocated it
                self._queue.put(replica)
            except Exception as error:
                self.fault = _line(error)
                self._needs_state.set()
                self._stopping.wait(AGAIN_AFTER_S)

    def _loaded(self) -> Replica:
        while not self._followed:
            self.fault = f"no batch of the job has ended yet, in checkpoint {self._job.checkpoint}"
            if self._stopping.wait(LOOK_EVERY_S):
                raise NeedsState
        self.fault = "the state of the job is being read"
        number, stored = read_entries(self._job.checkpoint, self._stopping)
        known = {each.number: each for each in list(self._followed)}
        batch = known.get(number) or self._batches.batch(number)
        if batch is None:
            message = f"batch {number} of checkpoint {self._job.checkpoint} is not known any more"
            raise BucketsError(message)
        batch.scored_by.prepare()
        store, driver = state_of(self._job.checkpoint, batch, stored)
        return Replica(store, driver, batch, self._read)


def _give_back_memory() -> None:
    """Return memory to the system that reading a state used and that allocators hold."""
    pa.default_memory_pool().release_unused()
    with contextlib.suppress(OSError, AttributeError):  # With other C libraries than Linux's usual one
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def _answer_all(pairs: Iterable[tuple[Call, CallAnswer]]) -> None:
    for call, answer in pairs:
        call.answer(answer)


def _line(error: Exception) -> str:
    return error.message if isinstance(error, BucketsError) else kind_and_line(error)
