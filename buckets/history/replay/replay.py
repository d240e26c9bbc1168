"""The archive scored once more by what it was scored by then, and what comes out compared with what was recorded.

    archive, cuts ---> pieces ---> score_pieces ---> rows --- differences ---> a report
                                        job's tables ---> rows ---'

Scoring begins with the first batch, since timelines and policies depend on all that came before, and ends with the last
batch that holds an event of the time that is asked for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from buckets.archive.history import History
from buckets.checkpoint.checkpoint import Checkpoint
from buckets.config.job import load_job
from buckets.history.replay.pieces import CutAs, pieces_of
from buckets.history.replay.recorded_rows import RecordedRows, recorded_rows
from buckets.history.replay.replayed import Replayed
from buckets.history.replay.replayed_fills import ReplayedFills
from buckets.history.replay.replayed_tables import ReplayedTables
from buckets.history.replay.requirements import check_whole, last_batch_within
from buckets.history.scoring.scoring import score_pieces
from buckets.moment import ANY_TIME, TimeRange, moment_ms

CutChoice = Literal["auto", "recorded", "joined"]
FEW_BATCHES = 20
LARGE_BATCH_ROWS = 200_000
"""Batches are not joined where there are few of them, or where they have so many rows: a batch costs 25 ms and more."""


@dataclass(frozen=True)
class ReplayRequest:
    """What is asked of a replay.

    Attributes:
        times: the event times whose rows are compared.
        evaluations: whether evaluations are compared too, where the job writes them.
        cuts: `recorded` scores batch by batch, `joined` joins small batches; `auto` joins them, and scores again batch
            by batch where something differs.
        processes: how many score the shards.
    """

    times: TimeRange = ANY_TIME
    evaluations: bool = False
    cuts: CutChoice = "auto"
    processes: int = 1


def replay(
    conf: str | Path,
    begin: datetime | None = None,
    end: datetime | None = None,
    evaluations: bool = False,
    cuts: CutChoice = "auto",
    processes: int = 1,
) -> Replayed:
    """Score again what has arrived at a job, and compare with what it has recorded, as `buckets replay` does.

    Args:
        conf: the job's configuration, with `archive`.
        begin: the first event time whose rows are compared; UTC where it has no zone.
        end: the first event time that is not compared any more.
        evaluations: whether evaluations are compared too, where the job writes them.
        cuts: as in `ReplayRequest`.
        processes: how many score. More than one start Python again, so a script then calls this below
            `if __name__ == "__main__"`.

    Raises:
        BucketsError: something is missing that is needed to score again or to compare, or no event is in that time.
    """
    times = TimeRange(*(None if moment is None else moment_ms(moment) for moment in (begin, end)))
    request = ReplayRequest(times, evaluations, cuts, processes)
    return replay_history(History.open(load_job(Path(conf))), request)


def replay_history(
    history: History,
    request: ReplayRequest,
    on_piece: Callable[[Replayed], None] = lambda replayed: None,
    say: Callable[[str], None] = lambda line: None,
) -> Replayed:
    """Score the archive of a job again, and compare.

    Args:
        history: of the job; its archive has been extended.
        request: what is asked.
        on_piece: called after each piece, with what has been found so far.
        say: told a line when all is scored a second time.

    Raises:
        BucketsError: something is missing that is needed to score again or to compare, or no event is in that time.
    """
    rows = recorded_rows(history.job, request.evaluations)
    not_compared = check_whole(history, request.times)
    last_batch = last_batch_within(history, request.times)
    batches = sum(cut.span is not None and cut.batch_id <= last_batch for cut in history.recorded.cuts)
    begun = partial(
        Replayed,
        last_batch=last_batch,
        batches=batches,
        not_compared=not_compared,
        evicts_otherwise=_evicts_otherwise(history),
    )
    replayed = begun(_first_cuts(history, request))
    _replay(history, request, rows, replayed, on_piece)
    if request.cuts == "auto" and replayed.cut_as == "joined" and replayed.differences:
        say(f"{len(replayed.differences):,} rows differ with joined batches; scoring again, batch by batch")
        replayed = begun("recorded")
        _replay(history, request, rows, replayed, on_piece)
    if replayed.missing and replayed.may_evict_otherwise and not request.evaluations:
        count = f"{len(replayed.missing):,}"
        say(f"{count} alerts did not come out; scoring again, to see whether their windows were complete")
        replayed = begun(replayed.cut_as, missing=replayed.missing)
        _replay(history, request, rows, replayed, on_piece)
    return replayed


def _evicts_otherwise(history: History) -> bool:
    """Return whether the job has evicted keys at moments that a replay does not know."""
    recorded = history.recorded
    was_filled = recorded.rule_set(recorded.cuts[-1].ruleset_version).fills_begun > 0
    return was_filled or bool(Checkpoint(history.job.checkpoint).imports.read())


def _first_cuts(history: History, request: ReplayRequest) -> CutAs:
    """Return how the archive is cut at first."""
    if request.cuts != "auto":
        return request.cuts
    batches, rows = len(history.recorded.cuts), history.archive.end()
    return "recorded" if batches <= FEW_BATCHES or rows / batches >= LARGE_BATCH_ROWS else "joined"


def _replay(
    history: History,
    request: ReplayRequest,
    rows: RecordedRows,
    replayed: Replayed,
    on_piece: Callable[[Replayed], None],
) -> None:
    """Score all of it once, and enter what is found."""
    tables = ReplayedTables(history, request.times, rows, replayed)
    with TemporaryDirectory() as folder:
        pieces = pieces_of(history, ReplayedFills(history, Path(folder)), replayed.cut_as, replayed.last_batch)
        for scored in score_pieces(pieces, request.evaluations or bool(replayed.missing), request.processes):
            replayed.events += scored.account.events_in
            tables.take(scored)
            on_piece(replayed)
    tables.compare(history.recorded.cuts[-1].batch_id if replayed.not_compared is None else replayed.last_batch)
    # The job may run meanwhile, and its next batch have written something.
    cuts = Checkpoint(history.job.checkpoint).cuts.read()
    tables.note_strangers((cuts[0].batch_id, cuts[-1].batch_id + 1))
