"""The main job as a data engineer starts it: by spark-submit, with the jars named on its command line."""

import os
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

from buckets.exit_codes import MISUSED
from buckets.java.jars import jar_folder, jar_paths, own_jar
from tests.spark.job_folder import JobFolder

pytestmark = pytest.mark.spark
JOBS = Path(__file__).parents[2] / "jobs"


def submit(script: str, *arguments: str | Path, without: Collection[Path] = ()) -> tuple[int, list[str]]:
    """Run a job to its end; returns its exit code and what it and Spark have said, which comes as one."""
    jars = ",".join(str(path) for path in jar_paths() if path not in without)
    command = [str(Path(sys.executable).with_name("spark-submit")), "--jars", jars, str(JOBS / script)]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [*command, *map(str, arguments)],
        env=environment, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    return done.returncode, done.stdout.splitlines()


def test_the_alerts_are_those_of_the_same_job_without_it(finished, tmp_path):
    job = JobFolder(tmp_path, source={"kind": "json", "path": str(finished.source)}, output={"path": "tables"})

    code, said = submit("score.py", job.conf)

    assert code == 0, said
    assert not any("Exception" in line for line in said)
    assert any(line.endswith(f"tables are in {job.tables}") for line in said)
    found, expected = ({row["alert_id"] for row in each.rows("alerts")} for each in (job, finished))
    assert found == expected != set()


def test_without_our_own_jar_it_does_not_start(tmp_path, as_worded):
    job = JobFolder(tmp_path, output={"path": "tables"})
    code, said = submit("score.py", job.conf, without=[own_jar(jar_folder())])
    assert code != 0
    (error,) = [line for line in said if line.startswith("error: ")]
    assert as_worded(error)
    assert not any("Traceback" in line for line in said)


def test_a_fault_is_one_line_among_what_spark_says(tmp_path):
    code, said = submit("audit.py", tmp_path / "gone.yaml")
    assert code == MISUSED
    assert [line for line in said if line.startswith("error: ")] == [
        f"error: configuration {tmp_path / 'gone.yaml'}: no such file; check the path"
    ]
    assert not any("Traceback" in line for line in said)
