"""SIGTERM, as a service manager sends it: the running batch ends, within a time, and the job ends with code 0."""

import sys
from pathlib import Path

import pytest

from buckets.checkpoint.lock import check_free
from buckets.java.jars import jar_paths
from tests.spark.command import RunningCommand
from tests.spark.job_folder import JobFolder
from tests.spark.test_kill import committed_batches
from tests.spark.test_stall import hang, jvm, running_job, workers

pytestmark = pytest.mark.spark
SCORE = Path(__file__).parents[2] / "jobs" / "score.py"


class Submitted(RunningCommand):
    """The job in the background by spark-submit, whose JVM is the process that others know and says all."""

    logs_stdout = True

    def __init__(self, job: JobFolder, log: Path) -> None:
        """Say what to start, and where what Spark and the job say goes."""
        super().__init__(log=log)
        jars = ",".join(map(str, jar_paths()))
        submit = str(Path(sys.executable).with_name("spark-submit"))
        self._arguments = [submit, "--master", "local[2]", "--jars", jars, str(SCORE), str(job.conf)]


def command_of(kind: str, job: JobFolder, log: Path) -> RunningCommand:
    return Submitted(job, log) if kind == "spark-submit" else RunningCommand("run", job.conf, log=log)


def wait_for_batch(command: RunningCommand, job: JobFolder) -> None:
    """Wait until the first batch has begun to be scored."""
    begun = job.checkpoint / "buckets" / "batches" / "000000000.json"
    command.wait_until(lambda: begun.exists() and bool(workers(command)))


def has_ended_well(command: RunningCommand, job: JobFolder) -> None:
    """Wait until it has ended with code 0, and leaves neither a process nor its lock."""
    assert command.wait() == 0, command.stderr
    command.wait_until_gone()
    assert "Traceback" not in command.stderr
    assert "error: " not in command.stderr
    check_free(job.checkpoint)


def terminate(command: RunningCommand) -> None:
    command.terminate()


def terminate_all(command: RunningCommand) -> None:
    """Send it as `timeout` does: to a process, and to all of its group with it once more."""
    command.terminate()
    command.terminate_all()


@pytest.mark.parametrize(
    ("kind", "sent"),
    [
        ("buckets run", terminate_all),
        ("spark-submit", terminate),
        pytest.param("buckets run", terminate, marks=pytest.mark.nightly),
        pytest.param("spark-submit", terminate_all, marks=pytest.mark.nightly),
    ],
)
def test_the_batch_that_is_running_ends(tmp_path, kind, sent):
    job = running_job(tmp_path)
    with command_of(kind, job, tmp_path / "log") as command:
        wait_for_batch(command, job)
        assert committed_batches(job) == set()
        sent(command)
        has_ended_well(command, job)
    assert committed_batches(job) == {0}
    assert "stopped after 20 events; start it again to go on" in command.stderr


@pytest.mark.parametrize("kind", ["buckets run", pytest.param("spark-submit", marks=pytest.mark.nightly)])
def test_a_batch_that_does_not_end_in_time_is_abandoned_and_done_at_the_next_start(spark, tmp_path, kind):
    job = running_job(tmp_path, shutdown_within="1s")
    with command_of(kind, job, tmp_path / "log") as command:
        hang(command, job, workers)
        command.terminate()
        assert command.wait() == 0, command.stderr
    assert "batch 0 did not end within 1s, the limit of shutdown_within, and is abandoned" in command.stderr
    assert "Traceback" not in command.stderr
    assert committed_batches(job) == set()
    job.configure()
    assert [report.account.batch_id for report in job.run(spark)] == [0]


def test_a_jvm_that_hangs_ends_with_the_process(spark, tmp_path):
    job = running_job(tmp_path, shutdown_within="1s")
    with RunningCommand("run", job.conf, log=tmp_path / "log") as command:
        hang(command, job, jvm)
        command.terminate()
        has_ended_well(command, job)
    assert "batch 0 did not end within 1s, the limit of shutdown_within, and is abandoned" in command.stderr
    job.configure()
    assert [report.account.batch_id for report in job.run(spark)] == [0]


def test_a_job_that_waits_for_events_ends_at_once(tmp_path):
    job = running_job(tmp_path, shutdown_within="0s")
    with RunningCommand("run", job.conf, log=tmp_path / "log") as command:
        command.wait_until(lambda: committed_batches(job) == {0})
        command.terminate()
        has_ended_well(command, job)


def test_before_the_job_has_begun_it_has_not_failed_either(tmp_path):
    job = running_job(tmp_path)
    with RunningCommand("run", job.conf, "--log-format", "json", log=tmp_path / "log") as command:
        command.wait_until(lambda: "starting Spark" in command.stderr)
        command.terminate()
        has_ended_well(command, job)
    assert '"message": "stopped before the first batch; start it again to go on"' in command.stderr


@pytest.mark.parametrize(("profile", "is_small"), [("throughput", True), ("latency", False)])
def test_java_keeps_its_heap_small_unless_a_job_is_to_be_quick(tmp_path, profile, is_small):
    job = running_job(tmp_path, profile=profile)
    with RunningCommand("run", job.conf, log=tmp_path / "log") as command:
        wait_for_batch(command, job)
        (java,) = jvm(command)
        options = Path(f"/proc/{java}/cmdline").read_bytes()
        command.terminate()
        has_ended_well(command, job)
    assert (b"-XX:MaxHeapFreeRatio" in options) == is_small
