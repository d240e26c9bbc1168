"""Rows of a DataFrame as arrivals: the columns that are sent to Python, and the arrival order of the rows.

An event's order and identity are `source_order`, `source` and `position`. For a table that is a job's source,
`source_order` and `position` are its order column. For any other stream, `source_order` is the first order column if
that is an integer; `source` is a text that sorts like the remaining columns. `position` holds the low bits of the last
integer, which keeps the number of different texts small, and below them the row's place, unique within the batch.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ByteType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    TimestampNTZType,
    TimestampType,
)

from buckets.engine.batch import payload
from buckets.errors import BucketsError
from buckets.events.arrivals import POSITION, SOURCE, replaced
from buckets.events.field_paths import Step, array_path, reachable, to_list
from buckets.events.message_fields import as_declared, schema_to_read
from buckets.events.parquet_rows import as_arrivals, plain_columns
from buckets.events.schema import EventSchema
from buckets.spark.arrow_types import from_arrow_type, to_arrow_schema, to_arrow_type

SLICE_ROWS = 100_000  # The most rows in a slice
_SLICE_BYTES = 128 << 20  # About the most bytes in its rows, however large single values are
ROW = "row"  # The column of arrivals that holds whole rows, if they are wanted beside features
_PLACE_BITS, _ROW_BITS = 43, 27  # Bits of a position: the place (task number and row number), and the row number
_LAST_BITS = 63 - _PLACE_BITS  # and the bits of the last order number
_PLACES = (1 << _PLACE_BITS) - 1
UInt64s = npt.NDArray[np.uint64]


def slices(batches: Iterable[pa.RecordBatch], most: int = SLICE_ROWS) -> Iterator[pa.Table]:
    """Yield the rows of a partition in tables of at most `most` rows and about `_SLICE_BYTES`."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        fitting = max(1, min(most, _SLICE_BYTES * len(batch) // max(1, batch.nbytes)))
        for piece in (batch.slice(first, fitting) for first in range(0, len(batch), fitting)):
            if waiting and (rows + len(piece) > most or size + piece.nbytes > _SLICE_BYTES):
                yield pa.Table.from_batches(waiting).combine_chunks()
                waiting, rows, size = [], 0, 0
            waiting.append(piece)
            rows, size = rows + len(piece), size + piece.nbytes
    if rows:
        yield pa.Table.from_batches(waiting).combine_chunks()


def numbered_names(count: int) -> list[str]:
    """Return temporary column names: Spark cannot address columns by duplicate names or names with a dot."""
    return [f"c{number}" for number in range(count)]


def beside_rows(rows: pa.Table, more: pa.Table) -> pa.Table:
    """Append columns to rows, under temporary names."""
    columns = [*rows.columns, *more.columns]
    return pa.table(columns, names=numbered_names(len(columns)))


def in_utc(rows: pa.Table) -> pa.Table:
    """Return rows with timestamps in UTC instead of the session's time zone."""
    for index, field in enumerate(rows.schema):
        if ", tz=" in str(field.type) and ", tz=UTC]" not in str(field.type):
            kind = to_arrow_type(from_arrow_type(field.type))
            rows = rows.set_column(index, field.name, rows.column(index).cast(kind))
    return rows


class Places(NamedTuple):
    """The arrival order of rows."""

    order: pa.Array  # int64, `source_order`
    position: pa.Array  # int64
    source: pa.Array | None  # Arrow string; None where there is none
    missing: npt.NDArray[np.bool_]  # which rows have none


Arrange = Callable[[Sequence[pa.Array], int], Places]
"""Takes the order columns and the number of rows that the task has read before; returns the places of these rows."""
_WHOLE = (ByteType, ShortType, IntegerType, LongType)
_MOMENTS = (DateType, TimestampType, TimestampNTZType)


