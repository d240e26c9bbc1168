"""Tables of an earlier release: the columns that they lack are added, and they are written and read on."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from buckets.delta.whole_table import add_missing_columns, constraints_of

BEFORE = pa.schema([pa.field("id", pa.string(), False), pa.field("count", pa.int64()), pa.field("day", pa.date32())])
AFTER = pa.schema([BEFORE.field(0), BEFORE.field(1), pa.field("most", pa.int64()), BEFORE.field(2)])


@pytest.fixture
def table(tmp_path) -> Path:
    """A table with a row and a constraint."""
    rows = pa.Table.from_pylist([{"id": "a", "count": 5, "day": None}], BEFORE)
    write_deltalake(tmp_path / "t", rows, partition_by=["day"])
    DeltaTable(tmp_path / "t").alter.add_constraint({"is_large": "count >= 2"})
    return tmp_path / "t"


def test_columns_that_a_table_lacks_are_added_and_null_in_its_rows(table):
    add_missing_columns(table, AFTER)
    new = pa.Table.from_pylist([{"id": "b", "count": 3, "most": 4, "day": None}], AFTER)
    write_deltalake(table, new, mode="append")
    rows = pa.table(DeltaTable(table).to_pyarrow_table()).sort_by("id").to_pylist()
    assert [(row["id"], row["count"], row["most"]) for row in rows] == [("a", 5, None), ("b", 3, 4)]
    assert constraints_of(table) == {"is_large": "count >= 2"}


def test_a_table_that_lacks_nothing_is_not_touched(table):
    add_missing_columns(table, AFTER)
    version = DeltaTable(table).version()
    add_missing_columns(table, AFTER)
    assert DeltaTable(table).version() == version
