"""A job that has all it keeps in an object store does what one does that keeps it on a disk."""

import json
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from buckets.outputs.recorded_outputs import read_rows
from buckets.stores.location import as_output, location
from tests.spark.command import RunningCommand, one_line, run_command
from tests.spark.job_folder import JobFolder, Row, written_batches
from tests.spark.payments import payments
from tests.stores.server import Harm, Store, harmful, in_environment

pytestmark = pytest.mark.spark

FILES = 6


def put_files(folder: Path, bucket: str) -> None:
    """Put the files of a source into a bucket, in the order in which they were written."""
    for file in sorted(folder.iterdir()):
        location(f"s3://{bucket}/payments/{file.name}").write_bytes(file.read_bytes())


def in_store(root: Path, store: Store, bucket: str, source: Path) -> JobFolder:
    """A job over files, all of it in a bucket; the store keeps objects as files, which tests read."""
    job = JobFolder(
        root,
        source={"kind": "json", "path": f"s3://{bucket}/payments", "max_files_per_trigger": 1},
        checkpoint=f"s3://{bucket}/job/checkpoint",
        output={"path": f"s3://{bucket}/job/tables", "evaluations": True},
        archive={"path": f"s3://{bucket}/job/archive"},
        schema=f"s3://{bucket}/job/schema.yaml",
        rules=f"s3://{bucket}/job/rules",
    )
    put_files(source, bucket)
    location(f"s3://{bucket}/job/schema.yaml").write_text((root / "schema.yaml").read_text())
    location(f"s3://{bucket}/job/rules/rules.yaml").write_text((root / "rules.yaml").read_text())
    job.checkpoint, job.tables = (store.folder / bucket / "job" / name for name in ("checkpoint", "tables"))
    return job


def rows_of(job: JobFolder) -> dict[str, list[Row]]:
    """The rows of all tables of results, which name a file by its name alone."""

    def named(row: Row) -> Row:
        return row | {"source": Path(row["source"]).name} if "source" in row else row

    return {name: sorted(map(named, rows), key=repr) for name, rows in job.all_rows().items()}


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory) -> JobFolder:
    """A job that has run on a disk, undisturbed."""
    job = JobFolder(tmp_path_factory.mktemp("disk"))
    job.add_events(payments(150), FILES)
    ran = run_command("run", job.conf)
    assert ran.returncode == 0, ran.stderr
    return job


def test_of_two_starts_one_runs_and_killed_it_goes_on_to_the_results_of_a_job_on_a_disk(
    store: Store, bucket: str, on_disk: JobFolder, tmp_path: Path
):
    """The start after the kill takes the lease of the dead at once, and the batch is run again as it began."""
    job = in_store(tmp_path, store, bucket, on_disk.source)
    logs = [tmp_path / "one.log", tmp_path / "two.log"]
    with RunningCommand("run", job.conf, log=logs[0]) as one, RunningCommand("run", job.conf, log=logs[1]) as two:
        one.wait_until(lambda: not (one.is_running and two.is_running))
        refused, running = (two, one) if one.is_running else (one, two)
        assert refused.wait() != 0
        assert "is in use by process" in refused.stderr
        assert "Traceback" not in refused.stderr
        running.wait_until(lambda: len(written_batches(job.tables / "batches")) >= 2)
        running.kill_all()
    assert run_command("check", job.conf).returncode == 0

    ran = run_command("run", job.conf)

    assert ran.returncode == 0, ran.stderr
    assert rows_of(job) == rows_of(on_disk)
    assert not any(tmp_path.glob("*s3*"))
    archived = run_command("archive", job.conf)
    assert archived.returncode == 0, archived.stderr
    alert = next(row for row in read_rows(f"s3://{bucket}/job/tables", "alerts", ["alert_id", "event_id"]))
    explained = run_command("explain", job.conf, alert["alert_id"])
    assert explained.returncode == 0, explained.stderr
    assert alert["event_id"] in explained.stdout
    same = run_command("replay", job.conf, "--cuts", "joined")
    assert same.returncode == 0, same.stderr
    stats = run_command("state", "stats", f"s3://{bucket}/job/checkpoint")
    assert stats.returncode == 0, stats.stderr
    assert "Largest keys" in stats.stdout


