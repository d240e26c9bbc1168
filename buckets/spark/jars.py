"""The jars that Spark needs beside its own: a pinned list, fetched once and checked against pinned checksums.

`jar_paths` looks into the jar folder; what is missing or damaged there is fetched with the Ivy inside pyspark
into a workspace, checked, and then renamed into place. A rename is atomic, so the jar folder never holds a
part of a jar, and two processes that fetch at the same time do not disturb each other.
`python -m buckets.spark.jars` fetches ahead of time, and prints the paths as spark-submit's `--jars` takes them.
"""

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from buckets.errors import BucketsError
from buckets.spark.java import find_java

FOLDER_VARIABLE = "BUCKETS_JARS"
_FETCH_WITHIN_S = 900
_NETWORK_OPTIONS = (
    "-Dsun.net.client.defaultConnectTimeout=10000",
    "-Dsun.net.client.defaultReadTimeout=60000",
)


@dataclass(frozen=True)
class Jar:
    """One pinned artifact of the Maven repository, and the sha256 of its file in hexadecimal."""

    organisation: str
    artifact: str
    revision: str
    sha256: str

    @property
    def file_name(self) -> str:
        """The name of its file, as the repository has it."""
        return f"{self.artifact}-{self.revision}.jar"


SPARK_JARS = (
    Jar(
        "io.delta",
        "delta-spark_4.2_2.13",
        "4.4.0",
        "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
    ),
    Jar(
        "io.delta",
        "delta-storage",
        "4.4.0",
        "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
    ),
)


def jar_folder() -> Path:
    """Returns the folder of the jars: what BUCKETS_JARS names, else one inside the Python environment."""
    named = os.environ.get(FOLDER_VARIABLE)
    return Path(named).absolute() if named else Path(sys.prefix, "share", "buckets", "jars")


def _say_on_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def jar_paths(say: Callable[[str], None] = _say_on_stderr) -> list[Path]:
    """Returns the paths of all jars, whole and checked; fetches those that are not there.

    Args:
        say: Gets one line before anything is fetched.

    Raises:
        BucketsError: Jars are missing and cannot be fetched or written, or came as other files than pinned.
    """
    folder = jar_folder()
    absent = [jar for jar in SPARK_JARS if not _is_whole(folder / jar.file_name, jar)]
    if absent:
        say(f"fetching {_names(absent)} into {folder}, once")
        _fetch(absent, folder)
    return [folder / jar.file_name for jar in SPARK_JARS]


def _is_whole(path: Path, jar: Jar) -> bool:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == jar.sha256
    except OSError:
        return False


def _names(jars: Sequence[Jar]) -> str:
    return ", ".join(jar.file_name for jar in jars)


def _fetch(jars: Sequence[Jar], folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        workspace = tempfile.TemporaryDirectory(dir=folder, prefix=".fetching-")
    except OSError as error:
        message = f"cannot write jars to {folder} ({error}): set {FOLDER_VARIABLE} to a folder that can be written"
        raise BucketsError(message) from error
    with workspace as name:
        _retrieve(jars, Path(name), folder)
        for jar in jars:
            fetched = Path(name, "jars", jar.file_name)
            if not _is_whole(fetched, jar):
                message = (
                    f"{jar.file_name} came without the pinned sha256 {jar.sha256}: the Maven repository, or "
                    f"a proxy before it, gave another file; fetch it elsewhere and put it into {folder}"
                )
                raise BucketsError(message)
            fetched.replace(folder / jar.file_name)


def _retrieve(jars: Sequence[Jar], workspace: Path, folder: Path) -> None:
    """Runs Ivy in the workspace, where it puts the jars into `jars`; its output is kept when it fails."""
    (workspace / "ivy.xml").write_text(_ivy_file(jars), encoding="utf-8")
    try:
        ivy = subprocess.run(
            _ivy_command(),
            cwd=workspace,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_FETCH_WITHIN_S,
            check=False,
        )
        output, succeeded = ivy.stdout, ivy.returncode == 0
    except subprocess.TimeoutExpired as error:
        output, succeeded = error.stdout or b"", False
    if not succeeded:
        log = folder / "fetch.log"
        log.write_bytes(output)
        message = (
            f"cannot fetch {_names(jars)} from the Maven repository: check the network, or name a proxy with "
            f"JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT', or put these files into "
            f"{folder} by hand; then run this again; details: {log}"
        )
        raise BucketsError(message)


def _ivy_command() -> list[str]:
    """All paths are relative to the workspace, since `[` and `(` in a folder's name are patterns to Ivy."""
    java = [str(find_java().path), *_NETWORK_OPTIONS, "-cp", str(_ivy_jar()), "org.apache.ivy.Main", "-warn"]
    files = ["-ivy", "ivy.xml", "-cache", "cache", "-retrieve", "jars/[artifact]-[revision].[ext]"]
    return [*java, "-confs", "spark", *files]


def _ivy_jar() -> Path:
    pyspark = importlib.util.find_spec("pyspark")
    places = pyspark.submodule_search_locations if pyspark else None
    for place in places or ():
        for path in Path(place, "jars").glob("ivy-*.jar"):
            return path
    message = (
        "there is no pyspark with its jars in this Python environment: run make setup, "
        f"or set {FOLDER_VARIABLE} to a folder with {_names(SPARK_JARS)}"
    )
    raise BucketsError(message)


def _ivy_file(jars: Sequence[Jar]) -> str:
    """An Ivy module that depends on just these jars: `master` is an artifact without its dependencies."""
    dependencies = "".join(
        f'<dependency org="{jar.organisation}" name="{jar.artifact}" rev="{jar.revision}"/>' for jar in jars
    )
    return (
        '<ivy-module version="2.0"><info organisation="buckets" module="jars"/>'
        '<configurations><conf name="spark"/></configurations>'
        f'<dependencies defaultconf="spark->master">{dependencies}</dependencies></ivy-module>\n'
    )


if __name__ == "__main__":
    try:
        print(",".join(str(path) for path in jar_paths()))  # noqa: T201 - the answer, for spark-submit --jars
    except BucketsError as error:
        sys.exit(str(error))
