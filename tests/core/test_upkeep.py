"""Appends that cost the same however long a log is, and tables kept short beside them: each row is there once."""

import json
import os
import shutil
import tempfile
import threading
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Transaction, write_deltalake
from deltalake.exceptions import DeltaError
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from buckets.delta import upkeep
from buckets.delta.commits import Commits, DataFile, write_data_file
from buckets.delta.kept_table import KeptTable
from buckets.delta.upkeep import (
    PIECE_BYTES,
    PIECE_ROWS,
    SmallFile,
    Upkeep,
    expire,
    join_small_files,
    read_pieces,
    set_retention,
    write_checkpoint,
)
from buckets.errors import BucketsError
from tests.laws import examples
from tests.spark.job_folder import read_table

COLUMNS = pa.schema([("batch_id", pa.int64()), ("event_id", pa.string()), ("at", pa.timestamp("us", "UTC"))])
ROWS = 3
START = datetime(2026, 1, 1, tzinfo=UTC)


def rows_of(number: int) -> pa.Table:
    """The rows of a batch."""
    rows = [
        {"batch_id": number, "event_id": f"{number}-{row}", "at": START + timedelta(microseconds=number * 1000 + row)}
        for row in range(ROWS)
    ]
    return pa.Table.from_pylist(rows, schema=COLUMNS)


def ids(path: Path, version: int | None = None) -> list[str]:
    return sorted(pa.table(DeltaTable(path, version=version).to_pyarrow_table())["event_id"].to_pylist())


def ids_of(numbers) -> list[str]:
    return sorted(f"{number}-{row}" for number in numbers for row in range(ROWS))


def files(path: Path) -> int:
    return len(DeltaTable(path).file_uris())


def log_length(path: Path) -> int:
    return len(list((path / "_delta_log").glob("*.json")))


def make_old(folder: Path) -> None:
    """Make all that lies in a folder two days old, as far as the file system knows."""
    for path in folder.rglob("*"):
        then_s = path.stat().st_mtime - 2 * 86_400
        os.utime(path, (then_s, then_s))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    DeltaTable.create(tmp_path / "t", COLUMNS)
    return tmp_path / "t"


def dies(*_: object) -> bool:
    message = "killed"
    raise MemoryError(message)


