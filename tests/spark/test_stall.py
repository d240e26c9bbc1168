"""A job that hangs ends, whatever hangs: with one line, a code that is not zero, and nothing left running.

A worker that is frozen never ends its task; a JVM that is frozen answers nobody.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from buckets.exit_codes import FAILED, INTERRUPTED
from buckets.spark import stall
from buckets.spark.stall import ONE_SIGNAL_S
from tests.spark.command import PHASES, RunningCommand, one_line
from tests.spark.job_folder import JobFolder
from tests.spark.payments import payments
from tests.spark.test_attempts import WORKER, command_line

pytestmark = pytest.mark.spark


def running_job(root: Path, **changes) -> JobFolder:
    """A job that goes on for ever, with a first batch to do."""
    job = JobFolder(root, trigger={"interval": "100ms"}, **changes)
    job.add_events(payments(20), files=1)
    return job


def workers(command: RunningCommand) -> list[int]:
    """The Python workers, and the process that forks more of them."""
    return [pid for pid in command.processes() if WORKER in command_line(pid)]


def jvm(command: RunningCommand) -> list[int]:
    return [pid for pid in command.processes() if _of_process(pid, "comm").strip() == b"java"]


def _of_process(pid: int, name: str) -> bytes:
    """What the system says of a process; nothing of one that has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_bytes()
    return b""


def spark_jvm(command: RunningCommand) -> list[int]:
    """The JVM of Spark, and no other one that is asked for its version before."""
    return [pid for pid in jvm(command) if b"org.apache.spark" in _of_process(pid, "cmdline")]


def hang(command: RunningCommand, job: JobFolder, frozen) -> None:
    """Freeze processes once the first batch has begun to be scored; a job that has ended before that is left alone.

    Workers are there before it: they start beside the query.
    """
    begun = job.checkpoint / "buckets" / "batches" / "000000000.json"
    command.wait_until(lambda: (begun.exists() and workers(command)) or not command.is_running)
    for _ in range(2):  # what a process has forked until it was frozen, too
        for pid in frozen(command):
            os.kill(pid, signal.SIGSTOP)


def ended(command: RunningCommand, code: int = FAILED) -> str:
    """The line with which it has failed, with nothing left of it."""
    assert command.wait() == code, command.stderr
    command.wait_until_gone()
    *_, last = command.stderr.splitlines()
    assert "Traceback" not in command.stderr
    assert "py4j" not in command.stderr
    assert command.stderr.count("error: ") == 1
    return last


def test_a_batch_in_which_nothing_gets_done_ends_the_job_and_the_next_start_goes_on(spark, tmp_path):
    job = running_job(tmp_path, stall_patience="10s")
    with RunningCommand("run", job.conf, log=tmp_path / "log") as command:
        hang(command, job, workers)
        last = ended(command)
    assert "has made no progress for 10s, the limit of stall_patience: no task has ended" in last
    assert str(job.checkpoint / "buckets" / "logs") in last
    job.configure()
    assert [report.account.batch_id for report in job.run(spark)] == [0]


def test_a_jvm_that_hangs_while_it_starts_ends_the_job_too(tmp_path):
    job = running_job(tmp_path, start_patience="5s")
    with RunningCommand("run", job.conf, log=tmp_path / "log") as command:
        command.wait_until(lambda: spark_jvm(command) or not command.is_running)
        for pid in spark_jvm(command):
            os.kill(pid, signal.SIGSTOP)
        last = ended(command)
    assert last.startswith("error: Spark has not started within 5s, the limit of start_patience, and was ended;")


@pytest.mark.parametrize("frozen", [workers, jvm], ids=["workers", "jvm"])
def test_a_second_signal_ends_what_hangs_at_once(tmp_path, frozen):
    job = running_job(tmp_path)
    with RunningCommand("run", job.conf, log=tmp_path / "log") as command:
        hang(command, job, frozen)
        command.terminate()
        command.wait_until(lambda: "stopping after the batch" in command.stderr)
        time.sleep(2 * ONE_SIGNAL_S)
        command.terminate()
        last = ended(command, INTERRUPTED)
    assert last.startswith("error: ended at once, in batch 0, by the second signal to stop; nothing of the batch is")


def test_a_jvm_that_is_killed_is_one_line_without_a_word_of_the_library_that_talks_to_it(tmp_path):
    job = running_job(tmp_path)
    with RunningCommand("run", job.conf, log=tmp_path / "log") as command:
        hang(command, job, lambda command: [])
        (pid,) = jvm(command)
        os.kill(pid, signal.SIGKILL)
        last = ended(command)
    assert last.startswith("error: Spark's JVM has ended in the middle of the run; nothing of the running batch is")
    assert [line for line in command.stderr.splitlines() if not line.startswith(PHASES)] == [last]


@pytest.mark.parametrize("after_s", [1.0, 3.0])
def test_a_signal_while_spark_starts_is_one_line_and_leaves_no_jvm(tmp_path, after_s):
    job = running_job(tmp_path)
    with RunningCommand("run", job.conf, log=tmp_path / "log") as command:
        command.wait_until(lambda: "starting Spark" in command.stderr)
        time.sleep(after_s)
        command.terminate()
        assert command.wait() == 0
        command.wait_until_gone()
        last = [line for line in command.stderr.splitlines() if not line.startswith(PHASES)][-1]
    assert last.startswith(("stopped before the first batch", "stopped after 0 events"))


ALONE = """
import threading
from buckets.spark import stall
stall.LEAVE_WITHIN_S = 0.2
with stall.StallWatch({patience_s}) as watch:
    watch.may_exit = True
    watch.mark("batch 7")
    {work}
"""
FOR_EVER = "threading.Event().wait()"


def alone(work: str, patience_s: float) -> subprocess.CompletedProcess[str]:
    script = ALONE.format(work=work, patience_s=patience_s)
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)


def test_a_process_that_does_not_even_leave_once_its_jvm_is_dead_is_ended_with_that_line(as_worded):
    assert as_worded(one_line(alone(FOR_EVER, patience_s=0.5)))


def test_what_takes_long_is_told_once_until_something_gets_done(monkeypatch):
    monkeypatch.setattr(stall, "_TOLD_AFTER", 0.0)
    monkeypatch.setattr(stall, "_LEAST_TOLD_S", 0.1)
    said: list[str] = []
    with stall.StallWatch(60, said.append) as watch:
        for batch in (7, 8):
            watch.mark(f"batch {batch}")
            time.sleep(0.5)
    ends = "the machine is too slow; it is ended after 1m (stall_patience)"
    assert [(line.split(" has made no progress for ")[0], line.endswith(ends)) for line in said] == [
        ("batch 7", True),
        ("batch 8", True),
    ]


def test_what_gets_something_done_again_and_again_is_left_alone():
    work = "[(threading.Event().wait(0.1), watch.mark()) for _ in range(20)]"
    assert alone(work, patience_s=1).returncode == 0
