"""One process at a time on a checkpoint."""

import os
import subprocess
import sys

import pytest

from buckets.checkpoint.lock import check_free, locked
from buckets.errors import BucketsError

HOLD = """
import sys, pathlib
from buckets.checkpoint.lock import locked
with locked(pathlib.Path(sys.argv[1])): print(flush=True); input()
"""


def test_another_hold_is_refused_until_the_first_ends(tmp_path):
    with locked(tmp_path):
        for refused in (locked(tmp_path).__enter__, lambda: check_free(tmp_path)):
            with pytest.raises(BucketsError, match=f"in use by process {os.getpid()} of this machine"):
                refused()
    check_free(tmp_path)
    with locked(tmp_path):
        pass


def test_a_process_that_is_killed_leaves_nothing_to_clean_up(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(BucketsError, match=f"process {other.pid} "):
            check_free(tmp_path)
        other.kill()
    check_free(tmp_path)
    with locked(tmp_path):
        pass


def test_looking_writes_nothing(tmp_path):
    check_free(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []
