"""Scores history, piece by piece: in this process, or in tasks (`buckets.spark.history`)."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.archive.archiving import arrivals_of
from buckets.checkpoint.identity import Terms
from buckets.engine.stages.accounting import BatchAccount
from buckets.engine.stages.cross_group import NO_SOURCES, FillSources
from buckets.engine.stages.in_memory import BatchResults, InMemoryJob, OutputDecoder
from buckets.engine.stages.shard import Scorer
from buckets.events.arrivals import SOURCE_ORDER
from buckets.lists.index import NO_LISTS, Lists
from buckets.outputs import columns
from buckets.rules.rule_set import RuleSet

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ArchivePiece:
    """Arrivals that are scored together, by the same rules, lists and terms."""

    rows: pa.Table  # of the archive, in the order of arrival
    rule_set: RuleSet  # the rules
    terms: Terms  # the settings and the event schema
    lists: Lists = field(default_factory=lambda: NO_LISTS)  # those into which rules may look
    batches: tuple[int, int] = (0, 0)  # the first and the last batch that it is of
    # int64, the real `source_order` of what `rows` have in its stead, a number from 0; None where they have the real
    # one
    orders: Int64s | None = None
    # by shard, the history of what is being filled (`fills_again`)
    sources_of: Callable[[int], FillSources] = lambda shard: NO_SOURCES
    # by measure, how many values of `rows` were rounded, as far as that is known
    rounded: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ScoredPiece:
    """A piece, its outputs as payloads, and its accounts."""

    piece: ArchivePiece
    results: BatchResults

    @property
    def account(self) -> BatchAccount:
        """What became of each event."""
        return self.results.account

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


class Pieces(Protocol):
    """Pieces of an archive, by their numbers from 0, which any process can read that they are sent to."""

    def __len__(self) -> int:
        """Return how many pieces there are."""

    def settings(self, number: int) -> ArchivePiece:
        """Return a piece without its rows: its rules, terms and lists."""

    def read(self, number: int) -> ArchivePiece:
        """Return a piece."""


def all_of(pieces: Pieces) -> Iterator[ArchivePiece]:
    """Read one piece after the other."""
    return map(pieces.read, range(len(pieces)))


def scorer_of(piece: ArchivePiece, evaluations: bool) -> Scorer:
    """Return what scores a piece."""
    return Scorer(piece.terms.event_schema, piece.terms.engine, evaluations, piece.lists)


def score_pieces(pieces: Iterable[ArchivePiece], evaluations: bool) -> Iterator[ScoredPiece]:
    """Score pieces one after the other, beginning with empty timelines; every evaluation is put out, or alerts only."""
    job: InMemoryJob | None = None
    for piece in pieces:
        scorer = scorer_of(piece, evaluations)
        job = InMemoryJob(scorer) if job is None else job
        job.scorer = scorer
        arrivals = arrivals_of(piece.rows, scorer.schema)
        yield ScoredPiece(piece, job.score_batch(arrivals, piece.rule_set, piece.sources_of, piece.batches[1]))
