"""The archive scored once more by what it was scored by then, and what comes out compared with what was recorded.

    archive, cuts ---> pieces ---> score_pieces ---> rows --- differences ---> a report
                                        job's tables ---> rows ---'

Scoring begins with the first batch, since timelines and policies depend on all that came before, and ends with the last
batch that holds an event of the time that is asked for.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from buckets.archive.archive import BATCH, POSITION, SOURCE
from buckets.archive.history import History
from buckets.checkpoint.checkpoint import Checkpoint
from buckets.checkpoint.cuts import Cut
from buckets.config.job import load_job
from buckets.delta.query import is_between
from buckets.errors import BucketsError
from buckets.history.replay.differences import KINDS, Difference, Kind, differences
from buckets.history.replay.pieces import CutAs, pieces_of
from buckets.history.replay.recorded_rows import ComparedRows, RecordedRows, recorded_rows
from buckets.history.replay.replayed_fills import ReplayedFills
from buckets.history.scoring.scoring import ScoredPiece, score_pieces
from buckets.moment import ANY_TIME, TimeRange, moment_ms
from buckets.outputs import columns
from buckets.outputs.recorded_outputs import ALERT_OUTPUTS
from buckets.rules.rule import Rule

CutChoice = Literal["auto", "recorded", "joined"]
FEW_BATCHES = 20
LARGE_BATCH_ROWS = 200_000
"""Batches are not joined where there are few of them, or where they have so many rows: a batch costs 25 ms and more."""
COMPARED_BYTES = 1 << 28
"""So much of what came out is compared at once, where what is recorded can be read a few batches at a time."""
KEPT = 10_000
"""The most differences that are kept; all are counted."""


@dataclass(frozen=True)
class Wanted:
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


@dataclass
class Replayed:
    """What a replay has found.

    Attributes:
        cut_as: whether batches were scored as they were cut, or joined.
        last_batch: the last batch that was scored.
        batches: how many batches that are.
        not_compared: the last batch that is recorded, where that is after what is archived.
        events: how many arrivals were scored.
        compared: by output, how many recorded rows were compared.
        of_output: by output, how many differences there are.
        counts: how many differences there are of each kind; those that `eviction` counts are not among them.
        evicts_otherwise: whether idle keys may be evicted at another moment than in the job: with joined batches, and
            where history was filled in bit by bit, or state was imported.
        eviction: if so, how many rows differ where one side says `warm: false`, or because another row does so: alerts
            of the same rule and key, of which policies remember others, and all of rules over alerts. It is no fault of
            the records.
        differences: the first of all of these.
        missing: rule, event and key of alerts that did not come out, where it is not known that this is of eviction.
    """

    cut_as: CutAs
    last_batch: int
    batches: int
    not_compared: int | None
    evicts_otherwise: bool = False
    events: int = 0
    compared: Counter[str] = field(default_factory=Counter)
    of_output: Counter[str] = field(default_factory=Counter)
    counts: Counter[Kind] = field(default_factory=Counter)
    eviction: int = 0
    differences: list[Difference] = field(default_factory=list)
    missing: set[tuple[str, str, str]] = field(default_factory=set)
    _cold: set[tuple[str, str]] = field(default_factory=set)
    """Rules and keys of which a row differs that says `warm: false`."""

    @property
    def may_evict_otherwise(self) -> bool:
        """Whether idle keys may have been evicted at another moment than in the job."""
        return self.cut_as == "joined" or self.evicts_otherwise

    @property
    def is_equal(self) -> bool:
        """Whether all that is recorded came out again, and nothing else."""
        return not any(self.counts[kind] for kind in KINDS)

    def note(self, found: list[Difference], rule_of: Callable[[Difference], Rule | None]) -> None:
        """Take differences into account.

        Args:
            found: of all outputs, so that what one follows from is among them or came before.
            rule_of: gives the rule of a row as it was then; None where the job never had it.
        """
        self._cold.update((each.row["rule_id"], each.row["key"]) for each in found if each.is_cold)
        for each in found:
            if self.may_evict_otherwise and self._is_of_eviction(each, rule_of(each)):
                self.eviction += 1
                continue
            self.counts[each.kind] += 1
            if each.kind == "recorded_only" and each.output in ALERT_OUTPUTS:
                self.missing.add((each.row["rule_id"], each.row["event_id"], each.row["key"]))
        self._keep(found)

    def note_evaluations(self, evaluations: pa.Table) -> None:
        """Take into account which missing alerts are of windows that were not complete when they were scored again."""
        cold = evaluations.filter(pc.invert(evaluations["warm"])).select(["rule_id", "event_id", "key"])
        for row in cold.to_pylist():
            if tuple(row.values()) in self.missing:
                self._cold.add((row["rule_id"], row["key"]))

    def note_strangers(self, found: list[Difference]) -> None:
        """Take rows into account whose batch the job never had."""
        self.counts.update(each.kind for each in found)
        self._keep(found)

    def _keep(self, found: list[Difference]) -> None:
        self.of_output.update(each.output for each in found)
        self.differences += found[: KEPT - len(self.differences)]

    def _is_of_eviction(self, each: Difference, rule: Rule | None) -> bool:
        """Return whether rows differ because a key was evicted at another moment."""
        if each.is_cold or not self._cold or rule is None:
            return each.is_cold
        if rule.on == "alerts":
            return True
        goes_by_alerts = each.output != columns.EVALUATIONS or rule.reset_on_alert
        return goes_by_alerts and (each.row["rule_id"], each.row["key"]) in self._cold


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
        cuts: as in `Wanted`.
        processes: how many score. More than one start Python again, so a script then calls this below
            `if __name__ == "__main__"`.

    Raises:
        BucketsError: something is missing that is needed to score again or to compare, or no event is in that time.
    """
    times = TimeRange(*(None if moment is None else moment_ms(moment) for moment in (begin, end)))
    wanted = Wanted(times, evaluations, cuts, processes)
    return replay_history(History.open(load_job(Path(conf))), wanted)


