"""The rows of a table of confirmed fraud, whoever has written it: charge-backs, closed cases, verdicts.

A table has one row an event, with its id in the field that the event schema declares, or in `event_id`; or one row a
case, with a list `event_ids`, as the truth of generated payments has. A table with a column `verdict` counts where that
is `fraud`, and where it has `made_at` the last verdict of an event counts.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from buckets.delta.query import is_table, query
from buckets.errors import BucketsError, first_line
from buckets.events.schema import EventSchema
from buckets.stores.location import location
from buckets.stores.opened_files import as_input

EVENT_ID, EVENT_IDS, AMOUNT = "event_id", "event_ids", "amount"
_VERDICT, _FRAUD, _MADE_AT = "verdict", "fraud", "made_at"
_KINDS = "a .csv, .jsonl or .parquet file, or a Delta table"


@dataclass(frozen=True)
class FraudRow:
    """What a row says of one event.

    Attributes:
        number: of the row, from 1.
        event_id: the event.
        said: the columns of the row that are about the event; none of a row that is about a whole case.
    """

    number: int
    event_id: str
    said: Mapping[str, Any]


def read_fraud_rows(path: Path, schema: EventSchema) -> list[FraudRow]:
    """Read the events that a table says were fraud, each once, as its last row says.

    Args:
        path: a CSV, JSON lines or Parquet file, or a Delta table.
        schema: the event schema, whose id the table may be written with.

    Raises:
        BucketsError: it cannot be read, or has no ids of events.
    """
    path = location(str(path))
    rows = list(_rows(path))
    if rows and all(row.get(_MADE_AT) is not None for row in rows):
        rows.sort(key=lambda row: row[_MADE_AT])
    there = list(dict.fromkeys(name for row in rows for name in row))
    column = next((name for name in (schema.event_id, EVENT_ID, EVENT_IDS) if name in there), None)
    if rows and column is None:
        message = (
            f"fraud {path}: has no column {schema.event_id!r}, {EVENT_ID!r} or {EVENT_IDS!r} with ids of events; "
            f"columns there: {', '.join(there)}"
        )
        raise BucketsError(message)
    rows_of: dict[str, FraudRow] = {}
    for number, row in enumerate(rows, 1):
        written = row.get(column or "")
        if written in (None, ""):
            continue
        if row.get(_VERDICT, _FRAUD) != _FRAUD:
            rows_of.pop(str(written), None)
            continue
        for event_id in written if isinstance(written, list) else [written]:
            rows_of[str(event_id)] = FraudRow(number, str(event_id), {} if column == EVENT_IDS else row)
    if not rows_of:
        message = f"fraud {path}: names no event; write the id of an event into each row"
        raise BucketsError(message)
    return list(rows_of.values())


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        if is_table(path):
            yield from query(path, "select * from rows", f"fraud {path}").to_pylist()
        elif path.suffix.lower() == ".parquet":
            yield from pq.read_table(as_input(path)).to_pylist()
        elif path.suffix.lower() == ".csv":
            yield from _csv_rows(path)
        elif path.suffix.lower() in (".jsonl", ".json", ".ndjson"):
            yield from _json_rows(path)
        else:
            message = f"fraud {path}: is of an unknown kind; name {_KINDS}"
            raise BucketsError(message)
    except BucketsError:
        raise
    except Exception as error:  # deltalake raises plain ones for files that are gone or broken
        message = f"fraud {path}: cannot be read ({first_line(error)}); name {_KINDS}"
        raise BucketsError(message) from None


def _csv_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield rows as texts: an id of digits keeps its zeros."""
    header = pyarrow.csv.open_csv(as_input(path)).schema.names
    texts = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(header, pa.string()), strings_can_be_null=True, null_values=[""]
    )
    yield from pyarrow.csv.read_csv(as_input(path), convert_options=texts).to_pylist()


def _json_rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                row = json.loads(line, parse_float=Decimal)
                if not isinstance(row, dict):
                    message = f"fraud {path}: line {number:,} is no JSON object; write one object a line"
                    raise BucketsError(message)
                yield row
