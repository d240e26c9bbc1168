"""The results of a replay: how much was compared, which rows differ, and which of them only because of eviction."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from buckets.archive.arrived_rows import BATCH, SOURCE_ORDER
from buckets.archive.history import History
from buckets.backfill.backfills import chunks_of_fill, rows_of_fill
from buckets.backfill.fill_chunks import ChunkFeed, FillChunks
from buckets.checkpoint.batch_ends import BatchEnd
from buckets.engine.stages.cross_group import FillSources
from buckets.history.scoring import NO_ROWS, ArchivePiece, ArchiveRows, Pieces, PieceSpan, spans_of
from buckets.moment import iso_text, moment_ms, time_text
from buckets.outputs import columns
from buckets.outputs.columns import identity_of
from buckets.outputs.recorded_outputs import ALERT_OUTPUTS
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet

ComparedRow = dict[str, Any]
DifferenceKind = Literal["recorded_only", "replayed_only", "different"]
_SIDE, _ROW = "side", "row"
_SEPARATOR = "\x1f"


@dataclass(frozen=True)
class RowDifference:
    """A row that differs between the two sides."""

    output: str  # its output
    # `recorded_only`: it did not come out again; `replayed_only`: it came out, and is not recorded; `different`: it is
    # on both sides, and some fields differ
    kind: DifferenceKind
    fields: tuple[str, ...]  # the fields that differ; none where it is on one side only
    recorded: ComparedRow | None  # the recorded row
    replayed: ComparedRow | None  # the row as it came out

    @property
    def row(self) -> ComparedRow:
        """The recorded row, or else the replayed one."""
        row = self.recorded if self.recorded is not None else self.replayed
        assert row is not None
        return row

    @property
    def is_cold(self) -> bool:
        """Whether one of the sides reports incomplete windows."""
        return any(row is not None and row.get("warm") is False for row in (self.recorded, self.replayed))


def differences(output: str, recorded: pa.Table, replayed: pa.Table) -> list[RowDifference]:
    """Compare rows of an output, with the same columns and types on both sides. Cost: O(rows).

    Differences are sorted by time, since the order of rows is not the same everywhere.
    """
    rows = _unmatched(recorded, replayed)
    only_recorded = recorded.take(pa.array(rows[rows < len(recorded)])).to_pylist()
    only_replayed = replayed.take(pa.array(rows[rows >= len(recorded)] - len(recorded))).to_pylist()
    return list(_paired(output, *(sorted(side, key=_by_time) for side in (only_recorded, only_replayed))))


def _by_time(row: ComparedRow) -> tuple[Any, ...]:
    return row["event_time"], *map(str, row.values())


def _unmatched(recorded: pa.Table, replayed: pa.Table) -> npt.NDArray[np.int64]:
    """Return the rows of both sides without an equal counterpart, in no order; the other side's are numbered on."""
    whole = pa.concat_tables([_plain(recorded), _plain(replayed)])
    # Copied, since Arrow warns about payloads with unaligned buffers.
    whole = whole.take(pa.array(np.arange(len(whole))))
    side = np.repeat(np.array([1, -1], np.int64), [len(recorded), len(replayed)])
    names = whole.column_names
    numbered = whole.append_column(_SIDE, pa.array(side)).append_column(_ROW, pa.array(np.arange(len(whole))))
    grouped = numbered.group_by(names).aggregate([(_SIDE, "sum"), (_ROW, "list")])
    left = grouped.filter(pc.not_equal(grouped[f"{_SIDE}_sum"], 0))
    unmatched: list[int] = []
    for excess, rows in zip(left[f"{_SIDE}_sum"].to_pylist(), left[f"{_ROW}_list"].to_pylist(), strict=True):
        of_side = [row for row in rows if (row < len(recorded)) == (excess > 0)]
        unmatched += of_side[-abs(excess) :]
    return np.array(unmatched, np.int64)


def _plain(table: pa.Table) -> pa.Table:
    """Return a table with columns that can be grouped by: lists of texts become texts."""
    for index, column in enumerate(table.schema):
        if pa.types.is_list(column.type):
            table = table.set_column(index, column.name, pc.binary_join(table.column(index), _SEPARATOR))
    return table


