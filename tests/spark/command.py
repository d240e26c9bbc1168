"""The command line as people start it: in a process of its own, to its end or in the background."""

import contextlib
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self
from unittest import mock

from buckets.cli.commands import exit_code

BUCKETS = str(Path(sys.executable).with_name("buckets"))
PHASES = ("starting Spark", "following the rules of ", "waiting for payments from ", "scoring what is in ")
"""How lines begin that `buckets run` says before its first batch."""
POLL_S = 0.005
REST = 2
"""For so many times as long as it took to look is nothing looked at: what is waited for needs the CPU."""
GIVE_UP_S = 180


def run_command(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run `buckets` to its end."""
    return subprocess.run([BUCKETS, *map(str, arguments)], cwd=cwd, check=False, capture_output=True, text=True)


def run_here(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run `buckets` to its end in this process, which spares the time in which it starts; for what needs no Spark."""
    out, err, command = io.StringIO(), io.StringIO(), ["buckets", *map(str, arguments)]
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(sys, "argv", command),
    ):
        code = exit_code()
    return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())


def one_line(ran: subprocess.CompletedProcess[str], code: int = 1) -> str:
    """What a command has said that failed: one line, and nothing else but how far its start had come."""
    assert ran.returncode == code, ran.stderr
    (line,) = [line for line in ran.stderr.splitlines() if not line.startswith(PHASES)]
    assert line.startswith("error: ")
    return line.removeprefix("error: ")


class RunningCommand:
    """`buckets` in the background, in a session of its own; nothing of it is left after the `with` block."""

    logs_stdout = False
    """Whether its standard output goes to the log too."""

    def __init__(self, *arguments: str | Path, log: Path, give_up_s: float = GIVE_UP_S) -> None:
        """Say what to start, where its standard error goes, and how long to wait for what it is to come to."""
        self._arguments = [BUCKETS, *map(str, arguments)]
        self._log = log
        self._give_up_s = give_up_s
        self._cwd: Path | None = None
        self._environment: dict[str, str] | None = None

    def __enter__(self) -> Self:
        """Start it."""
        with self._log.open("wb") as log:
            stdout = log if self.logs_stdout else subprocess.DEVNULL
            self._process = subprocess.Popen(
                self._arguments,
                stdout=stdout,
                stderr=log,
                start_new_session=True,
                cwd=self._cwd,
                env=self._environment,
            )
        return self

    def __exit__(self, *_: object) -> None:
        """End whatever is left of it."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    @property
    def stderr(self) -> str:
        """What it has said so far."""
        return self._log.read_text(encoding="utf-8")

    def processes(self) -> list[int]:
        """It and all that it started, as far as they still run."""
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdecimal():
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    state, _, _, session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
                    if int(session) == self._process.pid and state != "Z":
                        found.append(int(folder.name))
        return found

    def wait_until(self, condition: Callable[[], bool], every_s: float = POLL_S) -> None:
        """Wait for a condition while it runs."""
        asked_s = time.monotonic()
        given_up_s = asked_s + self._give_up_s
        while not condition():
            took_s = time.monotonic() - asked_s
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._process.wait(max(every_s, REST * took_s))
                assert condition(), f"it ended with {code} before that: {self.stderr}"
            asked_s = time.monotonic()
            assert asked_s < given_up_s, f"it did not come to that: {self.stderr}"

    def freeze(self) -> None:
        """Hold driver and JVM where they are."""
        os.killpg(self._process.pid, signal.SIGSTOP)
        self._wait_for_state("T")

    def thaw(self) -> None:
        """Let driver and JVM go on."""
        os.killpg(self._process.pid, signal.SIGCONT)

    def _wait_for_state(self, wanted: str) -> None:
        def states() -> set[str]:
            stats = (Path(f"/proc/{pid}/stat") for pid in self.processes() if os.getpgid(pid) == self._process.pid)
            return {stat.read_text().rpartition(")")[2].split()[0] for stat in stats}

        while states() != {wanted}:
            time.sleep(POLL_S)

    def kill_driver(self) -> None:
        """Kill the driver alone; wait until all that it had started has gone of itself."""
        os.kill(self._process.pid, signal.SIGKILL)
        os.killpg(self._process.pid, signal.SIGCONT)
        self.wait_until_gone()

    def kill_all(self) -> None:
        """Kill driver and JVM in the same moment; wait until their workers have gone too."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self.wait_until_gone()

    def wait_until_gone(self) -> None:
        """Wait until it and all that it had started have ended."""
        self._process.wait()
        given_up_s = time.monotonic() + GIVE_UP_S
        while left := self.processes():
            assert time.monotonic() < given_up_s, f"still there: {left}"
            time.sleep(POLL_S)

    def interrupt(self) -> int:
        """Press Ctrl-C; returns the exit code."""
        os.killpg(self._process.pid, signal.SIGINT)
        return self._process.wait(self._give_up_s)

    def terminate(self) -> None:
        """Ask it alone to end, as a service manager does."""
        os.kill(self._process.pid, signal.SIGTERM)

    def terminate_all(self) -> None:
        """Ask all processes of its group to end."""
        os.killpg(self._process.pid, signal.SIGTERM)

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def wait(self) -> int:
        """Wait for its end; returns the exit code."""
        return self._process.wait(self._give_up_s)
