"""One process at a time on a checkpoint."""

import subprocess
import sys
from pathlib import Path

import pytest

from buckets.checkpoint.identity import CheckpointIdentity
from buckets.checkpoint.job_record import lock_for
from buckets.checkpoint.lock import Lock, Unwritable, check_free
from buckets.checkpoint.source_offsets import lock_file
from buckets.config.engine import EngineSettings
from buckets.errors import BucketsError
from tests.core.examples import SCHEMA

HOLD = """
import sys, pathlib
from buckets.checkpoint.lock import Lock
with Lock(pathlib.Path(sys.argv[1])): print(flush=True); input()
"""


def test_another_hold_is_refused_until_the_first_ends(tmp_path, as_worded):
    with Lock(tmp_path):
        for refused in (Lock(tmp_path).__enter__, lambda: check_free(tmp_path)):
            with pytest.raises(BucketsError, check=as_worded):
                refused()
    check_free(tmp_path)
    with Lock(tmp_path):
        pass


def test_a_process_that_is_killed_leaves_nothing_to_clean_up(tmp_path, as_worded):
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(BucketsError, check=as_worded):
            check_free(tmp_path)
        other.kill()
    check_free(tmp_path)
    with Lock(tmp_path):
        pass


def test_looking_writes_nothing(tmp_path):
    check_free(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_is_released_leaves_what_was_there_and_nothing_of_its_own(tmp_path):
    (tmp_path / "mine").mkdir()
    for checkpoint in (tmp_path / "new", tmp_path / "mine"):
        with Lock(checkpoint):
            assert lock_file(checkpoint).exists()
    assert [path.name for path in tmp_path.rglob("*")] == ["mine"]
    with Lock(tmp_path / "new"):
        (tmp_path / "new" / "buckets" / "job.json").touch()
    assert lock_file(tmp_path / "new").exists()


def test_a_lock_is_taken_again_and_held_once(tmp_path, as_worded):
    lock = Lock(tmp_path)
    lock.take()
    with lock, pytest.raises(BucketsError, check=as_worded):
        check_free(tmp_path)
    check_free(tmp_path)
    lock.take()
    with pytest.raises(BucketsError, check=as_worded):
        Lock(tmp_path).take()
    del lock
    check_free(tmp_path)


def test_what_is_in_the_way_of_a_checkpoint_is_one_line(tmp_path, as_worded):
    (tmp_path / "file").touch()
    (tmp_path / "gone").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("file", "file/below", "gone", "loop/below"):
        with pytest.raises(Unwritable, check=as_worded):
            Lock(tmp_path / name).take()
    with pytest.raises(Unwritable):
        lock_for(Path("/proc/none"), CheckpointIdentity("json", SCHEMA, EngineSettings()))
    with pytest.raises(BucketsError, check=as_worded):
        lock_for(tmp_path / "file", CheckpointIdentity("json", SCHEMA, EngineSettings()))
