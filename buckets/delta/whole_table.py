"""Open, create and query Delta tables without Spark; damage and unavailable stores are reported in one line.

Calls of the library go through `tried` or `through_store`, which retry for a while if a store does not answer.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from buckets.errors import BucketsError, Outage, first_line
from buckets.moment import TimeRange
from buckets.stores.store_path import PATIENCE_S, StoreError, is_mistaken, retried, store_error

T = TypeVar("T")
_ADDRESS = re.compile(r"(s3a?|gs|abfss?):/")
_OF_STORE = re.compile(r"object store|Generic \w+ error", re.IGNORECASE)
_WITHIN_S = 0.3  # How long a log listed during writes may show a commit without the one before it


def open_table(path: Path | str) -> DeltaTable:
    """Open a table.

    Raises:
        TableNotFoundError: there is none.
    """
    return tried(path, lambda: DeltaTable(str(path)))


def open_named(path: Path | str, otherwise: Callable[[str], str]) -> DeltaTable:
    """Open a table named by a person; if there is none, `otherwise` turns the reason into the error's text."""
    try:
        return open_table(path)
    except StoreError:
        raise
    except (TableNotFoundError, BucketsError) as error:
        raise BucketsError(otherwise(first_line(error.__cause__ or error))) from None


def make_table(path: Path, columns: pa.Schema, properties: Mapping[str, str | None] | None = None, **more: Any) -> None:
    """Create a table unless it exists; properties other than Delta's own are allowed."""
    more |= {"configuration": properties and dict(properties), "raise_if_key_not_exists": False}
    tried(path, lambda: DeltaTable.create(str(path), columns, mode="ignore", **more))


def is_made(path: Path | str) -> bool:
    """Return whether there is a table with a commit."""
    return tried(path, lambda: DeltaTable.is_deltatable(str(path)))


def last_number(path: Path | str, application: str) -> int | None:
    """Return the number of an application's last append, as written by `append_new`; None before the first."""
    return tried(path, lambda: open_table(path).transaction_version(application))


def files_in(table: DeltaTable) -> pa.Table:
    """Return the log's entries for the files of a table."""
    return through_store(table.table_uri, lambda: pa.table(table.get_add_actions(flatten=True)))


def check_table(path: Path) -> None:
    """Check that a table's log is readable and that its data files exist, without reading them."""
    named = files_in(open_table(path))["path"].to_pylist()
    gone = [name for name in named if not (path / name).exists() and not (path / unquote(name)).exists()]
    if gone:
        others = f" and {len(gone) - 1:,} more" if len(gone) > 1 else ""
        message = f"table {path}: file {gone[0]}{others} with some of its rows is gone; restore the table from a copy"
        raise BucketsError(message)


def tried(path: Path | str, ask: Callable[[], T]) -> T:
    """Repeat an idempotent operation on a table until it succeeds.

    Raises:
        TableNotFoundError: there is none.
    """

    def passes_within_s(error: Exception) -> float:
        is_passing = isinstance(error, DeltaError | OSError) and not isinstance(error, TableNotFoundError)
        return _WITHIN_S if is_passing and not _is_of_store(path, error) else 0.0

    with _whole(path):
        return through_store(path, lambda: retried(ask, passes_within_s))


def through_store(path: Path | str, ask: Callable[[], T]) -> T:
    """Repeat an operation on a table while its store does not answer; other errors are raised unchanged."""
    try:
        return retried(ask, lambda error: PATIENCE_S if _is_of_store(path, error) and not is_mistaken(error) else 0.0)
    except Exception as error:
        if _is_of_store(path, error):
            raise store_error(path, error) from error
        raise


def _is_of_store(path: Path | str, error: Exception) -> bool:
    """Return whether a library's error about a table comes from its store."""
    if isinstance(error, BucketsError | TableNotFoundError) or not _ADDRESS.match(str(path)):
        return False
    return isinstance(error, OSError) or _OF_STORE.search(str(error)) is not None


@contextmanager
def _whole(path: Path | str) -> Iterator[None]:
    """Report in one line that a table cannot be opened, or that its log is damaged."""
    try:
        yield
    except (BucketsError, TableNotFoundError):
        raise
    except CommitFailedError as error:
        message = f"table {path}: others change it at the same time ({first_line(error)[:200]}); start again"
        raise BucketsError(message) from error
    except OSError as error:
        message = f"table {path}: cannot be opened ({first_line(error)[:200]}); see who may read and write there"
        raise BucketsError(message) from error
    except DeltaError as error:
        # The rest of the text is addresses in a native library.
        reason = first_line(error).removeprefix("Kernel error: ")[:200]
        message = (
            f"table {path}: its log, {path}/_delta_log, cannot be read ({reason}): one of its files is cut, "
            "damaged or missing; restore it from a copy"
        )
        raise BucketsError(message) from error


