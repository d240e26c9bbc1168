"""The stateless stage: `fan_out` over the Arrow batches of a task. Workers load it, so it imports no driver code."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

from buckets.checkpoint.identity import Terms
from buckets.engine.batch.fan_out import fan_out
from buckets.lists.index import NO_LISTS, Lists
from buckets.rules.rule_set import RuleSet
from buckets.spark.batch_properties import lists_of_task, rule_set_of_task, terms_of_task
from buckets.spark.shard_keys import ShardKeys
from buckets.spark.sources import ArrivalStream
from buckets.spark.worker import settle

COLUMNS = "shard int, payload binary"


def fan_out_stage(arrivals: ArrivalStream, shard_keys: ShardKeys) -> DataFrame:
    """Turn arrivals into messages to the shards."""
    normalise = arrivals.normalise

    def stage(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rule_set, terms, lists = rule_set_of_task(), terms_of_task(), lists_of_task()
        yield from fan_out_rows(normalise(batches, terms.event_schema), shard_keys, rule_set, terms, lists)
        settle()

    return arrivals.frame.mapInArrow(stage, COLUMNS)


def fan_out_rows(
    arrivals: Iterable[pa.RecordBatch],
    shard_keys: ShardKeys,
    rule_set: RuleSet,
    terms: Terms,
    lists: Lists = NO_LISTS,
) -> Iterator[pa.RecordBatch]:
    """Turn each piece of a task's arrivals, as in `events.arrivals`, into messages to the shards, in `COLUMNS`."""
    for rows in arrivals:
        if rows.num_rows:
            messages = list(fan_out(rows, rule_set, terms.event_schema, terms.engine, lists))
            shards = pa.array([shard_keys.key_of(message.shard) for message in messages], pa.int32())
            payloads = pa.array([message.payload for message in messages], pa.binary())
            yield pa.RecordBatch.from_arrays([shards, payloads], names=["shard", "payload"])
