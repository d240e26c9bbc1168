"""A stream of arrivals, which every source is: rows of Spark, and what reads them in Python."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

RecordBatches = Iterator[pa.RecordBatch]
Normalise = Callable[[Iterable[pa.RecordBatch]], RecordBatches]


@dataclass(frozen=True)
class ArrivalStream:
    """A stream of rows.

    Attributes:
        frame: the rows, in the columns of its source.
        normalise: brings Arrow batches of them into the form of `buckets.events.arrivals`, in the tasks.
    """

    frame: DataFrame
    normalise: Normalise
