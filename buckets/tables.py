"""Results as they lie on disk, Delta tables or JSON lines, read without Spark."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

from buckets.errors import BucketsError, first_line

Rows = list[dict[str, Any]]


def read_output(folder: Path, name: str, columns: list[str]) -> Rows:
    """The rows of an output.

    Args:
        folder: the output folder of a job (Delta tables), or of `buckets evaluate` (JSON lines).
        name: the output, such as `alerts`.
        columns: which columns are wanted; times come as epoch ms.

    Raises:
        BucketsError: there is no such output.
    """
    if not folder.is_dir():
        message = f"results {folder}: no such folder; name the output folder of a run or of an evaluation"
        raise BucketsError(message)
    if (folder / name / "_delta_log").exists():
        return _read_delta(folder / name, columns)
    lines = folder / f"{name}.jsonl"
    if lines.exists():
        return _read_lines(lines, columns)
    message = f"results {folder}: there is neither a table {name} nor a file {name}.jsonl; name an output folder"
    raise BucketsError(message)


def _read_lines(path: Path, columns: list[str]) -> Rows:
    rows = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            row = json.loads(line)
            rows.append({column: row[column] for column in columns})
        except (ValueError, TypeError, KeyError):
            wanted = ", ".join(columns)
            message = f"results {path}:{number}: is no line of results with {wanted}; name an output folder of buckets"
            raise BucketsError(message) from None
    return rows


def _read_delta(path: Path, columns: list[str]) -> Rows:
    quoted = ", ".join(f'"{column}"' for column in columns)
    try:
        found = QueryBuilder().register("rows", DeltaTable(path)).execute(f"select {quoted} from rows")
    except DeltaError as error:
        message = f"results {path}: the table cannot be read ({first_line(error)})"
        raise BucketsError(message) from None
    table = pa.table(found.read_all())
    for index, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            in_ms = table.column(index).cast(pa.timestamp("ms", "UTC"), safe=False)
            table = table.set_column(index, field.name, in_ms.cast(pa.int64()))
    rows: Rows = table.to_pylist()
    for row in rows:
        if isinstance(row.get("key"), str):
            row["key"] = json.loads(row["key"])
    return rows
