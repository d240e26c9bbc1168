"""The rows that a job has recorded, from its output folder or the tables of its audit; and replayed ones like them.

Left out is what says when a row was decided or published, where it lies, and which batch wrote it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.audit.tables import Table, audit_tables
from buckets.config.job import Job, results_folder
from buckets.delta.whole_table import inside, is_table, moments_ms
from buckets.errors import BucketsError
from buckets.history.scoring.scoring import ScoredPiece
from buckets.moment import ANY_TIME, TimeRange
from buckets.outputs import columns
from buckets.outputs.contract import MOMENT, OTHER_FIELDS
from buckets.outputs.messages import Messages
from buckets.outputs.recorded_outputs import Selection, output_table

_BATCH = "batch_id"
_AUDIT_FIRST = "run `buckets audit CONF --once` first, or put its folder back"
_NOT_COMPARED = ("version", "ingested_at", "decided_at", OTHER_FIELDS)
"""Of messages: the version of their schema, and when something was done."""


@dataclass(frozen=True)
class ComparedRows:
    """Which rows are wanted."""

    times: TimeRange = ANY_TIME  # the event times
    batches: tuple[int, int] = (0, 0)  # the first and the last batch
    # by source (a partition of a topic), the last position that is archived
    ends: dict[str, int] = field(default_factory=dict)

    def chosen(self, rows: pa.Table) -> pa.Table:
        """Return the rows whose events happened in that time."""
        return rows if self.times == ANY_TIME else rows.filter(inside(moments_ms(rows["event_time"]), self.times))


def recorded_rows(job: Job, evaluations: bool) -> "RecordedRows":
    """Open what a job has recorded.

    Raises:
        BucketsError: there are no tables of it.
    """
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
    if is_output:
        return OutputTables(folder, outputs, job.event_schema.largest_scale)
    return AuditedTables(folder, outputs, audit_tables(outputs, job.event_schema.largest_scale))


@dataclass(frozen=True)
class OutputTables:
    """The output folder of a job."""

    folder: Path
    outputs: Sequence[str]
    largest_scale: int

    @property
    def by_batch(self) -> bool:
        """Say that rows have the number of their batch, so that a few batches can be read at a time."""
        return True

    def recorded(self, output: str, span: ComparedRows) -> pa.Table:
        """Return the rows of an output that some batches have written."""
        first, last = span.batches
        return _read(self.folder / output, self.schema(output), span, [f"{_BATCH} between {first} and {last}"])

    def of_no_batch(self, output: str, span: ComparedRows, batches: tuple[int, int]) -> pa.Table:
        """Return the rows that say that another batch wrote them than any that the job has recorded."""
        first, last = batches
        outside = f"{_BATCH} is null or {_BATCH} < {first} or {_BATCH} > {last}"
        return _read(self.folder / output, self.schema(output), span, [f"({outside})"])

    def replayed(self, output: str, scored: ScoredPiece) -> pa.Table:
        """Return the rows as they would be written."""
        schema = self.schema(output)
        return scored.table(output).select(schema.names).cast(schema)

    def joined(self, output: str, replayed: Sequence[pa.Table]) -> pa.Table:
        """Join the rows of pieces."""
        return pa.concat_tables([self.schema(output).empty_table(), *replayed])

    def schema(self, output: str) -> pa.Schema:
        """Return the columns that are compared."""
        written = columns.columns_of(output, self.largest_scale)
        kept = [field for field in written if field.name != "source_order"]
        return pa.schema([pa.field(field.name, MOMENT if field.type == columns.TIME else field.type) for field in kept])


@dataclass(frozen=True)
class AuditedTables:
    """The tables of an audit."""

    folder: Path
    outputs: Sequence[str]
    tables: dict[str, Table]

    @property
    def by_batch(self) -> bool:
        """Messages do not say which batch has sent them."""
        return False

    def recorded(self, output: str, span: ComparedRows) -> pa.Table:
        """Return the messages of an output about arrivals that are archived."""
        rows = _read(self.folder / output, self.schema(output), span, [])
        last = pc.index_in(rows["source"], pa.array(list(span.ends), pa.string()))
        ends = pa.array(list(span.ends.values()), pa.int64()).take(last)
        return rows.filter(pc.fill_null(pc.less_equal(rows["position"], ends), False))

    def of_no_batch(self, output: str, span: ComparedRows, batches: tuple[int, int]) -> pa.Table:
        """Return no rows: messages do not say which batch has sent them."""
        return self.schema(output).empty_table()

    def replayed(self, output: str, scored: ScoredPiece) -> pa.Table:
        """Return the messages as they would be sent and read."""
        table, schema = self.tables[output], self.schema(output)
        assert table.contract is not None
        messages = Messages(scored.piece.rule_set, scored.piece.terms.event_schema)
        sent = messages.of(output, scored.table(output), 0)
        rows = [table.contract.read(message.value.encode()) for message in sent]
        arrays = [pa.array([row[name] for row in rows], schema.field(name).type) for name in schema.names]
        return pa.table(arrays, schema=schema)

    def joined(self, output: str, replayed: Sequence[pa.Table]) -> pa.Table:
        """Join the messages of pieces, each once, as the tables have them."""
        whole = pa.concat_tables([self.schema(output).empty_table(), *replayed])
        identity = self.tables[output].identity
        first = whole.select([identity]).append_column("row", pa.array(np.arange(len(whole))))
        rows = first.group_by(identity, use_threads=False).aggregate([("row", "min")])["row_min"]
        return whole.take(rows)

    def schema(self, output: str) -> pa.Schema:
        """Return the columns that are compared."""
        contract = self.tables[output].contract
        assert contract is not None
        names = [field.name for field in contract.fields if field.name not in _NOT_COMPARED]
        types = {column.name: column.type for column in self.tables[output].columns}
        return pa.schema([pa.field(name, types[name]) for name in names])


RecordedRows = OutputTables | AuditedTables  # What a job has recorded


def _read(path: Path, schema: pa.Schema, span: ComparedRows, tests: list[str]) -> pa.Table:
    """Return columns of a table of Delta; those that it lacks are null."""
    wanted = Selection({}, span.times, tests)
    return output_table(path, schema.names, wanted).cast(schema)
