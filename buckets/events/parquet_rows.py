"""Reads rows of a Parquet file in the types they were written with, each file by its own schema.

Spark would read all files of a stream by the schema of the first one, and fail on some types: nanoseconds, unsigned and
wide numbers, a second file whose amounts have more digits. So Spark only lists the files. They are read here, with the
values from the names of their folders.
"""

import os
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from buckets.errors import BucketsError, first_line
from buckets.events.arrivals import BROKEN, POSITION, SOURCE, SOURCE_ORDER, check_columns, field_column, replaced
from buckets.events.bad_rows import bad_source
from buckets.events.clock_times import PER_SECOND
from buckets.events.field_paths import containers, outer_name, reachable, read_column, type_of
from buckets.events.message_fields import as_declared, schema_to_read, told
from buckets.events.schema import EventSchema
from buckets.list_columns import element_type, list_of, plain_list
from buckets.stores.location import as_input

_NULL = "__HIVE_DEFAULT_PARTITION__"


def folder_values(path: str) -> dict[str, str | None]:
    """Return the field values in the names of a file's folders; the nearest folder wins."""
    whole = path if "://" in path else os.path.abspath(path)
    pairs = (folder.partition("=") for folder in whole.split("/")[:-1])
    return {_decoded(name): None if value == _NULL else _decoded(value) for name, sign, value in pairs if name and sign}


