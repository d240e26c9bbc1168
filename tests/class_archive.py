"""Java's classes of a small job, parsed and checked once, so that every JVM of the tests starts in half the time.

    python -m tests.class_archive

A JVM with Spark in it loads some 20,000 classes, which takes longer than a job of a few small batches. Java can write
the classes of one run into a file (class data sharing) and map that file into memory in later runs. The archive holds
for one Java and one set of jars; any JVM to which it does not apply starts without it.
"""

import hashlib
import os
import shutil
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A third less CPU time for a job of a few small batches than with the compiler and the collector for long runs."""
FOLDER = Path(__file__).parents[1] / ".pytest_cache" / "java"
JARS = Path(__file__).parents[1] / "buckets" / "java"
"""What says which jars there are: the lock file, and the sources of our own."""


def archive_path() -> Path:
    """Where the archive of this Java and this Spark lies, or would lie."""
    home = os.environ.get("JAVA_HOME")
    java = Path(shutil.which("java", path=f"{home}/bin" if home else None) or "java").resolve()
    parts = (str(java), str(java.stat().st_mtime_ns) if java.exists() else "", sys.prefix, version("pyspark"))
    jars = [JARS / "jars.lock", *sorted((JARS / "state").iterdir())]
    digest = hashlib.sha256(repr((*parts, *(path.read_bytes() for path in jars))).encode())
    return FOLDER / f"classes-{digest.hexdigest()[:12]}.jsa"


def java_options() -> str:
    """The options of a JVM in tests; with the archive if there is one."""
    path = archive_path()
    # Without the log, a JVM to which the archive does not apply would print a warning among what a command prints.
    return f"{QUICK_START} -XX:SharedArchiveFile={path} -Xlog:disable" if path.exists() else QUICK_START


def make_archive() -> None:
    """Run a small job to its end and keep its classes, unless they are there."""
    path = archive_path()
    if path.exists():
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        made = Path(folder, path.name)
        os.environ["SPARK_SUBMIT_OPTS"] = f"{QUICK_START} -XX:ArchiveClassesAtExit={made} -Xlog:disable"
        _run_job(Path(folder))
        if not made.exists():
            sys.exit("no archive of Java's classes was written, without which tests start more slowly")
        made.replace(path)


def _run_job(folder: Path) -> None:
    """Run a small job in a session of this process, whose JVM ends by itself; a command would kill it at its end."""
    # Spark is imported by nothing else here: every test run reads the options above.
    from pyspark import SparkContext

    from buckets.spark.session import start_session
    from tests.spark.job_folder import JobFolder
    from tests.spark.payments import payments

    session = start_session("classes", shards=2)
    job = JobFolder(folder)
    job.add_events(payments(20), files=2)
    job.run(session)
    session.stop()
    process: Any = SparkContext._gateway.proc  # type: ignore[union-attr]
    process.stdin.close()
    process.wait()


if __name__ == "__main__":
    make_archive()
