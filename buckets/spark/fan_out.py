"""The stateless stage: `fan_out` over the Arrow batches of a task."""

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

from buckets.engine_settings import EngineSettings
from buckets.event_schema import EventSchema
from buckets.fan_out import fan_out
from buckets.spark.rule_route import rule_set_of_task
from buckets.spark.worker import settle

COLUMNS = "shard int, payload binary"
Normalise = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def fan_out_stage(arrivals: DataFrame, normalise: Normalise, schema: EventSchema, engine: EngineSettings) -> DataFrame:
    """Arrivals into parcels for the shards.

    Args:
        arrivals: rows of a source.
        normalise: what brings the source's Arrow batches into the form of `buckets.arrivals`.
        schema: the event schema.
        engine: for the number of shards.
    """

    def stage(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rule_set = rule_set_of_task()
        for rows in normalise(batches):
            if rows.num_rows:
                parcels = list(fan_out(rows, rule_set, schema, engine.shards))
                shards = pa.array([parcel.shard for parcel in parcels], pa.int32())
                payloads = pa.array([parcel.payload for parcel in parcels], pa.binary())
                yield pa.RecordBatch.from_arrays([shards, payloads], names=["shard", "payload"])
        settle()

    return arrivals.mapInArrow(stage, COLUMNS)
