"""Scores archived arrivals again, by recorded rules or by others, without Spark."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from buckets.checkpoint.terms import Terms
from buckets.engine.accounting import BatchAccount
from buckets.engine.in_memory import BatchResults, InMemoryJob
from buckets.engine.output_decoder import OutputDecoder
from buckets.engine.shard import Scorer
from buckets.history.arrived import arrivals_of
from buckets.lists.lists import NO_LISTS, Lists
from buckets.outputs import columns
from buckets.rules.rule_set import RuleSet


@dataclass(frozen=True)
class Piece:
    """Arrivals that are scored together, by the same rules, lists and terms.

    Attributes:
        rows: of the archive, in the order of arrival.
        rule_set: the rules.
        terms: the settings and the event schema.
        lists: those into which rules may look.
    """

    rows: pa.Table
    rule_set: RuleSet
    terms: Terms
    lists: Lists = field(default_factory=lambda: NO_LISTS)


@dataclass(frozen=True)
class ScoredPiece:
    """What came out of a piece.

    Attributes:
        piece: the piece.
        results: its outputs as payloads, and its accounts.
    """

    piece: Piece
    results: BatchResults

    @property
    def account(self) -> BatchAccount:
        """What became of each event."""
        return self.results.account

    def table(self, output: str) -> pa.Table:
        """The rows of an output, in no particular order."""
        terms, payloads = self.piece.terms, self.results.payloads.get(output, [])
        if not payloads:
            return columns.output_columns(terms.event_schema.largest_scale)[output].empty_table()
        return OutputDecoder(self.piece.rule_set, terms.event_schema, terms.engine).table(output, payloads)


def score_pieces(pieces: Iterable[Piece], evaluations: bool) -> Iterator[ScoredPiece]:
    """Score pieces that follow each other; the first begins with empty timelines.

    Args:
        pieces: what is scored, in the order of arrival.
        evaluations: whether every evaluation is put out, or alerts only.
    """
    job: InMemoryJob | None = None
    for piece in pieces:
        scorer = Scorer(piece.terms.event_schema, piece.terms.engine, evaluations, piece.lists)
        if job is None:
            job = InMemoryJob(scorer)
        job.scorer = scorer
        yield ScoredPiece(piece, job.score_batch(arrivals_of(piece.rows, piece.terms.event_schema), piece.rule_set))
