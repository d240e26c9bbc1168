"""How many events there are, about, whatever they lie in: within a fifth of the truth."""

import gzip
import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from buckets.archive.sources import rows_about

ROWS = 40_000


def rows_of(count: int, seed: int = 7) -> list[dict[str, object]]:
    chance = random.Random(seed)
    return [
        {"id": f"e{number}", "t": number, "payer": "p" * chance.randint(1, 60), "amount": chance.randint(1, 10**9)}
        for number in range(count)
    ]


def json_file(path: Path, count: int) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows_of(count)))


def csv_file(path: Path, count: int) -> None:
    lines = ["id,t,payer,amount", *(",".join(map(str, row.values())) for row in rows_of(count))]
    path.write_text("\n".join(lines) + "\n")


def parquet_file(path: Path, count: int) -> None:
    pq.write_table(pa.Table.from_pylist(rows_of(count)), path)


WRITERS = {".jsonl": json_file, ".json": json_file, ".csv": csv_file, ".parquet": parquet_file}


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_file_has_about_as_many_rows_as_are_estimated(tmp_path, suffix):
    WRITERS[suffix](tmp_path / f"events{suffix}", ROWS)
    assert rows_about(tmp_path / f"events{suffix}") == pytest.approx(ROWS, rel=0.2)


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_folder_has_as_many_rows_as_its_files_together(tmp_path, suffix):
    counts = [ROWS // 30 * (1 + number % 3) for number in range(20)]
    for number, count in enumerate(counts):
        WRITERS[suffix](tmp_path / f"events-{number}{suffix}", count)
    (tmp_path / "_SUCCESS").write_bytes(b"x" * 1_000_000)
    assert rows_about(tmp_path) == pytest.approx(sum(counts), rel=0.2)


def test_a_small_file_and_one_line_are_counted(tmp_path):
    json_file(tmp_path / "events.jsonl", 3)
    assert rows_about(tmp_path / "events.jsonl") == 3
    (tmp_path / "array.json").write_text(json.dumps(rows_of(20_000)))
    assert rows_about(tmp_path / "array.json") == pytest.approx(20_000, rel=0.5)


def test_of_a_compressed_file_what_it_holds_counts(tmp_path):
    json_file(tmp_path / "plain.jsonl", ROWS)
    (tmp_path / "events.jsonl.gz").write_bytes(gzip.compress((tmp_path / "plain.jsonl").read_bytes()))
    assert rows_about(tmp_path / "events.jsonl.gz") == pytest.approx(ROWS, rel=0.2)


def test_a_table_has_the_rows_of_its_newest_version(tmp_path):
    for _ in range(3):
        write_deltalake(tmp_path / "table", pa.Table.from_pylist(rows_of(500)), mode="append")
    DeltaTable(tmp_path / "table").delete("t < 100")
    assert rows_about(tmp_path / "table") == 1_200
    write_deltalake(tmp_path / "table", pa.Table.from_pylist(rows_of(70)), mode="overwrite")
    assert rows_about(tmp_path / "table") == 70


def test_what_cannot_be_read_has_none_and_is_no_error_here(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and no more")
    names = ("nowhere", "folder", "broken.parquet")
    assert [rows_about(tmp_path / name) for name in names] == [0, 0, 0]
    assert rows_about(Path("ftp://host/file")) == 0
