"""Scores history, piece by piece: in this process, or in tasks (`buckets.spark.history`)."""

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from buckets.archive.archive import Archive
from buckets.archive.arrived_rows import ARRIVAL, BATCH, arrivals_of
from buckets.archive.history import History, RecordedBatches
from buckets.arrays import Int64s
from buckets.byte_strings import ByteStrings
from buckets.checkpoint.batch_ends import BatchEnd
from buckets.checkpoint.identity import Terms
from buckets.engine.stages.cross_group import NO_SOURCES, FillSources
from buckets.engine.stages.in_memory import BatchResults, InMemoryJob, OutputDecoder, memory_store
from buckets.engine.stages.shard import Scorer
from buckets.engine.storage.shard_store import ShardStore, column_of, strings_of
from buckets.events.arrivals import SOURCE_ORDER
from buckets.lists.index import NO_LISTS, Lists
from buckets.outputs import columns
from buckets.rules.rule_set import RuleSet

_ENTRIES = pa.schema({"key": pa.large_binary(), "value": pa.large_binary()})


class KeptTimelines(NamedTuple):
    """The timelines of shards before and after some arrivals, in files accessible to any process."""

    folder: Path  # an Arrow stream per arrival number and shard, with a batch per map of its store
    first: int  # the number of the first arrival
    end: int  # the number after the last one

    def load(self, shard: int) -> ShardStore:
        """Return the timelines of a shard before the first arrival; empty before arrival number 0."""
        store = memory_store()
        if self.first:
            with pa.ipc.open_stream(self.folder / str(self.first) / str(shard)) as reader:
                for entries, batch in zip(vars(store).values(), reader, strict=True):
                    entries.write(*map(strings_of, batch.columns))
        return store

    def save(self, shard: int, store: ShardStore) -> None:
        """Write the timelines of a shard after the last arrival."""
        path = self.folder / str(self.end) / str(shard)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{uuid.uuid4()}.partial")  # a task may run twice
        with pa.OSFile(str(partial), "wb") as sink, pa.ipc.new_stream(sink, _ENTRIES) as writer:
            for entries in vars(store).values():
                keys = ByteStrings.of([*entries.list_keys()])
                writer.write_batch(pa.record_batch([column_of(keys), column_of(entries.read(keys))], schema=_ENTRIES))
        partial.replace(path)


@dataclass(frozen=True)
class ArchivePiece:
    """Arrivals that are scored together, with the same rules, lists and settings."""

    rows: pa.Table  # of the archive, in the order of arrival
    rule_set: RuleSet  # the rules
    terms: Terms  # the settings and the event schema
    lists: Lists = field(default_factory=lambda: NO_LISTS)  # those into which rules may look
    batches: tuple[int, int] = (0, 0)  # its first and its last batch
    # int64, the real `source_order` of what `rows` have in its stead, a number from 0; None where they have the real
    # one
    orders: Int64s | None = None
    # by shard, the history of what is being filled (`fills_again`)
    sources_of: Callable[[int], FillSources] = lambda shard: NO_SOURCES
    # by measure, how many values of `rows` were rounded, as far as that is known
    rounded: Mapping[str, int] = field(default_factory=dict)
    # the timelines before and after all pieces that are scored together; None where these begin with the first arrival
    kept: KeptTimelines | None = None


PutOut = Literal["alerts", "evaluations", "features"]


@dataclass(frozen=True)
class ScoredPiece:
    """A piece, its outputs as payloads, and its accounts."""

    piece: ArchivePiece
    results: BatchResults

    def table(self, output: str) -> pa.Table:
        """Return the rows of an output, in no particular order."""
        terms, payloads = self.piece.terms, self.results.payloads.get(output, [])
        if not payloads:
            return columns.columns_of(output, terms.event_schema.largest_scale).empty_table()
        table = OutputDecoder(self.piece.rule_set, terms.event_schema, terms.engine).table(output, payloads)
        orders = self.piece.orders
        if orders is None or SOURCE_ORDER not in table.column_names:
            return table
        real = pa.array(orders[table[SOURCE_ORDER].to_numpy()])
        return table.set_column(table.column_names.index(SOURCE_ORDER), SOURCE_ORDER, real)


NO_ROWS = pa.table({})
JOINED_ROWS = 500_000  # Approximate rows of a piece: the more, the less often timelines are loaded


class PieceSpan(NamedTuple):
    """A range of an archive's arrivals that are scored together."""

    first: int  # the number of the first one
    end: int  # the number after the last one
    first_batch: int  # the batch that the first one is of
    last: BatchEnd  # the batch that the last one is of


