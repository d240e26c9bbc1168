"""The archive scored once more by what it was scored by then, and what comes out compared with what was recorded.

    archive, cuts ---> pieces ---> score_pieces ---> rows --- differences ---> a report
                                        job's tables ---> rows ---'

Scoring begins with the first batch, since timelines and policies depend on all that came before, and ends with the
last
batch that holds an event of the time that is asked for.

The rows that come out of a replay, gathered and compared with those that the job has recorded.
What must be there for a replay.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import pyarrow as pa

from buckets.archive.archive import BATCH, POSITION, SOURCE
from buckets.archive.archiving import History
from buckets.checkpoint.cuts import Cut
from buckets.checkpoint.driver_state import Checkpoint
from buckets.config.job import load_job
from buckets.delta.whole_table import is_between
from buckets.errors import BucketsError
from buckets.history.replay.differences import RowDifference, differences
from buckets.history.replay.recorded_rows import ComparedRows, RecordedRows, recorded_rows
from buckets.history.replay.replayed import CutAs, Replayed, ReplayedFills, pieces_of
from buckets.history.scoring.scoring import ScoredPiece, score_pieces
from buckets.moment import ANY_TIME, TimeRange, moment_ms
from buckets.outputs import columns
from buckets.rules.rule import Rule

COMPARED_BYTES = 1 << 28
"""So much of what came out is compared at once, where what is recorded can be read a few batches at a time."""


class ReplayedTables:
    """Gathers what comes out, and compares so much of it at once that memory is bounded where that can be."""

    def __init__(self, history: History, times: TimeRange, rows: RecordedRows, replayed: Replayed) -> None:
        """Gather nothing yet; `replayed` is told what is found."""
        self._kind = history.job.settings.output.kind
        self._rows, self._replayed, self._recorded = rows, replayed, history.recorded
        self._range = ComparedRows(times, (0, -1))
        if not rows.by_batch:
            self._range = replace(self._range, ends=_ends(history, replayed.last_batch))
        self._tables: dict[str, list[pa.Table]] = {output: [] for output in rows.outputs}
        self._bytes = 0

    def take(self, scored: ScoredPiece) -> None:
        """Take what came out of the next piece."""
        piece = scored.piece
        for output, tables in self._tables.items() if piece.terms.output == self._kind else ():
            if output in scored.results.payloads and (output != columns.EVALUATIONS or piece.terms.evaluations):
                table = self._range.chosen(self._rows.replayed(output, scored))
                tables.append(table)
                self._bytes += table.nbytes
        if self._replayed.missing and columns.EVALUATIONS in scored.results.payloads:
            self._replayed.cold.note_evaluations(scored.table(columns.EVALUATIONS), self._replayed.missing)
        if self._rows.by_batch and self._bytes > COMPARED_BYTES:
            self.compare(piece.batches[1])

    def compare(self, last_batch: int) -> None:
        """Compare what has been gathered with what is recorded up to a batch."""
        self._range = replace(self._range, batches=(self._range.batches[0], last_batch))
        found: list[RowDifference] = []
        for output, tables in self._tables.items():
            recorded = self._rows.recorded(output, self._range)
            self._replayed.compared[output] += len(recorded)
            found += differences(output, recorded, self._rows.joined(output, tables))
            tables.clear()
        self._replayed.note(found, self._rule_of)
        self._bytes = 0
        self._range = replace(self._range, batches=(last_batch + 1, last_batch))

    def _rule_of(self, difference: RowDifference) -> Rule | None:
        """Return the rule of a row as it was then; None where the job never had it, or the row is of no rule."""
        if "rule_id" not in difference.row:
            return None
        version = difference.row["ruleset_version"]
        if all(cut.ruleset_version != version for cut in self._recorded.cuts):
            return None
        rules = self._recorded.rule_set(version).rules
        return next((rule for rule in rules if rule.rule_id == difference.row["rule_id"]), None)

    def note_strangers(self, batches: tuple[int, int]) -> None:
        """Note rows whose batch is none of these, which are all that the job has had."""
        for output in self._tables:
            recorded = self._rows.of_no_batch(output, self._range, batches)
            self._replayed.compared[output] += len(recorded)
            self._replayed.note_strangers(differences(output, recorded, recorded.slice(0, 0)))


def _ends(history: History, last_batch: int) -> dict[str, int]:
    """Return by source the last position that is archived."""
    asked = f"select {SOURCE}, max({POSITION}) as last from archive where {BATCH} <= {last_batch} group by {SOURCE}"
    table = history.archive.query(asked)
    return dict(zip(table[SOURCE].to_pylist(), table["last"].to_pylist(), strict=True))


def check_whole(history: History, times: TimeRange) -> int | None:
    """See that the archive has all that was scored, from the first batch on.

    Returns:
        The last batch that is recorded, where the archive ends before it.

    Raises:
        BucketsError: it has not.
    """
    archive, recorded = history.archive, history.recorded
    if recorded.before is not None:
        message = (
            f"the batches up to {recorded.before.batch_id} are not in the archive: `buckets audit` has not kept all of "
            "their messages; only a job that is archived from its beginning can be replayed"
        )
        raise BucketsError(message)
    _check_names(history)
    _check_lists(history)
    end, last = archive.last_batch(), max((cut.batch_id for cut in recorded.cuts if cut.span), default=None)
    if end is None:
        message = f"archive {archive.folder}: holds nothing; the job has not scored anything that could be archived"
        raise BucketsError(message)
    if last is None or end[0] >= last:
        return None
    if times.until_ms is None:
        message = history.obstacle or (
            f"archive {archive.folder}: ends with batch {end[0]}, and the job has written batch {last}; "
            "wait until `buckets audit` has read the topic, or compare what is earlier with --to"
        )
        raise BucketsError(message)
    return last


def _check_names(history: History) -> None:
    """See that fields have had the same names all the time."""
    renamed = next((made for made in Checkpoint(history.job.checkpoint).imports.read() if made.names), None)
    if renamed is not None:
        old, new = next(iter(renamed.names.items()))
        message = (
            f"field {old} is called {new} since batch {renamed.batch_id + 1}, where state was imported; history under "
            f"other names cannot be replayed: replay the job before the import, on checkpoint {renamed.checkpoint}"
        )
        raise BucketsError(message)


def _check_lists(history: History) -> None:
    """See that the lists of all batches are still there."""
    lists = Checkpoint(history.job.checkpoint).lists
    first: dict[str, Cut] = {}
    for cut in history.recorded.cuts:
        for name in cut.lists:
            first.setdefault(name, cut)
    for name, cut in first.items():
        if not lists.is_kept(name, cut.lists[name]):
            message = (
                f"batch {cut.batch_id} saw version {cut.lists[name]} of list {name}, which is not kept any more: "
                "versions of lists are kept for good from the time when the configuration got its `archive`"
            )
            raise BucketsError(message)


def last_batch_within(history: History, times: TimeRange) -> int:
    """Return the last batch that holds an event of some time.

    Raises:
        BucketsError: there is none.
    """
    last_terms = history.recorded.terms(history.recorded.cuts[-1].batch_id)
    tests = ["true", *is_between(last_terms.event_schema.event_time.field, times)]
    last = history.archive.query(f"select max({BATCH}) as last from archive where {' and '.join(tests)}")["last"][0]
    if last.as_py() is None:
        message = f"archive {history.archive.folder}: no event has happened in that time; ask for another one"
        raise BucketsError(message)
    return int(last.as_py())


CutChoice = Literal["auto", "recorded", "joined"]
FEW_BATCHES = 20
LARGE_BATCH_ROWS = 200_000
"""Batches are not joined where there are few of them, or where they have so many rows: a batch costs 25 ms and more."""


@dataclass(frozen=True)
class ReplayRequest:
    """What is asked of a replay."""

    times: TimeRange = ANY_TIME  # the event times whose rows are compared
    evaluations: bool = False  # whether evaluations are compared too, where the job writes them
    # `recorded` scores batch by batch, `joined` joins small batches; `auto` joins them, and scores again batch by batch
    # where something differs
    cuts: CutChoice = "auto"
    processes: int = 1  # how many score the shards


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
