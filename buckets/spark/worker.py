"""The Python process that runs tasks, one after the other."""

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
"""Returns free memory to the system; not every C library has it."""


class _LastTrim:
    at_s = -math.inf  # when this process last returned memory


def settle() -> None:
    """End a task: freeze what is loaded, and return free memory to the system, at most once a second.

    A batch of 100,000 payments takes some hundred MB, which each worker would otherwise hold until the next one.
    Releasing and reallocating it after every small batch costs a tenth of the batch's CPU.
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
    """Run a task's stage over its rows, then `settle`, once however many stages are combined."""
    yield from stage(batches)
    settle()


@cache
def freeze_loaded() -> None:
    """Exempt everything loaded from garbage collection, once per process.

    pyspark collects garbage after each task. With numpy, numba and pyarrow loaded that takes 70 ms, which a small batch
    must wait for, and loaded modules are never garbage. A driver collects every few seconds, which takes 150 ms.
    """
    gc.collect()
    gc.freeze()


def start_workers(context: SparkContext) -> None:
    """Let Spark start a worker while the session starts; the first batch reports any fault."""
    _beside("start of the workers", lambda: context.parallelize(range(1), 1).count())


def take_steps(session: SparkSession) -> None:
    """Let Spark rehearse the steps of a batch on a few rows while the query is being prepared.

    Java loads a thousand classes for them and compiles code; otherwise the first batch would wait for that.
    """

    def steps() -> None:
        session.sparkContext._jvm.org.rocksdb.RocksDB.loadLibrary()  # type: ignore[union-attr]
        rows = session.range(0, 8, 1, 2).mapInArrow(_same, "id long")
        rows.groupBy("id").count().collect()

    _beside("first steps", steps)


def _same(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return rows


def _beside(name: str, work: Callable[[], object]) -> None:
    """Run work in the background while a job starts; if it fails, the start continues."""

    def run() -> None:
        with contextlib.suppress(Exception):
            work()

    threading.Thread(target=run, name=name, daemon=True).start()
