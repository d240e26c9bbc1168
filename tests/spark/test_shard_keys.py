"""Shards over Spark's partitions: as even as can be, and each one where Spark itself puts it."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import functions as F

from buckets.engine.batch.payload import PASSING
from buckets.spark.shard_keys import ShardKeys, spark_hash


@given(st.integers(1, 300), st.integers(1, 40))
def test_no_partition_has_more_than_one_shard_more_than_another(shards, partitions):
    keys = ShardKeys.of(shards, partitions).keys
    assert len(set(keys)) == shards
    assert PASSING not in keys
    in_each = np.bincount(spark_hash(np.array(keys)).astype(np.int64) % partitions, minlength=partitions)
    assert in_each.max() - in_each.min() <= 1


@pytest.mark.spark
@pytest.mark.parametrize(("shards", "partitions"), [(8, 2), (8, 8), (50, 7)])
def test_spark_spreads_shards_as_they_were_meant_to_be(spark, shards, partitions):
    keys = ShardKeys.of(shards, partitions)
    frame = spark.createDataFrame([(keys.key_of(shard),) for shard in range(shards)], "key int")
    rows = (
        frame.repartition(partitions, "key")
        .select(F.spark_partition_id().alias("partition"), keys.shard_column("key").alias("shard"))
        .collect()
    )
    assert sorted(row.shard for row in rows) == list(range(shards))
    in_each = Counter(row.partition for row in rows)
    assert len(in_each) == partitions
    assert max(in_each.values()) - min(in_each.values()) <= 1


@pytest.mark.spark
def test_numbers_that_are_no_shard_of_a_column_pass(spark):
    keys = ShardKeys.of(3, 2)
    frame = spark.createDataFrame([(PASSING,)], "key int")
    assert [row.shard for row in frame.select(keys.shard_column("key").alias("shard")).collect()] == [PASSING]
