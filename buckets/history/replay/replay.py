"""Scores the archive again with the original rules and settings, and compares the results with the recorded ones.

    archive, cuts ---> pieces ---> score_pieces ---> rows --- differences ---> a report
                                        job's tables ---> rows ---'

Scoring begins with the first batch, since timelines and policies depend on all earlier events, and ends with the last
batch that holds an event of the requested time.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.archive.arrived_rows import BATCH, FAULT, POSITION, SOURCE
from buckets.archive.history import History, RecordedBatches
from buckets.audit.tables import Table, audit_tables
from buckets.checkpoint.driver_state import Checkpoint
from buckets.config.job import Job, load_job, results_folder
from buckets.delta.whole_table import inside, is_between, is_table, moments_ms
from buckets.errors import BucketsError
from buckets.history.replay.replayed import CutAs, Replayed, RowDifference, differences, replayed_pieces
from buckets.history.scoring import PutOut, ScoreArchive, ScoredPiece, score_archive
from buckets.moment import ANY_TIME, TimeRange, moment_ms
from buckets.outputs import columns
from buckets.outputs.contract import MOMENT, OTHER_FIELDS, Contract
from buckets.outputs.messages import Messages
from buckets.outputs.recorded_outputs import Selection, output_table
from buckets.rules.rule import Rule

_AUDIT_FIRST = "run `buckets audit CONF --once` first, or put its folder back"
_NOT_COMPARED = ("version", "ingested_at", "decided_at", OTHER_FIELDS)
"""Fields of messages that are not compared: the version of their schema, and processing times."""


def recorded_rows(job: Job, evaluations: bool) -> "OutputTables":
    """Open the recorded results of a job."""
    settings = job.settings
    folder, is_output = results_folder(job), settings.output.folder is not None
    outputs = [name for name in columns.replayed_outputs(evaluations) if is_output or name in columns.TOPICS]
    gone = next((name for name in outputs if not is_table(folder / name)), None)
    if gone == columns.EVALUATIONS and not settings.output.evaluations:
        message = f"results {folder}: the job writes no evaluations to compare with; leave --evaluations out"
        raise BucketsError(message)
    if gone is not None:
        remedy = "put the output folder back" if is_output else _AUDIT_FIRST
        message = f"results {folder}: there is no table {gone} to compare with; {remedy}"
        raise BucketsError(message)
    scale = job.event_schema.largest_scale
    return OutputTables(folder, outputs, scale) if is_output else AuditedTables(folder, outputs, scale)


@dataclass(frozen=True)
class OutputTables:
    """The output folder of a job, whose rows have batch numbers, so that a few batches can be read at a time."""

    folder: Path
    outputs: Sequence[str]
    largest_scale: int
    by_batch: ClassVar[bool] = True

    def recorded(self, output: str, wanted: Selection) -> pa.Table:
        """Return rows of an output; columns that the table lacks are null."""
        schema = self.schema(output)
        return output_table(self.folder / output, schema.names, wanted).cast(schema)

    def replayed(self, output: str, scored: ScoredPiece) -> pa.Table:
        """Return the rows in the form in which they would be written."""
        schema = self.schema(output)
        return scored.table(output).select(schema.names).cast(schema)

    def joined(self, output: str, replayed: Sequence[pa.Table]) -> pa.Table:
        """Join the rows of pieces."""
        return pa.concat_tables([self.schema(output).empty_table(), *replayed])

    def schema(self, output: str) -> pa.Schema:
        """Return the columns to compare."""
        written = columns.columns_of(output, self.largest_scale)
        kept = [field for field in written if field.name != "source_order"]
        return pa.schema([pa.field(field.name, MOMENT if field.type == columns.TIME else field.type) for field in kept])


@dataclass(frozen=True)
class AuditedTables(OutputTables):
    """The tables of an audit, whose messages do not name the batch that sent them."""

    # by source (a partition of a topic), the last position that is archived: messages about later ones do not count
    ends: Mapping[str, int] = field(default_factory=dict)
    by_batch = False

    @cached_property
    def _tables(self) -> dict[str, tuple[Table, Contract]]:
        tables = audit_tables(self.outputs, self.largest_scale)
        return {name: (table, table.contract) for name, table in tables.items() if table.contract is not None}

    def recorded(self, output: str, wanted: Selection) -> pa.Table:
        """Return the messages of an output about archived arrivals."""
        rows = super().recorded(output, wanted)
        last = pc.index_in(rows["source"], pa.array(list(self.ends), pa.string()))
        ends = pa.array(list(self.ends.values()), pa.int64()).take(last)
        return rows.filter(pc.fill_null(pc.less_equal(rows["position"], ends), False))

    def replayed(self, output: str, scored: ScoredPiece) -> pa.Table:
        """Return the messages in the form in which they would be sent and read."""
        schema, (_, contract) = self.schema(output), self._tables[output]
        messages = Messages(scored.piece.rule_set, scored.piece.terms.event_schema)
        rows = [contract.read(message.value.encode()) for message in messages.of(output, scored.table(output), 0)]
        arrays = [pa.array([row[name] for row in rows], schema.field(name).type) for name in schema.names]
        return pa.table(arrays, schema=schema)

    def joined(self, output: str, replayed: Sequence[pa.Table]) -> pa.Table:
        """Join the messages of pieces, without repeats, as the tables have them."""
        whole, identity = super().joined(output, replayed), self._tables[output][0].identity
        first = whole.select([identity]).append_column("row", pa.array(np.arange(len(whole))))
        rows = first.group_by(identity, use_threads=False).aggregate([("row", "min")])["row_min"]
        return whole.take(rows)

    def schema(self, output: str) -> pa.Schema:
        """Return the columns to compare."""
        table, contract = self._tables[output]
        names = [field.name for field in contract.fields if field.name not in _NOT_COMPARED]
        types = {column.name: column.type for column in table.columns}
        return pa.schema([pa.field(name, types[name]) for name in names])


COMPARED_BYTES = 1 << 28
"""Replayed rows are compared in portions of this size, if recorded rows can be read a few batches at a time."""


class ReplayedPiece(NamedTuple):
    """The results of a piece."""

    events: int  # how many events were scored
    last_batch: int  # the last batch of the piece
    tables: Mapping[str, pa.Table]  # by output, the rows that are compared
    cold: pa.Table | None  # rule, event and key of evaluations whose windows were incomplete; None without evaluations


def replayed_in(kind: str, times: TimeRange, rows: OutputTables, scored: ScoredPiece) -> ReplayedPiece:
    """Return the results of a piece, for a job with a kind of output; any process may call it."""
    piece, tables, cold = scored.piece, {}, None
    for output in rows.outputs if piece.terms.output == kind else ():
        if output in scored.results.payloads and (output != columns.EVALUATIONS or piece.terms.evaluations):
            table = rows.replayed(output, scored)
            is_all = times == ANY_TIME
            tables[output] = table if is_all else table.filter(inside(moments_ms(table["event_time"]), times))
    if columns.EVALUATIONS in scored.results.payloads:
        evaluations = scored.table(columns.EVALUATIONS)
        cold = evaluations.filter(pc.invert(evaluations["warm"])).select(["rule_id", "event_id", "key"])
    return ReplayedPiece(scored.results.account.events_in, piece.batches[1], tables, cold)


class ReplayedTables:
    """Collects results, and compares them in portions that bound memory where possible."""

    def __init__(self, history: History, times: TimeRange, rows: OutputTables, replayed: Replayed) -> None:
        self._times, self._rows, self._replayed, self._recorded = times, rows, replayed, history.recorded
        self._tables: dict[str, list[pa.Table]] = {output: [] for output in rows.outputs}
        self._bytes = self._first_batch = 0

    def take(self, found: "ReplayedPiece") -> None:
        """Add the results of the next piece."""
        self._replayed.events += found.events
        for output, table in found.tables.items():
            self._tables[output].append(table)
            self._bytes += table.nbytes
        if found.cold is not None:
            self._replayed.note_cold(found.cold)
        if self._rows.by_batch and self._bytes > COMPARED_BYTES:
            self.compare(found.last_batch)

    def compare(self, last_batch: int) -> None:
        """Compare the collected results with those recorded up to a batch."""
        tests = [f"batch_id between {self._first_batch} and {last_batch}"] if self._rows.by_batch else []
        found: list[RowDifference] = []
        for output, tables in self._tables.items():
            recorded = self._rows.recorded(output, Selection({}, self._times, tests))
            self._replayed.compared[output] += len(recorded)
            found += differences(output, recorded, self._rows.joined(output, tables))
            tables.clear()
        self._replayed.note(found, self._rule_of)
        self._bytes, self._first_batch = 0, last_batch + 1

    def _rule_of(self, difference: RowDifference) -> Rule | None:
        """Return the rule of a row at that time; None if the job never had it, or the row has no rule."""
        row = difference.row
        if "rule_id" not in row or all(cut.ruleset_version != row["ruleset_version"] for cut in self._recorded.cuts):
            return None
        rules = self._recorded.rule_set(row["ruleset_version"]).rules
        return next((rule for rule in rules if rule.rule_id == row["rule_id"]), None)

    def note_strangers(self, first_batch: int, last_batch: int) -> None:
        """Note rows that claim to be from a batch outside this range, which covers all batches of the job."""
        outside = f"(batch_id is null or batch_id < {first_batch} or batch_id > {last_batch})"
        for output in self._tables if self._rows.by_batch else ():
            recorded = self._rows.recorded(output, Selection({}, self._times, [outside]))
            self._replayed.compared[output] += len(recorded)
            self._replayed.note_strangers(differences(output, recorded, recorded.slice(0, 0)))


def _ends(history: History, last_batch: int) -> dict[str, int]:
    """Return by source the last archived position."""
    asked = f"select {SOURCE}, max({POSITION}) as last from archive where {BATCH} <= {last_batch} group by {SOURCE}"
    table = history.archive.query(asked)
    return dict(zip(table[SOURCE].to_pylist(), table["last"].to_pylist(), strict=True))


def check_whole(history: History) -> None:
    """Check that the archive holds all scored arrivals, from the first batch on."""
    archive, recorded = history.archive, history.recorded
    if recorded.before is not None:
        message = (
            f"the batches up to {recorded.before.batch_id} are not in the archive, which was configured after them; "
            "only a job that is archived from its beginning can be replayed"
        )
        raise BucketsError(message)
    _check_lists(Checkpoint(history.job.checkpoint), recorded)
    if not archive.end():
        message = f"archive {archive.folder}: holds nothing; the job has not scored anything that could be archived"
        raise BucketsError(message)


def _check_lists(checkpoint: Checkpoint, recorded: RecordedBatches) -> None:
    first = {name: cut for cut in reversed(recorded.cuts) for name in cut.lists}
    for name, cut in first.items():
        if not checkpoint.lists.is_kept(name, cut.lists[name]):
            message = (
                f"batch {cut.batch_id} saw version {cut.lists[name]} of list {name}, which is not kept any more: "
                "versions of lists are kept for good from the time when the configuration got its `archive`"
            )
            raise BucketsError(message)


def last_batch_within(history: History, times: TimeRange) -> int:
    """Return the last batch that holds an event of these times."""
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
"""Few batches, or batches of at least this size, are not joined: each costs at least 25 ms."""


def replay(
    conf: str | Path,
    begin: datetime | None = None,
    end: datetime | None = None,
    evaluations: bool = False,
    cuts: CutChoice = "auto",
) -> Replayed:
    """Score a job's arrivals again, and compare with its recorded results, as `buckets replay` does.

    Args:
        conf: the job's configuration, with `archive`.
        begin: the first event time whose rows are compared; UTC where it has no zone.
        end: the first event time that is not compared any more.
        evaluations: whether evaluations are compared too, where the job writes them.
        cuts: `recorded` scores batch by batch, `joined` joins small batches; `auto` joins them, and scores again batch
            by batch where something differs.

    Raises:
        BucketsError: something is missing that is needed to score again or to compare, or no event is in that time.
    """
    times = TimeRange(*(None if moment is None else moment_ms(moment) for moment in (begin, end)))
    return replay_history(History.open(load_job(Path(conf))), times, evaluations, cuts)


def replay_history(
    history: History,
    times: TimeRange = ANY_TIME,
    evaluations: bool = False,
    cuts: CutChoice = "auto",
    on_piece: Callable[[Replayed], None] = lambda replayed: None,
    say: Callable[[str], None] = lambda line: None,
    score: ScoreArchive = score_archive,
) -> Replayed:
    """Score the archive of a job again, and compare, as `replay` does.

    `on_piece` is called after each piece with the findings so far; `say` gets a line if everything is scored again;
    `score` does the scoring.
    """
    rows = recorded_rows(history.job, evaluations)
    check_whole(history)
    last_batch, recorded = last_batch_within(history, times), history.recorded
    if isinstance(rows, AuditedTables):
        rows = replace(rows, ends=_ends(history, last_batch))
    counted = (
        f"select count(distinct {BATCH}) as batches from archive where {BATCH} <= {last_batch} and {FAULT} is null"
    )
    batches = history.archive.query(counted)["batches"][0].as_py()
    # After a backfill or an import of state, a replay does not know when the job evicted keys.
    was_filled = recorded.rule_set(recorded.cuts[-1].ruleset_version).fills_begun > 0
    evicts_otherwise = was_filled or bool(Checkpoint(history.job.checkpoint).imports.read())

    def scored_again(cut_as: CutAs, missing: Iterable[tuple[str, str, str]] = ()) -> Replayed:
        """Score the whole archive once, and compare."""
        may_differ = cut_as == "joined" or evicts_otherwise
        replayed = Replayed(cut_as, last_batch, batches, may_differ, recorded.after, missing=set(missing))
        tables = ReplayedTables(history, times, rows, replayed)
        with TemporaryDirectory() as folder:
            pieces = replayed_pieces(history, Path(folder), cut_as, last_batch)
            found_in = partial(replayed_in, history.job.settings.output.kind, times, rows)
            put_out: PutOut = "evaluations" if evaluations or missing else "alerts"
            for found in score(pieces, put_out, found_in):
                tables.take(found)
                on_piece(replayed)
        tables.compare(recorded.cuts[-1].batch_id)
        # The job may be running, and its next batch may have written rows.
        written = Checkpoint(history.job.checkpoint).cuts.read()
        tables.note_strangers(written[0].batch_id, written[-1].batch_id + 1)
        return replayed

    is_large = history.archive.end() / len(recorded.cuts) >= LARGE_BATCH_ROWS
    usual: CutAs = "recorded" if len(recorded.cuts) <= FEW_BATCHES or is_large else "joined"
    replayed = scored_again(usual if cuts == "auto" else cuts)
    if cuts == "auto" and replayed.cut_as == "joined" and replayed.differences:
        say(f"{len(replayed.differences):,} rows differ with joined batches; scoring again, batch by batch")
        replayed = scored_again("recorded")
    if replayed.missing and replayed.evicts_otherwise and not evaluations:
        count = f"{len(replayed.missing):,}"
        say(f"{count} alerts did not come out; scoring again, to see whether their windows were complete")
        replayed = scored_again(replayed.cut_as, replayed.missing)
    return replayed
