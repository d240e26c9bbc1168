"""`buckets demo-kafka` as a process that a test started: what it says, and what belongs to it."""

import contextlib
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Self

from tests.spark.command import BUCKETS

MARK = "BUCKETS_TEST_MARK"
WITHIN_S = 600.0
POLL_S = 0.05
GONE_WITHIN_S = 20.0


class Ran(NamedTuple):
    code: int
    out: str


class Demo:
    """The demo in the background; all that it starts inherits a mark in its environment, by which it is found."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        """Say where it works."""
        self.out = folder / "demo"
        self._said = folder / "said.txt"
        self._mark = uuid.uuid4().hex
        self._arguments = [BUCKETS, "demo-kafka", "--out", str(self.out), *arguments]

    def __enter__(self) -> Self:
        """Start it."""
        with self._said.open("wb") as said:
            environment = os.environ | {MARK: self._mark, "COLUMNS": "100"}
            self.process = subprocess.Popen(
                self._arguments, stdout=said, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )
        return self

    def __exit__(self, *_: object) -> None:
        """Kill whatever is left of it."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    @property
    def said(self) -> str:
        """What it has said so far."""
        return self._said.read_text(encoding="utf-8")

    def processes(self, running: str = "") -> list[int]:
        """What has the mark, and the given text in its command line."""
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdecimal():
                with contextlib.suppress(OSError):
                    marked = f"{MARK}={self._mark}".encode() in (folder / "environ").read_bytes().split(b"\0")
                    command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    if marked and running in command:
                        found.append(int(folder.name))
        return found

    def wait_until(self, condition: Callable[[], object]) -> None:
        """Wait for a condition while it runs."""
        given_up_s = time.monotonic() + WITHIN_S
        while not condition():
            assert self.process.poll() is None, f"it ended before that: {self.said}"
            assert time.monotonic() < given_up_s, f"it did not come to that: {self.said}"
            time.sleep(POLL_S)

    def wait(self) -> Ran:
        """Wait for its end; nothing of it may be left then."""
        code = self.process.wait(WITHIN_S)
        # Workers of Spark see for themselves that it is gone.
        given_up_s = time.monotonic() + GONE_WITHIN_S
        while left := self.processes():
            assert time.monotonic() < given_up_s, f"still there: {left}"
            time.sleep(POLL_S)
        return Ran(code, self.said)