def _decoded(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return text


def with_folder_values(rows: pa.RecordBatch, schema: EventSchema, lacking: Collection[str]) -> pa.RecordBatch:
    """Fill in fields that files lack from the values in their paths."""
    source = rows.column(SOURCE).dictionary_encode()
    given = [folder_values(path) for path in source.dictionary.to_pylist()]
    for index, name in enumerate(schema.field_names):
        if name in lacking and name not in schema.arrays and any(name in values for values in given):
            column = field_column(index)
            values = pa.array([values.get(name) for values in given], pa.string()).take(source.indices)
            whole = pc.coalesce(rows.column(column), values)
            rows = replaced(rows, column, whole)
    return rows


def can_order(kind: pa.DataType) -> bool:
    """Return whether a column of this type can define the arrival order."""
    whole = pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0)
    return bool(whole or pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def orders(column: pa.Array, name: str) -> tuple[pa.Array, pa.Array]:
    """Return the order of rows, int64, from their arrival column, 0 if it has no value, and a reason for that or null.

    Timestamps and dates become nanoseconds, so that files with different units compare.
    """
    kind = column.type
    if not can_order(kind):
        reason = pa.scalar(f"{name}: is of type {kind}, which gives no arrival order")
        return pa.array(np.zeros(len(column), np.int64)), pa.repeat(reason, len(column))
    if pa.types.is_date(kind):
        column = column.cast(pa.timestamp("s"))
    is_moment = pa.types.is_timestamp(column.type)
    factor = PER_SECOND["ns"] // PER_SECOND[column.type.unit] if is_moment else 1
    most = np.iinfo(np.int64).max // factor
    if pa.types.is_uint64(kind):
        fits = pc.less_equal(column, pa.scalar(most, kind))
    elif pa.types.is_decimal(kind):
        fits = pa.array([None if number is None else abs(number) <= most for number in column.to_pylist()], pa.bool_())
    else:
        column = column.cast(pa.int64())
        fits = pc.and_(pc.less_equal(column, most), pc.greater_equal(column, -most))
    numbers = pc.cast(pc.if_else(pc.fill_null(fits, False), column, pa.scalar(None, column.type)), pa.int64())
    numbers = numbers.fill_null(0)
    missing = pa.scalar(f"{name}: is missing or null, and gives the arrival order")
    large = pa.scalar(f"{name}: is too large to give the arrival order")
    broken = pc.if_else(column.is_null(), missing, pc.if_else(fits, pa.scalar(None, pa.string()), large))
    return pc.multiply(numbers, factor), broken


MOST_ROWS = 200_000
_MOST_BYTES = 64 * 2**20  # Approximate maximum bytes of a piece of rows, whatever the size of a value
_REMEDY = "replace it by a whole file, or remove it, and start again"


def open_parquet(path: Path) -> pq.ParquetFile:
    """Open a file; refuse one that is missing, not Parquet, or repeats a column."""
    try:
        # Times of the old kind (INT96) reach further than nanoseconds do, and would wrap.
        file = pq.ParquetFile(as_input(path), coerce_int96_timestamp_unit="us")
        names = file.schema_arrow.names
    except FileNotFoundError:
        raise bad_source(
            path, "was listed and is gone; none of its rows are read: put it back and start again"
        ) from None
    except (OSError, pa.ArrowException) as error:
        raise bad_source(path, f"is not a Parquet file ({first_line(error)}); {_REMEDY}") from None
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise bad_source(path, f"has two columns {twice[0]!r}; each needs a name of its own")
    return file


def check_parquet(path: Path, schema: EventSchema, arrival: str | None = None) -> pq.ParquetFile:
    """Open a file and check that it has id, time, and the arrival column, if set, with a type that orders rows."""
    file = open_parquet(path)
    there = [*reachable(schema.all_names, file.schema_arrow), *(folder_values(str(path)).keys() - {arrival})]
    check_columns(there, schema, str(path), arrival)
    if arrival is not None:
        kind = type_of(arrival, file.schema_arrow)
        if kind is None or not can_order(kind):
            reason = f"column {arrival!r} is of type {kind} and cannot be source.arrival"
            raise bad_source(path, f"{reason}; name a column of whole numbers, dates or timestamps")
    return file


def field_batches(path: Path, names: Sequence[str], most_rows: int = MOST_ROWS) -> Iterator[pa.RecordBatch]:
    """Yield the named columns of a file, in pieces; missing columns are null.

    Text that is not valid UTF-8, which Parquet permits, comes as bytes.
    """
    file = open_parquet(path)
    reached = set(reachable(names, file.schema_arrow))
    columns = set(file.schema_arrow.names)
    there = [name if name in columns else outer_name(name) for name in names if name in reached]
    # Without columns there would be no rows.
    wanted = list(dict.fromkeys(there)) or file.schema_arrow.names[:1]
    metadata, row = file.metadata, 0
    # The old kind of times (INT96), as Spark writes them: in UTC, and the file does not say.
    columns_of = map(file.schema.column, range(len(file.schema)))
    instants = frozenset(column.path for column in columns_of if column.physical_type == "INT96")
    size = sum(metadata.row_group(index).total_byte_size for index in range(metadata.num_row_groups))
    fitting = max(1, min(most_rows, _MOST_BYTES * metadata.num_rows // max(1, size)))
    try:
        for piece in file.iter_batches(batch_size=fitting, columns=wanted):
            for name in instants & set(piece.schema.names):
                moments = piece.column(name).cast(pa.timestamp("us", "UTC"))
                piece = replaced(piece, name, moments)
            yield plain_columns(piece, names)
            row += len(piece)
    except (OSError, pa.ArrowException) as error:
        raise bad_source(path, f"cannot be read after row {row:,} ({first_line(error)}); {_REMEDY}") from None


def plain_columns(rows: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Return the named columns, struct fields or arrays as plain values; missing ones are null."""
    nulls = pa.nulls(len(rows), pa.string())
    found = {name: read_column(rows, name) for name in names}
    return pa.record_batch({name: nulls if column is None else _plain(column) for name, column in found.items()})


def _plain(array: pa.Array) -> pa.Array:
    """Return values, and values inside lists, without dictionaries, runs and extension types."""
    if element_type(array.type) is not None:
        lists = plain_list(array)
        lengths, valid = pc.list_value_length(lists).fill_null(0), lists.is_valid()
        return list_of(_plain(lists.flatten()), lengths.to_numpy(), valid.to_numpy(zero_copy_only=False))
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_run_end_encoded(array.type):
        array = pc.run_end_decode(array)
    if pa.types.is_string_view(array.type):
        array = array.cast(pa.large_string())
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            array = array.view(pa.binary() if pa.types.is_string(array.type) else pa.large_binary())
    return array


def read_arrivals(path: Path, modified_ms: int, schema: EventSchema, arrival: str | None) -> Iterator[pa.RecordBatch]:
    """Read a file as arrivals; `modified_ms` orders files.

    With an `arrival` column to order rows, a row without a value in it is broken.
    """
    names = list(dict.fromkeys([*schema.field_names, *([arrival] if arrival else [])]))
    lacking = set(schema.field_names) & folder_values(str(path)).keys()
    if lacking:
        lacking -= set(reachable(schema.field_names, open_parquet(path).schema_arrow))
    first = 1
    for piece in field_batches(path, names):
        numbers = pa.array(range(first, first + len(piece)), pa.int64())
        order, broken = pa.repeat(pa.scalar(modified_ms, pa.int64()), len(piece)), None
        if arrival is not None:
            order, broken = orders(piece.column(arrival), arrival)
        yield with_folder_values(as_arrivals(piece, schema, str(path), order, numbers, broken), schema, lacking)
        first += len(piece)


def as_arrivals(
    rows: pa.RecordBatch,
    schema: EventSchema,
    source: str,
    order: pa.Array,
    numbers: pa.Array,
    broken: pa.Array | None = None,
) -> pa.RecordBatch:
    """Convert the rows of one file, with the declared fields by name, to the form of `buckets.events.arrivals`."""
    columns = {
        SOURCE: pa.repeat(pa.scalar(source), len(rows)),
        SOURCE_ORDER: order,
        POSITION: numbers,
        BROKEN: pa.nulls(len(rows), pa.string()) if broken is None else broken,
    }
    columns |= {field_column(index): rows.column(name) for index, name in enumerate(schema.field_names)}
    return pa.record_batch(columns)


SOURCE_NAME = "table"


def table_arrivals(
    table: pa.Table, schema: EventSchema, name: str = SOURCE_NAME, say: Callable[[str], None] = warnings.warn
) -> Iterator[pa.RecordBatch]:
    """Read a table in pieces of up to 200,000 rows; the position of a row is its index, from 0.

    A declared field without a column is null. `name` names the rows as a source, and generated ids of rows begin with
    it. `say` gets remarks about times without a zone; without it Python warns of them. BucketsError if it is not an
    Arrow table.
    """
    if not isinstance(table, pa.Table):
        kind = type(table).__name__
        message = f"events: must be a pyarrow.Table, not {kind}; convert it, as with pa.Table.from_pandas"
        raise BucketsError(message)
    return told(plain_table_arrivals(table, schema, name), schema, f"events {SOURCE_NAME}", say)


def plain_table_arrivals(table: pa.Table, schema: EventSchema, name: str = SOURCE_NAME) -> Iterator[pa.RecordBatch]:
    """Read a table as `table_arrivals` does, without looking at its times."""
    names, readable = table.column_names, schema_to_read(schema)
    check_columns(reachable(schema.all_names, table.schema), schema, SOURCE_NAME)
    twice = next((name for name in readable.field_names if names.count(name) > 1), None)
    if twice is not None:
        raise bad_source(SOURCE_NAME, f"has two columns {twice!r}; each needs a name of its own")
    yield from as_declared(_pieces(table, readable, name), schema)


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
