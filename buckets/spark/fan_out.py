"""The stateless stage: `fan_out` over the Arrow batches of a task."""

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

from buckets.arrivals import with_fields_of
from buckets.event_schema import EventSchema
from buckets.fan_out import fan_out
from buckets.spark.rule_route import rule_set_of_task, terms_of_task
from buckets.spark.worker import settle

COLUMNS = "shard int, payload binary"
Normalise = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def fan_out_stage(arrivals: DataFrame, normalise: Normalise, schema: EventSchema) -> DataFrame:
    """Arrivals into parcels for the shards.

    Args:
        arrivals: rows of a source.
        normalise: what brings the source's Arrow batches into the form of `buckets.arrivals`.
        schema: the event schema by which rows are read; a batch that is run again may have begun with another one.
    """

    def stage(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rule_set, terms = rule_set_of_task(), terms_of_task()
        begun, shards = terms.event_schema, terms.engine.shards
        for rows in normalise(batches):
            if rows.num_rows:
                parcels = list(fan_out(with_fields_of(rows, schema, begun), rule_set, begun, shards))
                shards = pa.array([parcel.shard for parcel in parcels], pa.int32())
                payloads = pa.array([parcel.payload for parcel in parcels], pa.binary())
                yield pa.RecordBatch.from_arrays([shards, payloads], names=["shard", "payload"])
        settle()

    return arrivals.mapInArrow(stage, COLUMNS)
