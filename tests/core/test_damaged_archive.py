"""A damaged archive: every way to read it says so in one line."""

from pathlib import Path

import pytest

from buckets.archive.archive import Archive, join_small_files
from buckets.checkpoint.record_files import OWNER, OwnedFolder
from buckets.errors import BucketsError
from tests.core.archived_job import NO_RULES, archive_writer, arrived_events
from tests.core.examples import SCHEMA

ROWS = [{"id": f"e{n}", "at": 1_700_000_000_000 + n, "payer": f"p{n}", "amount": "1.25"} for n in range(20)]


@pytest.fixture
def archive(tmp_path) -> Archive:
    writer = archive_writer(tmp_path / "archive")
    for batch_id in (0, 1):
        rows = ROWS[batch_id * 10 : batch_id * 10 + 10]
        writer.write(batch_id, SCHEMA, NO_RULES, arrived_events(rows, SCHEMA))
    return Archive(tmp_path / "archive")


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def empty(file: Path) -> None:
    file.write_bytes(b"")


READS = {
    "tables": lambda archive: list(archive.tables()),
    "some columns": lambda archive: list(archive.tables(columns=["id"])),
    "query": lambda archive: archive.query("select max(id) as most from archive"),
    "join": lambda archive: join_small_files(archive.table_path),
}
OPENS = {"end": Archive.end, "since": Archive.since}


@pytest.mark.parametrize("damage", [Path.unlink, cut, empty])
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_file_that_is_missing_or_cut_is_said(archive, damage, read, as_worded):
    damage(sorted(archive.table_path.glob("*.parquet"))[0])
    with pytest.raises(BucketsError, check=as_worded):
        read(archive)


@pytest.mark.parametrize("read", (READS | OPENS).values(), ids=READS | OPENS)
def test_a_log_that_is_cut_is_said(archive, read):
    cut(sorted((archive.table_path / "_delta_log").glob("*.json"))[-1])
    with pytest.raises(BucketsError, match=f"^table {archive.table_path}: its log"):
        read(archive)


@pytest.mark.parametrize("text", ["", '{"checkpoint', "[]", "{}", "\x00"])
def test_an_owner_that_cannot_be_read_is_said(tmp_path, text, as_worded):
    folder = OwnedFolder(tmp_path, "archive.path")
    folder.take("c1")
    assert folder.is_of("c1")
    (tmp_path / OWNER).write_text(text)
    for ask in (folder.identity, lambda: folder.is_of("c1")):
        with pytest.raises(BucketsError, check=as_worded):
            ask()
