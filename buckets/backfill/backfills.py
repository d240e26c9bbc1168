"""A running job's backfills as its driver sees them: requests, chunks built by a thread, and the pace.

The thread reads the archive and writes chunks ahead of the shards, just enough that none has to wait.
"""

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa

from buckets.archive.archive import by_batch
from buckets.archive.arrived_rows import ARRIVAL, BATCH, TIME, arrivals_of
from buckets.archive.history import History
from buckets.backfill.fill_chunks import CHUNK_ROWS, Chunk, FillChunks, FillPace, Plan, fills_folder
from buckets.checkpoint.list_versions import lists_in
from buckets.checkpoint.record_files import BackfillRequest, BackfillRequests
from buckets.config.job import Job
from buckets.engine.batch.fan_out import fan_out_group
from buckets.errors import BucketsError, kind_and_line
from buckets.events.arrivals import INGESTED, POSITION, SOURCE, SOURCE_ORDER
from buckets.events.schema import EventSchema
from buckets.feeds.rules.rule_book import BackfillSource
from buckets.lists.index import Lists
from buckets.rules.backfill import Wanted
from buckets.rules.completeness import Completeness, Fill, Filled, Stretch, complete_behind
from buckets.rules.group import Group
from buckets.rules.rule_set import RuleSet

ListsOf = Callable[[Mapping[str, int]], Lists]


def rows_of_fill(history: History, fill: Fill) -> int | None:
    """Return how many archived rows belong to a fill; None while the archive does not reach far enough."""
    if history.recorded.cuts[-1].batch_id < fill.first_batch:
        return None
    rows = history.archive.query(f"select min({ARRIVAL}) as first from archive where {BATCH} >= {fill.first_batch}")
    first: int | None = rows["first"][0].as_py()
    return first


def chunks_of_fill(history: History, fill: Fill, first: int, end: int) -> Iterator[Chunk]:
    """Return the chunks of a fill, under the rules and settings of the batch with which it began.

    It covers the arrivals from `first` to before `end`, as returned by `rows_of_fill`.
    """
    recorded, checkpoint = history.recorded, history.job.checkpoint
    begun = next(cut for cut in recorded.cuts if cut.batch_id >= fill.first_batch)
    rule_set, terms = recorded.rule_set(begun.ruleset_version), recorded.terms(begun.batch_id)
    group = rule_set.filling[fill.number]
    required = terms.engine.required(rule_set.needed_fields)
    builder = Builder(group, required, terms.event_schema, terms.engine.shards)
    pinned = {cut.batch_id: cut.lists for cut in recorded.cuts}
    archive = history.archive.under(terms.event_schema.new_names)
    return builder.chunks(archive.tables(first, end), pinned, partial(lists_in, checkpoint))


@dataclass(frozen=True)
class Builder:
    """Makes chunks of up to `rows` archived rows for a group; events must not have a null in `required` fields."""

    group: Group
    required: frozenset[str]
    schema: EventSchema
    shards: int
    rows: int = CHUNK_ROWS

    def chunks(
        self, tables: Iterable[pa.Table], pinned: Mapping[int, Mapping[str, int]], lists_of: ListsOf
    ) -> Iterator[Chunk]:
        """Yield the chunks of rows in arrival order; `pinned` has the list versions that each batch saw."""
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
    """Renumber arrivals consecutively, so that their order spans batches and sources."""
    ranks = {
        SOURCE: pa.array([""] * len(rows), pa.string()),
        SOURCE_ORDER: pa.array(np.zeros(len(rows), np.int64)),
        POSITION: pa.array(np.arange(len(rows), dtype=np.int64)),
    }
    columns = {name: ranks.get(name, rows.column(name)) for name in rows.schema.names if name != INGESTED}
    return pa.record_batch(columns)


