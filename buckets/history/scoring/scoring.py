"""History scored: pieces of an archive through the operator of a job, without Spark.

    archive ---> pieces ---> fan-out (here) ---> shards (in all processes) ---> cross-group, alerts (here) ---> tables

While the shards score a piece, the next one is read and fanned out. What leaves a piece waits for its turn, since rules
over alerts and policies on the driver take one piece after the other.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.archive.archiving import arrivals_of
from buckets.checkpoint.basis import Terms
from buckets.engine.stages.accounting import BatchAccount
from buckets.engine.stages.filling import NO_SOURCES, FillSources
from buckets.engine.stages.in_memory import BatchResults, InMemoryJob
from buckets.engine.stages.shard import Scorer
from buckets.engine.stages.warm_up import OutputDecoder
from buckets.events.arrivals import SOURCE_ORDER
from buckets.history.scoring.shard_processes import ParallelJob
from buckets.lists.index import NO_LISTS, Lists
from buckets.outputs import columns
from buckets.rules.rule_set import RuleSet

Int64s = npt.NDArray[np.int64]
AHEAD = 2  # So many pieces are fanned out before what came of the first is asked for


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
    # by shard, the history of what is being filled (`ReplayedFills`)
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


def score_pieces(pieces: Iterable[ArchivePiece], evaluations: bool, processes: int = 1) -> Iterator[ScoredPiece]:
    """Score pieces one after the other, beginning with empty timelines.

    Args:
        pieces: in the order in which they were scored.
        evaluations: whether every evaluation is wanted, or alerts only.
        processes: how many score the shards; with 1 nothing is started. More than one start Python again, so a script
            calls this below `if __name__ == "__main__"`.

    Raises:
        BucketsError: a process has ended.
        RuntimeError: an event is unaccounted for, which is a defect of this project.
    """
    begun: deque[Callable[[], ScoredPiece]] = deque()
    with ExitStack() as started:
        job: InMemoryJob | None = None
        for piece, scorer in _with_scorers(pieces, evaluations):
            if job is None:
                job = InMemoryJob(scorer) if processes == 1 else started.enter_context(ParallelJob(scorer, processes))
            job.scorer = scorer
            arrivals = arrivals_of(piece.rows, scorer.schema)
            finish = job.begin_batch(arrivals, piece.rule_set, piece.sources_of, piece.batches[1])
            begun.append(partial(_finished, piece, finish))
            if len(begun) > (AHEAD if processes > 1 else 0):
                yield begun.popleft()()
        while begun:
            yield begun.popleft()()


def _finished(piece: ArchivePiece, finish: Callable[[], BatchResults]) -> ScoredPiece:
    return ScoredPiece(piece, finish())


def _with_scorers(pieces: Iterable[ArchivePiece], evaluations: bool) -> Iterator[tuple[ArchivePiece, Scorer]]:
    """Yield pieces with their settings: the same object as long as these are the same."""
    scorer: Scorer | None = None
    terms: Terms | None = None
    for piece in pieces:
        if scorer is None or piece.terms != terms or piece.lists is not scorer.lists:
            scorer = Scorer(piece.terms.event_schema, piece.terms.engine, evaluations, piece.lists)
        terms = piece.terms
        yield piece, scorer
