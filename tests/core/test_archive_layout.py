"""The layout of the archive: sorted within files, joined when they are small, in the order of arrival all the same."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from buckets.archive import archive as archive_layout
from buckets.archive import arrived_rows
from buckets.archive.archive import Archive, join_small_files, join_some_files
from buckets.archive.arrived_rows import ARRIVAL, POSITION, SOURCE, SOURCE_ORDER
from tests.core.archived_job import NO_RULES, archive_writer, arrived
from tests.core.examples import SCHEMA


def rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    return pa.table(
        {
            SOURCE: ["s"] * count,
            SOURCE_ORDER: pa.array([number // 7 for number in numbers]),
            POSITION: pa.array(numbers),
            "id": pa.array([f"e{number}" for number in numbers]),
            "at": pa.array([start + timedelta(seconds=number) for number in numbers], pa.timestamp("us", "UTC")),
            "payer": pa.array([f"p{number * 7 % 5}" for number in numbers]),
        }
    )


class Appended:
    """An archive to which batches are appended, a file each."""

    def __init__(self, folder: Path) -> None:
        self.archive, self.batches, self.end = Archive(folder), 0, 0
        self.writer = archive_writer(folder)

    def append(self, *counts: int) -> None:
        """Append batches of so many rows."""
        for count in counts:
            self.writer.write(self.batches, SCHEMA, NO_RULES, arrived(rows(self.end, count)))
            self.batches, self.end = self.batches + 1, self.end + count


@pytest.fixture
def appended(tmp_path: Path) -> Appended:
    made = Appended(tmp_path)
    made.writer = archive_writer(tmp_path, "payer")
    made.append(3, 40, 1, 2, 2, 25, 4)
    return made


@pytest.fixture
def archive(appended: Appended) -> Archive:
    return appended.archive


def contents(archive: Archive) -> list[tuple[int, str]]:
    tables = list(archive.tables(columns=["id"]))
    return [(row[ARRIVAL], row["id"]) for table in tables for row in table.to_pylist()]


def files_of(archive: Archive) -> list[archive_layout.ArchiveFile]:
    return archive_layout.files_of(DeltaTable(archive.table_path))


def fields_of(archive: Archive, number: int, field: str) -> list[tuple[str, int]]:
    found = pq.read_table(archive.table_path / files_of(archive)[number].path).select([field, ARRIVAL])
    return [(row[field], row[ARRIVAL]) for row in found.to_pylist()]


def test_small_files_are_joined_up_to_full_ones_sorted_by_a_field_and_read_in_the_order_of_arrival(
    appended, archive, monkeypatch
):
    monkeypatch.setattr(archive_layout, "FULL_ROWS", 30)
    monkeypatch.setattr(archive_layout, "_SMALL_ROWS", 15)
    before = contents(archive)
    assert before == [(number, f"e{number}") for number in range(77)]
    assert join_small_files(archive.table_path) == 2
    assert [each.rows for each in files_of(archive)] == [3, 40, 5, 25, 4]
    joined = fields_of(archive, 2, "payer")
    assert joined == sorted(joined)
    assert [number for _, number in joined] != list(range(43, 48))
    assert contents(archive) == before
    assert archive.end() == 77
    assert join_small_files(archive.table_path) == 0
    appended.append(3)
    assert contents(archive) == [(number, f"e{number}") for number in range(80)]


def test_another_field_counts_for_files_that_are_joined_from_then_on(appended, archive):
    appended.writer = archive_writer(archive.folder, "id")
    appended.append(12)
    assert join_small_files(archive.table_path) == 7
    ids = fields_of(archive, 0, "id")
    assert ids == sorted(ids)
    assert [name for name, _ in ids[:3]] == ["e0", "e1", "e10"]


def test_a_job_joins_files_by_and_by_so_that_there_are_never_many(tmp_path, monkeypatch):
    """Of 120 batches of some rows, joined now and then, few files are left, and each row was written few times."""
    monkeypatch.setattr(archive_layout, "_TIERS_ROWS", (0, 10, 100, 1000))
    monkeypatch.setattr(archive_layout, "_SMALL_ROWS", 1000)
    monkeypatch.setattr(archive_layout, "FEWEST", 4)
    made, written, most = Appended(tmp_path), 0, 0
    for batch in range(120):
        made.append(1 + batch * 7 % 9 + 60 * (batch % 15 == 0))
        if batch % 8 != 7:
            continue
        most = max(most, len(files_of(made.archive)))
        while True:
            before = {each.path for each in files_of(made.archive)}
            if not join_some_files(made.archive.table_path):
                break
            written += sum(each.rows for each in files_of(made.archive) if each.path not in before)
    end = made.archive.end()
    assert contents(made.archive) == [(number, f"e{number}") for number in range(end)]
    assert most < 25
    assert written < 4 * end


def test_pieces_of_several_tasks_are_numbered_in_the_order_of_arrival_whatever_their_sizes(tmp_path, monkeypatch):
    monkeypatch.setattr(arrived_rows, "AT_HAND_BYTES", 2800)
    monkeypatch.setattr("buckets.archive.archive_writer.FILE_ROWS", 20)
    whole = rows(0, 100)
    cuts = [(30, 41), (0, 10), (95, 100), (60, 95), (10, 30), (41, 60)]
    pieces = [whole.slice(first, last - first) for first, last in cuts]
    mixed = pa.concat_tables([whole.slice(90, 5), whole.slice(60, 5)])
    tasks = [[pieces[0], pieces[4]], [pieces[1], pieces[2]], [whole.slice(65, 25), mixed], [pieces[5]]]
    handed_over = []
    for number, task in enumerate(tasks):
        gathered = arrived_rows.ArrivedInTask()
        for piece in task:
            gathered.take(piece)
        handed_over.append(gathered.handed_over(tmp_path / f"{number}.arrived"))
    assert {bool(each.path) for each in handed_over} == {True, False}
    archive = Archive(tmp_path / "archive")
    archive_writer(archive.folder).write(0, SCHEMA, NO_RULES, handed_over)
    assert contents(archive) == [(number, f"e{number}") for number in range(100)]
    assert len(files_of(archive)) > 2
