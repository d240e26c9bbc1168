"""The layout of the archive: sorted within files, joined when they are small, in the order of arrival all the same."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from buckets.archive import archive as archive_layout
from buckets.archive.archive import ARRIVAL, Archive
from tests.core.examples import SCHEMA


def rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    return pa.table(
        {
            "_batch_id": pa.array([number // 7 for number in numbers]),
            "id": pa.array([f"e{number}" for number in numbers]),
            "at": pa.array([start + timedelta(seconds=number) for number in numbers], pa.timestamp("us", "UTC")),
            "payer": pa.array([f"p{number * 7 % 5}" for number in numbers]),
        }
    )


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    made = Archive(tmp_path)
    made.prepare(SCHEMA, "payer")
    first = 0
    for count in (3, 40, 1, 2, 2, 25, 4):
        assert made.append(rows(first, count), first)
        first += count
    return made


def contents(archive: Archive) -> list[tuple[int, str]]:
    tables = list(archive.tables(columns=["id"]))
    return [(row[ARRIVAL], row["id"]) for table in tables for row in table.to_pylist()]


def test_files_are_sorted_by_their_field_and_read_in_the_order_of_arrival(archive):
    paths = [archive.table_path / each.path for each in archive_layout.files_of(DeltaTable(archive.table_path))]
    assert len(paths) == 7
    for path in paths:
        found = pq.read_table(path).select(["payer", ARRIVAL]).to_pylist()
        assert found == sorted(found, key=lambda row: (row["payer"], row[ARRIVAL]))
    assert contents(archive) == [(number, f"e{number}") for number in range(77)]


def test_small_files_are_joined_up_to_full_ones_and_nothing_else_changes(archive, monkeypatch):
    monkeypatch.setattr(archive_layout, "FULL_ROWS", 30)
    monkeypatch.setattr(archive_layout, "_SMALL_ROWS", 15)
    before, end, last = contents(archive), archive.end(), archive.last_batch()
    assert archive.tidy() == 2
    files = archive_layout.files_of(DeltaTable(archive.table_path))
    assert [each.rows for each in files] == [3, 40, 5, 25, 4]
    assert contents(archive) == before
    assert (archive.end(), archive.last_batch()) == (end, last)
    assert archive.tidy() == 0
    assert archive.append(rows(77, 3), 77)
    assert contents(archive) == [(number, f"e{number}") for number in range(80)]


def test_another_field_counts_for_files_that_come(archive):
    archive.prepare(SCHEMA, "id")
    assert archive.append(rows(77, 12), 77)
    path = archive_layout.files_of(DeltaTable(archive.table_path))[-1].path
    ids = pq.read_table(archive.table_path / path)["id"].to_pylist()
    assert ids == sorted(ids)
    assert ids[:3] == ["e77", "e78", "e79"]
