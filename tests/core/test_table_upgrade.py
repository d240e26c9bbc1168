"""Tables of an earlier release: what they lack is added, and they are written and read on."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from buckets.table_upgrade import upgrade_table

BEFORE = pa.schema([pa.field("id", pa.string(), False), pa.field("count", pa.int64()), pa.field("day", pa.date32())])
AFTER = pa.schema([BEFORE.field(0), BEFORE.field(1), pa.field("most", pa.int64()), BEFORE.field(2)])
CHECKS = {"is_large": "count >= 2", "in_bounds": "most IS NULL OR count <= most"}


@pytest.fixture
def table(tmp_path) -> Path:
    """A table with a row, a constraint that is to change, and one that stays."""
    rows = pa.Table.from_pylist([{"id": "a", "count": 5, "day": None}], BEFORE)
    write_deltalake(tmp_path / "t", rows, partition_by=["day"])
    DeltaTable(tmp_path / "t").alter.add_constraint({"is_large": "count >= 5"})
    return tmp_path / "t"


def append(path: Path, **row) -> None:
    rows = pa.Table.from_pylist([{"id": "b", "count": 3, "most": 4, "day": None} | row], AFTER)
    write_deltalake(path, rows, mode="append")


def test_columns_are_added_and_constraints_renewed(table):
    upgrade_table(table, AFTER, CHECKS)
    append(table)
    rows = pa.table(DeltaTable(table).to_pyarrow_table()).sort_by("id").to_pylist()
    assert [(row["id"], row["count"], row["most"]) for row in rows] == [("a", 5, None), ("b", 3, 4)]
    for refused in ({"count": 1}, {"most": 2}):
        with pytest.raises(DeltaError, match="failed validation check"):
            append(table, **refused)


def test_a_table_that_lacks_nothing_is_not_touched(table):
    upgrade_table(table, AFTER, CHECKS)
    version = DeltaTable(table).version()
    upgrade_table(table, AFTER, CHECKS)
    upgrade_table(table, AFTER)
    assert DeltaTable(table).version() == version
