"""Confirmed fraud, as somebody has written it down: ids of events, and amounts where they are known.

A table has one row an event, with its id in the field that the event schema declares, or in `event_id`; or one row a
case, with a list `event_ids`, as the truth of generated payments has. Amounts stand in `amount` or in the measure's own
column; without them an event's own amount counts. In a table with a column `verdict`, an event counts whose last
row says `fraud`: the last by `made_at`, as in a table of verdicts, or else by the order of the rows.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder

from buckets.errors import BucketsError, first_line
from buckets.events.schema import EventSchema

_ID, _IDS, _AMOUNT = "event_id", "event_ids", "amount"
_VERDICT, _FRAUD, _MADE_AT = "verdict", "fraud", "made_at"
_KINDS = "a .csv, .jsonl or .parquet file, or a Delta table"


@dataclass(frozen=True)
class ConfirmedFraud:
    """Events that were fraud.

    Attributes:
        amounts: by id, how much money it was; None where that is not written.
    """

    amounts: Mapping[str, Decimal | None]


def read_confirmed_fraud(path: Path, schema: EventSchema, measure: str | None) -> ConfirmedFraud:
    """Read a table of confirmed fraud.

    Args:
        path: a CSV, JSON lines or Parquet file, or a Delta table.
        schema: the event schema, whose id the table may be written with.
        measure: the measure that is the amount of an event.

    Raises:
        BucketsError: it cannot be read, or has no column of ids, or an amount in it is no number.
    """
    rows = list(_rows(path))
    if rows and all(row.get(_MADE_AT) is not None for row in rows):
        rows.sort(key=lambda row: row[_MADE_AT])
    there = list(dict.fromkeys(name for row in rows for name in row))
    column = next((name for name in (schema.event_id, _ID, _IDS) if name in there), None)
    if rows and column is None:
        message = (
            f"fraud {path}: has no column {schema.event_id!r}, {_ID!r} or {_IDS!r} with ids of events; columns there: "
            f"{', '.join(there)}"
        )
        raise BucketsError(message)
    amounts: dict[str, Decimal | None] = {}
    for number, row in enumerate(rows, 1):
        written = row.get(column or "")
        if written is None:
            continue
        if _VERDICT in there and row.get(_VERDICT) != _FRAUD:
            amounts.pop(str(written), None)
            continue
        amount = next(
            (row[name] for name in (_AMOUNT, measure) if name is not None and row.get(name) is not None), None
        )
        for event_id in written if isinstance(written, list) else [written]:
            amounts[str(event_id)] = None if column == _IDS else _decimal(path, number, amount)
    if not amounts:
        message = f"fraud {path}: names no event; write the id of an event into each row"
        raise BucketsError(message)
    return ConfirmedFraud(amounts)


def _decimal(path: Path, number: int, written: Any) -> Decimal | None:
    if written is None or written == "":
        return None
    try:
        amount = Decimal(str(written))
        if amount.is_finite():
            return amount
    except InvalidOperation:
        pass
    message = f"fraud {path}: row {number:,}: the amount {written!r} is no number; write digits, as in 120.50"
    raise BucketsError(message)


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        if (path / "_delta_log").exists():
            table = pa.table(
                QueryBuilder().register("fraud", DeltaTable(path)).execute("select * from fraud").read_all()
            )
            yield from table.to_pylist()
        elif path.suffix.lower() == ".parquet":
            yield from pq.read_table(path).to_pylist()
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
    """Rows as texts: an id of digits keeps its zeros."""
    header = pyarrow.csv.open_csv(path).schema.names
    texts = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(header, pa.string()), strings_can_be_null=True, null_values=[""]
    )
    yield from pyarrow.csv.read_csv(path, convert_options=texts).to_pylist()


def _json_rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                row = json.loads(line, parse_float=Decimal)
                if not isinstance(row, dict):
                    message = f"fraud {path}: line {number:,} is no JSON object; write one object a line"
                    raise BucketsError(message)
                yield row
