"""A standalone cluster as its users have it: the tables are those of one process, whatever becomes of workers.

Executors have a wheel in a packed environment, sent along with `--archives`, and nothing of the checkout.
"""

import os
import sys
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from buckets.exit_codes import FAILED
from buckets.java.jars import jar_paths
from tests.cluster.standalone import StandaloneCluster
from tests.laws import NIGHTLY
from tests.spark.command import RunningCommand
from tests.spark.job_folder import JobFolder
from tests.spark.payments import payments
from tests.spark.test_attempts import comparable
from tests.spark.test_kill import committed_batches, remembering

pytestmark = pytest.mark.spark
BIN = Path(sys.executable).parent
SCORE = Path(__file__).parents[2] / "jobs" / "score.py"
PYTHON = "./environment/bin/python"
SMALL = {"spark.driver.memory": "1g", "spark.executor.memory": "512m", "spark.executor.cores": "1"}
TWICE = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "50ms",
}
"""Tasks that take longer than others are started a second time."""


class OnCluster(RunningCommand):
    """A job on a cluster, with the archive of an environment, from the folder in which that is unpacked."""

    logs_stdout = True

    def __init__(self, kind: str, job: JobFolder, cluster: StandaloneCluster, packed, log: Path) -> None:
        """Say how to start it: by `buckets run`, or by spark-submit."""
        super().__init__(log=log)
        archive = f"{packed.archive}#environment"
        if kind == "buckets run":
            settings = SMALL | TWICE | {"spark.archives": archive, "spark.pyspark.python": PYTHON}
            job.configure_also(spark=settings)
            self._arguments = [str(BIN / "buckets"), "run", str(job.conf), "--master", cluster.url]
        else:
            settings = SMALL | TWICE | {"spark.pyspark.python": PYTHON, "spark.pyspark.driver.python": sys.executable}
            confs = [text for name, value in settings.items() for text in ("--conf", f"{name}={value}")]
            jars = ",".join(map(str, jar_paths()))
            files = ["--jars", jars, "--archives", archive]
            submit = [str(BIN / "spark-submit"), "--master", cluster.url]
            self._arguments = [*submit, *files, *confs, str(SCORE), str(job.conf)]
        self._cwd = packed.folder
        self._environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"}


def plain(root: Path, source: Path | None = None) -> JobFolder:
    """A job over rules of several groupings, one of them of all events."""
    taken = {"kind": "json", "path": str(source or root / "source"), "max_files_per_trigger": 1}
    job = JobFolder(root, source=taken)
    if source is None:
        job.add_events(payments(100), files=6)
    return job


JOBS: dict[str, Callable[..., JobFolder]] = {"team": remembering, "demo": plain}


@pytest.fixture(scope="module")
def alone(spark, tmp_path_factory) -> Iterator[Callable[[str], JobFolder]]:
    """A job that has run in one process, by its name."""
    done: dict[str, JobFolder] = {}

    def of(name: str) -> JobFolder:
        if name not in done:
            done[name] = JOBS[name](tmp_path_factory.mktemp(name) / "alone")
            done[name].run(spark)
        return done[name]

    return of


def fault(job: JobFolder, cluster: StandaloneCluster, tmp_path: Path, code: int = FAILED) -> str:
    """The last line of a job that ends with an error."""
    with RunningCommand("run", job.conf, "--master", cluster.url, log=tmp_path / "log") as command:
        assert command.wait() == code
    assert "Traceback" not in command.stderr
    return command.stderr.splitlines()[-1]


@pytest.mark.nightly
def test_a_cluster_that_gives_no_executor_and_one_whose_python_lacks_the_wheel_are_one_line_each(tmp_path):
    bare = tmp_path / "bare"
    venv.create(bare)
    job = plain(tmp_path / "job")
    job.configure_also(start_patience="30s", spark=SMALL | {"spark.pyspark.python": str(bare / "bin" / "python")})
    with StandaloneCluster(tmp_path / "cluster") as cluster:
        assert fault(job, cluster, tmp_path).startswith(f"error: no executor of {cluster.url} has come within 30s")
        cluster.add_worker()
        job.configure_also(start_patience="2m")
        assert fault(job, cluster, tmp_path).startswith("error: the Python of an executor has no buckets: send an")
        job.configure_also(spark=SMALL | {"spark.pyspark.python": "./gone/python"})
        assert fault(job, cluster, tmp_path).startswith("error: a machine has no ./gone/python, the Python for its")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("spark-submit", "team"),
        pytest.param("buckets run", "team", marks=pytest.mark.nightly),
        pytest.param("buckets run", "demo", marks=pytest.mark.nightly),
    ],
)
def test_with_a_worker_that_dies_one_that_comes_and_tasks_that_run_twice(alone, packed, tmp_path, kind, name):
    expected = alone(name)
    job = JOBS[name](tmp_path / "job", expected.source)
    with StandaloneCluster(tmp_path / "cluster") as cluster:
        cluster.add_worker()
        cluster.add_worker()
        with OnCluster(kind, job, cluster, packed, tmp_path / "log") as command:
            command.wait_until(lambda: len(committed_batches(job)) >= 2)
            pythons = cluster.pythons()
            cluster.kill_worker(0)
            cluster.add_worker()
            assert command.wait() == 0, command.stderr
        assert "loading the engine on 2 executors, 2 cores" in command.stderr
        assert comparable(job) == comparable(expected)
        assert committed_batches(job) == committed_batches(expected)
        assert len(cluster.work_folders()) == 3
        unpacked = [(folder / "environment" / "bin" / "python").exists() for folder in cluster.work_folders()]
        # By night an environment is whole, and the executor that came last may still unpack it when the job ends.
        assert sum(unpacked) >= (2 if NIGHTLY else 3)
        assert pythons == {PYTHON}
        assert "INFO RocksDB" not in cluster.executor_logs()