def test_a_checkpoint_on_a_disk_goes_with_files_and_tables_in_a_store(
    store: Store, bucket: str, on_disk: JobFolder, tmp_path: Path
):
    rows = [json.loads(line) for file in sorted(on_disk.source.iterdir()) for line in file.read_text().splitlines()]
    for number, part in enumerate((rows[:80], rows[80:])):
        with as_output(location(f"s3://{bucket}/parquet/day={number}") / "rows ü%20.parquet") as file:
            pq.write_table(pa.Table.from_pylist(part), file)
    source = {"kind": "parquet", "path": f"s3://{bucket}/parquet", "subfolders": True}
    job = JobFolder(tmp_path, source=source, output={"path": f"s3://{bucket}/tables"}, archive={"path": "archive"})
    job.tables = store.folder / bucket / "tables"

    ran = run_command("run", job.conf)

    assert ran.returncode == 0, ran.stderr
    alerts, expected = ({row["alert_id"] for row in each.rows("alerts")} for each in (job, on_disk))
    assert alerts == expected != set()
    same = run_command("replay", job.conf)
    assert same.returncode == 0, same.stderr


def kill_after_a_batch(command: RunningCommand, job: JobFolder) -> None:
    before = len(written_batches(job.tables / "batches"))
    command.wait_until(lambda: not command.is_running or len(written_batches(job.tables / "batches")) > before)
    if command.is_running:
        command.kill_all()


@pytest.mark.nightly
def test_through_a_store_that_refuses_loses_cuts_and_dawdles_nothing_is_lost_or_doubled(
    store: Store, bucket: str, on_disk: JobFolder, tmp_path: Path
):
    """The job is started as often as it ends, as a supervisor does, and killed now and then."""
    job, harm = in_store(tmp_path, store, bucket, on_disk.source), Harm(0.05, 0.02, 0.02, 0.05)
    with harmful(store, harm) as bad, in_environment(bad):
        for start in range(12):
            with RunningCommand("run", job.conf, log=tmp_path / f"{start}.log") as command:
                if start < 3:
                    kill_after_a_batch(command, job)
                    continue
                if command.wait() == 0:
                    break
            said = (tmp_path / f"{start}.log").read_text(encoding="utf-8")
            assert "Traceback" not in said
        else:
            pytest.fail("it did not come to its end")
    assert rows_of(job) == rows_of(on_disk)


def test_what_cannot_lie_in_a_store_and_what_is_not_there_is_said_in_a_line(store: Store, bucket: str, tmp_path: Path):
    job = JobFolder(tmp_path, source={"kind": "json", "path": f"s3://{bucket}/gone"})
    assert f"s3a://{bucket}/gone does not exist; put a first file there" in one_line(run_command("run", job.conf), 2)
    job = JobFolder(tmp_path, checkpoint="s3://not-there/checkpoint")
    assert "there is no bucket not-there" in one_line(run_command("run", job.conf), 1)
    job = JobFolder(tmp_path, checkpoint="ftp://somewhere/checkpoint")
    assert "begins with a scheme, ftp:" in one_line(run_command("run", job.conf), 2)


def freeze_in_a_batch(command: RunningCommand, job: JobFolder, store: Store, seconds: float) -> None:
    """Hold the store for so long once two batches are done, so that the third is in the midst of something."""
    command.wait_until(lambda: len(written_batches(job.tables / "batches")) >= 2)
    with store.frozen():
        command.wait_until(lambda: "waiting for up to" in command.stderr)
        time.sleep(seconds)


@pytest.mark.nightly
def test_a_store_that_is_away_for_longer_than_a_lease_is_waited_for_and_the_job_begins_anew(
    store: Store, bucket: str, on_disk: JobFolder, tmp_path: Path
):
    job = in_store(tmp_path, store, bucket, on_disk.source)
    with RunningCommand("run", job.conf, log=tmp_path / "log") as command:
        freeze_in_a_batch(command, job, store, 40)
        assert command.wait() == 0
        log = command.stderr
    assert log.count("could not be renewed for 10 s") == log.count("waiting for up to 10m (store_patience)") == 1
    assert log.count("the store answers again after ") == 1
    assert "Traceback" not in log
    assert rows_of(job) == rows_of(on_disk)


@pytest.mark.nightly
def test_a_job_that_waits_for_a_store_is_ended_by_a_signal_and_goes_on_at_the_next_start(
    store: Store, bucket: str, on_disk: JobFolder, tmp_path: Path
):
    job = in_store(tmp_path, store, bucket, on_disk.source)
    with RunningCommand("run", job.conf, log=tmp_path / "log") as command:
        command.wait_until(lambda: len(written_batches(job.tables / "batches")) >= 2)
        with store.frozen():
            command.wait_until(lambda: "waiting for up to" in command.stderr)
            time.sleep(5)
            command.terminate()
            assert command.wait() == 0
        assert "Traceback" not in command.stderr
    ran = run_command("run", job.conf)
    assert ran.returncode == 0, ran.stderr
    assert rows_of(job) == rows_of(on_disk)