def replay_history(
    history: History,
    wanted: Wanted,
    on_piece: Callable[[Replayed], None] = lambda found: None,
    say: Callable[[str], None] = lambda line: None,
) -> Replayed:
    """Score the archive of a job again, and compare.

    Args:
        history: of the job; its archive has been extended.
        wanted: what is asked.
        on_piece: called after each piece, with what has been found so far.
        say: told a line when all is scored a second time.

    Raises:
        BucketsError: something is missing that is needed to score again or to compare, or no event is in that time.
    """
    rows = recorded_rows(history.job, wanted.evaluations)
    not_compared = _check_whole(history, wanted)
    last_batch = _last_batch(history, wanted)
    cut_as, otherwise = _first_cuts(history, wanted), _evicts_otherwise(history)
    batches = sum(cut.span is not None and cut.batch_id <= last_batch for cut in history.recorded.cuts)
    found = _replay(history, wanted, rows, Replayed(cut_as, last_batch, batches, not_compared, otherwise), on_piece)
    if wanted.cuts == "auto" and cut_as == "joined" and found.differences:
        say(f"{len(found.differences):,} rows differ with joined batches; scoring again, batch by batch")
        begun = Replayed("recorded", last_batch, batches, not_compared, otherwise)
        found = _replay(history, wanted, rows, begun, on_piece)
    if found.missing and found.may_evict_otherwise and not wanted.evaluations:
        say(
            f"{len(found.missing):,} alerts did not come out; scoring again, to see whether their windows were complete"
        )
        begun = Replayed(found.cut_as, last_batch, batches, not_compared, otherwise, missing=found.missing)
        found = _replay(history, wanted, rows, begun, on_piece)
    return found


def _evicts_otherwise(history: History) -> bool:
    """Whether the job has evicted keys at moments that a replay does not know."""
    recorded = history.recorded
    was_filled = recorded.rule_set(recorded.cuts[-1].ruleset_version).fills_begun > 0
    return was_filled or bool(Checkpoint(history.job.checkpoint).imports.read())


