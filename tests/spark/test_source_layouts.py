"""Files as people have them: compressed, one JSON value with a list of events, fields in the names of folders."""

import gzip
import json
import os
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import buckets
from buckets.archive.history import History
from buckets.config.job import load_job
from tests.spark.job_folder import FIRST_MTIME_S, JobFolder, Row
from tests.spark.payments import SCHEMA, payments
from tests.spark.test_run import without_origin

pytestmark = pytest.mark.spark

FOLDERS = ("kind=CA%52D", "kind=CASH", "kind=__HIVE_DEFAULT_PARTITION__")
KINDS = ("CARD", "CASH", None)
ROWS = [row | {"kind": KINDS[number // 40]} for number, row in enumerate(payments(120))]


def lines(rows: Sequence[Row]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def zst(content: bytes) -> bytes:
    packed: bytes = pa.compress(content, "zstd", asbytes=True)
    return packed


def records(rows: Sequence[Row]) -> bytes:
    return json.dumps({"Records": rows, "n": len(rows)}, indent=1).encode()


def csv(rows: Sequence[Row]) -> bytes:
    sink = pa.BufferOutputStream()
    pacsv.write_csv(pa.Table.from_pylist(list(rows)), sink)
    return sink.getvalue().to_pybytes()


def parquet(rows: Sequence[Row]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(list(rows)), sink)
    return sink.getvalue().to_pybytes()


LAYOUTS: dict[str, tuple[str, Callable[[Sequence[Row]], bytes]]] = {
    "jsonl.zst": ("json", lambda rows: zst(lines(rows))),
    "json.gz": ("json", lambda rows: gzip.compress(records(rows))),
    "json": ("json", records),
    "csv.gz": ("csv", lambda rows: gzip.compress(csv(rows))),
    "parquet": ("parquet", parquet),
}


@pytest.fixture(scope="module")
def expected(spark, tmp_path_factory) -> dict[str, list[Row]]:
    """What the same events give as plain lines."""
    job = JobFolder(tmp_path_factory.mktemp("plain"))
    job.add_events(ROWS, files=3)
    job.run(spark)
    return job.all_rows()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_same_events_give_the_same_rows_in_any_layout(spark, expected, tmp_path, layout):
    kind, write = LAYOUTS[layout]
    settings = {"kind": kind, "path": "source", "max_files_per_trigger": 1, "subfolders": True}
    job = JobFolder(tmp_path, source=settings, archive={"path": "archive"})
    if layout in ("json", "json.gz"):
        job.write_schema(SCHEMA | {"records": "Records[]"})
    for number, folder in enumerate(FOLDERS):
        path = job.source / folder / f"{number}.{layout}"
        path.parent.mkdir()
        slice_of = ROWS[number * 40 : (number + 1) * 40]
        path.write_bytes(write([{name: row[name] for name in row if name != "kind"} for row in slice_of]))
        os.utime(path, (FIRST_MTIME_S + number, FIRST_MTIME_S + number))
    job.run(spark)
    found = job.all_rows()
    assert found.keys() == expected.keys()
    for name in expected.keys() - {"batches"}:
        assert without_origin(found[name]) == without_origin(expected[name]), name
    assert expected["alerts"]
    table = pa.concat_tables(History.open(load_job(job.conf)).archive.tables())
    assert table["kind"].to_pylist() == [row["kind"] for row in ROWS]
    assert buckets.replay(job.conf).is_equal


def test_a_file_of_records_that_is_broken_is_one_dead_letter_and_a_bad_record_has_its_text(spark, tmp_path):
    job = JobFolder(tmp_path, archive={"path": "archive"})
    job.write_schema(SCHEMA | {"records": "[]"})
    good = [json.dumps(row) for row in ROWS[:5]]
    bad = '{"id": 1.50, "t": 1,\n "amount": 0.123, "id": 2}'
    job.add_file(0, [f"[{', '.join(good)},", bad + "]"], "json")
    job.add_file(1, ["[" + good[0] + ",", "{"], "json")
    job.add_file(2, ["[]"], "json")
    (job.source / "empty.json").touch()
    job.run(spark)
    letters = [
        {name: row[name] for name in ("source", "position", "reason", "raw")} for row in job.rows("dead_letters")
    ]
    assert sorted(letters, key=lambda row: row["source"]) == [
        {"source": str(job.source / "000.json"), "position": 6, "reason": "id: is given twice", "raw": bad},
        {
            "source": str(job.source / "001.json"),
            "position": 1,
            "reason": "broken JSON: Input data was truncated",
            "raw": f"[{good[0]},\n{{\n",
        },
    ]
    assert History.open(load_job(job.conf)).archive.end() == 7
