"""Work on the results of a batch that executors do, in a job of its own."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from buckets.engine.stages.shard import Produced
from buckets.spark.windows import PRODUCED
from buckets.spark.worker import settle

Share = TypeVar("Share")
_TASKS_A_CORE = 2
_COLUMNS = pa.schema([("output", pa.string()), ("rows", pa.int64()), ("payload", pa.binary())])


def run_apart(
    session: SparkSession, shares: Sequence[Share], work: Callable[[Iterable[Share]], Iterator[Produced]]
) -> list[Produced]:
    """Have executors do some work, and return what comes of it.

    Args:
        session: of Spark.
        shares: what is to be done; a task gets some of them.
        work: does the shares of a task. It runs again where a task is lost.
    """

    def stage(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers = (number for batch in batches for number in batch.column(0).to_pylist())
        for produced in work(shares[number] for number in numbers):
            columns = [[produced.output], [produced.rows], [produced.payload]]
            yield pa.RecordBatch.from_arrays(list(map(pa.array, columns, _COLUMNS.types)), schema=_COLUMNS)
        settle()

    tasks = min(len(shares), _TASKS_A_CORE * session.sparkContext.defaultParallelism)
    rows = session.range(0, len(shares), 1, tasks).mapInArrow(stage, PRODUCED).collect()
    return [Produced(row.output, row.rows, bytes(row.payload)) for row in rows]
