"""Delta tables whose logs are damaged, each named in one line without what a native library says beside it."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from deltalake.exceptions import TableNotFoundError

from buckets.delta.query import query
from buckets.delta.whole_table import open_table
from buckets.errors import BucketsError
from buckets.outputs.recorded_outputs import output_table


@pytest.fixture
def table(tmp_path) -> Path:
    """A table of three commits."""
    for number in range(3):
        write_deltalake(tmp_path / "table", pa.table({"number": [number]}), mode="append")
    return tmp_path / "table"


def commit(table: Path, number: int) -> Path:
    return table / "_delta_log" / f"{number:020d}.json"


def cut_last(table: Path) -> None:
    commit(table, 2).write_bytes(commit(table, 2).read_bytes()[:-30])


def cut_first(table: Path) -> None:
    commit(table, 0).write_bytes(commit(table, 0).read_bytes()[:40])


def remove_one(table: Path) -> None:
    commit(table, 1).unlink()


@pytest.mark.parametrize("harm", [cut_last, cut_first, remove_one])
def test_a_damaged_log_is_named_in_one_line(table, harm, as_worded):
    assert open_table(table).version() == 2
    harm(table)
    with pytest.raises(BucketsError, check=as_worded):
        open_table(table)


@pytest.mark.parametrize("harm", [cut_last, cut_first, remove_one])
@pytest.mark.parametrize("ask", [lambda table: query(table, "select * from rows", f"results {table}"), output_table])
def test_a_damaged_log_is_named_once_by_who_asks_its_table(table, harm, ask, as_worded):
    harm(table)
    with pytest.raises(BucketsError, check=as_worded) as raised:
        ask(table)
    assert raised.value.message.count("cannot be read") == 1


def test_a_table_that_is_not_there_is_told_apart(tmp_path):
    with pytest.raises(TableNotFoundError):
        open_table(tmp_path)
