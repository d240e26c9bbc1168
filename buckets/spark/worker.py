"""The Python process that does the work of a task, and is used again for the next one."""

import contextlib
import ctypes
import gc
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import SparkSession

TRIM_EVERY_S = 1.0
_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""What gives memory that is free back to the system; not every C library has it."""


class _LastTrim:
    at_s = -math.inf  # when this process has last given memory back


def settle() -> None:
    """End a task: what was loaded is no garbage, and memory that is free is the system's, once a second.

    A batch of 100,000 payments takes some hundred MB, which each worker would have in vain until the next one. To give
    memory back after each small batch, and to take it again, costs a tenth of its CPU.
    """
    freeze_loaded()
    if time.monotonic() - _LastTrim.at_s >= TRIM_EVERY_S:
        _LastTrim.at_s = time.monotonic()
        pa.default_memory_pool().release_unused()
        if _TRIM is not None:
            _TRIM(0)


def settled(
    stage: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Do what a task does with its rows, whatever it is composed of, and end the task settled, once."""
    yield from stage(batches)
    settle()


@cache
def freeze_loaded() -> None:
    """Take everything that is loaded out of the garbage collector's sight, once in a process.

    pyspark collects garbage after each task. With numpy, numba and pyarrow loaded that takes 70 ms, which a small
    batch has to wait for; what was loaded is never garbage. A driver does so every few seconds, and takes 150 ms.
    """
    gc.collect()
    gc.freeze()


def start_workers(context: SparkContext) -> None:
    """Have Spark start a worker while the session starts; the first batch tells of any fault."""
    _beside("start of the workers", lambda: context.parallelize(range(1), 1).count())


def take_steps(session: SparkSession) -> None:
    """Have Spark take the steps of a batch with a few rows while the query is made ready.

    Java loads a thousand classes for them and compiles code, which the first batch would wait for.
    """

    def steps() -> None:
        session.sparkContext._jvm.org.rocksdb.RocksDB.loadLibrary()  # type: ignore[union-attr]
        rows = session.range(0, 8, 1, 2).mapInArrow(_same, "id long")
        rows.groupBy("id").count().collect()

    _beside("first steps", steps)


def _same(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return rows


def _beside(name: str, work: Callable[[], object]) -> None:
    """Do something beside the start of a job, which goes on where it fails."""

    def run() -> None:
        with contextlib.suppress(Exception):
            work()

    threading.Thread(target=run, name=name, daemon=True).start()
