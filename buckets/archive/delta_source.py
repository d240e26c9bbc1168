"""Reads a Delta table in the order of its arrival column, and opens files or tables of events without Spark."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.delta.whole_table import is_table, open_table, query, quoted_column, readable, sql_text
from buckets.errors import BucketsError
from buckets.events.arrivals import check_columns, without_column
from buckets.events.bad_rows import bad_source
from buckets.events.event_file import file_arrivals, lacking, open_event_file
from buckets.events.field_paths import containers, path_of, reachable, type_of
from buckets.events.message_fields import as_declared, schema_to_read, told
from buckets.events.parquet_rows import MOST_ROWS, as_arrivals, can_order, plain_columns
from buckets.events.schema import ROW_IDS, EventSchema
from buckets.events.source_files import readable_files
from buckets.expressions.expression import is_array
from buckets.stores.location import location

_MOST_ROWS = 2_000_000  # About the most rows read at once
_ORDER = "__order__"


def _field_sql(name: str, columns: pa.Schema) -> str:
    """Return the SQL for a column, or for the field at a path; SQL counts list elements from 1."""
    outermost, *inside = [name] if name in columns.names else path_of(name)
    steps = (f"[{sql_text(step)}]" if isinstance(step, str) else f"[{step + 1}]" for step in inside)
    return quoted_column(str(outermost)) + "".join(steps)


def _arrivals_in_order(rows: pa.Table, schema: EventSchema) -> pa.RecordBatch:
    """Convert rows with an order column to the form of `events.arrivals`."""
    order, readable = rows[_ORDER].combine_chunks(), schema_to_read(schema)
    wanted = {*readable.field_names, *containers(readable.field_names)}
    declared = [name for name in rows.column_names if name in wanted]
    columns = {name: pc.cast(rows[name].combine_chunks(), rows[name].type) for name in declared}
    fields = plain_columns(pa.record_batch(columns), readable.field_names)
    (arrived,) = as_declared([as_arrivals(fields, readable, "", order, order)], schema)
    return arrived


def open_events(
    path: Path,
    schema: EventSchema,
    arrival: str | None,
    say: Callable[[str], None],
    needed: frozenset[str] = frozenset(),
) -> Iterator[pa.RecordBatch]:
    """Return events in arrival order; everything checkable is checked before the first is read.

    The rows of a file come in file order, those of a folder file by file in order of modification, including files in
    subfolders `NAME=VALUE`, those of a Delta table in the order of a column: `arrival`, or else their event time. `say`
    is told which fields of `needed` no file has, and at the end gets remarks about times, such as missing zones.
    """
    path = location(str(path))
    if is_table(path):
        return told(_delta_arrivals(path, schema, arrival, say, needed), schema, f"events {path}", say)
    if arrival is not None:
        message = f"--arrival {arrival}: is for Delta tables; the rows of {path} come in the order in which they stand"
        raise BucketsError(message)
    if not path.is_dir():
        opened = [open_event_file(path, schema)]
    else:
        # Including files in folders whose names contain values of fields.
        of_fields = (
            file
            for file in readable_files(path, subfolders=True)
            if all("=" in name for name in file.relative_to(path).parts[:-1])
        )
        files = sorted(of_fields, key=lambda file: (file.stat().st_mtime_ns, file))
        found = (open_event_file(file, schema) for file in files if file.stat().st_size)
        opened = [replace(file, folder=path) for file in found]
    if not opened:
        raise bad_source(path, "no files with events in this folder; name a file, a folder of files or a Delta table")
    gone = lacking(opened, schema, needed)
    if gone:
        say(f"events {path}: {gone}")
    return chain.from_iterable(file_arrivals(file, schema, say=say) for file in opened)


def _delta_arrivals(
    path: Path, schema: EventSchema, arrival: str | None, say: Callable[[str], None], needed: frozenset[str]
) -> Iterator[pa.RecordBatch]:
    named = f"events {path}"
    with readable(named):
        table = open_table(path)
    columns = pa.schema(table.schema().to_arrow())
    names, times = reachable(schema.all_names, columns), schema.spellings(schema.event_time.field)
    arrival = next((time for time in times if time in names), times[0]) if arrival is None else arrival
    check_columns(names, schema, str(path), arrival)
    gone = without_column(names, schema, needed)
    if gone:
        say(f"{named}: {gone}")
    if schema.identity.row:
        raise bad_source(path, f"rows of a Delta table have no number, so {ROW_IDS}")
    kind, column = type_of(arrival, columns), _field_sql(arrival, columns)
    if kind is None or not can_order(kind):
        reason = f"column {arrival!r} is of type {kind} and cannot order rows"
        raise bad_source(path, f"{reason}; name a column of whole numbers, dates or timestamps")
    # Spark's order of rows: integers, or microseconds.
    is_moment = pa.types.is_date(kind) or pa.types.is_timestamp(kind)
    order = f"arrow_cast({column}, 'Timestamp(Microsecond, Some(\"UTC\"))')" if is_moment else column
    order = f"arrow_cast({order}, 'Int64')"
    ordered = f"select {order} as o from rows where {column} is not null order by o"
    orders, fewest = query(table, ordered, named)["o"].to_numpy(), table.count()
    if len(orders) < fewest:  # For files without statistics the log has no row counts.
        without = fewest - len(orders)
        raise bad_source(path, f"column {arrival!r} is null in {without:,} rows, which then have no order")
    # Rows with equal order are sorted by id; lists of structs cannot be ordered.
    ids = [name for name in reachable(schema.id_names, columns) if name in schema.id_names and not is_array(name)]
    sorted_by = ", ".join([_ORDER, *(_field_sql(name, columns) for name in ids)])

    def tables() -> Iterator[pa.Table]:
        first = 0
        while first < len(orders):
            at, last = int(orders[first]), int(orders[min(first + _MOST_ROWS, len(orders)) - 1])
            sql = f"select *, {order} as {_ORDER} from rows where {order} between {at} and {last}"
            yield query(table, f"{sql} order by {sorted_by}", named)
            first = int(np.searchsorted(orders, last, "right"))

    pieces = (each.slice(start, MOST_ROWS) for each in tables() for start in range(0, len(each), MOST_ROWS))
    return (_arrivals_in_order(piece, schema) for piece in pieces)
