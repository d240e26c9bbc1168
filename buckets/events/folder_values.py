"""Values of fields that stand in the names of folders: `day=2026-01-01/channel=web%2Fapp/part-0.csv`.

They are text. What a file itself says of a field comes first, so that a copy of the value in a folder's name changes
nothing: a column of CSV or Parquet, whatever is in it, and in JSON, which has no columns, the value of the event.
"""

import os
from collections.abc import Collection
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from buckets.events.arrivals import SOURCE, field_column
from buckets.events.schema import EventSchema

_NULL = "__HIVE_DEFAULT_PARTITION__"


def folder_values(path: str) -> dict[str, str | None]:
    """Return the values in the names of a file's folders, by their fields; the nearest of two counts."""
    whole = path if "://" in path else os.path.abspath(path)
    pairs = (folder.partition("=") for folder in whole.split("/")[:-1])
    return {_decoded(name): None if value == _NULL else _decoded(value) for name, sign, value in pairs if name and sign}


def _decoded(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return text


def with_folder_values(rows: pa.RecordBatch, schema: EventSchema, lacking: Collection[str]) -> pa.RecordBatch:
    """Give rows the values that stand in the paths of their files.

    Args:
        rows: with `source`, and the declared fields as text or nulls.
        schema: the event schema.
        lacking: the fields that the files do not have, or not in every row.
    """
    source = rows.column(SOURCE).dictionary_encode()
    given = [folder_values(path) for path in source.dictionary.to_pylist()]
    for index, name in enumerate(schema.field_names):
        if name in lacking and name not in schema.arrays and any(name in values for values in given):
            column = field_column(index)
            values = pa.array([values.get(name) for values in given], pa.string()).take(source.indices)
            whole = pc.coalesce(rows.column(column), values)
            rows = rows.set_column(rows.schema.get_field_index(column), column, whole)
    return rows