def order_number(column: Column, kind: DataType) -> Column | None:
    """Return a column as an integer with the same order, timestamps in microseconds; None for other types."""
    if isinstance(kind, _MOMENTS):
        return F.unix_micros(column.cast(TimestampType()))
    if isinstance(kind, DecimalType) and kind.scale == 0:
        return column.try_cast("long")
    return column.cast("long") if isinstance(kind, _WHOLE) else None


def by_number(orders: Sequence[pa.Array], first: int) -> Places:
    """Arrange rows by one integer, which is both their order and their position."""
    (numbers,) = orders
    known = numbers.fill_null(0)
    return Places(known, known, None, numbers.is_null().to_numpy(zero_copy_only=False))


def by_place(orders: Sequence[pa.Array], first: int) -> Places:
    """Arrange rows by several columns, the last of which may be a hash, and give each row its own position."""
    missing = np.logical_or.reduce([column.is_null().to_numpy(zero_copy_only=False) for column in orders])
    keys = [
        column.fill_null(0) if pa.types.is_integer(column.type) else column.cast(pa.string()).fill_null("")
        for column in orders
    ]
    task, rows = TaskContext.get(), len(keys[0])
    assert task is not None
    if first + rows > 1 << _ROW_BITS or task.partitionId() >= 1 << (_PLACE_BITS - _ROW_BITS):
        message = f"a task has read more than {1 << _ROW_BITS:,} rows of a batch; let the source give fewer at once"
        raise BucketsError(message)
    places = np.arange(rows, dtype=np.uint64) + np.uint64((task.partitionId() << _ROW_BITS) + first)
    order = pa.repeat(pa.scalar(0, pa.int64()), rows) if pa.types.is_string(keys[0].type) else keys.pop(0)
    last = np.zeros(rows, np.uint64)
    texts = [_sortable(key, is_last=number == len(keys) - 1) for number, key in enumerate(keys)]
    if keys and not pa.types.is_string(keys[-1].type):
        number = _unsigned(keys[-1])
        last = number & np.uint64((1 << _LAST_BITS) - 1)
        texts[-1] = _digits(number >> np.uint64(_LAST_BITS))
    source = pc.binary_join_element_wise(*texts, "") if texts else None
    position = (last << np.uint64(_PLACE_BITS) | places).astype(np.int64)
    return Places(order, pa.array(position), source, missing)


def _unsigned(numbers: pa.Array) -> UInt64s:
    """Return int64 values as uint64 values with the same order."""
    unsigned: UInt64s = numbers.to_numpy().view(np.uint64) ^ np.uint64(1 << 63)
    return unsigned


def _digits(numbers: UInt64s) -> pa.Array:
    if (numbers == numbers[0]).all():
        return pa.repeat(f"{numbers[0]:020}", len(numbers))
    return pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 20, "0")


def _sortable(key: pa.Array, is_last: bool) -> pa.Array:
    """Return a text that sorts like a key, even when other texts are appended to it."""
    if not pa.types.is_string(key.type):
        return _digits(_unsigned(key))
    if is_last:
        return key
    ended = pc.replace_substring(key, "\0", "\0\1")
    return pc.binary_join_element_wise(ended, "\0\0", "")


def column_at(name: str, frame: DataFrame) -> Column:
    """Return a column, or the struct field at a path; for structs in a list, the field of each element."""
    if name in frame.columns:
        return F.col(quoted(name))
    array = array_path(name)
    outermost, *inside = to_list(name)
    column = _stepped(F.col(quoted(str(outermost))), inside)
    return column if array is None else F.transform(column, lambda element: _stepped(element, array.steps))


def _stepped(column: Column, steps: Sequence[Step]) -> Column:
    for step in steps:
        column = column.getField(step) if isinstance(step, str) else F.get(column, F.lit(step))
    return column


def quoted(name: str) -> str:
    """Return a column name quoted for SQL."""
    return f"`{name.replace('`', '``')}`"


