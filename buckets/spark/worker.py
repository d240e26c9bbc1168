"""The Python process that does the work of a task, and is used again for the next one."""

import contextlib
import gc
import threading
from functools import cache

from pyspark import SparkContext


@cache
def settle() -> None:
    """Take everything that is loaded out of the garbage collector's sight, once in a process.

    pyspark collects garbage after each task. With numpy, numba and pyarrow loaded that takes 70 ms, which a small
    batch has to wait for; what was loaded is never garbage.
    """
    gc.collect()
    gc.freeze()


def start_workers(context: SparkContext) -> None:
    """Have Spark start a worker while the driver prepares the first batch, which tells of any fault."""

    def start() -> None:
        with contextlib.suppress(Exception):
            context.parallelize(range(1), 1).count()

    threading.Thread(target=start, name="start of the workers", daemon=True).start()
