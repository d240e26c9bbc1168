"""Tests of a chosen few files on every line of Spark that is supported, each in an environment of its own.

    python -m tests.spark_versions              # all; `make test-long SPARK=all`
    python -m tests.spark_versions 4.1.4        # one; `make test-long SPARK=4.1.4`

An environment has the packages of the lock file, but for pyspark. It stays in `.pytest_cache`, so that the next run
finds it there. The last result of each version is in `bench/results/spark_versions.json`.
"""

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
CACHE, RESULTS = ROOT / ".pytest_cache", ROOT / "bench" / "results" / "spark_versions.json"
FILES = [f"tests/spark/test_{name}.py" for name in ("run", "frames", "stream", "history", "carry", "spark_version")]
KAFKA = "tests/kafka/test_scoring.py::test_what_came_while_the_job_was_down_is_scored_afterwards_in_order"
NO_DELTA_IN_SPARK = (
    "any_source[delta]",
    "by_day",
    "out_of_the_order_of_their_column",
    "spark_reads",
    "decimals",
    "is_the_cause",
    "however_its_path_is_written",
    "cannot_be_written",
)
"""Parts of the names of tests that read Delta tables by Spark, or append to them."""
TESTS = {
    "4.1.4": [*FILES, "tests/spark/test_iceberg.py", KAFKA],
    "4.2.1": [*FILES, KAFKA],
    "4.3.0": [*FILES, "-k", f"not ({' or '.join(NO_DELTA_IN_SPARK)})"],
}
"""By version, what is run on it."""
_SPARK = re.compile(r"(?m)^(pyspark|py4j)==(?:.*\\\n)+.*\n")


def environment(version: str) -> Path:
    """Return the Python of an environment with a version of Spark, and beside it what the lock file has."""
    folder, uv = CACHE / f"spark-{version}", [sys.executable, "-m", "uv"]
    python, lock = folder / "bin" / "python", ROOT / "requirements.lock"
    if not python.exists():
        subprocess.run([*uv, "venv", "--quiet", "--python", sys.executable, folder], check=True)
    others = folder / "others.lock"
    others.write_text(_SPARK.sub("", lock.read_text(encoding="utf-8")), encoding="utf-8")
    install = [*uv, "pip", "install", "--quiet", "--python", python, "--build-constraints", lock]
    wanted = [f"pyspark=={version}", "--requirements", "pyproject.toml", "--all-extras", "--group", "test"]
    subprocess.run([*install, "--constraints", others, *wanted], cwd=ROOT, check=True)
    subprocess.run([*install, "--no-deps", "--editable", "."], cwd=ROOT, check=True)
    return python


def run(version: str) -> dict[str, Any]:
    """Run the tests of a version; return how many there were, and how many failed."""
    python, report = environment(version), CACHE / f"spark-{version}.xml"
    settings = os.environ | {"PYSPARK_PYTHON": str(python)}
    # pyspark 4.1 leaves it to Python to close the sockets of its results.
    command = [python, "-m", "pytest", "-q", "-W", "ignore::ResourceWarning", f"--junit-xml={report}"]
    subprocess.run([*command, *TESTS[version]], cwd=ROOT, env=settings, check=False)
    suite = ElementTree.parse(report).getroot()[0].attrib
    counts = {name: int(suite[name]) for name in ("tests", "failures", "errors", "skipped")}
    at = datetime.now(UTC).isoformat(timespec="seconds")
    return {"at": at, **counts, "seconds": round(float(suite["time"])), "what": TESTS[version]}


def main(asked: list[str]) -> None:
    """Run the tests of some versions, or of all, and keep what came out."""
    has_failed = False
    for version in TESTS if asked == ["all"] else asked:
        result = run(version)
        has_failed |= result["failures"] + result["errors"] > 0 or result["tests"] == 0
        kept = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
        RESULTS.write_text(json.dumps({**kept, version: result}, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    sys.exit(has_failed)


if __name__ == "__main__":
    main(sys.argv[1:] or ["all"])
