"""First starts at one moment: one of them goes on, the others are told, and checkpoint and output stay of one job."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.record_files import OwnedFolder
from tests.spark.command import BUCKETS, one_line
from tests.spark.job_folder import JobFolder, written_batches
from tests.spark.payments import payments

TIMES, EVENTS = 40, 50
STARTS = """
import sys
from pathlib import Path
from buckets.config.job import load_job
from buckets.errors import BucketsError
from buckets.spark.prepared_job import prepare

print("ready", flush=True)
prepared = None
for line in sys.stdin:
    prepared = None
    try:
        prepared = prepare(load_job(Path(line.strip())))
    except BucketsError as error:
        print(error.message, flush=True)
    else:
        print("it goes on", flush=True)
"""


class Starts:
    """Processes that each prepare a job when they are told, and hold it until they are told of the next one."""

    def __init__(self, count: int) -> None:
        command = [sys.executable, "-c", STARTS]
        self._processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(count)
        ]
        assert {self._said(process) for process in self._processes} == {"ready"}

    def at_once(self, confs: Sequence[Path]) -> list[str]:
        """Start jobs, each in a process of its own; what each says."""
        for process, conf in zip(self._processes, confs, strict=True):
            assert process.stdin is not None
            process.stdin.write(f"{conf}\n")
            process.stdin.flush()
        return [self._said(process) for process in self._processes]

    def _said(self, process: "subprocess.Popen[str]") -> str:
        assert process.stdout is not None
        return process.stdout.readline().rstrip("\n")

    def close(self) -> None:
        """End them."""
        for process in self._processes:
            process.communicate("")


@pytest.fixture(scope="module")
def starts() -> Iterator[Starts]:
    """Three processes."""
    with contextlib.closing(Starts(3)) as found:
        yield found


def identities(job: JobFolder) -> tuple[str | None, str | None]:
    """Of the checkpoint, and of the one to which the output belongs."""
    known = Checkpoint(job.checkpoint).job
    return known.known_identity(), OwnedFolder(job.tables, "output.path", known.life).identity()


def test_of_first_starts_of_a_job_one_goes_on_and_the_others_are_told(tmp_path: Path, starts: Starts):
    for number in range(TIMES):
        job = JobFolder(tmp_path / str(number))
        said = sorted(starts.at_once([job.conf] * 3), key=len)
        assert said[0] == "it goes on"
        assert all(f"checkpoint {job.checkpoint} is in use by process" in line for line in said[1:])
        checkpoint, output = identities(job)
        assert checkpoint is not None
        assert checkpoint == output


def test_of_first_starts_with_one_output_one_goes_on_and_the_others_are_told(tmp_path: Path, starts: Starts):
    for number in range(TIMES):
        jobs = [
            JobFolder(tmp_path / f"{number}-{each}", output={"path": str(tmp_path / f"{number}")}) for each in "abc"
        ]
        said = starts.at_once([job.conf for job in jobs])
        assert sorted(said, key=len)[0] == "it goes on"
        told = [line for line in said if line != "it goes on"]
        assert len(told) == 2
        assert all("holds tables of another checkpoint" in line for line in told)
        winner = Checkpoint(jobs[said.index("it goes on")].checkpoint).job.known_identity()
        assert OwnedFolder(tmp_path / f"{number}", "output.path").identity() == winner


def test_of_two_commands_that_begin_at_one_moment_one_scores_and_the_other_says_so_in_a_line(tmp_path: Path):
    job = JobFolder(tmp_path)
    job.add_events(payments(EVENTS), files=1)
    command = [BUCKETS, "run", str(job.conf)]
    begun = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [each.communicate() for each in begun]
    ended = [subprocess.CompletedProcess(command, each.returncode, *out) for each, out in zip(begun, said, strict=True)]
    (told,) = [one_line(each) for each in ended if each.returncode != 0]
    assert f"checkpoint {job.checkpoint} is in use by process" in told
    assert identities(job)[0] == identities(job)[1]
    assert written_batches(job.tables / "batches") == {0}