def _paired(output: str, recorded: Iterable[ComparedRow], replayed: Iterable[ComparedRow]) -> Iterator[RowDifference]:
    """Pair rows of both sides about the same thing, and yield those that differ or have no counterpart."""
    about = identity_of(output)
    others: dict[tuple[Any, ...], list[ComparedRow]] = {}
    for row in replayed:
        others.setdefault(tuple(row[name] for name in about), []).append(row)
    for row in recorded:
        same = others.get(tuple(row[name] for name in about))
        if not same:
            yield RowDifference(output, "recorded_only", (), row, None)
            continue
        other = same.pop(0)
        fields = tuple(name for name in row if not _is_same(row[name], other[name]))
        if fields:
            yield RowDifference(output, "different", fields, row, other)
    for row in (row for same in others.values() for row in same):
        yield RowDifference(output, "replayed_only", (), None, row)


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two values are equal; JSON objects are compared by value, not by spelling."""
    if one == other:
        return True
    if not (isinstance(one, str) and isinstance(other, str) and one[:1] in ("{", "[") and other[:1] == one[:1]):
        return False
    try:
        return bool(json.loads(one) == json.loads(other))
    except ValueError:
        return False


_EVERYTHING = 2**62


def fills_again(history: History, folder: Path, rule_set: RuleSet, cut: BatchEnd) -> Callable[[int], FillSources]:
    """Rebuild what a batch takes from each of its fills, by shard; a folder stores it meanwhile."""
    ready: dict[int, tuple[FillChunks, int]] = {}
    for fill in rule_set.fills:
        chunks = FillChunks(folder, fill.number)
        total = chunks.total()
        if total is None:
            total, end = 0, rows_of_fill(history, fill)
            for chunk in () if end is None else chunks_of_fill(history, fill, 0, end):
                chunks.write(total, chunk)
                total += 1
            chunks.finish(total)
        ready[fill.number] = chunks, total
    lists, checkpoint = json.dumps(dict(cut.lists), sort_keys=True), history.job.checkpoint
    return lambda shard: {
        number: ChunkFeed(chunks, checkpoint, shard, total, total, _EVERYTHING, lists)
        for number, (chunks, total) in ready.items()
    }


CutAs = Literal["recorded", "joined"]


def replayed_pieces(history: History, folder: Path, cut_as: CutAs, last_batch: int) -> Pieces:
    """Return the archive up to a batch in pieces: one per batch, or with `joined` several batches in one.

    All batches get the number of shards of the last one: so timelines stay in place, and results do not depend on
    shards. An empty folder stores backfilled history meanwhile.
    """
    recorded = history.recorded
    shards = recorded.terms(recorded.cuts[-1].batch_id).engine.shards

    def is_alike(one: BatchEnd, other: BatchEnd) -> bool:
        same = (one.ruleset_version, one.lists) == (other.ruleset_version, other.lists)
        return cut_as == "joined" and same and recorded.terms(one.batch_id) is recorded.terms(other.batch_id)

    cut_off = replace(history, recorded=recorded.until(last_batch))
    spans = spans_of(cut_off, is_alike, cuts_batches=False)
    return Pieces(ArchiveRows(history.archive), spans, partial(_settings, history, folder, shards), _with_rows)


def _settings(history: History, folder: Path, shards: int, span: PieceSpan) -> ArchivePiece:
    """Return the rules and settings for the batches of a span."""
    recorded, last = history.recorded, span.last
    rule_set, terms = recorded.rule_set(last.ruleset_version), recorded.terms(last.batch_id)
    if terms.engine.shards != shards:
        terms = terms.model_copy(update={"engine": terms.engine.model_copy(update={"shards": shards})})
    sources_of, batches = fills_again(history, folder, rule_set, last), (span.first_batch, last.batch_id)
    return ArchivePiece(NO_ROWS, rule_set, terms, recorded.lists(last), batches, None, sources_of)


def _with_rows(rows: pa.Table, piece: ArchivePiece) -> ArchivePiece:
    """Add the rows of a piece; for several batches, numbers replace their `source_order`."""
    first_batch, last_batch = piece.batches
    if first_batch == last_batch:
        return replace(piece, rows=rows)
    real = rows[SOURCE_ORDER].to_numpy()
    is_next = np.ones(len(rows), np.bool_)
    is_next[1:] = (np.diff(rows[BATCH].to_numpy()) != 0) | (np.diff(real) != 0)
    numbers = pa.array(np.cumsum(is_next) - 1)
    rows = rows.set_column(rows.column_names.index(SOURCE_ORDER), SOURCE_ORDER, numbers)
    return replace(piece, rows=rows, orders=real[is_next])


KEPT = 10_000  # The most differences that are kept; all are counted


@dataclass
class Replayed:
    """The results of a replay."""

    cut_as: CutAs  # whether batches were scored as they were cut, or joined
    last_batch: int  # the last batch that was scored
    batches: int  # how many batches that are
    # whether idle keys may be evicted at another moment than in the job: with joined batches, and where history was
    # filled in bit by bit, or state was imported
    evicts_otherwise: bool = False
    not_archived_until: int | None = None  # the last batch of the job, where the archive ends before it
    events: int = 0  # how many arrivals were scored
    compared: Counter[str] = field(default_factory=Counter)  # by output, how many recorded rows were compared
    of_output: Counter[str] = field(default_factory=Counter)  # by output, how many differences there are
    # how many differences there are of each kind; those that `eviction` counts are not among them
    counts: Counter[DifferenceKind] = field(default_factory=Counter)
    # if keys may be evicted otherwise, how many differences follow from that. It is no fault of the records.
    eviction: int = 0
    differences: list[RowDifference] = field(default_factory=list)  # the first of all of these
    # rule, event and key of alerts that did not come out, where it is not known that this is of eviction
    missing: set[tuple[str, str, str]] = field(default_factory=set)
    # rules and keys with a differing row that says `warm: false`
    cold: set[tuple[str, str]] = field(default_factory=set)

    @property
    def is_equal(self) -> bool:
        """Whether the replay reproduced all recorded results, and nothing else."""
        return not self.counts.total()

    def note(self, differences: list[RowDifference], rule_of: Callable[[RowDifference], Rule | None]) -> None:
        """Add differences of all outputs; a difference that causes another must come with it or before it.

        `rule_of` returns the rule of a row at that time; None if the job never had it, or the row has no rule.
        """
        cold_rows = (difference.row for difference in differences if difference.is_cold)
        self.cold.update((row["rule_id"], row["key"]) for row in cold_rows if "rule_id" in row)
        for difference in differences:
            if self.evicts_otherwise and self._is_of_eviction(difference, rule_of(difference)):
                self.eviction += 1
                continue
            self.counts[difference.kind] += 1
            if difference.kind == "recorded_only" and difference.output in ALERT_OUTPUTS:
                row = difference.row
                self.missing.add((row["rule_id"], row["event_id"], row["key"]))
        self._keep(differences)

    def _is_of_eviction(self, difference: RowDifference, rule: Rule | None) -> bool:
        """Return whether a difference follows from an eviction; `rule` is the row's rule, None if it had none."""
        if difference.is_cold or not self.cold or rule is None:
            return difference.is_cold
        if rule.on == "alerts":
            return True
        goes_by_alerts = difference.output != columns.EVALUATIONS or rule.reset_on_alert
        return goes_by_alerts and (difference.row["rule_id"], difference.row["key"]) in self.cold

    def note_cold(self, evaluations: pa.Table) -> None:
        """Note, from the evaluations, which missing alerts had incomplete windows in the replay."""
        cold = evaluations.to_pylist() if self.missing else []
        self.cold.update((row["rule_id"], row["key"]) for row in cold if tuple(row.values()) in self.missing)

    def note_strangers(self, differences: list[RowDifference]) -> None:
        """Add rows from batches that the job never had."""
        self.counts.update(difference.kind for difference in differences)
        self._keep(differences)

    def _keep(self, differences: list[RowDifference]) -> None:
        self.of_output.update(difference.output for difference in differences)
        self.differences += differences[: KEPT - len(self.differences)]