_PLAIN = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}  # Arrow cannot sort or take views


def query(table: DeltaTable | Path | str, sql: str, named: str, remedy: str = "") -> pa.Table:
    """Return the result of a query; files without matches are not read.

    Messages name the table as in `results out/alerts`, and end with the remedy if it cannot be read.
    """
    with readable(named, remedy):
        opened = table if isinstance(table, DeltaTable) else open_table(table)
        return through_store(opened.table_uri, lambda: run(opened, sql))


def query_batches(table: DeltaTable, sql: str, named: str) -> Iterator[pa.RecordBatch]:
    """Yield the result of a query in batches, like `query`."""
    with readable(named):
        for batch in QueryBuilder().register("rows", table).execute(sql):
            yield pa.record_batch(batch)


def run(table: DeltaTable, sql: str, name: str = "rows") -> pa.Table:
    """Return the result of a query on a table that it calls `name`; errors are the library's."""
    rows = pa.table(QueryBuilder().register(name, table).execute(sql).read_all())
    return rows.cast(pa.schema([field.with_type(_plain_type(field.type)) for field in rows.schema]))


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """Replace view types, also inside lists, by their plain types."""
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain_type(kind.value_type)))
    return _PLAIN.get(kind, kind)


@contextmanager
def readable(named: str, remedy: str = "") -> Iterator[None]:
    """Report in one line that a table cannot be read; see `query`."""
    advice = f"; {remedy}" if remedy else ""
    try:
        yield
    except Outage:
        raise
    except BucketsError as damaged:  # it names its table and the log
        raise BucketsError(damaged.message + advice) from None
    except Exception as error:  # deltalake raises plain exceptions for missing or broken files
        message = f"{named}: the table cannot be read ({first_line(error)}){advice}"
        raise BucketsError(message) from None


def is_table(path: Path) -> bool:
    """Return whether a path is a Delta table."""
    return (path / "_delta_log").is_dir()


def in_ms(rows: pa.Table | pa.RecordBatch) -> pa.Table | pa.RecordBatch:
    """Return rows with timestamps as int64, in ms since the epoch."""
    for index, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            rows = rows.set_column(index, field.name, moments_ms(rows.column(index)))
    return rows


def moments_ms(moments: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return timestamps as int64, in ms since the epoch."""
    return moments.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())


def inside(times_ms: pa.ChunkedArray, wanted: TimeRange) -> pa.ChunkedArray:
    """Return which times lie in a range; null times do not."""
    is_inside = times_ms.is_valid()
    if wanted.from_ms is not None:
        is_inside = pc.and_(is_inside, pc.greater_equal(times_ms, wanted.from_ms))
    return is_inside if wanted.until_ms is None else pc.and_(is_inside, pc.less(times_ms, wanted.until_ms))


def quoted_column(name: str) -> str:
    """Return a column name quoted for SQL, whatever its characters."""
    return '"' + name.replace('"', '""') + '"'


def sql_text(value: str) -> str:
    """Return a text as an SQL literal."""
    return "'" + value.replace("'", "''") + "'"


def sql_moment(time_ms: int) -> str:
    """Return a timestamp as an SQL literal of the tables' own type, so that file statistics apply."""
    return f"arrow_cast({time_ms * 1000}, 'Timestamp(Microsecond, Some(\"UTC\"))')"


def is_in(name: str, values: Collection[str | int]) -> str:
    """Return the SQL condition that a column has one of some values."""
    listed = ", ".join(sql_text(value) if isinstance(value, str) else str(value).lower() for value in values)
    return f"{quoted_column(name)} in ({listed})" if listed else "false"


def is_between(name: str, wanted: TimeRange) -> list[str]:
    """Return the SQL conditions that a timestamp lies in a range."""
    from_ms, until_ms = wanted
    tests = [] if from_ms is None else [f"{quoted_column(name)} >= {sql_moment(from_ms)}"]
    return tests if until_ms is None else [*tests, f"{quoted_column(name)} < {sql_moment(until_ms)}"]


def add_missing_columns(path: Path, columns: pa.Schema) -> None:
    """Add columns that a table lacks; they are null in existing rows."""

    def add() -> None:
        table = open_table(path)
        there = {field.name for field in table.schema().fields}
        missing = [field for field in columns if field.name not in there]
        if missing:
            table.alter.add_columns(Schema.from_arrow(pa.schema(missing)).fields)

    tried(path, add)
