"""A `buckets` command as a process beside this one, which ends with it whatever happens.

The child reads its standard input, on which nothing ever comes. When that closes, because it is to end or because the
one that started it has died, it interrupts itself, as Ctrl-C would. It has a session of its own, so that a Ctrl-C at
the terminal reaches only the one that started it.
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

from buckets.errors import BucketsError

END_WITHIN_S = 60.0
KILLED_WITHIN_S = 10.0
POLL_S = 0.05
_LONGEST_SAID = 300


class Child:
    """A command that runs."""

    def __init__(self, arguments: Sequence[str], log: Path) -> None:
        """Start it.

        Args:
            arguments: what stands behind `buckets` on a command line.
            log: where all that it says goes.
        """
        self.name = f"buckets {' '.join(arguments)}"
        self.log = log
        with log.open("wb") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "buckets.cli.child", *arguments],
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def check(self) -> None:
        """See that it runs.

        Raises:
            BucketsError: it has ended; says what it said last.
        """
        code = self._process.poll()
        if code is not None:
            message = f"`{self.name}` has ended with {code}: {self.last_line()}; all it said is in {self.log}"
            raise BucketsError(message)

    def last_line(self) -> str:
        """What it said last."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").split("\n")
        said = [line.strip() for line in lines if line.strip()]
        return said[-1].removeprefix("error: ")[:_LONGEST_SAID] if said else "it said nothing"

    def ask_to_end(self) -> None:
        """Close its standard input; does not wait."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def wait_until_ended(self, until_s: float) -> None:
        """Wait until it and all that it started have ended; kill them then.

        Args:
            until_s: of the monotonic clock.
        """
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(until_s - time.monotonic(), 0))
        while self._has_members() and time.monotonic() < until_s:
            time.sleep(POLL_S)
        if self._has_members():
            self._signal_all(signal.SIGKILL)
            killed_s = time.monotonic() + KILLED_WITHIN_S
            while self._has_members() and time.monotonic() < killed_s:
                time.sleep(POLL_S)

    def _has_members(self) -> bool:
        """Whether there is something left of its process group, itself included."""
        self._process.poll()
        return self._signal_all(0)

    def _signal_all(self, number: int) -> bool:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return False
        except PermissionError:  # Only those are left that have ended and nobody has asked about.
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
    """Be the child: run the command that the arguments name."""
    from buckets.cli.main import main as run_command

    # A shell that runs things in the background has them ignore interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=_interrupt_at_end_of_input, daemon=True).start()
    run_command()


if __name__ == "__main__":
    main()
