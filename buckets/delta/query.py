"""Delta tables asked in SQL without Spark: one way to run a query, one error, and values as DataFusion takes them.

In a query the table is called `rows`.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder

from buckets.delta.whole_table import open_table, through_store
from buckets.errors import BucketsError, Outage, first_line
from buckets.moment import TimeRange

_PLAIN = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
"""Arrow sorts and takes no views."""


def query(table: DeltaTable | Path | str, sql: str, named: str, remedy: str = "") -> pa.Table:
    """Return what a query finds; files without matches are not read.

    Args:
        table: the table, or where it is.
        sql: the query.
        named: what messages call the table, as in `results out/alerts`.
        remedy: what to do about a table that cannot be read.

    Raises:
        BucketsError: the table cannot be read.
    """
    with readable(named, remedy):
        opened = table if isinstance(table, DeltaTable) else open_table(table)
        return through_store(opened.table_uri, lambda: run(opened, sql))


def query_batches(table: DeltaTable, sql: str, named: str) -> Iterator[pa.RecordBatch]:
    """Return what a query finds as `query` does, in batches.

    Raises:
        BucketsError: the table cannot be read.
    """
    with readable(named):
        for batch in QueryBuilder().register("rows", table).execute(sql):
            yield pa.record_batch(batch)


def run(table: DeltaTable, sql: str, name: str = "rows") -> pa.Table:
    """Return what a query finds in a table that it calls `name`; errors are those of the library."""
    rows = pa.table(QueryBuilder().register(name, table).execute(sql).read_all())
    return rows.cast(pa.schema([field.with_type(_plain_type(field.type)) for field in rows.schema]))


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """Return a type, or that of lists, without views."""
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain_type(kind.value_type)))
    return _PLAIN.get(kind, kind)


@contextmanager
def readable(named: str, remedy: str = "") -> Iterator[None]:
    """Say in one line that a table cannot be read; see `query`."""
    advice = f"; {remedy}" if remedy else ""
    try:
        yield
    except Outage:
        raise
    except BucketsError as damaged:  # names its table, and the log
        raise BucketsError(damaged.message + advice) from None
    except Exception as error:  # deltalake raises plain ones for files that are gone or broken
        message = f"{named}: the table cannot be read ({first_line(error)}){advice}"
        raise BucketsError(message) from None


def is_table(path: Path) -> bool:
    """Return whether there is a Delta table at a path."""
    return (path / "_delta_log").is_dir()


def in_ms(rows: pa.Table | pa.RecordBatch) -> pa.Table | pa.RecordBatch:
    """Return rows with their moments as int64, in ms since the epoch."""
    for index, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            rows = rows.set_column(index, field.name, moments_ms(rows.column(index)))
    return rows


def moments_ms(moments: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return moments as int64, in ms since the epoch."""
    return moments.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())


def inside(times_ms: pa.ChunkedArray, wanted: TimeRange) -> pa.ChunkedArray:
    """Return which times lie in a range; a null does not."""
    is_inside = times_ms.is_valid()
    if wanted.from_ms is not None:
        is_inside = pc.and_(is_inside, pc.greater_equal(times_ms, wanted.from_ms))
    return is_inside if wanted.until_ms is None else pc.and_(is_inside, pc.less(times_ms, wanted.until_ms))


def quoted_column(name: str) -> str:
    """Return a name of a column as SQL takes it, whatever letters it has."""
    return '"' + name.replace('"', '""') + '"'


def sql_text(value: str) -> str:
    """Return a text in SQL."""
    return "'" + value.replace("'", "''") + "'"


def sql_moment(time_ms: int) -> str:
    """Return a moment in SQL, of the very type that tables keep, so that their statistics apply."""
    return f"arrow_cast({time_ms * 1000}, 'Timestamp(Microsecond, Some(\"UTC\"))')"


def is_in(name: str, values: Collection[str | int]) -> str:
    """Return the test that a column has one of some values."""
    listed = ", ".join(sql_text(value) if isinstance(value, str) else str(value).lower() for value in values)
    return f"{quoted_column(name)} in ({listed})" if listed else "false"


def is_between(name: str, wanted: TimeRange) -> list[str]:
    """Return the tests that a moment lies in a range."""
    from_ms, until_ms = wanted
    tests = [] if from_ms is None else [f"{quoted_column(name)} >= {sql_moment(from_ms)}"]
    return tests if until_ms is None else [*tests, f"{quoted_column(name)} < {sql_moment(until_ms)}"]