def _check_whole(history: History, wanted: Wanted) -> int | None:
    """See that the archive has all that was scored, from the first batch on.

    Returns:
        The last batch that is recorded, where the archive ends before it.

    Raises:
        BucketsError: it has not.
    """
    archive, recorded = history.archive, history.recorded
    if recorded.before is not None:
        message = (
            f"the batches up to {recorded.before.batch_id} were scored by a release that did not keep where it cut the "
            "stream; only a job that this release has run from its beginning can be replayed"
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
    if wanted.times.until_ms is None:
        message = (
            f"archive {archive.folder}: ends with batch {end[0]}, and the job has written batch {last}; "
            "wait until `buckets audit` has read the topic, or compare what is earlier with --to"
        )
        raise BucketsError(message)
    return last


def _check_names(history: History) -> None:
    """See that fields have had the same names all the time.

    Raises:
        BucketsError: state was imported with other names.
    """
    renamed = next((each for each in Checkpoint(history.job.checkpoint).imports.read() if each.names), None)
    if renamed is not None:
        old, new = next(iter(renamed.names.items()))
        message = (
            f"field {old} is called {new} since batch {renamed.batch_id + 1}, where state was imported; history under "
            f"other names cannot be replayed: replay the job before the import, on checkpoint {renamed.checkpoint}"
        )
        raise BucketsError(message)


def _check_lists(history: History) -> None:
    """See that the lists of all batches are still there.

    Raises:
        BucketsError: some are not.
    """
    lists = Checkpoint(history.job.checkpoint).lists
    first: dict[str, Cut] = {}
    for cut in history.recorded.cuts:
        first |= {name: cut for name in cut.lists if name not in first}
    for name, cut in first.items():
        if not lists.is_kept(name, cut.lists[name]):
            message = (
                f"batch {cut.batch_id} saw version {cut.lists[name]} of list {name}, which is not kept any more: "
                "versions of lists are kept for good from the time when the configuration got its `archive`"
            )
            raise BucketsError(message)


def _last_batch(history: History, wanted: Wanted) -> int:
    """The last batch that matters.

    Raises:
        BucketsError: there is no event in the time that is asked for.
    """
    last_terms = history.recorded.terms(history.recorded.cuts[-1].batch_id)
    tests = ["true", *is_between(last_terms.event_schema.event_time.field, wanted.times)]
    last = history.archive.query(f"select max({BATCH}) as last from archive where {' and '.join(tests)}")["last"][0]
    if last.as_py() is None:
        message = f"archive {history.archive.folder}: no event has happened in that time; ask for another one"
        raise BucketsError(message)
    return int(last.as_py())


def _first_cuts(history: History, wanted: Wanted) -> CutAs:
    """How the archive is cut at first."""
    if wanted.cuts != "auto":
        return wanted.cuts
    batches, rows = len(history.recorded.cuts), history.archive.end()
    return "recorded" if batches <= FEW_BATCHES or rows / batches >= LARGE_BATCH_ROWS else "joined"


def _replay(
    history: History, wanted: Wanted, rows: RecordedRows, found: Replayed, on_piece: Callable[[Replayed], None]
) -> Replayed:
    comparison = _ReplayedTables(history, wanted, rows, found)
    with TemporaryDirectory() as folder:
        pieces = pieces_of(history, ReplayedFills(history, Path(folder)), found.cut_as, found.last_batch)
        for scored in score_pieces(pieces, wanted.evaluations or bool(found.missing), wanted.processes):
            found.events += scored.account.events_in
            comparison.take(scored)
            on_piece(found)
    comparison.end(history.recorded.cuts[-1].batch_id if found.not_compared is None else found.last_batch)
    # The job may run meanwhile, and its next batch have written something.
    cuts = Checkpoint(history.job.checkpoint).cuts.read()
    comparison.strangers((cuts[0].batch_id, cuts[-1].batch_id + 1))
    return found


class _ReplayedTables:
    """Gathers what comes out, and compares so much of it at once that memory is bounded where that can be."""

    def __init__(self, history: History, wanted: Wanted, rows: RecordedRows, found: Replayed) -> None:
        self._kind = history.job.settings.output.kind
        self._rows, self._found, self._recorded = rows, found, history.recorded
        self._span = ComparedRows(wanted.times, (0, -1))
        if not rows.by_batch:
            self._span = replace(self._span, ends=_ends(history, found.last_batch))
        outputs = (*ALERT_OUTPUTS, columns.EVALUATIONS) if wanted.evaluations else ALERT_OUTPUTS
        self._replayed: dict[str, list[pa.Table]] = {output: [] for output in outputs}
        self._bytes = 0

    def take(self, scored: ScoredPiece) -> None:
        """Take what came out of the next piece."""
        piece = scored.piece
        for output, tables in self._replayed.items() if piece.terms.output == self._kind else ():
            if output in scored.results.payloads and (output != columns.EVALUATIONS or piece.terms.evaluations):
                table = self._span.chosen(self._rows.replayed(output, scored))
                tables.append(table)
                self._bytes += table.nbytes
        if self._found.missing and columns.EVALUATIONS in scored.results.payloads:
            self._found.note_evaluations(scored.table(columns.EVALUATIONS))
        if self._rows.by_batch and self._bytes > COMPARED_BYTES:
            self.end(piece.batches[1])

    def end(self, last_batch: int) -> None:
        """Compare what has been gathered with what is recorded up to a batch."""
        self._span = replace(self._span, batches=(self._span.batches[0], last_batch))
        found: list[Difference] = []
        for output, tables in self._replayed.items():
            recorded = self._rows.recorded(output, self._span)
            self._found.compared[output] += len(recorded)
            found += differences(output, recorded, self._rows.joined(output, tables))
            tables.clear()
        self._found.note(found, self._rule_of)
        self._bytes = 0
        self._span = replace(self._span, batches=(last_batch + 1, last_batch))

    def _rule_of(self, each: Difference) -> Rule | None:
        """Return the rule of a row as it was then; None where the job never had it."""
        version = each.row["ruleset_version"]
        if all(cut.ruleset_version != version for cut in self._recorded.cuts):
            return None
        rules = self._recorded.rule_set(version).rules
        return next((rule for rule in rules if rule.rule_id == each.row["rule_id"]), None)

    def strangers(self, batches: tuple[int, int]) -> None:
        """Note rows whose batch the job never had."""
        for output in self._replayed:
            recorded = self._rows.of_no_batch(output, self._span, batches)
            self._found.compared[output] += len(recorded)
            self._found.note_strangers(differences(output, recorded, recorded.slice(0, 0)))


def _ends(history: History, last_batch: int) -> dict[str, int]:
    """By source, the last position that is archived."""
    asked = f"select {SOURCE}, max({POSITION}) as last from archive where {BATCH} <= {last_batch} group by {SOURCE}"
    table = history.archive.query(asked)
    return dict(zip(table[SOURCE].to_pylist(), table["last"].to_pylist(), strict=True))
