"""The folders of sessions: private, apart from one another, and gone with their processes, also with killed ones."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from buckets.errors import BucketsError
from buckets.spark import session_folder
from buckets.spark.session import start_session, why_not_started
from buckets.spark.session_folder import FULL_BYTES, KEPT_LOGS, SessionFolder, stderr_into

HOLDING = """
import sys
from pathlib import Path
from buckets.spark.session_folder import SessionFolder
folder = SessionFolder(Path(sys.argv[1]))
(folder.part("tmp") / "large").write_text("x")
print(folder.path, flush=True)
sys.stdin.read()
"""


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def root(tmp_path) -> Path:
    return tmp_path / "sessions"


def test_what_a_killed_process_has_left_goes_at_the_next_start_and_what_a_running_one_has_stays(root):
    started = [
        subprocess.Popen(
            [sys.executable, "-c", HOLDING, root], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    killed, running = (Path(process.stdout.readline().strip()) for process in started)
    assert (killed / "tmp" / "large").exists()
    os.kill(started[0].pid, signal.SIGKILL)
    started[0].wait()
    assert killed.exists()
    folder = SessionFolder(root)
    assert not killed.exists()
    assert (running / "tmp" / "large").exists()
    assert {path.name for path in root.iterdir()} == {".lock", running.name, folder.path.name}
    folder.remove()
    for process in started:
        process.communicate()


def test_all_of_it_is_private_also_where_it_was_not_before(root):
    root.mkdir(mode=0o777)
    root.chmod(0o777)
    folder = SessionFolder(root)
    assert [mode(path) for path in (root, folder.path, folder.part("s"))] == [0o700] * 3
    folder.remove()
    assert not folder.path.exists()


def test_a_link_that_somebody_has_put_there_is_not_followed(root, tmp_path, as_worded):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    root.symlink_to(elsewhere)
    with pytest.raises(BucketsError, check=as_worded):
        SessionFolder(root)
    assert not list(elsewhere.iterdir())


def test_shards_lie_in_memory_where_that_has_room_and_else_in_the_folder_of_the_session(root, tmp_path, monkeypatch):
    folder = SessionFolder(root)
    monkeypatch.setattr(session_folder, "SHARED_MEMORY", tmp_path)
    assert session_folder.shards_of(folder) == folder.path / "shards"
    monkeypatch.setattr(Path, "is_mount", lambda path: path == tmp_path)
    shards = session_folder.shards_of(folder)
    assert shards.parents[1] == tmp_path / f"buckets-{os.getuid()}"
    assert [mode(path) for path in (shards, *shards.parents[:2])] == [0o700] * 3
    assert (shards.parent / "in_use").exists()
    monkeypatch.setattr(session_folder, "ROOM_BYTES", 1 << 60)
    assert session_folder.shards_of(folder) == folder.path / "shards"
    folder.remove()


def test_the_latest_logs_are_kept(root):
    folder = SessionFolder(root)
    for number in range(KEPT_LOGS + 3):
        old = root / "logs" / f"{number:02d}"
        old.mkdir(parents=True)
        os.utime(old, (number, number))
    folder.new_logs().mkdir()
    assert {path.name for path in (root / "logs").iterdir()} == {
        folder.path.name, *(f"{number:02d}" for number in range(4, KEPT_LOGS + 3))
    }  # fmt: skip
    folder.remove()


def test_logs_of_a_session_that_runs_are_left_however_many_came_after_it(tmp_path):
    root = tmp_path / "sessions"
    first = SessionFolder(root)
    logs = first.new_logs()
    logs.mkdir()
    os.utime(logs, (1, 1))
    for _ in range(KEPT_LOGS + 2):
        later = SessionFolder(root)
        later.new_logs().mkdir()
        later.remove()
    assert logs.exists()
    first.remove()


def test_the_log_of_standard_error_is_private_never_a_link_and_begun_anew_when_it_is_full(tmp_path):
    with stderr_into(tmp_path / "logs"):
        os.write(2, b"x" * (FULL_BYTES + 1))
    with stderr_into(tmp_path / "logs"):
        os.write(2, b"new\n")
    full, new = (tmp_path / "logs" / name for name in ("stderr.1.log", "stderr.log"))
    assert (full.stat().st_size, new.read_bytes()) == (FULL_BYTES + 1, b"new\n")
    assert [mode(path) for path in (tmp_path / "logs", new)] == [0o700, 0o600]
    new.unlink()
    new.symlink_to(full)
    with pytest.raises(OSError, match="symbolic link"), stderr_into(tmp_path / "logs"):
        pass


def test_what_a_jvm_has_written_after_its_process_was_gone_is_removed_by_the_next_start(tmp_path):
    first = SessionFolder(tmp_path / "root")
    first.remove()
    (first.path / "tmp").mkdir(parents=True)
    SessionFolder(tmp_path / "root").remove()
    assert not first.path.exists()


@pytest.mark.parametrize("master", ["nonsense", "local[a]", "mesos://host:5050", "yarn-client"])
def test_a_master_of_a_form_that_spark_does_not_know_is_named_before_java_starts(monkeypatch, as_worded, master):
    monkeypatch.setattr("buckets.spark.session.find_java", lambda: None)
    with pytest.raises(BucketsError, check=as_worded):
        start_session("test", 1, {"spark.master": master})


@pytest.mark.parametrize("master", ["spark://127.0.0.1:1", "local[0]"])
def test_why_spark_does_not_start_is_one_line_without_names_of_java(as_worded, master):
    reasons = {
        "spark://127.0.0.1:1": "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.",
        "local[0]": "org.apache.spark.SparkException: Asked to run locally with 0 threads",
    }
    failed = Exception(f"An error occurred while calling None.x.\n: {reasons[master]}\n\tat x(SparkContext.scala:1)\n")
    assert as_worded(why_not_started(failed, master))
