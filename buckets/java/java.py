"""Finds the Java that Spark will use, and decides which versions of both are supported.

Needs only Python itself, so that the setup can check Java before it installs anything: `python -m buckets.java.java`
prints nothing if all is well.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from buckets.errors import BucketsError

LOCKED_SPARK, SPARK_LINES = "4.2.1", ("4.1", "4.2", "4.3")
"""The pyspark that `bin/setup` installs, and the lines of versions that are supported as well."""
SUPPORTED_MAJORS = (17, 21)
_ANSWER_WITHIN_S = 60
_REMEDY = (
    "install Java 17 or 21 (Debian, Ubuntu: apt install openjdk-17-jre-headless or openjdk-21-jre-headless; "
    "macOS: brew install openjdk@21) and put it on PATH or set JAVA_HOME to its folder"
)


def line_of(version: str) -> str:
    """Return the line of a pyspark version, such as "4.2"."""
    return ".".join(version.split(".")[:2])


def spark_line(version: str) -> str:
    """Return the line of a pyspark version; raises BucketsError if it is not supported."""
    line = line_of(version)
    if line not in SPARK_LINES:
        message = (
            f"pyspark {version} of {sys.prefix} cannot be used: it has to be of {SPARK_LINES[0]} to {SPARK_LINES[-1]}; "
            f"install pyspark=={LOCKED_SPARK}"
        )
        raise BucketsError(message)
    return line


def run_java(command: Sequence[str], folder: Path, within_s: float) -> tuple[bool, bytes]:
    """Run a Java command in a folder; return whether it succeeded in time, and its output."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=within_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return False, error.stdout or b""
    return done.returncode == 0, done.stdout


def find_java() -> Path:
    """Return the `java` that Spark will use: JAVA_HOME's if it is set, else the first on PATH.

    A JAVA_HOME that is set decides alone, as in Spark's own scripts.
    """
    path, origin = _locate()
    major = _major_version(path, origin)
    if major not in SUPPORTED_MAJORS:
        message = f"Java {major} at {path} ({origin}) cannot run Spark, which needs Java 17 or 21: {_REMEDY}"
        raise BucketsError(message)
    return path


def _locate() -> tuple[Path, str]:
    home = os.environ.get("JAVA_HOME")
    if home:
        java = shutil.which("java", path=str(Path(home, "bin")))
        if java is None:
            message = f"JAVA_HOME is {home}, where there is no bin/java: {_REMEDY}"
            raise BucketsError(message)
        return Path(java), "from JAVA_HOME"
    java = shutil.which("java")
    if java is None:
        message = f"no Java found: JAVA_HOME is not set and there is no java on PATH: {_REMEDY}"
        raise BucketsError(message)
    return Path(java), "from PATH"


def _major_version(path: Path, origin: str) -> int:
    """Ask `java -version`, which answers on stderr, e.g. `openjdk version "17.0.15" 2025-04-15`."""
    try:
        answer = subprocess.run(
            [path, "-version"], capture_output=True, text=True, timeout=_ANSWER_WITHIN_S, check=False
        )
        text = answer.stderr + answer.stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        text = str(error)
    version = re.search(r'version "(?:1\.)?(\d+)', text)  # before Java 9 it was "1.8.0"
    if version is None:
        line = " ".join(text.split())[:200] or "nothing"
        message = f"{path} ({origin}) does not report its version but says {line!r}: {_REMEDY}"
        raise BucketsError(message)
    return int(version[1])


if __name__ == "__main__":
    try:
        find_java()
    except BucketsError as error:
        sys.exit(str(error))
