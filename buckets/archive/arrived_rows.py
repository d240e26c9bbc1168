"""Arrivals as rows of the archive: built in the tasks that read them, and converted back to arrivals.

Tasks hand over rows in pieces, each in arrival order: few as bytes, many in a file. Workers load this module, so it
imports no code that writes tables.
"""

import io
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.engine.batch.dead_letters import arrival, ascend
from buckets.events import arrivals
from buckets.events.arrivals import ParsedRows, convert, derived_column, field_column
from buckets.events.conversion import column_types
from buckets.events.parquet_rows import MOST_ROWS
from buckets.events.schema import EventSchema
from buckets.numbers.wide_sum import MOST_DIGITS, decimals_of
from buckets.stores.location import as_input, as_output, found_location

ARRIVAL = "_arrival"  # The number of a row in the order of arrival, from 0
BATCH = "_batch_id"
SOURCE, SOURCE_ORDER, POSITION = "_source", "_source_order", "_position"
INGESTED = "_ingested_ms"
FAULT = "_fault"  # Why a row is not an event under any rules; null for events
JUDGED = "_judged"  # Whether rules are evaluated at the event; null if they are at all events of its batch
RAW = "_raw"  # The original row, if it is not an event
OWN_COLUMNS = pa.schema(
    [
        pa.field(ARRIVAL, pa.int64()),
        pa.field(BATCH, pa.int64()),
        pa.field(SOURCE, pa.string()),
        pa.field(SOURCE_ORDER, pa.int64()),
        pa.field(POSITION, pa.int64()),
        pa.field(INGESTED, pa.int64()),
        pa.field(FAULT, pa.string()),
        pa.field(RAW, pa.string()),
        pa.field(JUDGED, pa.bool_()),
    ]
)
TIME = pa.timestamp("us", "UTC")
_OWN = {
    arrivals.SOURCE: SOURCE,
    arrivals.SOURCE_ORDER: SOURCE_ORDER,
    arrivals.POSITION: POSITION,
    arrivals.BROKEN: FAULT,
    arrivals.RAW: RAW,
}


def archive_columns(schema: EventSchema) -> pa.Schema:
    """Return the archive's columns for an event schema."""
    fields = [pa.field(schema.event_id, pa.string()), pa.field(schema.event_time.field, TIME)]
    fields += [pa.field(name, kind) for name, kind in column_types(schema).items()]
    fields += [pa.field(name, pa.decimal128(38, measure.scale)) for name, measure in schema.measures.items()]
    return pa.schema([*OWN_COLUMNS, *fields])


def archived_and_rounded(rows: pa.RecordBatch, schema: EventSchema, batch_id: int) -> tuple[pa.Table, dict[str, int]]:
    """Convert arrivals to archive rows, and return per measure how many values were rounded, as they are archived."""
    parsed = convert(rows, schema, frozenset())
    return of_batch(archived_rows(rows, parsed, schema), batch_id), parsed.events.rounded_values


def of_batch(rows: pa.Table, batch_id: int) -> pa.Table:
    """Add the batch number to archive rows."""
    return rows.append_column(BATCH, pa.array(np.full(len(rows), batch_id, np.int64)))


def archived_rows(rows: pa.RecordBatch, parsed: ParsedRows, schema: EventSchema) -> pa.Table:
    """Convert arrivals and their parsed values to archive rows without numbers."""
    events, faults, names = parsed.every, parsed.own_faults, rows.schema.names
    good = arrivals.good_rows(len(events), faults)
    reasons = raw = pa.nulls(len(events), pa.string())
    if faults:
        written = rows.column(arrivals.RAW).to_pylist() if arrivals.RAW in names else [None] * len(events)
        texts = [arrivals.shortened(text) if row in faults and text else None for row, text in enumerate(written)]
        reasons = pa.array([faults.get(row) for row in range(len(events))], pa.string())
        raw = pa.array(texts, pa.string())
    columns = {
        SOURCE: rows.column(arrivals.SOURCE),
        SOURCE_ORDER: rows.column(arrivals.SOURCE_ORDER),
        POSITION: rows.column(arrivals.POSITION),
        INGESTED: rows.column(arrivals.INGESTED) if arrivals.INGESTED in names else pa.nulls(len(events), pa.int64()),
        FAULT: reasons,
        RAW: raw,
        JUDGED: rows.column(arrivals.JUDGED) if arrivals.JUDGED in names else pa.nulls(len(events), pa.bool_()),
    }
    times = pa.array(events.times_ms * good).cast(pa.timestamp("ms", "UTC")).cast(TIME)
    fields: dict[str, pa.Array] = {schema.event_id: events.event_id, schema.event_time.field: times}
    fields |= events.attributes
    for name, measure in schema.measures.items():
        scaled = events.measures[name]
        whole, valid = scaled.fill_null(0), scaled.is_valid().to_numpy(zero_copy_only=False)
        kind = pa.decimal128(MOST_DIGITS, measure.scale)
        fields[name] = decimals_of(whole.to_numpy(zero_copy_only=False), valid, kind)
    if faults:
        is_event = pa.array(good)
        fields = {name: pc.if_else(is_event, each, pa.scalar(None, each.type)) for name, each in fields.items()}
    return pa.table(columns | fields)


