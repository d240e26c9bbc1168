"""Events of a file, a folder of files or a Delta table as arrivals, in the order in which they count, without Spark."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pyarrow as pa

from buckets.archive.delta_source import OrderedRows, arrivals_in_order
from buckets.delta.query import is_table, readable
from buckets.delta.whole_table import open_table
from buckets.errors import BucketsError
from buckets.events.arrivals import check_columns, without_column
from buckets.events.event_file import file_arrivals, lacking, open_event_file
from buckets.events.event_id import ROW_IDS
from buckets.events.field_paths import reachable, type_of
from buckets.events.parquet_rows import MOST_ROWS
from buckets.events.row_order import can_order
from buckets.events.schema import EventSchema
from buckets.events.source_files import readable_files
from buckets.events.times_seen import told
from buckets.stores.location import location


def open_events(
    path: Path,
    schema: EventSchema,
    arrival: str | None,
    say: Callable[[str], None],
    needed: frozenset[str] = frozenset(),
) -> Iterator[pa.RecordBatch]:
    """Return events in arrival order; all that can be checked before the first is read has been checked.

    The rows of a file come as they stand, those of a folder file by file as these were modified, also of files in its
    folders `NAME=VALUE`, those of a Delta table in the order of a column.

    Args:
        path: a file that `buckets evaluate` takes, a folder of such files, or a Delta table.
        schema: the event schema.
        arrival: the column that orders the rows of a Delta table; None for its event time, and for anything else.
        say: told which fields of `needed` are nowhere, and at the end what is to be known of the times, such as that
            they have no zone.
        needed: fields that rules need.

    Raises:
        BucketsError: there is no such thing, it has no events, or a column is missing or cannot order rows.
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
        files = sorted(_files(path), key=lambda file: (file.stat().st_mtime_ns, file))
        found = (open_event_file(file, schema) for file in files if file.stat().st_size)
        opened = [replace(file, folder=path) for file in found]
    if not opened:
        message = f"events {path}: no files with events in this folder; name a file, a folder of files or a Delta table"
        raise BucketsError(message)
    gone = lacking(opened, schema, needed)
    if gone:
        say(f"events {path}: {gone}")
    return chain.from_iterable(file_arrivals(file, schema, say=say) for file in opened)


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder, and of the folders in it whose names have values of fields."""
    for file in readable_files(folder, subfolders=True):
        if all("=" in name for name in file.relative_to(folder).parts[:-1]):
            yield file


def _delta_arrivals(
    path: Path, schema: EventSchema, arrival: str | None, say: Callable[[str], None], needed: frozenset[str]
) -> Iterator[pa.RecordBatch]:
    with readable(f"events {path}"):
        table = open_table(path)
    columns = pa.schema(table.schema().to_arrow())
    arrival = schema.event_time.field if arrival is None else arrival
    names = reachable(schema.field_names, columns)
    check_columns(names, schema, str(path), arrival)
    gone = without_column(names, schema, needed)
    if gone:
        say(f"events {path}: {gone}")
    if schema.identity.row:
        message = f"events {path}: rows of a Delta table have no number, so {ROW_IDS}"
        raise BucketsError(message)
    kind = type_of(arrival, columns)
    if kind is None or not can_order(kind):
        message = (
            f"events {path}: column {arrival!r} is of type {kind} and cannot order rows; name a column of whole "
            "numbers, dates or timestamps"
        )
        raise BucketsError(message)
    rows, there = OrderedRows(str(path), arrival, schema.identity.names), table.count()
    if len(rows) < there:
        message = f"events {path}: column {arrival!r} is null in {there - len(rows):,} rows, which then have no order"
        raise BucketsError(message)
    pieces = (table.slice(start, MOST_ROWS) for table in rows.all() for start in range(0, len(table), MOST_ROWS))
    return (arrivals_in_order(piece, schema) for piece in pieces)
