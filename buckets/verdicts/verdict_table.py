"""Verdicts in a Delta table: a separate one, to which people add at any time, or an audit's.

Each command appends its rows in one commit. Appends do not conflict, so concurrent writers lose nothing; a verdict that
was written twice has the same id twice, and is read once.
"""

import contextlib
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from buckets.config.job import Job, results_folder
from buckets.delta.whole_table import in_ms, is_table, open_table, query
from buckets.errors import BucketsError, first_line
from buckets.outputs.columns import VERDICTS
from buckets.outputs.contract import MOMENT, OTHER_FIELDS
from buckets.printable import quoted
from buckets.stores.location import location
from buckets.verdicts.verdict import ATTRIBUTES, FINDINGS, NAMES, TABLE, Verdict

_FIELDS = [field.name for field in TABLE.contract.fields] if TABLE.contract is not None else []
COLUMNS = pa.schema(
    [
        pa.field(column.name, column.type, column.nullable)
        for column in TABLE.columns
        if column.name in (*_FIELDS, OTHER_FIELDS)
    ]
)
"""The columns of a table of verdicts; audit tables also record the source of each message."""
_NEEDED = ("id", "alert_id", "event_id", "verdict", "by", "made_at")
_ATTEMPTS = 5


def verdict_table(job: Job) -> Path:
    """Return the path of a job's table of verdicts: from `verdicts`, or beside its tables of alerts.

    Verdicts from a topic are in a table of its audit.
    """
    settings, audit = job.settings.verdicts, job.settings.audit
    if settings.table is not None:
        return location(settings.table)
    if settings.topic is not None:
        assert audit is not None
        return location(audit.path) / VERDICTS
    folder = results_folder(job)
    return folder.with_name(f"{folder.name}-{VERDICTS}")


def read_verdicts(table: str | Path, latest: bool = False) -> list[dict[str, Any]]:
    """Read the verdicts of a table, oldest first.

    Args:
        table: the table; one that is not there yet has none.
        latest: whether only the one that counts is wanted of each alert, or event without an alert.

    Returns:
        One dictionary a verdict, with `id`, `alert_id`, `event_id`, `verdict`, `by`, `made_at` and `event_time` in ms
        since the epoch, `note`, `rule_id`, `key` as a dictionary, and `amount` as a decimal.

    Raises:
        BucketsError: it is not a table of verdicts, or cannot be read.
    """
    verdicts = load_verdicts(location(str(table)))
    if latest:
        verdicts = list({verdict.subject: verdict for verdict in verdicts}.values())
    return [verdict.as_dict() for verdict in verdicts]


def load_verdicts(table: Path) -> list[Verdict]:
    """Read all verdicts of a table, each id once, oldest first; empty without a table."""
    if not _is_made(table):
        return []
    there = _columns_of(table)
    columns = ", ".join(f'"{name}"' if name in there else f'null as "{name}"' for name in NAMES)
    rows = query(table, f"select {columns} from rows", f"verdicts {table}")
    for name in ("made_at", "event_time"):
        rows = rows.set_column(rows.schema.get_field_index(name), name, rows[name].cast(MOMENT))
    verdicts = sorted((_verdict(table, row) for row in in_ms(rows).to_pylist()), key=lambda verdict: verdict.age)
    return list({verdict.id: verdict for verdict in verdicts}.values())


def append_verdicts(table: Path, verdicts: Sequence[Verdict]) -> int:
    """Add verdicts to a table in one commit, creating it if it is missing; return how many.

    Verdicts that the table already has are skipped. If an error occurs, nothing has been written.
    """
    known = {verdict.id for verdict in load_verdicts(table)}
    new = {verdict.id: verdict.row() for verdict in verdicts if verdict.id not in known}
    if not new:
        return 0
    try:
        _append(table, list(new.values()))
    except Exception as error:  # deltalake has no class for all that may be wrong with a table
        message = f"verdicts {table}: the table cannot be written ({first_line(error)}); nothing has been written"
        raise BucketsError(message) from None
    return len(new)


def _append(table: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Append rows in one commit, creating the table if it is missing; of several writers one creates it."""
    for attempts_left in reversed(range(_ATTEMPTS)):
        try:
            if _is_made(table):
                there = open_table(table)
            else:
                there = DeltaTable.create(str(table), COLUMNS, name=VERDICTS, description=TABLE.comment, mode="error")
            names = {field.name for field in there.schema().fields}
            columns = pa.schema([field for field in COLUMNS if field.name in names])
            write_deltalake(there, pa.Table.from_pylist([dict(row) for row in rows], columns), mode="append")
        except (DeltaError, BucketsError):  # of a row that is there twice, readers take one
            if not attempts_left:
                raise
        else:
            return


def _is_made(table: Path) -> bool:
    """Return whether a table exists; another process may be creating it and not have committed yet."""
    if any((table / "_delta_log").glob("[0-9]*")):
        return True
    if table.exists() and not is_table(table) and (not table.is_dir() or any(table.iterdir())):
        message = f"verdicts {table}: is something else than a table of verdicts; name another one as `verdicts.table`"
        raise BucketsError(message)
    return False


def _columns_of(table: Path) -> frozenset[str]:
    try:
        there = frozenset(field.name for field in open_table(table).schema().fields)
    except BucketsError:  # says itself which log is damaged
        raise
    except Exception as error:  # deltalake raises plain ones for logs that are gone
        message = (
            f"verdicts {table}: is not a table of verdicts ({first_line(error)}); name another one as `verdicts.table`"
        )
        raise BucketsError(message) from None
    missing = next((name for name in _NEEDED if name not in there), None)
    if missing is not None:
        message = (
            f"verdicts {table}: is not a table of verdicts, for it has no column {missing!r}; name another one as "
            "`verdicts.table`"
        )
        raise BucketsError(message)
    return there


def _verdict(table: Path, row: Mapping[str, Any]) -> Verdict:
    named = quoted(str(row["id"]))
    missing = next((name for name in ("id", "by", "made_at") if row[name] in (None, "")), None)
    if missing is not None or (row["alert_id"] is None and row["event_id"] is None):
        what = missing or "alert_id nor event_id"
        message = f"verdicts {table}: the verdict {named} has no {what}; correct the row or remove it"
        raise BucketsError(message)
    if row["verdict"] not in FINDINGS:
        finding = quoted(str(row["verdict"]))
        message = (
            f"verdicts {table}: the verdict {named} says {finding}, none of {', '.join(FINDINGS)}; correct the row"
        )
        raise BucketsError(message)
    # Without the zeros that pad it in its column.
    amount = None if row["amount"] is None else Decimal(row["amount"]).normalize()
    key = None
    if row["key"] is not None:
        with contextlib.suppress(ValueError, TypeError, RecursionError):
            key = json.loads(row["key"])
        if not isinstance(key, dict):
            message = f"verdicts {table}: the key of verdict {named} is not a JSON object; correct the row"
            raise BucketsError(message)
    fields = {ATTRIBUTES.get(name, name): value for name, value in row.items()}
    return Verdict(**{**fields, "key": key, "amount": amount})
