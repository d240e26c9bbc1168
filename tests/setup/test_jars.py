"""Jars are fetched once, checked always, and what cannot be fetched is said in one line."""

import hashlib
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from buckets.errors import BucketsError
from buckets.java import jars
from buckets.java.jars import Jar, broker_jar_paths, jar_paths, own_jar, spark_jars
from buckets.java.java import LOCKED_SPARK, SPARK_LINES

CONTENT = {"alpha-1.0.jar": b"the first jar", "beta-2.0.jar": b"the second jar"}
OWN = "own.jar"
PINNED = {line: spark_jars(line) for line in SPARK_LINES} | {"the broker": jars.BROKER_JARS}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty jar folder, for two small jars in place of the real list."""
    small = (
        Jar("org.example", "alpha", "1.0", sha256(CONTENT["alpha-1.0.jar"])),
        Jar("org.example", "beta", "2.0", sha256(CONTENT["beta-2.0.jar"])),
    )
    monkeypatch.setattr(jars, "SPARK_JARS", small)
    monkeypatch.setattr(jars, "own_jar", lambda folder: folder / OWN)
    monkeypatch.setenv(jars.FOLDER_VARIABLE, str(tmp_path / "my jars (1)"))
    return tmp_path / "my jars (1)"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for the Maven repository, and a `java` that retrieves from it as Ivy would."""
    repository = tmp_path / "repository"
    repository.mkdir()
    for name, content in CONTENT.items():
        (repository / name).write_bytes(content)
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        f"""#!/bin/sh
        if [ "$1" = -version ]; then echo 'openjdk version "17.0.1"' >&2; exit; fi
        mkdir jars
        for path in '{repository}'/*; do
          name=$(basename "$path" .jar)
          grep -q "name=\\"${{name%-*}}\\"" ivy.xml || continue
          cp "$path" jars/
          echo "$name" >> '{tmp_path}/fetched'
        done
        """
    )
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    return repository


def fill(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, content in CONTENT.items():
        (folder / name).write_bytes(content)


def take_java_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")


def fail_if_said(line: str) -> None:
    pytest.fail(f"nothing was to be fetched, but it said: {line}")


def test_whole_jars_are_found_without_java_or_network(folder: Path, monkeypatch: pytest.MonkeyPatch):
    fill(folder)
    take_java_away(monkeypatch)

    assert jar_paths(fail_if_said) == [folder / name for name in (*CONTENT, OWN)]


def test_missing_jars_are_fetched_once_with_one_line(folder: Path, repository: Path, as_worded):
    said: list[str] = []
    first = jar_paths(said.append)
    second = jar_paths(fail_if_said)

    assert first == second == [folder / name for name in (*CONTENT, OWN)]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == CONTENT
    assert len(said) == 1
    assert as_worded(said[0])


def test_the_jars_of_the_broker_have_a_folder_of_their_own(
    folder: Path, repository: Path, monkeypatch: pytest.MonkeyPatch, as_worded
):
    monkeypatch.setattr(jars, "BROKER_JARS", jars.SPARK_JARS[1:])
    said: list[str] = []

    assert broker_jar_paths(said.append) == [folder / "broker" / "beta-2.0.jar"]
    assert [path.name for path in folder.iterdir()] == ["broker"]
    assert len(said) == 1
    assert as_worded(said[0])


def test_of_many_missing_jars_a_few_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_worded):
    monkeypatch.setenv(jars.FOLDER_VARIABLE, str(tmp_path))
    take_java_away(monkeypatch)
    said: list[str] = []

    with pytest.raises(BucketsError, check=as_worded):
        broker_jar_paths(said.append)
    (line,) = said
    assert as_worded(line)


def test_only_a_damaged_jar_is_fetched_again(folder: Path, repository: Path):
    fill(folder)
    (folder / "beta-2.0.jar").write_bytes(CONTENT["beta-2.0.jar"][:5])
    said: list[str] = []
    jar_paths(said.append)

    assert (folder / "beta-2.0.jar").read_bytes() == CONTENT["beta-2.0.jar"]
    assert (repository.parent / "fetched").read_text().split() == ["beta-2.0"]
    assert len(said) == 1


def test_a_jar_with_another_checksum_is_refused_and_not_kept(folder: Path, repository: Path, as_worded):
    (repository / "alpha-1.0.jar").write_bytes(b"something else")

    with pytest.raises(BucketsError, check=as_worded):
        jar_paths()
    assert not list(folder.glob("*alpha*"))


