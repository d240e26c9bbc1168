"""The Python process from which Spark forks its workers, with everything loaded that scoring needs.

Spark forks a worker for each concurrent task, and ends those that were idle for a minute. Each would import the engine
and load its kernels itself while a first batch waits; forked workers share both, including their memory. Only Arrow's
allocator starts a thread while loading, and it is safe to fork.
"""

import gc
import importlib
import os
import re
import socket
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from typing import Any

LOADED = (
    "pyspark.worker",
    "buckets.spark.windows",
)
"""What workers import."""
_ARCHIVE = re.compile(r"/(pyspark|py4j[^/]*)\.zip$")


def _leave_out_archive() -> None:
    """Import pyspark from its installation, as the driver does.

    Spark puts an archive first on the path, and modules in it are compiled again on every import.
    """
    installed = [path for path in sys.path if not _ARCHIVE.search(path)]
    if PathFinder.find_spec("pyspark", installed) and PathFinder.find_spec("py4j", installed):
        sys.path[:] = installed


def _end_quietly(worker: Callable[[socket.socket, bool], int]) -> Callable[[socket.socket, bool], int]:
    """Return a worker function that ends silently once nobody reads its answers because the session has ended.

    Spark stops as soon as it has a task's results, while the worker is still cleaning up. By default the worker would
    print a traceback among the job's messages.
    """

    def work(connection: socket.socket, authenticated: bool) -> int:
        try:
            return worker(connection, authenticated)
        except BrokenPipeError:
            return 1

    return work


def main() -> None:
    """Load the engine and its kernels, and fork workers until Spark ends."""
    # End at once, as Spark's own daemon would: an interrupt is meant for the driver.
    os.setpgid(0, 0)
    _leave_out_archive()
    for name in LOADED:
        importlib.import_module(name)
    importlib.import_module("buckets.engine.stages.warm_up").warm_up()
    importlib.import_module("buckets.compiled").note_that_all_are_compiled()
    gc.collect()
    gc.freeze()
    daemon: Any = importlib.import_module("pyspark.daemon")
    daemon.worker = _end_quietly(daemon.worker)
    daemon.manager()


if __name__ == "__main__":
    main()