def arrivals_of(rows: pa.Table, schema: EventSchema) -> Iterator[pa.RecordBatch]:
    """Yield archive rows as arrivals, in pieces of up to 200,000; a declared field without a column is null."""
    optional = {arrivals.INGESTED: INGESTED, arrivals.JUDGED: JUDGED}
    present = {
        name: own for name, own in optional.items() if own in rows.column_names and rows[own].null_count < len(rows)
    }
    fields = {field_column(index): name for index, name in enumerate(schema.field_names)}
    fields |= {derived_column(index): name for index, name in enumerate(schema.derive)}
    for piece in rows.to_batches(max_chunksize=MOST_ROWS):
        columns = {name: piece.column(own) for name, own in (_OWN | present).items()}
        for column, name in fields.items():
            there = name in piece.schema.names
            columns[column] = piece.column(name) if there else pa.nulls(len(piece), pa.string())
        yield pa.record_batch(columns)


def in_order(rows: pa.Table) -> pa.Table:
    """Sort rows by arrival; ties keep their relative order."""
    names = {arrivals.SOURCE_ORDER: SOURCE_ORDER, arrivals.POSITION: POSITION}
    places = {name: rows[own] for name, own in names.items()}
    columns = arrival(pa.table(places | {arrivals.SOURCE: rows[SOURCE].dictionary_encode()}))
    return rows if ascend(*columns) else rows.take(pa.array(np.lexsort(columns[::-1])))


Place = tuple[int, str, int]  # A row's source order, source and position, which define when it arrived
AT_HAND_BYTES = 1 << 18  # Rows of a task up to this size travel as bytes, more in a file
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="zstd")


class ArrivedRows(msgspec.Struct, frozen=True):
    """The rows of a task, in pieces, each in arrival order."""

    ends: list[tuple[Place, Place]]  # the first and the last row of each piece
    content: bytes = b""  # an Arrow file with the pieces; empty if it is at `path`
    path: str = ""  # the path of the file

    @classmethod
    def read(cls, packed: bytes) -> "ArrivedRows":
        """Decode what a task has handed over."""
        return msgspec.msgpack.decode(packed, type=cls)

    def packed(self) -> bytes:
        """Encode the rows for handing over."""
        return msgspec.msgpack.encode(self)

    def piece(self, number: int) -> pa.Table:
        """Read a piece."""
        source = as_input(found_location(self.path)) if self.path else pa.py_buffer(self.content)
        with pa.ipc.open_file(source) as pieces:
            return pa.Table.from_batches([pieces.get_batch(number)])


class ArrivedInTask:
    """Gathers the rows of a task, compressed, in memory."""

    def __init__(self) -> None:
        self._sink = io.BytesIO()
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self._ends: list[tuple[Place, Place]] = []

    def take(self, rows: pa.Table) -> None:
        """Take a piece, which is not empty."""
        (piece,) = in_order(rows).combine_chunks().to_batches()
        if self._writer is None:
            self._writer = pa.ipc.new_file(self._sink, piece.schema, options=_COMPRESSED)
        self._writer.write_batch(piece)
        self._ends.append((_place(piece, 0), _place(piece, len(piece) - 1)))

    def handed_over(self, path: Path) -> ArrivedRows | None:
        """Return the rows to hand over, many of them in a file at `path`; None if there are none."""
        if self._writer is None:
            return None
        self._writer.close()
        content = self._sink.getvalue()
        if len(content) <= AT_HAND_BYTES:
            return ArrivedRows(self._ends, content)
        with as_output(path) as file:
            file.write(content)
        return ArrivedRows(self._ends, path=str(path))


def _place(rows: pa.RecordBatch, row: int) -> Place:
    order, source, position = (rows.column(name)[row].as_py() for name in (SOURCE_ORDER, SOURCE, POSITION))
    return order, source, position


def in_files(arrived: Sequence[ArrivedRows], most_rows: int) -> Iterator[pa.Table]:
    """Yield a batch's rows in arrival order, in tables of about `most_rows`. Memory: one such table.

    Overlapping pieces, as from a Delta table whose files are not in the order of its arrival column, are in memory
    together.
    """
    pieces = [(ends, each, number) for each in arrived for number, ends in enumerate(each.ends)]
    held: list[pa.Table] = []
    last: Place | None = None
    for (first, end), each, number in sorted(pieces, key=lambda piece: piece[0][0]):
        if last is not None and sum(map(len, held)) >= most_rows and first > last:
            yield in_order(pa.concat_tables(held, promote_options="default"))
            held = []
        held.append(each.piece(number))
        last = end if last is None else max(last, end)
    if held:
        yield in_order(pa.concat_tables(held, promote_options="default"))
