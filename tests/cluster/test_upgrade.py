"""A rolling upgrade: one build of this release is stopped, another goes on, and nobody sees it in the results."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.command import RunningCommand
from tests.spark.job_folder import JobFolder
from tests.spark.test_attempts import comparable
from tests.spark.test_kill import committed_batches, remembering

pytestmark = [pytest.mark.spark, pytest.mark.nightly]
ROOT = Path(__file__).parents[2]
COMPILED_WITHIN_S = 900


class Release(RunningCommand):
    """`buckets run` of a checkout."""

    def __init__(self, checkout: Path, job: JobFolder, log: Path) -> None:
        """Say what to start."""
        super().__init__(log=log, give_up_s=COMPILED_WITHIN_S)
        spilling = "import buckets.spark.query as query; query.DRIVER_BYTES = 0"
        script = f"{spilling}; from buckets.cli.commands import main; main()"
        self._arguments = [sys.executable, "-c", script, "run", str(job.conf)]
        self._cwd = checkout
        self._environment = os.environ | {"PYTHONPATH": str(checkout)}


@pytest.fixture(scope="module")
def other_build(tmp_path_factory) -> Path:
    """A build of the same release in another place, with a kernel file of other text, so that it compiles its own."""
    checkout = tmp_path_factory.mktemp("before")
    done = subprocess.run(["git", "-C", str(ROOT), "archive", "HEAD"], check=True, capture_output=True)
    subprocess.run(["tar", "-x", "-C", str(checkout)], input=done.stdout, check=True)
    kernel = checkout / "buckets" / "kernel" / "kernel.py"
    kernel.write_text(kernel.read_text() + "\n# another build\n")
    return checkout


def test_a_job_that_is_stopped_and_started_by_another_build_goes_on(spark, other_build, tmp_path):
    undisturbed = remembering(tmp_path / "undisturbed")
    undisturbed.run(spark)
    job = remembering(tmp_path / "upgraded", undisturbed.source)
    job.configure_also(trigger={"interval": "500ms"})
    with Release(other_build, job, tmp_path / "before.log") as command:
        command.wait_until(lambda: len(committed_batches(job)) >= 3)
        command.terminate()
        assert command.wait() == 0, command.stderr
    assert len(committed_batches(job)) < len(committed_batches(undisturbed))
    job.configure_also(trigger={"available_now": True})
    with Release(ROOT, job, tmp_path / "after.log") as command:
        assert command.wait() == 0, command.stderr

    assert comparable(job) == comparable(undisturbed)
    assert committed_batches(job) == committed_batches(undisturbed)
