"""Delta tables whose logs are damaged, each named in one line without what a native library says beside it."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError

from buckets.delta import whole_table
from buckets.delta.whole_table import open_table, query, through_store, tried
from buckets.errors import BucketsError, Outage
from buckets.outputs.recorded_outputs import output_table
from buckets.stores.store_path import StoreAway


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


STORE_AWAY = [
    OSError("Kernel error -> Generic S3 error\n  ↳ Error performing GET http://h/t\n   ↳ tcp connect error"),
    DeltaError("Kernel error: Error interacting with object store: Generic S3 error: error decoding response body"),
    Exception("External: Object Store error: Generic S3 error: HTTP error: request or response body error"),
]


def failing(error: Exception, times: int):
    """What fails so often, and then answers; and how often it was asked."""
    asked: list[int] = []

    def ask() -> str:
        asked.append(1)
        if len(asked) <= times:
            raise error
        return "answer"

    return ask, asked


@pytest.mark.parametrize("error", STORE_AWAY)
@pytest.mark.parametrize("way", [tried, through_store])
def test_a_store_that_does_not_answer_is_asked_again_and_then_one_line_that_may_pass(monkeypatch, error, way):
    ask, asked = failing(error, 2)
    assert way("s3a://bucket/table", ask) == "answer"
    assert len(asked) == 3
    monkeypatch.setattr(whole_table, "PATIENCE_S", 0.0)
    with pytest.raises(StoreAway, match=r"^s3a://bucket/table: the store does not answer") as away:
        way("s3a://bucket/table", failing(error, 1)[0])
    assert "\n" not in away.value.message


def test_what_is_damaged_or_not_there_is_not_asked_for_long_and_no_outage():
    damaged = DeltaError("Kernel error: Json error: Truncated record")
    with pytest.raises(BucketsError, match="one of its files is cut") as named:
        tried("s3a://bucket/table", failing(damaged, 99)[0])
    assert not isinstance(named.value, Outage)


NOT_OF_A_STORE = [("s3a://bucket/table", TableNotFoundError("no")), ("table", OSError("no")), ("s3a://b/t", KeyError())]


@pytest.mark.parametrize(("path", "error"), NOT_OF_A_STORE)
def test_what_no_store_is_to_blame_for_is_raised_as_it_is_and_at_once(path, error):
    ask, asked = failing(error, 1)
    with pytest.raises(type(error)):
        through_store(path, ask)
    assert len(asked) == 1