@dataclass(frozen=True)
class FrameArrivals:
    """Converts the travelling columns of a DataFrame to arrivals (`buckets.events.arrivals`), inside the tasks."""

    fields: Mapping[str, int]  # field name to the number of its column
    whole: int  # how many columns of the DataFrame come first
    orders: int  # how many order columns come last
    arrange: Arrange  # computes places from the order columns
    what: str  # the order, in words
    has_rows: bool  # whether whole rows are wanted beside features

    def __call__(self, batches: Iterable[pa.RecordBatch], schema: EventSchema) -> Iterator[pa.RecordBatch]:
        """Yield the arrivals of a task."""
        return as_declared(self._pieces(batches, schema_to_read(schema)), schema)

    def _pieces(self, batches: Iterable[pa.RecordBatch], schema: EventSchema) -> Iterator[pa.RecordBatch]:
        first, missing = 0, pa.scalar(f"{self.what}: is missing or null, and gives the arrival order")
        for table in slices(batches):
            plain = in_utc(table)
            columns = [column.combine_chunks() for column in plain.columns]
            places = self.arrange(columns[len(columns) - self.orders :], first)
            fields = {name: columns[at] for name, at in self.fields.items() if name in schema.field_names}
            named = plain_columns(pa.record_batch(fields), schema.field_names)
            broken = pc.if_else(pa.array(places.missing), missing, pa.scalar(None, pa.string()))
            rows = as_arrivals(named, schema, "", places.order, places.position, broken)
            if places.source is not None:
                rows = replaced(rows, SOURCE, places.source)
            if self.has_rows:
                own = table.select(range(self.whole)).combine_chunks()
                chunks = [column.combine_chunks() for column in own.columns]
                rows = rows.append_column(ROW, pa.StructArray.from_arrays(chunks, names=own.column_names))
            yield rows
            first += len(table)


def travelling(
    frame: DataFrame, order: Sequence[Column], schema: EventSchema, arrange: Arrange, what: str, has_rows: bool = False
) -> tuple[DataFrame, FrameArrivals]:
    """Return the columns of a DataFrame to send to Python, and the `FrameArrivals` that reads them there.

    The columns that are fields come first, or all columns if whole rows are wanted; then struct fields, then the order.
    """
    names = schema_to_read(schema).field_names
    there = reachable(names, to_arrow_schema(frame.schema))
    fields = [name for name in dict.fromkeys(names) if name in there]
    whole = [number for number, name in enumerate(frame.columns) if has_rows or name in fields]
    inside = [name for name in fields if name not in frame.columns]
    also = [*(column_at(name, frame) for name in inside), *order]
    count = len(frame.columns)
    numbered = frame.select("*", *also).toDF(*numbered_names(count + len(also)))
    taken = [*whole, *range(count, count + len(also))]
    at = {frame.columns[number]: place for place, number in enumerate(whole)}
    at |= {name: len(whole) + place for place, name in enumerate(inside)}
    pick = FrameArrivals({name: at[name] for name in fields}, len(whole), len(order), arrange, what, has_rows)
    return numbered.select(*(f"c{number}" for number in taken)), pick


def rows_payload(arrivals: pa.RecordBatch) -> bytes:
    """Return the whole rows of arrivals as a payload labelled with the place of its first row."""
    first = arrivals.column(POSITION)[0].as_py() & _PLACES
    return payload.pack(payload.ROWS, pa.RecordBatch.from_struct_array(arrivals.column(ROW)), str(first))


def of_rows(packed: bytes, first: int, rows: int) -> bytes | None:
    """Return the part of an output's payload about `rows` rows from place `first` on, with positions from 0.

    None if the payload has nothing about them.
    """
    table = payload.unpack(packed)
    places = (table[POSITION].to_numpy() & _PLACES) - first
    are_own = (places >= 0) & (places < rows)
    if not are_own.any():
        return None
    own, at = table.filter(pa.array(are_own)), table.schema.get_field_index(POSITION)
    numbered = own.set_column(at, POSITION, pa.array(places[are_own]))
    return payload.pack(packed[:1], numbered, payload.group_of(table))
