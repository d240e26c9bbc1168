"""Jobs of which everything is too large for the driver, killed while tasks write results into files."""

import sys
from pathlib import Path

import pytest

from buckets.stores.location import location
from tests.spark.command import RunningCommand, run_command
from tests.spark.job_folder import JobFolder
from tests.spark.test_attempts import RETRIED, kill, workers
from tests.spark.test_spilled import a_job
from tests.stores.server import Store
from tests.stores.test_job import in_store, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.nightly]
SCRIPT = "import buckets.spark.query as query; query.DRIVER_BYTES = 0; from buckets.cli.commands import main; main()"


class SpillingCommand(RunningCommand):
    """`buckets run` that takes nothing to the driver which may lie in files."""

    def __init__(self, job: JobFolder, log: Path) -> None:
        """Say what to start."""
        super().__init__(log=log)
        self._arguments = [sys.executable, "-c", SCRIPT, "run", str(job.conf)]


def spilled(job: JobFolder) -> set[Path]:
    """The files of payloads that lie there."""
    return set((job.checkpoint / "buckets" / "spilled").glob("*/*.payloads"))


@pytest.mark.parametrize("where", ["disk", "store"])
def test_a_job_that_spills_and_loses_its_jvm_and_then_a_worker_has_the_results_of_any_job(
    where, store: Store, bucket: str, tmp_path: Path
):
    plain = a_job(tmp_path / "plain")
    ran = run_command("run", plain.conf)
    assert ran.returncode == 0, ran.stderr
    root, rules = tmp_path / "spilling", (plain.root / "rules.yaml").read_text()
    if where == "disk":
        job = JobFolder(root, source={"kind": "json", "path": str(plain.source), "max_files_per_trigger": 1})
        (root / "rules.yaml").write_text(rules)
    else:
        job = in_store(root, store, bucket, plain.source)
        location(f"s3://{bucket}/job/rules/rules.yaml").write_text(rules)
    job.configure_also(spark={"spark.master": "local[2,50]", **RETRIED})

    with SpillingCommand(job, tmp_path / "killed.log") as command:
        command.wait_until(lambda: bool(spilled(job)))
        command.kill_all()
    left = spilled(job)
    assert left
    killed: list[int] = []
    with SpillingCommand(job, tmp_path / "worker.log") as command:
        command.wait_until(lambda: bool(spilled(job) - left))
        for worker in workers(command)[:1]:
            kill(worker)
            killed.append(worker)
        code = command.wait()
        assert "Traceback" not in command.stderr
    assert killed
    if code:
        with SpillingCommand(job, tmp_path / "last.log") as command:
            assert command.wait() == 0, command.stderr

    assert rows_of(job) == rows_of(plain)
    assert not spilled(job)