_KINDS = {
    "recorded_only": "recorded, did not come out again",
    "replayed_only": "came out, is not recorded",
    "different": "came out with other fields",
}


def difference_words(difference: RowDifference) -> str:
    """Describe the difference of a row: a line about its subject, and one for each field that differs."""
    row = difference.row
    time = time_text(moment_ms(row["event_time"]))
    about = f"event {row['event_id']} ({time})"
    if "rule_id" in row:
        result = f"alert {row['alert_id']}" if "alert_id" in row else "evaluation"
        about = f"{result} of rule {row['rule_id']} at {about}"
    text = f"{difference.output}: {about}: {_KINDS[difference.kind]}"
    recorded, replayed = difference.recorded or {}, difference.replayed or {}
    for name in difference.fields:
        text += f"\n  {name}: recorded {_shown(recorded[name])}, came out {_shown(replayed[name])}"
    return text


def conclusion(replayed: Replayed, output_kind: str) -> list[str]:
    """Return the conclusions from a replay of a job with a kind of output, line by line."""
    cut = "batch by batch" if replayed.cut_as == "recorded" else "small batches joined"
    lines = [f"{replayed.events:,} arrivals of {replayed.batches:,} batches were scored, {cut}"]
    if replayed.not_archived_until is not None:
        lines.append(f"not compared: what the job did without the archive, up to batch {replayed.not_archived_until}")
    if replayed.eviction:
        lines.append(
            f"{replayed.eviction:,} of the differences are of windows that were not complete (warm: false), or follow "
            "from those: a replay with joined batches, or of a job with a backfill or an import, evicts idle keys at "
            "another moment"
        )
    if output_kind == "kafka" and replayed.counts["replayed_only"]:
        lines.append("an alert that came out and is not recorded may be one that `buckets audit` has not read yet")
    lines.append("equal: all that is recorded came out again, and nothing else" if replayed.is_equal else "not equal")
    return lines


def _shown(value: Any) -> Any:
    if isinstance(value, datetime):
        return iso_text(moment_ms(value))
    return format(value, "f") if isinstance(value, Decimal) else value
