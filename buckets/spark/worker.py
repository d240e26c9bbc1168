"""The Python process that does the work of a task, and is used again for the next one."""

import contextlib
import ctypes
import gc
import threading
from functools import cache

import pyarrow as pa
from pyspark import SparkContext

_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""What gives memory that is free back to the system; not every C library has it."""


def settle() -> None:
    """End a task: what was loaded is no garbage, and memory that is free is the system's.

    A batch of 100,000 payments takes some hundred MB, which each worker would have in vain until the next one.
    """
    _freeze()
    pa.default_memory_pool().release_unused()
    if _TRIM is not None:
        _TRIM(0)


@cache
def _freeze() -> None:
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
