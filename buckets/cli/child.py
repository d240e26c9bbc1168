"""A `buckets` command as a child process that ends with this one, whatever happens.

The child reads its standard input, which stays empty. When that closes, because the child is asked to end or its
parent has died, it interrupts itself, as Ctrl-C would. It has a session of its own, so that a Ctrl-C at the terminal
reaches only the parent.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from buckets.cli.commands import main as run_command
from buckets.errors import BucketsError

END_WITHIN_S = 60.0
KILLED_WITHIN_S = 10.0
POLL_S = 0.05
_LONGEST_SAID = 300


class Child:
    """A command that runs."""

    def __init__(self, arguments: Sequence[str], log: Path) -> None:
        """Start what comes after `buckets` on a command line; its output goes into a log."""
        self.name = f"buckets {' '.join(arguments)}"
        self.log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "buckets.cli.child", *arguments],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    def check(self) -> None:
        """Check that it runs.

        Raises:
            BucketsError: it has ended; quotes the last line of its output.
        """
        code = self._process.poll()
        if code is not None:
            message = f"`{self.name}` has ended with {code}: {self.last_line()}; its output is in {self.log}"
            raise BucketsError(message)

    def last_line(self) -> str:
        """Return the last line of its output."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").split("\n")
        written = [line.strip() for line in lines if line.strip()]
        return written[-1].removeprefix("error: ")[:_LONGEST_SAID] if written else "it said nothing"

    def ask_to_end(self) -> None:
        """Close its standard input; does not wait."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def wait_until_ended(self, until_s: float) -> None:
        """Wait until it and everything that it started have ended; from a time of the monotonic clock on kill them."""
        while self._has_members() and time.monotonic() < until_s:
            time.sleep(POLL_S)
        if self._has_members():
            self._signal_all(signal.SIGKILL)
            killed_s = time.monotonic() + KILLED_WITHIN_S
            while self._has_members() and time.monotonic() < killed_s:
                time.sleep(POLL_S)

    def _has_members(self) -> bool:
        """Return whether anything is left of its process group, itself included."""
        self._process.poll()
        return self._signal_all(0)

    def _signal_all(self, number: int) -> bool:
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):  # The latter where only processes are left that have ended.
            return False
        return True


def end_all(children: Iterable[Child]) -> None:
    """End all of them at once, and wait until they have ended."""
    running = list(children)
    for child in running:
        child.ask_to_end()
    until_s = time.monotonic() + END_WITHIN_S
    for child in running:
        child.wait_until_ended(until_s)


def _interrupt_at_end_of_input() -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 1):
            pass
    os.kill(os.getpid(), signal.SIGINT)


def main() -> None:
    """Run the command that the arguments name."""
    # A shell makes the processes that it runs in the background ignore interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=_interrupt_at_end_of_input, daemon=True).start()
    run_command()


if __name__ == "__main__":
    main()