EVERY_S = 0.5  # How often requests are looked for
AGAIN_AFTER_S = 2.0  # The pause before an archive that does not reach far enough is checked again
PATIENCE_S = 5.0  # How long a job's end waits for the thread
NICENESS = 10  # How much lower the thread's priority is than that of batches
AHEAD = 256  # How many chunks are written ahead of the shards
PORTION = 16  # How many chunks of one fill are written before the next fill's turn
KEPT_BATCHES = 3  # How many batches chunks outlive their use by all shards, since a batch may run again


@dataclass
class _Building:
    """A fill whose chunks are being written: `ready` of `total`, which is None while unknown.

    `taken` counts the chunks consumed by all shards after each of the last batches; `coming` yields the next chunks.
    """

    fill: Fill
    chunks: FillChunks
    ready: int = 0
    total: int | None = None
    taken: deque[int] = field(default_factory=lambda: deque([0], maxlen=KEPT_BATCHES))
    coming: Iterator[Chunk] | None = None


class Backfills(BackfillSource):
    """The backfills of a job with an archive."""

    can_fill = True

    def __init__(self, job: Job, say: Callable[[str], None] = lambda line: None) -> None:
        """Do nothing before `start`; `say` receives each reason why no chunk can be written at the moment, once."""
        self._job, self._say = job, say
        self._requests = BackfillRequests(job.checkpoint)
        self._wanted: dict[str, tuple[BackfillRequest, Wanted]] = {}
        self._building: dict[int, _Building] = {}
        self._seen: deque[frozenset[int]] = deque(maxlen=KEPT_BATCHES)
        self._pace = FillPace()
        self._rows = 0
        self._lock = threading.Lock()
        self._closing, self._asked = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._fault = ""

    # --- what the rule book asks ------------------------------------------------------------------------------

    def start(self) -> None:
        """Start looking for requests, and writing chunks."""
        self._closing.clear()
        self._thread = threading.Thread(target=self._run, name="backfill", daemon=True)
        self._thread.start()

    def wanted(self) -> list[Wanted]:
        """Return the rules with a requested backfill whose archive has been found, without waiting."""
        with self._lock:
            return [wanted for _, wanted in self._wanted.values()]

    def taken(self, wanted: Wanted) -> None:
        """Delete a request that has become part of a version of the rules, unless a newer one has replaced it."""
        with self._lock:
            request, there = self._wanted.get(wanted.rule.rule_id, (None, None))
            if request is None or there != wanted:
                return
            del self._wanted[wanted.rule.rule_id]
        self._requests.forget(request)

    def stop(self) -> None:
        """Stop writing chunks; existing ones stay."""
        self._closing.set()
        self._asked.set()
        if self._thread is not None:
            self._thread.join(PATIENCE_S)  # Reading may take long; the plan and each chunk are written atomically.
            self._thread = None

    # --- what a batch asks ------------------------------------------------------------------------------------

    def begin_batch(self, rule_set: RuleSet) -> dict[int, tuple[int, int | None, int]]:
        """Return per fill how many chunks a batch may take, their total if known, and how many rows to take."""
        live = {fill.number: fill for fill in rule_set.fills}
        with self._lock:
            self._seen.append(frozenset(live))
            self._building = {
                number: self._building.get(number) or _Building(fill, FillChunks(self._job.checkpoint, number))
                for number, fill in live.items()
            }
            self._rows = self._pace.rows() if live else 0
            offers = {number: (fill.ready, fill.total, self._rows) for number, fill in self._building.items()}
        if live:
            self._asked.set()
        return offers

    def end_batch(self, filled: Mapping[int, Filled], duration_s: float) -> None:
        """Record the progress of fills in a batch, and the batch's duration."""
        if not filled:
            return
        self._pace.took(self._rows, duration_s)
        with self._lock:
            for number, so_far in filled.items():
                if number in self._building:
                    self._building[number].taken.append(so_far.chunk)
        self._asked.set()

    # --- the thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        with contextlib.suppress(OSError, AttributeError):  # Only Linux has a niceness of threads.
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        while not self._closing.is_set():
            self._asked.wait(EVERY_S)
            self._asked.clear()
            try:
                self._look_for_requests()
                while self._build_all() and not self._closing.is_set():
                    pass
                self._clean()
            except Exception as error:  # The job continues without it, and the work is retried.
                fault = error.message if isinstance(error, BucketsError) else kind_and_line(error)
                if fault != self._fault:
                    self._fault = fault
                    self._say(f"the history of rules is not filled in at the moment: {fault}")
                self._closing.wait(AGAIN_AFTER_S)
            else:
                self._fault = ""

    def _look_for_requests(self) -> None:
        asked = self._requests.read()
        with self._lock:
            self._wanted = {rule_id: known for rule_id, known in self._wanted.items() if known[0] in asked}
            new = [request for request in asked if request.rule.rule_id not in self._wanted]
        if not new:
            return
        complete = self._complete(History.open(self._job))
        with self._lock:
            for request in new:
                wanted = Wanted(request.rule, complete, request.author, request.reason, request.time)
                self._wanted[request.rule.rule_id] = request, wanted

    def _complete(self, history: History) -> Completeness | None:
        """Return since when the archive is complete; None: from the job's beginning."""
        if history.recorded.before is None:
            return None
        name, archive = self._job.event_schema.event_time.field, history.archive
        first = f'select min({BATCH}) from archive where "{name}" is not null'
        times = archive.under(self._job.event_schema.new_names).query(
            f'select min("{name}") as first, max("{name}") as last from archive where {BATCH} = ({first})'
        )
        if times["first"].null_count:
            message = f"archive {archive.folder}: holds no event yet"
            raise BucketsError(message)
        first_ms, last_ms = (times[side].cast(TIME).cast(pa.int64())[0].as_py() // 1000 for side in ("first", "last"))
        return complete_behind((Stretch(first_ms, last_ms),), 1, self._job.settings.engine.allowed_lateness)

    def _build_all(self) -> bool:
        """Write some chunks of each fill that needs them; return whether any was written."""
        with self._lock:
            building = list(self._building.values())
        return sum(self._build(fill) for fill in building if fill.total is None) > 0

    def _build(self, building: _Building) -> bool:
        """Write a fill's next chunks; return whether any were missing and had room."""
        chunks, coming = building.chunks, building.coming
        if coming is None:
            building.ready, building.total = chunks.ready(), chunks.total()
            if building.total is not None:
                return False
            history = History.open(self._job)
            end = rows_of_fill(history, building.fill)
            if end is None:
                self._closing.wait(AGAIN_AFTER_S)
                return False
            chunks.keep_plan(Plan(end, -(-end // CHUNK_ROWS)))
            coming = building.coming = chunks_of_fill(history, building.fill, chunks.end(), end)
        room = min(PORTION, AHEAD - (building.ready - building.taken[-1]))
        try:
            for _ in range(room):
                chunk = next(coming, None)
                if chunk is None:
                    chunks.finish(building.ready)
                    building.total = building.ready
                    return True
                chunks.write(building.ready, chunk)
                building.ready += 1
        except BaseException:
            building.coming = None  # What it has yielded may be unwritten: start again after the written chunks.
            raise
        return room > 0

    def _clean(self) -> None:
        """Delete chunks and whole fills that no batch can need any more."""
        with self._lock:
            building, seen = dict(self._building), list(self._seen)
        for fill in building.values():
            fill.chunks.forget(min(fill.taken) if len(fill.taken) == KEPT_BATCHES else 0)
        if len(seen) == KEPT_BATCHES:
            live = frozenset().union(*seen)
            for folder in fills_folder(self._job.checkpoint).glob("[0-9]*"):
                if int(folder.name) not in live:
                    FillChunks(self._job.checkpoint, int(folder.name)).remove()
