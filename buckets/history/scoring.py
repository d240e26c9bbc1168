"""Scores history, piece by piece, in this process or with the shards shared among several.

A process is given the messages of its shards as the payloads that they are, and gives back payloads. Settings and
rules are sent when they change, and lists of a checkpoint by their versions. A process does what it is sent in order.
"""

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.archive.archiving import arrivals_of
from buckets.checkpoint.identity import Terms
from buckets.config.engine import EngineSettings
from buckets.engine.stages.accounting import BatchAccount
from buckets.engine.stages.cross_group import NO_SOURCES, FillSources
from buckets.engine.stages.in_memory import BatchResults, InMemoryJob, OutputDecoder, Pending, SourcesOf
from buckets.engine.stages.shard import Produced, Scorer
from buckets.errors import BucketsError
from buckets.events.arrivals import SOURCE_ORDER
from buckets.events.schema import EventSchema
from buckets.lists.index import NO_LISTS, Lists
from buckets.outputs import columns
from buckets.rules.rule_set import RuleSet

_Share = Mapping[int, tuple[Sequence[bytes], FillSources]]
"""By shard, the payloads that it is sent, and the history of what is being filled."""


class ParallelJob(InMemoryJob):
    """A job in memory whose shards are in other processes."""

    def __init__(self, scorer: Scorer, processes: int) -> None:
        """Start processes."""
        super().__init__(scorer)
        fresh = multiprocessing.get_context("spawn")
        self._processes = [ProcessPoolExecutor(1, mp_context=fresh) for _ in range(processes)]
        self._sent: tuple[Scorer, RuleSet] | None = None
        self._rules: str | None = None
        self._used: list[Future[None]] = []

    def __enter__(self) -> "ParallelJob":
        """Keep them until the end."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End them, without what has not begun."""
        for process in self._processes:
            process.shutdown(wait=True, cancel_futures=True)

    def score_shards(
        self, messages: Mapping[int, Sequence[bytes]], rule_set: RuleSet, sources_of: SourcesOf
    ) -> Pending:
        """Begin to score what shards are sent; a shard always goes to the same process."""
        self._use(rule_set)
        shares: list[dict[int, tuple[Sequence[bytes], FillSources]]] = [{} for _ in self._processes]
        for shard, payloads in messages.items():
            shares[shard % len(shares)][shard] = payloads, dict(sources_of(shard))
        begun = [process.submit(_score, share) for process, share in zip(self._processes, shares, strict=True) if share]
        used = self._used
        return lambda: _results(used, begun)

    def _use(self, rule_set: RuleSet) -> None:
        """Send settings and rules, unless the batch before had the very same."""
        scorer = self.scorer
        if self._sent is not None and scorer is self._sent[0] and rule_set is self._sent[1]:
            return
        lists = scorer.lists if scorer.lists is not NO_LISTS else None
        text = rule_set.to_json()
        settings = scorer.schema, scorer.engine, scorer.evaluations, lists, None if text == self._rules else text
        self._sent, self._rules = (scorer, rule_set), text
        self._used = [process.submit(_take_settings, *settings) for process in self._processes]


def _results(used: Sequence[Future[None]], begun: Sequence[Future[list[Produced]]]) -> Iterator[Produced]:
    """Return what shards put out, once they have taken their settings."""
    try:
        for settings in used:
            settings.result()
        for share in begun:
            yield from share.result()
    except BrokenProcessPool:
        message = "a process that scores shards has ended, most likely for want of memory: all timelines are kept in it"
        raise BucketsError(message) from None


class _Own:
    """What a process has, where it is one of several: its shards, and the rules that they are scored by."""

    job: InMemoryJob | None = None
    rule_set: RuleSet | None = None


def _take_settings(
    schema: EventSchema, engine: EngineSettings, evaluations: bool, lists: Lists | None, rules: str | None
) -> None:
    """Take settings, and rules where they are others than before."""
    scorer = Scorer(schema, engine, evaluations, NO_LISTS if lists is None else lists)
    if _Own.job is None:
        _Own.job = InMemoryJob(scorer)
    _Own.job.scorer = scorer
    if rules is not None:
        _Own.rule_set = RuleSet.from_json(rules)


def _score(share: _Share) -> list[Produced]:
    assert _Own.job is not None
    assert _Own.rule_set is not None
    messages = {shard: payloads for shard, (payloads, _) in share.items()}
    return list(_Own.job.score_shards(messages, _Own.rule_set, lambda shard: share[shard][1])())


Int64s = npt.NDArray[np.int64]
AHEAD = 2  # Pieces that are fanned out before the results of the first are awaited


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


def score_pieces(pieces: Iterable[ArchivePiece], evaluations: bool, processes: int = 1) -> Iterator[ScoredPiece]:
    """Score pieces one after the other, beginning with empty timelines.

    Every evaluation is put out, or alerts only. More than one of the `processes` start Python again, so a script then
    calls this below `if __name__ == "__main__"`.
    """
    begun: deque[tuple[ArchivePiece, Callable[[], BatchResults]]] = deque()
    with ExitStack() as started:
        job: InMemoryJob | None = None
        terms: Terms | None = None
        for piece in pieces:
            # The settings are the same object as long as they are the same.
            if job is None or piece.terms != terms or piece.lists is not job.scorer.lists:
                terms = piece.terms
                scorer = Scorer(terms.event_schema, terms.engine, evaluations, piece.lists)
                if job is None:
                    several = processes > 1
                    job = started.enter_context(ParallelJob(scorer, processes)) if several else InMemoryJob(scorer)
                job.scorer = scorer
            arrivals = arrivals_of(piece.rows, job.scorer.schema)
            begun.append((piece, job.begin_batch(arrivals, piece.rule_set, piece.sources_of, piece.batches[1])))
            if len(begun) > (AHEAD if processes > 1 else 0):
                first, finish = begun.popleft()
                yield ScoredPiece(first, finish())
        while begun:
            first, finish = begun.popleft()
            yield ScoredPiece(first, finish())
