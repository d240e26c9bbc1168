"""History scored: pieces of an archive through the operator of a job, without Spark.

    archive ---> pieces ---> fan-out (here) ---> shards (in all processes) ---> meeting, alerts (here) ---> tables

While the shards score a piece, the next one is read and fanned out. What leaves a piece waits for its turn, since rules
over alerts and policies on the driver take one piece after the other.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.checkpoint.terms import Terms
from buckets.engine.accounting import BatchAccount
from buckets.engine.fan_out import PASSING, fan_out
from buckets.engine.in_memory import BatchResults, finish_batch, memory_store, memory_stores
from buckets.engine.output_decoder import OutputDecoder
from buckets.engine.shard import Produced, Scorer
from buckets.engine.shard_store import DriverStores
from buckets.events.arrivals import SOURCE_ORDER
from buckets.history.arrived import arrivals_of
from buckets.history.shard_processes import OwnShards, Pending, ShardProcesses, Shards
from buckets.lists.lists import Lists
from buckets.outputs import columns
from buckets.rules.rule_set import RuleSet

AHEAD = 2
"""So many pieces are fanned out before what came of the first is asked for."""


@dataclass(frozen=True)
class Piece:
    """What is scored in one go: a batch, or several that follow each other under the same rules, terms and lists.

    Attributes:
        batch_id: the batch; the last one of several.
        rows: of the archive, in the order of arrival.
        rule_set: the rules.
        terms: what decides results besides the rules.
        lists: those of the batch.
        first_batch: the first of several batches; None where it is one.
        orders: int64, the real `source_order` of what stands in its place in `rows`, which counts from 0; None where it
            is the real one.
    """

    batch_id: int
    rows: pa.Table
    rule_set: RuleSet
    terms: Terms
    lists: Lists
    first_batch: int | None = None
    orders: npt.NDArray[np.int64] | None = None


@dataclass(frozen=True)
class ScoredPiece:
    """What came of a piece.

    Attributes:
        piece: the piece.
        account: what became of its events.
    """

    piece: Piece
    account: BatchAccount
    _results: BatchResults

    def table(self, output: str) -> pa.Table:
        """The rows of an output, in no order, with the columns of `columns.output_columns`."""
        terms, payloads = self.piece.terms, self._results.payloads.get(output, [])
        wanted = columns.output_columns(terms.event_schema.largest_scale)[output]
        if not payloads:
            return wanted.empty_table()
        decoder = OutputDecoder(self.piece.rule_set, terms.event_schema, terms.engine)
        table = decoder.table(output, payloads).select(wanted.names)
        orders = self.piece.orders
        if orders is None or SOURCE_ORDER not in wanted.names:
            return table
        real = pa.array(orders[table[SOURCE_ORDER].to_numpy()])
        return table.set_column(wanted.get_field_index(SOURCE_ORDER), SOURCE_ORDER, real)


def score_pieces(pieces: Iterable[Piece], evaluations: bool, processes: int = 1) -> Iterator[ScoredPiece]:
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
    begun: deque[_Begun] = deque()
    stores = memory_stores()
    with OwnShards() if processes == 1 else ShardProcesses(processes) as shards:
        for each in _begin_all(pieces, evaluations, shards):
            begun.append(each)
            if len(begun) > (AHEAD if processes > 1 else 0):
                yield begun.popleft().finish(stores)
        while begun:
            yield begun.popleft().finish(stores)


@dataclass(frozen=True)
class _Begun:
    """A piece that the shards are scoring.

    Attributes:
        piece: the piece.
        scorer: its settings.
        passing: what is not scored.
        pending: what the shards put out.
    """

    piece: Piece
    scorer: Scorer
    passing: list[Produced]
    pending: Pending

    def finish(self, stores: DriverStores) -> ScoredPiece:
        produced = chain(self.passing, self.pending())
        results = finish_batch(self.piece.batch_id, produced, self.scorer, self.piece.rule_set, stores)
        return ScoredPiece(self.piece, results.account, results)


def _begin_all(pieces: Iterable[Piece], evaluations: bool, shards: Shards) -> Iterator[_Begun]:
    """Hand pieces to the shards, each when it is asked for."""
    before: Piece | None = None
    scorer: Scorer | None = None
    for piece in pieces:
        if scorer is None or before is None or not _is_scored_alike(piece, before):
            scorer = Scorer(piece.terms.event_schema, piece.terms.engine, evaluations, piece.lists)
            shards.use(scorer, piece.rule_set)
        before = piece
        messages: dict[int, list[bytes]] = {}
        for rows in arrivals_of(piece.rows, scorer.schema):
            for message in fan_out(rows, piece.rule_set, scorer.schema, scorer.engine.shards, scorer.lists):
                messages.setdefault(message.shard, []).append(message.payload)
        passing = list(scorer.score(messages.pop(PASSING, []), piece.rule_set, memory_store()))
        yield _Begun(piece, scorer, passing, shards.score(messages))


def _is_scored_alike(one: Piece, other: Piece) -> bool:
    return one.rule_set is other.rule_set and one.terms == other.terms and one.lists is other.lists
