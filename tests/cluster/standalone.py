"""A standalone cluster on loopback: a master and workers from the pyspark of the tests, each a process of its own.

Workers know nothing of the checkout: they run elsewhere, with an environment that does not name it.
"""

import contextlib
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import msgspec
import pyspark

SPARK_HOME = Path(pyspark.__file__).parent
UP_WITHIN_S = 60
_KEPT = ("HOME", "LANG", "JAVA_HOME", "TMPDIR", "SPARK_SUBMIT_OPTS")


def cluster_environment() -> dict[str, str]:
    """What processes of a cluster find in their environment: nothing that leads to the checkout."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return kept | {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }


def _free_ports() -> tuple[int, int]:
    with socket.socket() as first, socket.socket() as second:
        for each in (first, second):
            each.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]


class StandaloneCluster:
    """A master, and workers of one core; all end with the `with` block."""

    def __init__(self, folder: Path) -> None:
        """Say where the processes run, and where what they say goes."""
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self.workers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        """Start the master."""
        self._folder.mkdir(parents=True, exist_ok=True)
        port, self._ui = _free_ports()
        self.url = f"spark://127.0.0.1:{port}"
        master = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(self._ui)]
        with contextlib.ExitStack() as stack:
            stack.callback(self.__exit__)
            self._start("master", "org.apache.spark.deploy.master.Master", *master)
            self._wait(lambda: self.state() is not None)
            stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """End all of it."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def add_worker(self, memory: str = "1g") -> None:
        """Start a worker, and wait until the master has it."""
        number = len(self.workers)
        there = self.cores()
        own = ["--host", "127.0.0.1", "--cores", "1", "--memory", memory, "--webui-port", "0"]
        place = ["--work-dir", str(self._folder / f"work-{number}")]
        worker = self._start(f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *own, *place, self.url)
        self.workers.append(worker)
        self._wait(lambda: self.cores() > there)

    def kill_worker(self, number: int) -> None:
        """Kill a worker with its executors, as a machine that is gone."""
        os.killpg(self.workers[number].pid, signal.SIGKILL)
        self.workers[number].wait()

    def state(self) -> dict[str, Any] | None:
        """What the master says of the cluster; None as long as it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._ui}/json/", timeout=5) as answer:
                state: dict[str, Any] = msgspec.json.decode(answer.read())
                return state
        except (urllib.error.URLError, ConnectionError, msgspec.DecodeError):  # a page, as long as it starts
            return None

    def cores(self) -> int:
        """How many cores the workers have that are alive."""
        state = self.state()
        return 0 if state is None else sum(each["cores"] for each in state["workers"] if each["state"] == "ALIVE")

    def work_folders(self) -> list[Path]:
        """Where executors run."""
        return sorted(self._folder.glob("work-*/app-*/[0-9]*"))

    def pythons(self) -> set[str]:
        """The Pythons that work for executors, by the names by which these have started them."""
        found = set()
        for folder in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if (folder / "cwd").resolve() in self.work_folders():
                    found.add((folder / "cmdline").read_bytes().split(b"\0")[0].decode())
        return {name for name in found if "python" in name}

    def executor_logs(self) -> str:
        """What executors have written to their standard error."""
        return "\n".join(path.read_text(errors="replace") for path in self._folder.glob("work-*/app-*/*/stderr"))

    def _start(self, name: str, main: str, *arguments: str) -> "subprocess.Popen[bytes]":
        command = [str(SPARK_HOME / "bin" / "spark-class"), main, *arguments]
        with (self._folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self._folder, env=cluster_environment(), start_new_session=True
            )
        self._processes.append(process)
        return process

    def _wait(self, condition: Callable[[], bool]) -> None:
        given_up_s = time.monotonic() + UP_WITHIN_S
        while not condition():
            assert time.monotonic() < given_up_s, f"the cluster in {self._folder} does not come up"
            time.sleep(0.1)
