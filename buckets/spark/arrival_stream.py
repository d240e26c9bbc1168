"""A stream of arrivals, which every source is: rows of Spark, and what reads them in Python."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from buckets.events.schema import EventSchema

RecordBatches = Iterator[pa.RecordBatch]
Normalise = Callable[[Iterable[pa.RecordBatch], EventSchema], RecordBatches]
Columns = Callable[[EventSchema], Collection[str]]


@dataclass(frozen=True)
class ArrivalStream:
    """A stream of rows.

    Attributes:
        frame: the rows, in the columns of its source.
        normalise: brings Arrow batches of them into the form of `buckets.events.arrivals`, in the tasks, given the
            event schema of the batch.
        columns: what the frame has to have for an event schema, where that depends on it.
        schema: the event schema for which it has been opened.
    """

    frame: DataFrame
    normalise: Normalise
    columns: Columns = lambda schema: ()
    schema: EventSchema | None = None

    def has_all_of(self, schema: EventSchema) -> bool:
        """Return whether the rows have what an event schema needs; a stream that has not must be opened again."""
        return self.schema is None or set(self.columns(schema)) <= set(self.columns(self.schema))
