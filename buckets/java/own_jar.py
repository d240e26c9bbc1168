"""The jar of the classes in `buckets/java/bulk`, with which state is read and written in bulk inside the JVM.

It is compiled by the compiler that Spark brings along (Janino), so a Java without compiler is enough, and once: the
name of the jar is that of the sources and of the Spark that they were compiled for.
"""

import hashlib
import importlib.metadata
import importlib.resources
import importlib.util
import io
import os
import tempfile
import zipfile
from pathlib import Path

from buckets.errors import BucketsError
from buckets.files import write_first
from buckets.java.jar_folder import unwritable
from buckets.java.java import find_java, run_java

_COMPILE_WITHIN_S, _SHOWN = 300, 300
_MADE = (2026, 1, 1, 0, 0, 0)
"""When its entries were made, as they say: the same sources are the same bytes."""


def pyspark_jars() -> Path | None:
    """Return the folder of the jars inside pyspark; None where there is no pyspark."""
    pyspark = importlib.util.find_spec("pyspark")
    places = (pyspark.submodule_search_locations if pyspark else None) or ()
    return next((Path(place, "jars") for place in places if Path(place, "jars").is_dir()), None)


def own_jar(folder: Path) -> Path:
    """Return the jar in a folder; it is compiled if it is not there.

    Raises:
        BucketsError: there is no Java or no Spark, they cannot compile it, or the folder cannot be written.
    """
    sources = {
        file.name: file.read_bytes() for file in importlib.resources.files("buckets.java").joinpath("bulk").iterdir()
    }
    version = importlib.metadata.version("pyspark")
    digest = hashlib.blake2b(
        b"\0".join([version.encode(), *(sources[name] for name in sorted(sources))]), digest_size=8
    )
    jar = folder / f"buckets-bulk-{digest.hexdigest()}.jar"
    if not jar.exists():
        _compile(sources, version, jar)
    return jar


def _compile(sources: dict[str, bytes], version: str, jar: Path) -> None:
    spark = pyspark_jars()
    if spark is None:
        message = "there is no pyspark with its jars in this Python environment: run make setup"
        raise BucketsError(message)
    with tempfile.TemporaryDirectory(prefix="buckets-bulk-") as name:
        workspace = Path(name)
        (workspace / "classes").mkdir()
        for source, text in sources.items():
            (workspace / source).write_bytes(text)
        compiler = os.pathsep.join(map(str, [*spark.glob("janino-*.jar"), *spark.glob("commons-compiler-*.jar")]))
        classes = os.pathsep.join(map(str, sorted(spark.glob("*.jar"))))
        command = [str(find_java().path), "-cp", compiler, "org.codehaus.commons.compiler.samples.CompilerDemo"]
        succeeded, output = run_java(
            [*command, "-classpath", classes, "-d", "classes", *sorted(sources)], workspace, _COMPILE_WITHIN_S
        )
        if not succeeded:
            message = (
                f"cannot compile the classes of buckets/java/bulk for pyspark {version}: "
                f"{' '.join(output.decode(errors='replace').split())[-_SHOWN:] or 'it took too long'}"
            )
            raise BucketsError(message)
        try:
            jar.parent.mkdir(parents=True, exist_ok=True)
            write_first(jar, _packed(workspace / "classes"))
        except OSError as error:
            raise unwritable(jar.parent, error) from error


def _packed(classes: Path) -> bytes:
    """Return the classes of a folder as a jar."""
    jar = io.BytesIO()
    with zipfile.ZipFile(jar, "w") as archive:
        for path in sorted(classes.rglob("*.class")):
            archive.writestr(zipfile.ZipInfo(str(path.relative_to(classes)), _MADE), path.read_bytes())
    return jar.getvalue()
