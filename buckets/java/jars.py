"""The jars that Spark and the local Kafka broker need: pinned, fetched once, verified.

`jars.lock` lists them, one per line, with checksums; Spark's connectors match the installed pyspark. `jar_paths` and
`broker_jar_paths` check the jar folder; missing or damaged jars are fetched into a workspace with the Ivy inside
pyspark, verified, and renamed into place. Renaming is atomic, so two processes can fetch at the same time. The broker's
jars have their own folder because of another kafka-clients.

`python -m buckets.java.jars` fetches ahead of time, and prints the paths as spark-submit's `--jars` takes them; `python
-m buckets.java.jars s3` adds those for S3, which a job fetches only if it uses S3.
"""

import hashlib
import importlib.metadata
import importlib.resources
import importlib.util
import io
import os
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from buckets.errors import BucketsError, first_line
from buckets.files import write_first
from buckets.java.java import LOCKED_SPARK, find_java, line_of, run_java, spark_line
from buckets.user_caches import own_cache

FOLDER_VARIABLE = "BUCKETS_JARS"


def spark_version() -> str:
    """Return the version of the installed pyspark; without one, the locked version."""
    try:
        return importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        return LOCKED_SPARK


def jar_folder() -> Path:
    """Return the jar folder: BUCKETS_JARS, or else a folder in the user's caches or in the environment."""
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        return Path(named).absolute()
    return own_cache("jars") or Path(sys.prefix, "share", "buckets", "jars")


def unwritable(folder: Path, error: OSError) -> BucketsError:
    """Return the error for a folder to which jars cannot be written."""
    return BucketsError(
        f"cannot write jars to {folder} ({first_line(error)}): set {FOLDER_VARIABLE} to a folder that can be written"
    )


_COMPILE_WITHIN_S, _SHOWN = 300, 300
_MADE = (2026, 1, 1, 0, 0, 0)  # The time stamped on its entries, so that the same sources give the same bytes


def pyspark_jars() -> Path | None:
    """Return the folder of pyspark's own jars; None without pyspark."""
    pyspark = importlib.util.find_spec("pyspark")
    places = (pyspark.submodule_search_locations if pyspark else None) or ()
    return next((Path(place, "jars") for place in places if Path(place, "jars").is_dir()), None)


def own_jar(folder: Path) -> Path:
    """Return our own jar in a folder, compiling it if it is missing."""
    sources = {
        file.name: file.read_bytes() for file in importlib.resources.files("buckets.java").joinpath("state").iterdir()
    }
    version = spark_version()
    digest = hashlib.blake2b(
        b"\0".join([version.encode(), *(sources[name] for name in sorted(sources))]), digest_size=8
    )
    jar = folder / f"buckets-state-{digest.hexdigest()}.jar"
    if not jar.exists():
        _compile(sources, version, jar)
    return jar


def _compile(sources: dict[str, bytes], version: str, jar: Path) -> None:
    spark = pyspark_jars()
    if spark is None:
        message = "there is no pyspark with its jars in this Python environment: run make setup"
        raise BucketsError(message)
    with tempfile.TemporaryDirectory(prefix="buckets-state-") as name:
        workspace = Path(name)
        (workspace / "classes").mkdir()
        for source, text in sources.items():
            (workspace / source).write_bytes(text)
        compiler = os.pathsep.join(map(str, [*spark.glob("janino-*.jar"), *spark.glob("commons-compiler-*.jar")]))
        classes = os.pathsep.join(map(str, sorted(spark.glob("*.jar"))))
        command = [str(find_java()), "-cp", compiler, "org.codehaus.commons.compiler.samples.CompilerDemo"]
        succeeded, output = run_java(
            [*command, "-classpath", classes, "-d", "classes", *sorted(sources)], workspace, _COMPILE_WITHIN_S
        )
        if not succeeded:
            message = (
                f"cannot compile the classes of buckets/java/state for pyspark {version}: "
                f"{' '.join(output.decode(errors='replace').split())[-_SHOWN:] or 'it took too long'}"
            )
            raise BucketsError(message)
        packed, folder = io.BytesIO(), workspace / "classes"
        with zipfile.ZipFile(packed, "w") as archive:
            for path in sorted(folder.rglob("*.class")):
                archive.writestr(zipfile.ZipInfo(str(path.relative_to(folder)), _MADE), path.read_bytes())
        try:
            jar.parent.mkdir(parents=True, exist_ok=True)
            write_first(jar, packed.getvalue())
        except OSError as error:
            raise unwritable(jar.parent, error) from error


_FETCH_WITHIN_S = 900
_NAMED = 6
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
        """The file name, as in the repository."""
        return f"{self.artifact}-{self.revision}.jar"


