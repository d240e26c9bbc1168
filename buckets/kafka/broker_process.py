"""The process of a local broker: found by its pid, which is checked to be still that of this broker, and ended.

It outlives whoever started it, so all that is known of it is in its folder: the file `broker.pid`. A pid may have been
given to another process since; the folder's name on the command line tells the two apart.
"""

import os
import signal
import subprocess
import time
from pathlib import Path

from buckets.errors import BucketsError

STOP_WITHIN_S = 30.0
KILL_WITHIN_S = 10.0
POLL_S = 0.05


class BrokerProcess:
    """The process of the broker in a folder, whether it runs or not."""

    def __init__(self, folder: Path) -> None:
        """Take the broker of `folder`; nothing is asked yet."""
        self._folder = folder
        self.pid_file = folder / "broker.pid"
        self.mark = f"-Dbuckets.broker={folder}"
        """The option on its command line that no other process has; `-cp` comes after it."""

    def pid(self) -> int | None:
        """Return the pid in the pid file, if the process that has it is this broker."""
        try:
            pid = int(self.pid_file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return pid if f"{self.mark} -cp " in _command_line(pid) else None

    def stop(self) -> bool:
        """Stop it in good order; kill it if that takes too long.

        Returns:
            Whether it ran.
        """
        return self._end(signal.SIGTERM, STOP_WITHIN_S) or self.kill()

    def kill(self) -> bool:
        """Kill it, as a crash would.

        Returns:
            Whether it ran.

        Raises:
            BucketsError: its process does not end.
        """
        if self.pid() is None:
            self.pid_file.unlink(missing_ok=True)
            return False
        if not self._end(signal.SIGKILL, KILL_WITHIN_S):
            message = f"broker in {self._folder}: process {self.pid()} does not end; end it by hand"
            raise BucketsError(message)
        return True

    def _end(self, with_signal: signal.Signals, within_s: float) -> bool:
        """Send it a signal, and wait until it has ended; whether it ran and has ended."""
        pid = self.pid()
        if pid is None:
            return False
        try:
            os.kill(pid, with_signal)
        except ProcessLookupError:
            pass
        except PermissionError:
            message = f"broker in {self._folder}: process {pid} is another user's; stop it as that user"
            raise BucketsError(message) from None
        deadline_s = time.monotonic() + within_s
        while not has_ended(pid):
            if time.monotonic() > deadline_s:
                return False
            time.sleep(POLL_S)
        self.pid_file.unlink(missing_ok=True)
        return True


def _command_line(pid: int) -> str:
    """Return the command line of a process, its arguments separated by spaces; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
    except OSError:
        pass
    if Path("/proc/self").exists():
        return ""
    asked = subprocess.run(["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return asked.stdout


def has_ended(pid: int) -> bool:
    """Return whether nothing of a process holds files or ports any more; a dead one may wait for its parent."""
    process = Path(f"/proc/{pid}")
    try:
        state = (process / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        return state in "ZX" and len(list((process / "task").iterdir())) == 1
    except OSError:
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False
