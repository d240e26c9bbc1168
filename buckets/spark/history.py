"""Score archives again in Spark tasks, which read them; the driver gets only the findings of each piece."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from buckets.archive.arrived_rows import arrivals_of
from buckets.engine.stages.in_memory import BatchResults
from buckets.history.scoring import Found, Pieces, PutOut, ScoreArchive, ScoredPiece, scorer_of
from buckets.spark.arrow_types import from_arrow_schema
from buckets.spark.session import settings_of_user, start_session
from buckets.spark.slice_scoring import SENT, Payloads, Slice, SliceScoring, batches_of
from buckets.spark.worker import settle

_OF_SYSTEM = re.compile(r"Error: .*\[errno (\d+)\] ([^:\n]+)", re.IGNORECASE)
_TASKS_A_CORE = 4  # Tasks per core of the session, for reading pieces and for completing them
_JAVA = "-XX:TieredStopAtLevel=1 -XX:G1HeapRegionSize=8m"
"""Java mostly carries payloads here, for whose copies its second compiler wins nothing. In regions of the usual size
they would be humongous, for which it marks the heap again and again."""
_SETTINGS = {
    "spark.driver.extraJavaOptions": _JAVA,
    "spark.executor.extraJavaOptions": _JAVA,
    # Large payloads go to Python one by one, over memory that is used again.
    "spark.sql.execution.arrow.maxBytesPerBatch": "4m",
}


@dataclass(frozen=True)
class _PieceScoring(SliceScoring):
    """What tasks need to score an archive, each piece of which is a slice."""

    pieces: Pieces
    put_out: PutOut
    found_in: Callable[[ScoredPiece], Any]

    def of(self, number: int) -> Slice:
        """Return what a piece is scored with."""
        piece = self.pieces.settings(number)
        return Slice(scorer_of(piece, self.put_out), piece.rule_set, piece.batches[1], piece.sources_of)

    def fan_out(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the pieces with the given numbers and send each to the shards."""
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            piece = self.pieces.read(number)
            yield from batches_of(self.sent(number, arrivals_of(piece.rows, piece.terms.event_schema)))
        settle()

    def found_in_piece(self, number: int, _: Payloads, results: BatchResults) -> Any:
        """Return the findings of a piece."""
        return self.found_in(ScoredPiece(self.pieces.read(number), results))


def score_archive(
    session: SparkSession, pieces: Pieces, put_out: PutOut, found_in: Callable[[ScoredPiece], Found]
) -> Iterator[Found]:
    """Score an archive in the tasks of a session, as `buckets.history.scoring.score_archive` does in one process."""
    count = len(pieces)
    if not count:
        return
    tasks = min(count, _TASKS_A_CORE * session.sparkContext.defaultParallelism)
    work = _PieceScoring(pieces, put_out, found_in)
    fanned = session.range(0, count, 1, tasks).mapInArrow(work.fan_out, from_arrow_schema(SENT))
    like = pieces.settings(0)
    scored = work.scored(fanned, like.terms.engine.shards, like.kept)
    # Settings of all pieces are requested here: fills are computed once, and tasks on this machine find them.
    if any([pieces.settings(number).rule_set.needs_driver_state for number in range(count)]):  # noqa: C419
        tasks = 1
    try:
        yield from work.found(scored, tasks, f"slice * {tasks} div {count}", work.found_in_piece)
    except (Py4JJavaError, PySparkException) as error:
        of_system = _OF_SYSTEM.search(str(error))
        if of_system is None:
            raise
        raise OSError(int(of_system[1]), of_system[2].strip()) from error


def scoring_at(master: str, settings: dict[str, str | int | bool]) -> ScoreArchive:
    """Start a session at a master with the user's Spark settings, and return a function that scores archives in it."""
    session = start_session("buckets history", 1, {**_SETTINGS, **settings_of_user(settings), "spark.master": master})
    return partial(score_archive, session)