def _pinned(use: str) -> tuple[Jar, ...]:
    """Return the jars in `jars.lock` for one use; a line is `USE ORGANISATION:ARTIFACT:REVISION SHA256`."""
    lock = importlib.resources.files("buckets.java").joinpath("jars.lock").read_text(encoding="utf-8")
    jars = []
    for line in lock.splitlines():
        if line.startswith(f"{use} "):
            _, coordinates, sha256 = line.split()
            organisation, artifact, revision = coordinates.split(":")
            jars.append(Jar(organisation, artifact, revision, sha256))
    return tuple(jars)


def spark_jars(version: str) -> tuple[Jar, ...]:
    """Return the jars for a version of Spark, as far as they are published for it."""
    return _pinned(f"spark-{line_of(version)}") + _pinned("spark")


SPARK_JARS = spark_jars(spark_version())
BROKER_JARS = _pinned("broker")
S3_JARS = _pinned("s3")


def _say_on_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def jar_paths(say: Callable[[str], None] = _say_on_stderr) -> list[Path]:
    """Return the verified paths of all jars of Spark and of our own jar, fetching those that are missing."""
    spark_line(spark_version())
    fetched = whole_jars(SPARK_JARS, jar_folder(), say)
    return [*fetched, own_jar(jar_folder())]


def s3_jar_paths(say: Callable[[str], None] = _say_on_stderr) -> list[Path]:
    """Return the paths of the jars with which Spark uses S3, like `jar_paths`."""
    return whole_jars(S3_JARS, jar_folder() / "s3", say)


def broker_jar_paths(say: Callable[[str], None] = _say_on_stderr) -> list[Path]:
    """Return the paths of the local Kafka broker's jars, like `jar_paths`."""
    return whole_jars(BROKER_JARS, jar_folder() / "broker", say)


def whole_jars(jars: Sequence[Jar], folder: Path, say: Callable[[str], None]) -> list[Path]:
    """Return the verified paths of jars in a folder, fetching those that are missing."""
    absent = [jar for jar in jars if not _is_whole(folder / jar.file_name, jar)]
    if absent:
        say(f"fetching {_names(absent)} into {folder}, once")
        _fetch(absent, folder)
    return [folder / jar.file_name for jar in jars]


def _is_whole(path: Path, jar: Jar) -> bool:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == jar.sha256
    except OSError:
        return False


def _names(jars: Sequence[Jar]) -> str:
    shown = [jar.file_name for jar in jars[: len(jars) if len(jars) <= _NAMED else _NAMED - 1]]
    more = len(jars) - len(shown)
    return ", ".join(shown) + (f" and {more} more of buckets/java/jars.lock" if more else "")


def _fetch(jars: Sequence[Jar], folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        workspace = tempfile.TemporaryDirectory(dir=folder, prefix=".fetching-")
    except OSError as error:
        raise unwritable(folder, error) from error
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
    """Run Ivy in the workspace, where it puts the jars into `jars`; its output is kept if it fails."""
    (workspace / "ivy.xml").write_text(_ivy_file(jars), encoding="utf-8")
    # Relative paths: Ivy takes `[` and `(` in a folder's name for patterns.
    ivy = next((pyspark_jars() or Path()).glob("ivy-*.jar"), None)
    if ivy is None:
        message = (
            "there is no pyspark with its jars in this Python environment: run make setup, "
            f"or set {FOLDER_VARIABLE} to a folder with {_names(jars)}"
        )
        raise BucketsError(message)
    java = [str(find_java()), *_NETWORK_OPTIONS, "-cp", str(ivy), "org.apache.ivy.Main", "-warn"]
    files = ["-ivy", "ivy.xml", "-cache", "cache", "-retrieve", "jars/[artifact]-[revision].[ext]"]
    succeeded, output = run_java([*java, "-confs", "jars", *files], workspace, _FETCH_WITHIN_S)
    if not succeeded:
        log = folder / "fetch.log"
        log.write_bytes(output)
        message = (
            f"cannot fetch {_names(jars)} from the Maven repository: check the network, or name a proxy with "
            f"JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT', or put these files into "
            f"{folder} by hand; then run this again; details: {log}"
        )
        raise BucketsError(message)


def _ivy_file(jars: Sequence[Jar]) -> str:
    """Return an Ivy module that depends on exactly these jars; `master` means an artifact without its dependencies."""
    dependencies = "".join(
        f'<dependency org="{jar.organisation}" name="{jar.artifact}" rev="{jar.revision}"/>' for jar in jars
    )
    return (
        '<ivy-module version="2.0"><info organisation="buckets" module="jars"/>'
        '<configurations><conf name="jars"/></configurations>'
        f'<dependencies defaultconf="jars->master">{dependencies}</dependencies></ivy-module>\n'
    )


if __name__ == "__main__":
    try:
        wanted = [*jar_paths(), *(s3_jar_paths() if "s3" in sys.argv[1:] else [])]
        print(",".join(map(str, wanted)))  # noqa: T201 - the answer, for spark-submit --jars
    except BucketsError as error:
        sys.exit(str(error))
