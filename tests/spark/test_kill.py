"""`kill -9` in the middle of a batch: after a restart the tables are those of a run that nothing disturbed."""

from pathlib import Path

import pytest

from tests.spark.command import RunningCommand, run_command
from tests.spark.job_folder import JobFolder, written_batches

pytestmark = pytest.mark.spark


def committed_batches(job: JobFolder) -> set[int]:
    """The batches that Spark will not run again."""
    return {int(path.name) for path in (job.checkpoint / "spark" / "commits").glob("[0-9]*")}


def is_half_written(job: JobFolder) -> bool:
    """Whether some batch is in one of its tables and not in another."""
    return bool((written_batches(job.tables / "alerts") ^ written_batches(job.tables / "batches")) - {0})


def is_written_but_not_committed(job: JobFolder) -> bool:
    """Whether some batch has everything in the tables, and Spark does not know yet that it is done."""
    written = written_batches(job.tables / "alerts") & written_batches(job.tables / "batches")
    return bool(written - committed_batches(job) - {0})


def freeze_when(command: RunningCommand, job: JobFolder, condition) -> None:
    """Freeze the run in a moment in which a condition holds: looked at again once nothing moves any more."""
    while True:
        command.wait_until(lambda: condition(job))
        command.freeze()
        if condition(job):
            return
        command.thaw()


def test_killed_twice_in_a_batch_and_restarted_every_table_is_that_of_an_undisturbed_run(
    finished: JobFolder, tmp_path: Path
):
    source = {"kind": "json", "path": str(finished.source), "max_files_per_trigger": 1}
    job = JobFolder(tmp_path, source=source)

    with RunningCommand("run", job.conf, log=tmp_path / "first.log") as command:
        freeze_when(command, job, is_half_written)
        command.kill_driver()
    first = written_batches(job.tables / "batches")
    with RunningCommand("run", job.conf, log=tmp_path / "second.log") as command:
        freeze_when(
            command,
            job,
            lambda job: is_written_but_not_committed(job) and written_batches(job.tables / "batches") > first,
        )
        command.kill_all()
    assert committed_batches(job) < committed_batches(finished)
    last = run_command("run", job.conf)

    assert last.returncode == 0, last.stderr
    assert job.all_rows() == finished.all_rows()
    assert all(
        finished.rows(name)
        for name in ("alerts", "shadow_alerts", "late_events", "collisions", "duplicates", "evaluations")
    )
    assert committed_batches(job) == committed_batches(finished)