class Batches(RuleBasedStateMachine):
    """A table that is appended to, by jobs that are killed, beside everything that looks after it."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "t"
        DeltaTable.create(self.path, COLUMNS)
        set_retention(self.path, 1)
        self.kept = KeptTable(self.path, "me")
        self.next = 0
        self.seen: list[tuple[DeltaTable, int]] = []

    @rule()
    def a_batch(self) -> None:
        self.kept.append(self.next, lambda: rows_of(self.next))
        self.next += 1

    @rule(at_hand=st.integers(0, ROWS), is_lost=st.booleans())
    def a_batch_of_which_others_write_a_part(self, at_hand: int, is_lost: bool) -> None:
        """By way of a commit, or, where another writer was faster, not at all."""
        rows = rows_of(self.next)

        def write_apart(columns: pa.Schema) -> list[DataFile]:
            if is_lost:
                KeptTable(self.path, "me").append(self.next, lambda: rows)
            return [write_data_file(self.path, [rows.slice(at_hand)], columns)]

        self.kept.append(self.next, lambda: rows.slice(0, at_hand), write_apart)
        self.next += 1

    @precondition(lambda self: self.next)
    @rule(is_restarted=st.booleans())
    def a_batch_is_run_again(self, is_restarted: bool) -> None:
        if is_restarted:
            self.kept = KeptTable(self.path, "me")
        self.kept.append(self.next - 1, lambda: rows_of(self.next - 1))

    @rule()
    def a_batch_that_another_writer_has_written(self) -> None:
        once = CommitProperties(app_transactions=[Transaction("me", self.next)])
        write_deltalake(self.path, rows_of(self.next), mode="append", commit_properties=once)
        self.kept.append(self.next, lambda: rows_of(self.next))
        self.next += 1

    @rule()
    def killed_before_the_commit(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Commits, "put", dies)
            with pytest.raises(MemoryError):
                KeptTable(self.path, "me").append(self.next, lambda: rows_of(self.next))
        (self.path / f"part-00000-orphan-{self.next}.parquet").write_bytes(b"half a file")

    @rule(fewest=st.integers(2, 5))
    def files_are_joined(self, fewest: int) -> None:
        join_small_files(self.path, fewest)

    @rule()
    def killed_while_files_are_joined(self) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Commits, "put", dies)
            if files(self.path) >= 2:
                with pytest.raises(MemoryError):
                    join_small_files(self.path, 2)

    @rule()
    def a_checkpoint(self) -> None:
        DeltaTable(self.path).create_checkpoint()

    @rule()
    def properties_change(self) -> None:
        DeltaTable(self.path).alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"})
        DeltaTable(self.path).alter.set_table_properties({"delta.logRetentionDuration": "interval 1 seconds"})

    @rule()
    def a_reader_begins(self) -> None:
        self.seen = [(DeltaTable(self.path), self.next)]

    @rule()
    def old_files_expire(self) -> None:
        self.seen = []
        make_old(self.path)
        table = DeltaTable(self.path)
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
        expire(self.path, 1)

    @invariant()
    def each_row_is_there_once(self) -> None:
        assert ids(self.path) == ids_of(range(self.next))
        assert DeltaTable(self.path).transaction_version("me") == (self.next - 1 if self.next else None)

    @invariant()
    def readers_that_have_begun_read_on(self) -> None:
        for table, numbers in self.seen:
            assert sorted(pa.table(table.to_pyarrow_table())["event_id"].to_pylist()) == ids_of(range(numbers))

    def teardown(self) -> None:
        shutil.rmtree(self.folder)


TestBatches = Batches.TestCase
TestBatches.settings = settings(max_examples=examples(15), stateful_step_count=20, deadline=None)


def test_appends_beside_joins_and_checkpoints_in_other_threads(path):
    done = threading.Event()
    joined: list[int] = []

    def look_after() -> None:
        while not done.is_set():
            joined.append(join_small_files(path, 2))
            DeltaTable(path).create_checkpoint()

    threads = [threading.Thread(target=look_after) for _ in range(2)]
    for thread in threads:
        thread.start()
    kept = KeptTable(path, "me")
    for number in range(150):
        kept.append(number, lambda number=number: rows_of(number))
    done.set()
    for thread in threads:
        thread.join()
    assert any(joined)
    assert ids(path) == ids_of(range(150))


def test_what_the_log_says_of_a_file_is_what_the_file_holds(tmp_path):
    columns = pa.schema(
        [*COLUMNS, ("amount", pa.decimal128(38, 2)), ("tags", pa.list_(pa.string())), ("none", pa.int32())]
    )
    DeltaTable.create(tmp_path / "ours", columns)
    rows = [
        {"batch_id": -5, "event_id": "b", "at": datetime(1960, 1, 1, microsecond=1500, tzinfo=UTC), "tags": ["x"]},
        {"batch_id": 9, "event_id": "é", "at": None, "amount": Decimal("1.10")},
    ]
    table = pa.Table.from_pylist(rows, schema=columns)
    KeptTable(tmp_path / "ours", "me").append(0, lambda: table)
    write_deltalake(tmp_path / "theirs", table)
    (ours,), (theirs,) = (
        pa.table(DeltaTable(tmp_path / name).get_add_actions(flatten=True)).to_pylist() for name in ("ours", "theirs")
    )
    for name in ("num_records", *(f"{end}.{column}" for end in ("min", "max") for column in ("batch_id", "event_id"))):
        assert ours[name] == theirs[name]
    assert {name: ours[name] for name in ours if name.startswith("null_count") and "tags" not in name} == {
        name: theirs[name] for name in theirs if name.startswith("null_count") and "tags" not in name
    }
    assert ours["min.at"] <= rows[0]["at"] <= ours["max.at"] <= ours["min.at"] + timedelta(milliseconds=1)
    assert read_table(tmp_path / "ours") == rows_with_nulls(rows, columns)


def rows_with_nulls(rows, columns):
    return [dict.fromkeys(columns.names) | row for row in rows]


@pytest.mark.slow
def test_a_table_of_an_older_job_with_many_small_files_becomes_a_few(path):
    """Written by the library, a column short, with more files than are joined at once."""
    count = 270
    for number in range(count):
        once = CommitProperties(app_transactions=[Transaction("me", number)])
        write_deltalake(path, rows_of(number), mode="append", commit_properties=once)
    wider = pa.schema([*COLUMNS, ("more", pa.int64())])
    DeltaTable(path).alter.add_columns(DeltaTable.create(path.parent / "w", wider).schema().fields[-1:])
    reader, before = DeltaTable(path), log_length(path)
    keeper = Upkeep([path, path.parent / "is_not_there"])
    keeper.prepare(path)
    with keeper.running():
        keeper.appended(path)
    with keeper.running():
        pass
    assert files(path) <= upkeep.FEWEST + count - 256 + 1
    assert ids(path) == ids_of(range(count))
    assert sorted(pa.table(reader.to_pyarrow_table())["event_id"].to_pylist()) == ids_of(range(count))
    make_old(path)
    expire(path, 1)
    assert log_length(path) < before / 2
    KeptTable(path, "me").append(count - 1, lambda: rows_of(count - 1))
    KeptTable(path, "me").append(count, lambda: rows_of(count).append_column("more", pa.array([1] * ROWS)))
    assert ids(path) == ids_of(range(count + 1))


@pytest.mark.slow
def test_what_comes_fast_is_shortened_as_fast_and_not_only_when_it_has_rested(path, monkeypatch):
    monkeypatch.setattr(upkeep, "_REST", 1_000_000)
    keeper, kept, count = Upkeep([path], say=print), KeptTable(path, "me"), 5 * upkeep.MOST_APPENDS
    keeper.prepare(path)
    with keeper.running():
        for number in range(count):
            kept.append(number, lambda number=number: rows_of(number))
            keeper.appended(path)
        until_s = time.monotonic() + 60
        while files(path) > upkeep.MOST_APPENDS and time.monotonic() < until_s:
            time.sleep(0.05)
        assert files(path) <= upkeep.MOST_APPENDS
    assert ids(path) == ids_of(range(count))


def test_a_checkpoint_of_many_entries_is_written_less_often(path):
    def checkpoints() -> int:
        return len(list((path / "_delta_log").glob("*.checkpoint.parquet")))

    kept, number = KeptTable(path, "me"), 0

    def appends(more: int) -> None:
        nonlocal number
        for _ in range(more):
            kept.append(number, lambda number=number: rows_of(number))
            number += 1

    appends(upkeep.APPENDS)
    write_checkpoint(path)
    assert checkpoints() == 1
    last = path / "_delta_log" / "_last_checkpoint"
    last.write_text(json.dumps(json.loads(last.read_text()) | {"size": 100 * upkeep.APPENDS}))
    appends(upkeep.APPENDS)
    write_checkpoint(path)
    assert checkpoints() == 1
    appends(upkeep.APPENDS)
    write_checkpoint(path)
    assert checkpoints() == 2


@pytest.mark.slow
def test_a_row_is_written_anew_a_few_times_however_long_the_table_is_appended_to(path, monkeypatch):
    monkeypatch.setattr(upkeep, "SIZES_BYTES", (3_000, 12_000, 48_000))
    monkeypatch.setattr(upkeep, "FEWEST", 4)
    kept, moved = KeptTable(path, "me"), 0
    for number in range(120):
        kept.append(number, lambda number=number: rows_of(number))
        moved += join_small_files(path, 4)
    assert ids(path) == ids_of(range(120))
    assert files(path) <= 12
    assert moved < 3 * 120


def test_versions_are_kept_as_the_settings_say_or_else_the_table_or_else_a_day(path):
    def kept() -> set[str]:
        configuration = DeltaTable(path).metadata().configuration
        return {configuration[f"delta.{name}Duration"] for name in ("deletedFileRetention", "logRetention")}

    set_retention(path, None)
    assert kept() == {"interval 86400 seconds"}
    DeltaTable(path).alter.set_table_properties(
        dict.fromkeys(("delta.deletedFileRetentionDuration", "delta.logRetentionDuration"), "interval 30 days")
    )
    version = DeltaTable(path).version()
    set_retention(path, None)
    assert kept() == {"interval 30 days"}
    assert DeltaTable(path).version() == version
    set_retention(path, 1_800_000)
    assert kept() == {"interval 1800 seconds"}


def test_a_commit_that_is_finished_meanwhile_is_no_fault(path):
    KeptTable(path, "me").append(0, lambda: rows_of(0))
    # As a commit that was listed, and whose file has got its name since.
    (path / "_delta_log" / "_commit_1.json.tmp").symlink_to(path / "gone")
    expire(path, 1)
    assert ids(path) == ids_of(range(1))


def test_files_that_have_not_expired_stay(path):
    kept = KeptTable(path, "me")
    set_retention(path, None)
    for number in range(5):
        kept.append(number, lambda number=number: rows_of(number))
    version = DeltaTable(path).version()
    join_small_files(path, 2)
    DeltaTable(path).create_checkpoint()
    expire(path, 86_400_000)
    assert ids(path, version) == ids_of(range(5))


def test_a_table_with_a_constraint_is_appended_to_by_the_library_and_joined(path):
    DeltaTable(path).alter.add_constraint({"positive": "batch_id < 2"})
    kept = KeptTable(path, "me")
    for number in (0, 0, 1):
        kept.append(number, lambda number=number: rows_of(number))
    with pytest.raises(DeltaError, match="failed validation"):
        kept.append(2, lambda: rows_of(2))
    assert join_small_files(path, 2) == 2
    assert ids(path) == ids_of(range(2))


def changed_log(path: Path, *actions: dict) -> None:
    """Commit actions as another program does."""
    assert Commits(path).put(DeltaTable(path).version() + 1, actions)


def test_a_table_with_features_that_are_not_known_here_is_left_alone(path):
    """Vectors of deleted rows lie in files that no entry of the log names as a file of the table."""
    set_retention(path, 1)
    for number in range(3):
        write_deltalake(path, rows_of(number), mode="append")
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    changed_log(path, {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7} | features})
    (path / "deletion_vector_1.bin").write_bytes(b"which rows are gone")
    make_old(path)
    before = sorted(file.name for file in path.rglob("*") if file.is_file())
    expire(path, 1)
    set_retention(path, 60_000)
    assert join_small_files(path, 2) == 0
    assert sorted(file.name for file in path.rglob("*") if file.is_file()) == before


@pytest.mark.parametrize("kept", ["30 days", "INTERVAL 240 HOURS", "interval 1 month", "interval 30 days 12 hours"])
def test_a_retention_that_would_be_misread_keeps_all_and_is_told(path, kept, as_worded):
    DeltaTable(path).alter.set_table_properties({"delta.deletedFileRetentionDuration": kept}, raise_if_not_exists=False)
    for number in range(3):
        write_deltalake(path, rows_of(number), mode="append")
    join_small_files(path, 2)
    make_old(path)
    before, said = log_length(path), []
    keeper = Upkeep([path], say=said.append)
    with keeper.running():
        pass
    assert log_length(path) == before
    assert len(list(path.glob("*.parquet"))) == 4
    (line,) = said
    assert as_worded(line)


@pytest.mark.slow
def test_files_that_are_gone_or_damaged_are_told_and_keep_nothing_else_from_being_done(path):
    for number in range(upkeep.APPENDS):
        write_deltalake(path, rows_of(number), mode="append")
    gone, damaged, *_ = path.glob("*.parquet")
    gone.unlink()
    damaged.write_bytes(b"")
    said: list[str] = []
    keeper = Upkeep([path], keep_ms=1, say=said.append, join=partial(join_small_files, fewest=2))
    keeper.prepare(path)
    orphan = path / "part-00000-orphan.parquet"
    orphan.write_bytes(b"half a file")
    make_old(path)
    with keeper.running():
        until_s = time.monotonic() + 30
        while not said and time.monotonic() < until_s:
            time.sleep(0.05)
    assert files(path) == 3, "those two, and all others"
    assert list((path / "_delta_log").glob("*.checkpoint.parquet"))
    assert not orphan.exists()
    (line,) = said
    assert line.startswith(f"table {path}: small files stay (file ")
    assert line.endswith(
        ", and 1 more files; restore the table from a copy); batches go on, and it is tried again in a minute"
    )


@pytest.mark.slow
def test_a_text_that_repeats_itself_is_not_all_in_memory_at_once(tmp_path):
    text = "x" * 100_000
    columns = pa.schema([("at", pa.int64()), ("text", pa.string())])
    DeltaTable.create(tmp_path / "t", columns)
    for number in range(4):
        rows = pa.table({"at": [number] * 1_500, "text": [text] * 1_500}, columns)
        KeptTable(tmp_path / "t", "me").append(number, lambda rows=rows: rows)
    chosen = [SmallFile(0, file.name, file.stat().st_size, 1_500) for file in (tmp_path / "t").glob("*.parquet")]
    assert sum(file.size_bytes for file in chosen) < 1_000_000
    most = max(piece.nbytes for piece in read_pieces(tmp_path / "t", chosen, columns))
    assert most < PIECE_BYTES + 1.1 * PIECE_ROWS * len(text)
    assert join_small_files(tmp_path / "t", 2) == 4
    table = DeltaTable(tmp_path / "t")
    (file,) = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert (file["num_records"], file["min.at"], file["max.at"], file["null_count.at"]) == (6_000, 0, 3, 0)
    assert file.get("min.text") is None, "longer than the log says"


@pytest.mark.parametrize("days", [["day"], ["day", "until"]])
def test_files_of_days_are_joined_wherever_they_lie_and_those_without_a_day_are_not(tmp_path, days):
    path, columns = tmp_path / "t", pa.schema([("n", pa.int64()), *((day, pa.date32()) for day in days)])
    DeltaTable.create(path, columns, partition_by=days)
    for number in range(6):
        day = "2026-01-02" if number % 2 else None
        file = write_data_file(path, [pa.table({"n": [number]})], pa.schema([("n", pa.int64())]))
        added = file.added(data_change=True)
        added["add"]["partitionValues"] = dict.fromkeys(days, day)
        changed_log(path, added)
    assert join_small_files(path, 2) == 3
    assert join_small_files(path, 2) == 0
    rows = pa.table(QueryBuilder().register("t", DeltaTable(path)).execute("select * from t order by n").read_all())
    found = [(row["n"], *(str(row[day]) for day in days)) for row in rows.to_pylist()]
    assert found == [(number, *["2026-01-02" if number % 2 else "None"] * len(days)) for number in range(6)]


def test_a_table_with_partitions_that_are_no_days_is_not_joined(tmp_path):
    DeltaTable.create(tmp_path / "t", COLUMNS, partition_by=["event_id"])
    for _ in range(3):
        write_deltalake(tmp_path / "t", rows_of(0), mode="append")
    assert join_small_files(tmp_path / "t", 2) == 0


def test_columns_that_a_table_does_not_have_are_refused_and_nothing_is_left_behind(path):
    kept = KeptTable(path, "me")
    wrong = rows_of(0).append_column("more", pa.array([1] * ROWS))
    with pytest.raises(DeltaError):
        kept.append(0, lambda: wrong)
    kept.append(0, lambda: rows_of(0))
    assert ids(path) == ids_of(range(1))
    assert len(list(path.glob("*.parquet"))) == 1


def test_a_table_that_was_put_back_from_a_copy_is_appended_to_where_it_stands(path):
    kept = KeptTable(path, "me")
    kept.append(0, lambda: rows_of(0))
    shutil.copytree(path, path.parent / "copy")
    for number in (1, 2):
        kept.append(number, lambda number=number: rows_of(number))
    shutil.rmtree(path)
    (path.parent / "copy").rename(path)
    kept.append(3, lambda: rows_of(3))
    assert DeltaTable(path).version() == 2
    assert ids(path) == ids_of([0, 3])


def test_a_log_that_cannot_be_read_is_said_once_and_the_other_tables_are_looked_after(path, tmp_path, monkeypatch):
    monkeypatch.setattr(upkeep, "_AGAIN_AFTER_S", 0.0)
    DeltaTable.create(tmp_path / "broken", COLUMNS)
    (tmp_path / "broken" / "_delta_log" / f"{0:020d}.json").write_text("{")
    kept = KeptTable(path, "me")
    for number in range(70):
        kept.append(number, lambda number=number: rows_of(number))
    said: list[str] = []
    keeper = Upkeep([tmp_path / "broken", path], say=said.append)
    for _ in range(2):
        with keeper.running():
            pass
    assert len(said) == 1
    assert str(tmp_path / "broken") in said[0]
    assert files(path) == 1
    assert json.loads((path / "_delta_log" / "_last_checkpoint").read_text())["version"] >= 70


def test_a_checkpoint_is_written_when_there_are_many_commits_since_the_last_one(path):
    kept = KeptTable(path, "me")
    write_checkpoint(path)
    assert not (path / "_delta_log" / "_last_checkpoint").exists()
    for number in range(upkeep.APPENDS):
        kept.append(number, lambda number=number: rows_of(number))
    for _ in range(2):
        write_checkpoint(path)
    checkpoints = list((path / "_delta_log").glob("*.checkpoint.parquet"))
    assert len(checkpoints) == 1
    assert KeptTable(path, "me")._open().last == upkeep.APPENDS - 1


def test_a_commit_whose_answer_was_lost_counts_as_made(path, monkeypatch):
    """On a network file system: the first try has made the file, the second finds it there."""
    link = os.link

    def lost(*names):
        link(*names)
        raise FileExistsError(names[1])

    monkeypatch.setattr(os, "link", lost)
    kept = KeptTable(path, "me")
    for number in range(3):
        kept.append(number, lambda number=number: rows_of(number))
    assert join_small_files(path, 2) == 3
    assert ids(path) == ids_of(range(3))
    assert DeltaTable(path).version() == 4


def test_a_disk_that_is_full_leaves_a_table_as_it_was(path, monkeypatch):
    kept = KeptTable(path, "me")
    for number in range(3):
        kept.append(number, lambda number=number: rows_of(number))
    there = sorted(path.rglob("*"))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", full)
        with pytest.raises(OSError, match="No space"):
            kept.append(3, lambda: rows_of(3))
        with pytest.raises(OSError, match="No space"):
            join_small_files(path, 2)
    assert sorted(path.rglob("*")) == there
    kept.append(3, lambda: rows_of(3))
    assert ids(path) == ids_of(range(4))


@pytest.mark.parametrize("killed", [False, True])
def test_files_of_others_come_into_a_table_that_only_the_library_may_write(path, monkeypatch, killed):
    """It has a constraint, which the library holds new rows to."""
    DeltaTable(path).alter.add_constraint({"known": "batch_id >= 0"})
    kept, apart = KeptTable(path, "me"), []

    def write_apart(columns: pa.Schema) -> list[DataFile]:
        file = write_data_file(path, [rows_of(0).slice(1)], columns)
        apart.append(file.path)
        return [DataFile.from_json(path, file.to_json())]

    if killed:
        monkeypatch.setattr("buckets.delta.kept_table.append_new", dies)
        with pytest.raises(MemoryError):
            kept.append(0, lambda: rows_of(0).slice(0, 1), write_apart)
        monkeypatch.undo()
    kept.append(0, lambda: rows_of(0).slice(0, 1), write_apart)
    kept.append(0, lambda: rows_of(0).slice(0, 1), write_apart)
    assert ids(path) == ids_of(range(1))
    assert not any(each.exists() for each in apart)
    assert len(apart) == 1 + killed


def test_a_file_that_lacks_rows_is_not_joined(path, as_worded):
    kept = KeptTable(path, "me")
    for number in range(3):
        kept.append(number, lambda number=number: rows_of(number))
    first = next(path.glob("*.parquet"))
    pq.write_table(rows_of(0).slice(1), first)
    assert join_small_files(path, 2) == 2, "the other two"
    with pytest.raises(BucketsError, check=as_worded):
        join_small_files(path, 2)
    assert files(path) == 2
