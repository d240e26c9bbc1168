"""The Python process that does the work of a task, and is used again for the next one."""

import contextlib
import ctypes
import gc
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import SparkSession

Stage = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What a task does with its rows."""
_LITTLE_BYTES = 1 << 20
_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""What gives memory that is free back to the system; not every C library has it."""


def settle() -> None:
    """End a task: what was loaded is no garbage, and memory that is free is the system's.

    A batch of 100,000 payments takes some hundred MB, which each worker would have in vain until the next one.
    """
    freeze_loaded()
    pa.default_memory_pool().release_unused()
    if _TRIM is not None:
        _TRIM(0)


@dataclass(frozen=True)
class Settled:
    """Does what a stage does, and ends its task settled.

    Where little passes, free memory is kept: to give it back and to take it again costs a tenth of a small batch.
    """

    stage: Stage

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do so."""
        passed_bytes = 0

        def noted(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            nonlocal passed_bytes
            for batch in rows:
                passed_bytes += batch.nbytes
                yield batch

        yield from noted(self.stage(noted(batches)))
        if passed_bytes > _LITTLE_BYTES:
            settle()
        else:
            freeze_loaded()


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
