"""A command as a process beside this one: it ends when it is to, and with the one that started it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from buckets.cli.child import Child, end_all
from buckets.errors import BucketsError
from tests.cli_unit.test_watch import conf

__all__ = ["conf"]
WITHIN_S = 60.0
POLL_S = 0.01
STARTER = """
import json, sys
from pathlib import Path
from buckets.cli.child import Child
child = Child(["watch", sys.argv[1]], Path(sys.argv[2]))
print(json.dumps(child.pid), flush=True)
sys.stdin.read()
"""


def wait_until(condition: Callable[[], bool]) -> None:
    given_up_s = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < given_up_s, "it did not come to that"
        time.sleep(POLL_S)


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def ended(child: Child) -> bool:
    try:
        child.check()
    except BucketsError:
        return True
    return False


@pytest.fixture
def watching(conf, tmp_path):
    """A child that runs until it is ended."""
    child = Child(["watch", str(conf)], tmp_path / "child.log")
    wait_until(lambda: "has never run" in child.last_line())
    yield child
    end_all([child])


@pytest.mark.slow
def test_a_child_that_has_ended_is_said_with_what_it_said_last(tmp_path, as_worded):
    child = Child(["rules", "check", str(tmp_path / "none.yaml")], tmp_path / "child.log")
    wait_until(lambda: ended(child))
    with pytest.raises(BucketsError, check=as_worded) as error:
        child.check()
    assert str(tmp_path / "child.log") in error.value.message
    assert "\n" not in error.value.message
    end_all([child])


def test_a_child_runs_until_it_is_asked_to_end(watching):
    watching.check()
    end_all([watching])
    assert ended(watching)
    assert not is_there(watching.pid)


def test_a_child_that_is_killed_is_noticed(watching):
    os.kill(watching.pid, signal.SIGKILL)
    wait_until(lambda: ended(watching))
    with pytest.raises(BucketsError, match="has ended with -9"):
        watching.check()


def test_a_child_that_does_not_end_is_killed(watching, monkeypatch):
    os.kill(watching.pid, signal.SIGSTOP)
    monkeypatch.setattr("buckets.cli.child.END_WITHIN_S", 0.1)
    end_all([watching])
    assert not is_there(watching.pid)


def test_a_child_ends_with_the_one_that_started_it(conf, tmp_path):
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(conf), str(tmp_path / "child.log")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with starter:
        assert starter.stdout is not None
        pid = json.loads(starter.stdout.readline())
        wait_until(lambda: is_there(pid))
        starter.kill()
    try:
        wait_until(lambda: not is_there(pid))
    finally:
        if is_there(pid):
            os.kill(pid, signal.SIGKILL)
