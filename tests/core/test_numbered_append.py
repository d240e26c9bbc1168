"""Two writers at one table: whatever moment each has come to, what both would write is there once."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from buckets.audit.tables import DAY, TRANSACTIONS, audit_tables
from buckets.audit.writer import AuditWriter
from buckets.checkpoint.rule_versions import RuleVersions
from buckets.delta import kept_table
from buckets.delta.commits import Commits
from buckets.delta.kept_table import append_new
from buckets.engine.stages.accounting import BatchAccount, GroupAccount
from buckets.feeds.rules.history import COLUMNS, RuleHistory
from buckets.outputs import columns
from buckets.spark.sinks import DeltaSink, table_columns
from tests.core.checkpoints import terms
from tests.core.test_audit_writer import batch
from tests.core.test_history import change, put
from tests.spark.job_folder import read_table

WAIT_S = 30
Writer = Callable[[], object]
ROWS = pa.table({"x": [7]})


def once(last: int | None) -> tuple[int, pa.Table] | None:
    """Rows that are new to whoever has written none."""
    return None if last else (1, ROWS)


@contextmanager
def all_between_check_and_append(monkeypatch: pytest.MonkeyPatch, writers: int) -> Iterator[None]:
    """The first append of each of so many threads waits until all have come to theirs, and so have passed the check."""
    barrier, has_met = threading.Barrier(writers), threading.local()

    def append(*arguments, **options):
        if not getattr(has_met, "is_true", False):
            has_met.is_true = True
            barrier.wait(WAIT_S)
        write_deltalake(*arguments, **options)

    put_commit = Commits.put

    def put(*arguments):
        if not getattr(has_met, "is_true", False):
            has_met.is_true = True
            barrier.wait(WAIT_S)
        return put_commit(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(kept_table, "write_deltalake", append)
        patch.setattr(Commits, "put", put)
        yield


def race(writers: list[Writer], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all write, each having made the check before anybody appends."""
    with all_between_check_and_append(monkeypatch, len(writers)), ThreadPoolExecutor(len(writers)) as pool:
        for done in [pool.submit(writer) for writer in writers]:
            done.result(WAIT_S)


def test_two_audits_that_write_the_same_batch(tmp_path, monkeypatch):
    tables = audit_tables(columns.TOPICS)
    for name, table in tables.items():
        schema = pa.schema([pa.field(column.name, column.type, column.nullable) for column in table.columns])
        DeltaTable.create(tmp_path / name, schema, partition_by=[DAY])
    writers = [AuditWriter(tmp_path, "me", tables.values()) for _ in range(2)]
    for number in range(2):
        read = batch(TRANSACTIONS, ["a", "b"], 2 * number)
        race([partial(writer.write, read, number) for writer in writers], monkeypatch)
    assert sorted(row["offset"] for row in read_table(tmp_path / TRANSACTIONS)) == [0, 1, 2, 3]


def test_two_histories_of_the_same_versions(tmp_path, monkeypatch):
    versions, table = RuleVersions(tmp_path / "checkpoint"), tmp_path / "rule_changes"
    DeltaTable.create(table, COLUMNS)
    histories = [RuleHistory(versions, table, "me") for _ in range(2)]
    for length in ("1h", "2h"):
        change(versions, put("a", length=length))
        race([history._write for history in histories], monkeypatch)
    assert sorted(row["ruleset_version"] for row in read_table(table)) == [1, 2]


def test_two_histories_that_write_in_turn(tmp_path):
    versions, table = RuleVersions(tmp_path / "checkpoint"), tmp_path / "rule_changes"
    histories = [RuleHistory(versions, table, "me") for _ in range(2)]
    for length in ("1h", "2h"):
        change(versions, put("a", length=length))
        for history in histories:
            history._write()
    assert sorted(row["ruleset_version"] for row in read_table(table)) == [1, 2]


def test_two_jobs_that_write_the_same_accounts(tmp_path, monkeypatch):
    DeltaTable.create(tmp_path / columns.BATCHES, table_columns(terms())[columns.BATCHES])
    group = GroupAccount("g", "payer", 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0)
    sinks = [DeltaSink(tmp_path, "me") for _ in range(2)]
    for number in range(2):
        account = BatchAccount(number, 1, 1, 0, None, (group,))
        race([partial(sink.append_accounts, account) for sink in sinks], monkeypatch)
    assert sorted(row["batch_id"] for row in read_table(tmp_path / columns.BATCHES)) == [0, 1]


def test_others_that_write_beside_are_not_in_the_way(tmp_path, monkeypatch):
    table = DeltaTable.create(tmp_path / "t", ROWS.schema)
    tables = [table, *(DeltaTable(tmp_path / "t") for _ in range(2))]
    race([partial(append_new, each, name, once) for each, name in zip(tables, "abc", strict=True)], monkeypatch)
    assert len(read_table(tmp_path / "t")) == 3


def test_what_is_in_the_way_for_another_reason_is_raised(tmp_path):
    table = DeltaTable.create(tmp_path / "t", ROWS.schema)
    DeltaTable(tmp_path / "t").alter.set_table_properties({"delta.logRetentionDuration": "interval 5 days"})
    with pytest.raises(CommitFailedError):
        append_new(table, "me", once)
    assert read_table(tmp_path / "t") == []
