"""The rows that come out of a replay, gathered and compared with those that the job has recorded."""

from dataclasses import replace

import pyarrow as pa

from buckets.archive.archive import BATCH, POSITION, SOURCE
from buckets.archive.history import History
from buckets.history.replay.differences import RowDifference, differences
from buckets.history.replay.recorded_rows import ComparedRows, RecordedRows
from buckets.history.replay.replayed import Replayed
from buckets.history.scoring.scoring import ScoredPiece
from buckets.moment import TimeRange
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
