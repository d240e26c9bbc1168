"""The ids of the events that a table names, such as those with a label."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from buckets.delta.query import is_table, query, quoted_column
from buckets.delta.whole_table import open_table
from buckets.errors import BucketsError, first_line
from buckets.events.conversion import attributes
from buckets.events.event_file import KINDS, file_kind
from buckets.events.parquet_rows import field_batches, open_parquet
from buckets.events.text_file import open_text


def read_ids(path: Path, column: str) -> pa.Array:
    """Read the different ids in a column of a Delta table or a file, which ends as for `buckets evaluate`, as text.

    Raises:
        BucketsError: there is no such table or column, or it cannot be read.
    """
    kind = "delta" if is_table(path) else file_kind(path)
    if kind is None or (kind != "delta" and not path.is_file()):
        message = f"events {path}: no Delta table and no file that ends in {', '.join(KINDS)}; check the path"
        raise BucketsError(message)
    try:
        ids = {"delta": _of_delta, "parquet": _of_parquet, "csv": _of_csv, "json": _of_json}[kind](path, column)
    except KeyError:
        message = f"events {path}: no column {column!r}, which names the events that are wanted"
        raise BucketsError(message) from None
    except (OSError, ValueError, TypeError, pa.ArrowException) as error:
        message = f"events {path}: the ids in {column!r} cannot be read ({first_line(error)})"
        raise BucketsError(message) from None
    texts, _ = attributes(ids, "string")
    return pc.unique(texts).drop_null()


def _of_delta(path: Path, column: str) -> pa.Array:
    table = open_table(path)
    if column not in pa.schema(table.schema().to_arrow()).names:
        raise KeyError(column)
    sql = f"select {quoted_column(column)} from rows"
    return query(table, sql, f"events {path}").column(0).cast(pa.string()).combine_chunks()


def _of_parquet(path: Path, column: str) -> pa.Array:
    if column not in open_parquet(path).schema_arrow.names:
        raise KeyError(column)
    pieces = [piece.column(0) for piece in field_batches(path, [column])]
    return pa.concat_arrays(pieces) if pieces else pa.array([], pa.string())


def _of_csv(path: Path, column: str) -> pa.Array:
    options = pacsv.ConvertOptions(include_columns=[column], column_types={column: pa.string()})
    with open_text(path) as file:
        return pacsv.read_csv(file, convert_options=options).column(0).combine_chunks()


def _of_json(path: Path, column: str) -> pa.Array:
    with open_text(path) as file:
        rows: list[Any] = [json.loads(line, parse_int=str, parse_float=str) for line in file if not line.isspace()]
    ids = [row[column] for row in rows]
    return pa.array([None if value is None else str(value) for value in ids], pa.string())