def spans_of(
    history: History,
    is_alike: Callable[[BatchEnd, BatchEnd], bool],
    first: int = 0,
    end: int | None = None,
    cuts_batches: bool = True,
) -> list[PieceSpan]:
    """Cut a range of an archive into its recorded batches, or runs of similar batches.

    Large batches are cut up if `cuts_batches` is set.
    """
    archived = history.archive.query(
        f"select {BATCH} as batch, min({ARRIVAL}) as first, max({ARRIVAL}) + 1 as end from archive group by {BATCH}"
    )
    cuts, spans, is_rest = {cut.batch_id: cut for cut in history.recorded.cuts}, list[PieceSpan](), False
    for batch in archived.sort_by("batch").to_pylist():
        cut, begin = cuts.get(batch["batch"]), max(batch["first"], first)
        until = batch["end"] if end is None else min(batch["end"], end)
        if cut is None or begin >= until:
            continue
        before = spans[-1] if spans else None
        size = 0 if before is None or is_rest else before.end - before.first
        if before is not None and 0 < size < JOINED_ROWS and is_alike(before.last, cut):
            spans[-1] = before._replace(end=until, last=cut)
        else:
            spans.append(PieceSpan(begin, until, cut.batch_id, cut))
        is_rest = begin > batch["first"]  # the end of a large batch, a piece of its own, as if cut from the start
    if not cuts_batches:
        return spans
    return [
        span._replace(first=start, end=min(start + 2 * JOINED_ROWS, span.end))
        for span in spans
        for start in range(span.first, span.end, 2 * JOINED_ROWS)
    ]


class ArchiveRows:
    """Reads rows of an archive by number; consecutive reads continue where the last one ended."""

    def __init__(self, archive: Archive, columns: Sequence[str] | None = None) -> None:
        """Read nothing yet; None for all columns."""
        self._archive, self._columns = archive, columns
        self._next, self._rest = -1, NO_ROWS
        self._tables: Iterator[pa.Table] = iter(())

    def __reduce__(self) -> tuple[type["ArchiveRows"], tuple[Archive, Sequence[str] | None]]:
        """Pickle without the open reader."""
        return ArchiveRows, (self._archive, self._columns)

    def read(self, span: PieceSpan) -> pa.Table:
        """Return the rows of a span, in the order of arrival."""
        if span.first != self._next:
            self._rest, self._tables = NO_ROWS, self._archive.tables(span.first, None, self._columns)
        whole = self._rest
        while not len(whole) or whole[ARRIVAL][-1].as_py() < span.end - 1:
            more = next(self._tables, None)
            if more is None:
                break
            whole = pa.concat_tables([whole, more]) if len(whole) else more
        count = int(np.searchsorted(whole[ARRIVAL].to_numpy(), span.end))
        self._next, self._rest = span.end, whole.slice(count)
        return whole.slice(0, count).combine_chunks()


@dataclass(frozen=True)
class Pieces:
    """Pieces of an archive, by number from 0; any process that gets this can read them."""

    rows: ArchiveRows
    spans: Sequence[PieceSpan]
    settings_of: Callable[[PieceSpan], ArchivePiece]  # returns the piece of a span without its rows
    with_rows: Callable[[pa.Table, ArchivePiece], ArchivePiece]  # adds rows of the archive, as they are scored
    kept: KeptTimelines | None = None  # as `ArchivePiece` has it

    def __len__(self) -> int:
        """Return the number of pieces."""
        return len(self.spans)

    def settings(self, number: int) -> ArchivePiece:
        """Return a piece without rows: its rules, settings and lists."""
        return replace(self.settings_of(self.spans[number]), kept=self.kept)

    def read(self, number: int) -> ArchivePiece:
        """Return a piece."""
        piece = self.settings(number)
        return self.with_rows(self.rows.read(self.spans[number]), piece)


def with_recorded_lists(like: ArchivePiece, recorded: RecordedBatches | None, span: PieceSpan) -> ArchivePiece:
    """Return a piece with the lists of a span, except those it has; `recorded` is None if rules look into none."""
    if recorded is None:
        return like
    lists, given = recorded.lists(span.last), like.lists
    return replace(like, lists={**lists, **given} if given else lists)


def scorer_of(piece: ArchivePiece, put_out: PutOut) -> Scorer:
    """Return a scorer for a piece."""
    terms, features = piece.terms, put_out == "features"
    return Scorer(terms.event_schema, terms.engine, put_out == "evaluations", piece.lists, features, not features)


def score_pieces(pieces: Iterable[ArchivePiece], put_out: PutOut = "alerts") -> Iterator[ScoredPiece]:
    """Score pieces one after the other, starting with empty or stored timelines."""
    job, kept = None, None
    for piece in pieces:
        scorer, kept = scorer_of(piece, put_out), piece.kept
        if job is None:
            stores = {} if kept is None else {shard: kept.load(shard) for shard in range(scorer.engine.shards)}
            job = InMemoryJob(scorer, stores=stores)
        job.scorer = scorer
        arrivals = arrivals_of(piece.rows, scorer.schema)
        yield ScoredPiece(piece, job.score_batch(arrivals, piece.rule_set, piece.sources_of, piece.batches[1]))
    if job is not None and kept is not None:
        for shard, store in job.stores.items():
            kept.save(shard, store)


Found = TypeVar("Found")


class ScoreArchive(Protocol):
    """Scores an archive."""

    def __call__(self, pieces: Pieces, put_out: PutOut, found_in: Callable[[ScoredPiece], Found]) -> Iterator[Found]:
        """Score all pieces, as `score_pieces` does, and yield the result of a function on each, in order."""


def score_archive(pieces: Pieces, put_out: PutOut, found_in: Callable[[ScoredPiece], Found]) -> Iterator[Found]:
    """Score an archive in this process."""
    return map(found_in, score_pieces(map(pieces.read, range(len(pieces))), put_out))
