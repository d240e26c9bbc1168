"""Rows of an Arrow table as arrivals, in the types that they have there."""

import warnings
from collections.abc import Callable, Iterator

import pyarrow as pa

from buckets.errors import BucketsError
from buckets.events.arrivals import check_columns
from buckets.events.field_paths import containers, reachable
from buckets.events.made_ids import with_made_ids
from buckets.events.message_fields import without_made_id
from buckets.events.parquet_rows import MOST_ROWS, as_arrivals, plain_columns
from buckets.events.schema import EventSchema
from buckets.events.times_seen import told

SOURCE_NAME = "table"


def table_arrivals(
    table: pa.Table, schema: EventSchema, name: str = SOURCE_NAME, say: Callable[[str], None] = warnings.warn
) -> Iterator[pa.RecordBatch]:
    """Read a table in pieces of up to 200,000 rows, each at the position of its row, counted from 0.

    A declared field without a column is null.

    Args:
        table: the rows.
        schema: the event schema.
        name: what the rows are called as a source, which ids that are made of rows begin with.
        say: told of times without a zone; without it Python warns of them.

    Raises:
        BucketsError: the id or the time has no column, or a name stands there twice; the times at the beginning are in
            another unit than the declared.
    """
    return told(plain_table_arrivals(table, schema, name), schema, f"events {SOURCE_NAME}", say)


def plain_table_arrivals(table: pa.Table, schema: EventSchema, name: str = SOURCE_NAME) -> Iterator[pa.RecordBatch]:
    """Read a table as `table_arrivals` does, without looking at its times."""
    names, readable = table.column_names, without_made_id(schema)
    check_columns(reachable(readable.field_names, table.schema), schema, SOURCE_NAME)
    twice = next((name for name in readable.field_names if names.count(name) > 1), None)
    if twice is not None:
        message = f"events {SOURCE_NAME}: has two columns {twice!r}; each needs a name of its own"
        raise BucketsError(message)
    yield from with_made_ids(_pieces(table, readable, name), schema)


def _pieces(table: pa.Table, schema: EventSchema, source: str) -> Iterator[pa.RecordBatch]:
    names = table.column_names
    wanted = {*schema.field_names, *containers(schema.field_names)}
    declared = [name for name in dict.fromkeys(names) if name in wanted and names.count(name) == 1]
    first = 0
    for piece in table.select(declared).to_batches(max_chunksize=MOST_ROWS):
        numbers = pa.array(range(first, first + len(piece)), pa.int64())
        order = pa.repeat(pa.scalar(0, pa.int64()), len(piece))
        yield as_arrivals(plain_columns(piece, schema.field_names), schema, source, order, numbers)
        first += len(piece)
