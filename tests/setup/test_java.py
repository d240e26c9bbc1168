"""What a person is told when Java is missing or is the wrong one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from buckets.errors import BucketsError
from buckets.java.java import find_java


def put_java(folder: Path, version: str) -> Path:
    """Writes a command that answers `java -version` as a JVM does."""
    folder.mkdir(parents=True)
    java = folder / "java"
    java.write_text(f"#!/bin/sh\necho 'Picked up JAVA_TOOL_OPTIONS: -Dx=\"1\"' >&2\necho '{version}' >&2\n")
    java.chmod(0o755)
    return java


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


def test_missing_java_says_what_to_install(as_worded):
    with pytest.raises(BucketsError, check=as_worded):
        find_java()


@pytest.mark.parametrize("version", ["17.0.15", "21", "21.0.2-ea", "17"])
def test_java_17_and_21_are_taken_from_path(tmp_path: Path, version: str):
    java = put_java(tmp_path / "bin", f'openjdk version "{version}" 2025-04-15')

    assert find_java() == java


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2", "25"])
def test_other_java_is_named_with_its_path(tmp_path: Path, version: str, as_worded):
    put_java(tmp_path / "bin", f'openjdk version "{version}"')

    with pytest.raises(BucketsError, check=as_worded):
        find_java()


def test_java_home_goes_before_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    put_java(tmp_path / "bin", 'openjdk version "17"')
    java = put_java(tmp_path / "jdk 21" / "bin", 'openjdk version "21"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk 21"))

    assert find_java() == java


def test_java_home_without_java_is_named_even_if_path_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_worded
):
    put_java(tmp_path / "bin", 'openjdk version "17"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))

    with pytest.raises(BucketsError, check=as_worded):
        find_java()


def test_java_that_does_not_answer_is_quoted(tmp_path: Path, as_worded):
    put_java(tmp_path / "bin", "Unable to locate a Java Runtime")

    with pytest.raises(BucketsError, check=as_worded):
        find_java()


def test_the_command_prints_one_line_and_fails(tmp_path: Path, as_worded):
    checkout = Path(__file__).parents[2]
    command = [sys.executable, "-m", "buckets.java.java"]
    done = subprocess.run(command, cwd=checkout, env=dict(os.environ), capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert as_worded(done.stderr)
    assert done.stderr.count("\n") == 1
