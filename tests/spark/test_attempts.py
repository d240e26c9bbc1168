"""Batches and tasks that are run again, on other workers and machines: the tables are those of an undisturbed run.

What a worker remembers of the state must not outlive an attempt that came to nothing.
"""

import contextlib
import os
import signal
from pathlib import Path

import pytest

from buckets.java.jars import jar_paths
from tests.spark.command import RunningCommand
from tests.spark.job_folder import JobFolder, Row
from tests.spark.payments import payments
from tests.spark.test_kill import NARROW, committed_batches, freeze_when

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

EVENTS, FILES = 400, 16
WORKER, EXECUTOR = "pyspark.worker", "CoarseGrainedExecutorBackend"
RETRIED = {"spark.task.maxFailures": 50, "spark.stage.maxConsecutiveAttempts": 50}


@pytest.fixture(scope="module")
def expected(spark, tmp_path_factory) -> dict[str, list[Row]]:
    """The tables of a job that nothing disturbed."""
    job = JobFolder(tmp_path_factory.mktemp("expected"))
    job.add_events(payments(EVENTS), files=FILES)
    job.run(spark)
    return comparable(job)


def comparable(job: JobFolder) -> dict[str, list[Row]]:
    """The rows of all tables, without the folder of their source."""
    return {name: sorted(map(without_folder, rows), key=repr) for name, rows in job.all_rows().items()}


def without_folder(row: Row) -> Row:
    return row | {"source": Path(row.get("source") or "").name}


def command_line(process: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def parent(process: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def workers(command: RunningCommand) -> list[int]:
    """The Python workers, which one daemon has forked."""
    python = [each for each in command.processes() if WORKER in command_line(each)]
    return [each for each in python if parent(each) in python]


def executors(command: RunningCommand) -> list[int]:
    return [each for each in command.processes() if EXECUTOR in command_line(each)]


def kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def run_with_kills(job: JobFolder, folder: Path, victims, kills: int) -> None:
    """Run the job to its end, killing one of what `victims` finds every second batch; started again where it fails."""
    done = 0
    for start in range(kills + 1):
        with RunningCommand("run", job.conf, log=folder / f"{start}.log") as command:
            while command.is_running and done < kills:
                at_least = len(committed_batches(job)) + 2
                command.wait_until(
                    lambda least=at_least: not command.is_running or len(committed_batches(job)) >= least
                )
                for victim in victims(command)[:1]:
                    kill(victim)
                    done += 1
            if command.wait() == 0:
                break
    assert done == kills
    assert len(committed_batches(job)) == FILES


def test_a_worker_that_dies_in_a_batch_is_replaced_and_its_task_run_again(expected, tmp_path):
    job = JobFolder(tmp_path, state=NARROW, spark={"spark.master": "local[2,50]", **RETRIED})
    job.add_events(payments(EVENTS), files=FILES)
    run_with_kills(job, tmp_path, workers, kills=5)
    assert comparable(job) == expected


def test_an_executor_that_is_lost_and_tasks_that_run_twice_at_once_change_nothing(expected, tmp_path):
    """Two executors in processes of their own; tasks that take longer than others are started a second time."""
    jars = os.pathsep.join(map(str, jar_paths()))
    cluster = {"spark.master": "local-cluster[2,1,1024]", "spark.executor.memory": "1g"}
    cluster["spark.executor.extraClassPath"] = jars
    twice = {
        "spark.speculation": True,
        "spark.speculation.interval": "10ms",
        "spark.speculation.multiplier": 1.01,
        "spark.speculation.quantile": 0.1,
        "spark.speculation.minTaskRuntime": "1ms",
    }
    job = JobFolder(tmp_path, state=NARROW, spark=cluster | twice | RETRIED)
    job.add_events(payments(EVENTS), files=FILES)
    run_with_kills(job, tmp_path, executors, kills=2)
    assert comparable(job) == expected


def partitions_written(job: JobFolder) -> list[bool]:
    """Of the batch that is being run, which partitions have written their state; none where no batch is."""
    spark = job.checkpoint / "spark"
    newest = max((int(path.name) for path in (spark / "offsets").glob("[0-9]*")), default=-1)
    if newest < 1 or newest in committed_batches(job):
        return []
    return [
        (folder / f"{newest + 1}.changelog").exists()
        for folder in sorted((job.checkpoint / "state" / "0").glob("[0-9]*/shards"))
    ]


def is_before_the_state(written: list[bool]) -> bool:
    return bool(written) and not any(written)


def is_within_the_state(written: list[bool]) -> bool:
    return any(written) and not all(written)


def is_after_the_state(written: list[bool]) -> bool:
    return bool(written) and all(written)


def test_killed_before_within_and_after_the_write_of_the_state(expected, tmp_path):
    """So little is left in the log that each batch moves entries from it too."""
    job = JobFolder(tmp_path, state=NARROW)
    job.add_events(payments(EVENTS), files=FILES)
    for phase in (is_before_the_state, is_within_the_state, is_after_the_state):
        with RunningCommand("run", job.conf, log=tmp_path / f"{phase.__name__}.log") as command:
            done = committed_batches(job)
            freeze_when(
                command,
                job,
                lambda job, done=done, phase=phase: committed_batches(job) > done and phase(partitions_written(job)),
            )
            command.kill_all()
    with RunningCommand("run", job.conf, log=tmp_path / "last.log") as command:
        assert command.wait() == 0
    assert len(committed_batches(job)) == FILES
    assert comparable(job) == expected
