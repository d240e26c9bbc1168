"""Tables of a job are kept short while it runs; whoever reads them or follows them with Spark sees each row once."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from buckets.delta import upkeep
from buckets.delta.kept_table import KeptTable
from buckets.delta.upkeep import join_small_files
from tests.spark.job_folder import JobFolder, read_table

pytestmark = pytest.mark.spark

COLUMNS = pa.schema([("batch_id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("name", pa.string())])


def rows_of(number: int) -> pa.Table:
    return pa.Table.from_pylist([{"batch_id": number, "at": number, "name": f"n{number}"}], schema=COLUMNS)


def test_a_job_whose_tables_are_joined_after_each_batch_writes_what_any_job_writes(
    spark, finished: JobFolder, tmp_path: Path, monkeypatch
):
    """Its tables consist of many small files, as an earlier release left them."""
    job = finished.copy_to(tmp_path)
    before = job.all_rows()
    for name in before:
        path = job.tables / name
        table = pa.table(DeltaTable(path).to_pyarrow_table())
        write_deltalake(path, table.slice(0, 0), mode="overwrite")
        for row in range(len(table)):
            write_deltalake(path, table.slice(row, 1), mode="append")
    versions = {name: DeltaTable(job.tables / name).version() for name in before}
    assert any(len(DeltaTable(job.tables / name).file_uris()) > upkeep.FEWEST for name in before)
    assert job.run(spark) == []

    assert job.all_rows() == before
    assert all(len(DeltaTable(job.tables / name).file_uris()) <= upkeep.FEWEST for name in before)
    for name, version in versions.items():
        assert sorted(
            map(repr, pa.table(DeltaTable(job.tables / name, version=version).to_pyarrow_table()).to_pylist())
        ) == sorted(map(repr, before[name]))


def test_batches_beside_joins_are_those_of_any_job(spark, finished: JobFolder, tmp_path: Path, monkeypatch):
    """Files are joined two by two, all the time, while batches are written on the driver and by executors."""
    monkeypatch.setattr(upkeep, "FEWEST", 2)
    monkeypatch.setattr(upkeep.join_small_files, "__defaults__", (2,))
    monkeypatch.setattr(upkeep, "APPENDS", 1)
    monkeypatch.setattr(upkeep, "_REST", 0)
    monkeypatch.setattr("buckets.spark.query.DRIVER_BYTES", 2_000)
    job = JobFolder(tmp_path, source={"kind": "json", "path": str(finished.source), "max_files_per_trigger": 1})
    job.run(spark)

    assert job.all_rows() == finished.all_rows()
    operations = {commit["operation"] for name in job.all_rows() for commit in DeltaTable(job.tables / name).history()}
    assert operations >= {"OPTIMIZE", "WRITE"}


def test_a_stream_of_spark_that_follows_a_table_sees_each_row_once(spark, tmp_path: Path):
    source, seen = tmp_path / "source", tmp_path / "seen"
    DeltaTable.create(source, COLUMNS)
    kept = KeptTable(source, "me")

    def follow() -> list[int]:
        stream = spark.readStream.format("delta").load(str(source)).writeStream.format("delta")
        stream = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        stream.start(str(seen)).awaitTermination()
        return sorted(row["batch_id"] for row in read_table(seen))

    for number in range(4):
        kept.append(number, lambda number=number: rows_of(number))
    assert follow() == list(range(4))
    kept.append(4, lambda: rows_of(4))
    assert join_small_files(source, 2) == 5
    once = CommitProperties(app_transactions=[Transaction("me", 5)])
    write_deltalake(source, rows_of(5), mode="append", commit_properties=once)
    kept.append(5, lambda: rows_of(5))
    kept.append(6, lambda: rows_of(6))
    assert follow() == list(range(7))
    found = spark.read.format("delta").load(str(source))
    assert sorted(row["name"] for row in found.where("batch_id >= 2 and name > 'n3'").collect()) == ["n4", "n5", "n6"]
    assert found.count() == 7


def test_spark_appends_after_the_driver_and_the_driver_after_spark(spark, tmp_path: Path):
    path = tmp_path / "t"
    DeltaTable.create(path, COLUMNS)
    kept = KeptTable(path, "me")
    for number in range(6):
        if number % 2:
            frame = spark.createDataFrame(rows_of(number).to_pandas())
            for _ in range(2):
                writer = frame.write.format("delta").mode("append").option("txnAppId", "me")
                writer.option("txnVersion", number).save(str(path))
        for _ in range(2):
            kept.append(number, lambda number=number: rows_of(number))
    assert sorted(row["batch_id"] for row in read_table(path)) == list(range(6))