def test_a_folder_that_cannot_be_made_names_the_way_out(folder: Path, repository: Path, as_worded):
    folder.write_text("a file where the folder should be")

    with pytest.raises(BucketsError, check=as_worded):
        jar_paths()


def test_missing_java_is_said_before_anything_is_fetched(folder: Path, monkeypatch: pytest.MonkeyPatch, as_worded):
    take_java_away(monkeypatch)

    with pytest.raises(BucketsError, check=as_worded):
        jar_paths()


def test_an_unreachable_repository_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # The real list, the real Ivy, and a proxy at a port where nobody listens.
    monkeypatch.setenv(jars.FOLDER_VARIABLE, str(tmp_path / "jars"))
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=9")
    command = [sys.executable, "-m", "buckets.java.jars"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    progress, message = done.stderr.splitlines()
    log = tmp_path / "jars" / "fetch.log"
    assert done.returncode == 1
    assert progress.startswith("fetching delta-spark_4.2_2.13-4.4.0.jar, spark-sql-kafka-0-10_2.13-4.2.0.jar")
    assert message.startswith("cannot fetch delta-spark_4.2_2.13-4.4.0.jar, spark-sql-kafka-0-10_2.13-4.2.0.jar")
    assert message.endswith(f"details: {log}")
    assert "Connection refused" in log.read_text()
    assert [path.name for path in log.parent.iterdir()] == ["fetch.log"]


def test_the_jars_of_this_environment_are_the_pinned_ones_and_our_own():
    *of_spark, own = jar_paths()

    assert [path.name for path in of_spark] == [jar.file_name for jar in jars.SPARK_JARS]
    assert [path.name for path in broker_jar_paths()] == [jar.file_name for jar in jars.BROKER_JARS]
    assert all(path.is_file() for path in (*of_spark, own, *broker_jar_paths()))


def test_our_own_jar_is_compiled_once_and_is_the_same_bytes_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    first = own_jar(tmp_path / "some folder")
    with zipfile.ZipFile(first) as archive:
        assert {"buckets/StateServer.class", "buckets/StateTasks.class"} <= set(archive.namelist())
    assert own_jar(tmp_path / "another").read_bytes() == first.read_bytes()
    take_java_away(monkeypatch)
    assert own_jar(tmp_path / "some folder") == first


def test_classes_that_cannot_be_compiled_or_kept_are_one_line(tmp_path: Path, repository: Path, as_worded):
    (tmp_path / "file").write_text("a file where the folder should be")
    with pytest.raises(BucketsError, check=as_worded):
        own_jar(tmp_path / "file")
    java = tmp_path / "jdk" / "bin" / "java"
    java.write_text(
        '#!/bin/sh\n[ "$1" != -version ] || exec echo \'version "17.0.1"\'\necho it does not compile; exit 1'
    )
    with pytest.raises(BucketsError, check=as_worded):
        own_jar(tmp_path / "jars")
    assert not (tmp_path / "jars").exists()


@pytest.mark.parametrize("pinned", PINNED.values(), ids=PINNED)
def test_an_artifact_is_pinned_once_with_a_whole_checksum(pinned):
    assert len({(jar.organisation, jar.artifact) for jar in pinned}) == len(pinned)
    assert all(re.fullmatch("[0-9a-f]{64}", jar.sha256) for jar in pinned)


def test_the_lock_file_has_the_version_that_messages_name_and_pip_takes_the_supported_lines():
    root = Path(__file__).parents[2]
    assert f"\npyspark=={LOCKED_SPARK} " in (root / "requirements.lock").read_text(encoding="utf-8")
    first, last = SPARK_LINES[0], SPARK_LINES[-1].partition(".")[2]
    assert f'"pyspark>={first},<4.{int(last) + 1}"' in (root / "pyproject.toml").read_text(encoding="utf-8")


def test_the_connector_of_spark_and_the_broker_are_there():
    revisions = {f"{jar.artifact} of {use}": jar.revision for use, pinned in PINNED.items() for jar in pinned}

    assert PINNED["4.2"] == jars.SPARK_JARS
    assert revisions["spark-sql-kafka-0-10_2.13 of 4.1"] == "4.1.1"
    assert revisions["spark-sql-kafka-0-10_2.13 of 4.2"] == "4.2.0"
    assert revisions["kafka-clients of 4.1"] == revisions["kafka-clients of 4.2"] == "3.9.2"
    assert "spark-sql-kafka-0-10_2.13 of 4.3" not in revisions
    assert revisions["kafka_2.13 of the broker"] == revisions["kafka-clients of the broker"] == "4.4.0"
