"""Arrivals as rows of the archive, and rows of the archive as arrivals."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.archive import archive
from buckets.events import arrivals
from buckets.events.arrivals import convert, field_column
from buckets.events.parquet_rows import MOST_ROWS
from buckets.events.schema import EventSchema
from buckets.numbers.decimal128 import MOST_DIGITS, decimals_of

_OWN = {
    arrivals.SOURCE: archive.SOURCE,
    arrivals.SOURCE_ORDER: archive.SOURCE_ORDER,
    arrivals.POSITION: archive.POSITION,
    arrivals.BROKEN: archive.FAULT,
    arrivals.RAW: archive.RAW,
}


def archived(rows: pa.RecordBatch, schema: EventSchema, batch_id: int) -> pa.Table:
    """Turn arrivals into rows of the archive, without their numbers."""
    return archived_and_rounded(rows, schema, batch_id)[0]


def archived_and_rounded(rows: pa.RecordBatch, schema: EventSchema, batch_id: int) -> tuple[pa.Table, dict[str, int]]:
    """Turn arrivals into rows of the archive, and say by measure how many values were rounded: it has them so."""
    events, faults = convert(rows, schema, frozenset())
    good = np.ones(len(events), np.bool_)
    good[list(faults)] = False
    bad = pa.array(~good)
    names = rows.schema.names
    written = rows.column(arrivals.RAW).to_pylist() if arrivals.RAW in names and faults else [None] * len(events)
    raw = [arrivals.shortened(text) if row in faults and text else None for row, text in enumerate(written)]
    nulls = pa.nulls(len(events), pa.int64())
    columns = {
        archive.BATCH: pa.array(np.full(len(events), batch_id, np.int64)),
        archive.SOURCE: rows.column(arrivals.SOURCE),
        archive.SOURCE_ORDER: rows.column(arrivals.SOURCE_ORDER),
        archive.POSITION: rows.column(arrivals.POSITION),
        archive.INGESTED: rows.column(arrivals.INGESTED) if arrivals.INGESTED in names else nulls,
        archive.FAULT: pa.array([faults.get(row) for row in range(len(events))], pa.string()),
        archive.RAW: pa.array(raw, pa.string()),
        archive.JUDGED: rows.column(arrivals.JUDGED) if arrivals.JUDGED in names else pa.nulls(len(events), pa.bool_()),
    }
    times = pa.array(events.times_ms * good).cast(pa.timestamp("ms", "UTC")).cast(archive.TIME)
    fields: dict[str, pa.Array] = {schema.event_id: events.event_id, schema.event_time.field: times}
    fields |= events.attributes
    for name, measure in schema.measures.items():
        fields[name] = _decimals(events.measures[name], measure.scale)
    if faults:
        fields = {name: pc.if_else(bad, pa.scalar(None, values.type), values) for name, values in fields.items()}
    return pa.table(columns | fields), events.without(faults).rounded_values


def _decimals(scaled: pa.Array, scale: int) -> pa.Array:
    """Return scaled integers as decimals; nulls stay null."""
    whole = scaled.fill_null(0).to_numpy(zero_copy_only=False)
    valid = scaled.is_valid().to_numpy(zero_copy_only=False)
    return decimals_of(whole, valid, pa.decimal128(MOST_DIGITS, scale))


def arrivals_of(rows: pa.Table, schema: EventSchema) -> Iterator[pa.RecordBatch]:
    """Yield rows of the archive as arrivals in pieces of up to 200,000; a declared field without a column is null."""
    optional = {arrivals.INGESTED: archive.INGESTED, arrivals.JUDGED: archive.JUDGED}
    present = {name: own for name, own in optional.items() if _has_values(rows, own)}
    for piece in rows.to_batches(max_chunksize=MOST_ROWS):
        columns = {name: piece.column(own) for name, own in (_OWN | present).items()}
        for index, name in enumerate(schema.field_names):
            there = name in piece.schema.names
            columns[field_column(index)] = piece.column(name) if there else pa.nulls(len(piece), pa.string())
        yield pa.record_batch(columns)


def _has_values(rows: pa.Table, name: str) -> bool:
    return name in rows.column_names and rows[name].null_count < len(rows)
