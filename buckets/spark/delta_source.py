"""A Delta table as a stream of arrivals, in the order of one of its columns."""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ByteType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    TimestampNTZType,
    TimestampType,
)

from buckets.config.source import DeltaSource
from buckets.errors import BucketsError
from buckets.events.arrivals import (
    BROKEN,
    POSITION,
    SOURCE,
    SOURCE_ORDER,
    check_columns,
    field_column,
    with_fields_of,
)
from buckets.events.field_paths import Step, array_path, reachable, to_list
from buckets.events.made_ids import with_made_ids
from buckets.events.message_fields import without_made_id
from buckets.events.schema import EventSchema
from buckets.spark.arrival_stream import ArrivalStream

_INTEGERS = (ByteType, ShortType, IntegerType, LongType)
_MOMENTS = (DateType, TimestampType, TimestampNTZType)


def open_delta(spark: SparkSession, source: DeltaSource, schema: EventSchema) -> ArrivalStream:
    """Open a Delta table as a stream, in the order of a column.

    Raises:
        BucketsError: a column is missing, or the arrival column has a type without an order.
    """
    assert source.arrival is not None
    reader = spark.readStream.option("maxFilesPerTrigger", source.max_files_per_trigger)
    frame = reader.format("delta").load(source.path)
    columns = to_arrow_schema(frame.schema)
    readable = without_made_id(schema)
    there = reachable(readable.field_names, columns)
    check_columns(there, schema, source.path, source.arrival)
    fields = [
        (_column(name, columns) if name in there else F.lit(None).cast("string")).alias(field_column(index))
        for index, name in enumerate(readable.field_names)
    ]
    order = _order(frame, source)
    missing = F.lit(f"{source.arrival}: is missing or null, and gives the arrival order")
    known = F.coalesce(order, F.lit(0).cast("long"))
    origin = [F.lit("").alias(SOURCE), known.alias(SOURCE_ORDER), known.alias(POSITION)]
    rows = frame.select(*origin, F.when(order.isNull(), missing).alias(BROKEN), *fields)

    def pick(batches: Iterable[pa.RecordBatch], of_batch: EventSchema) -> Iterator[pa.RecordBatch]:
        wanted = without_made_id(of_batch)
        return with_made_ids((with_fields_of(batch, readable, wanted) for batch in batches), of_batch)

    return ArrivalStream(rows, pick, lambda wanted: wanted.field_names, schema)


def _column(name: str, columns: pa.Schema) -> Column:
    """Return a column, or the field to which its name is the path; of structs in a list, all of theirs."""
    array = None if name in columns.names else array_path(name)
    outermost, *inside = [name] if name in columns.names else to_list(name)
    column = _stepped(F.col("`" + str(outermost).replace("`", "``") + "`"), inside)
    return column if array is None else F.transform(column, lambda element: _stepped(element, array.steps))


def _stepped(column: Column, steps: Sequence[Step]) -> Column:
    for step in steps:
        column = column.getField(step) if isinstance(step, str) else F.get(column, F.lit(step))
    return column


def _order(frame: DataFrame, source: DeltaSource) -> Column:
    """Return the arrival column as an integer; moments in microseconds."""
    assert source.arrival is not None
    column = _column(source.arrival, to_arrow_schema(frame.schema))
    kind = frame.select(column.alias(source.arrival)).schema[0].dataType
    if isinstance(kind, _MOMENTS):
        return F.unix_micros(column.cast(TimestampType()))
    if isinstance(kind, DecimalType) and kind.scale == 0:
        return column.try_cast("long")
    if not isinstance(kind, _INTEGERS):
        message = (
            f"events {source.path}: column {source.arrival!r} is of type {kind.simpleString()} and cannot be "
            "source.arrival; name a column of whole numbers, dates or timestamps"
        )
        raise BucketsError(message)
    return column.cast("long")
