"""A program whose stream reads an Iceberg table and appends to another one: WORK JAR. Its second batch fails once."""

import os
import sys

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import buckets.spark as bs
from tests.spark.test_frames import RULES, SCHEMA, rows, table_of

work, jar = sys.argv[1:]
settings = bs.session_settings() | {
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.type": "hadoop",
    "spark.sql.catalog.lake.warehouse": f"{work}/warehouse",
    # A query has a session of its own: what it has appended is not seen by another one's cache.
    "spark.sql.catalog.lake.cache-enabled": "false",
    "spark.ui.enabled": "false",
}
settings["spark.jars"] += f",{jar}"
settings["spark.driver.extraClassPath"] += f"{os.pathsep}{jar}"
spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
payments, features, files = spark.createDataFrame(table_of(rows(0))), "lake.db.features", 3
tries: list[int] = []
payments.limit(0).writeTo("lake.db.payments").using("iceberg").create()
for number in range(files):
    payments.where(F.col("n") % files == number).coalesce(1).writeTo("lake.db.payments").append()


def append_once(batch: bs.StreamBatch) -> None:
    """Append the features of a batch, unless an earlier try has; the table remembers the batches that it has."""
    tries.append(batch.id)
    name = f"features-{batch.id}"
    if not spark.catalog.tableExists(features):
        batch.features.limit(0).writeTo(features).using("iceberg").create()
    written = spark.table(f"{features}.snapshots").where(F.col("summary")["batch"] == name)
    if written.isEmpty():
        batch.features.writeTo(features).option("snapshot-property.batch", name).append()
    if tries == [0, 1]:
        message = "after the append, and before the batch is done"
        raise RuntimeError(message)


def run() -> None:
    """Run the stream over what is there."""
    table = spark.readStream.format("iceberg").option("streaming-max-files-per-micro-batch", 1).load("lake.db.payments")
    live = bs.stream(table, RULES, SCHEMA, checkpoint=f"{work}/checkpoint", order_by=["n"])
    live.for_each_batch(append_once).start(available_now=True).awaitTermination()


with pytest.raises(bs.FrameError, match="before the batch is done"):
    run()
run()
assert tries == [0, 1, 1, 2], tries
found = spark.table(features)
# Of rows of a table that arrived in three batches, as of a batch that has them in this order.
arrived = payments.withColumn("batch", F.col("n") % files)
expected = bs.features(arrived, RULES, SCHEMA, order_by=["batch", "n"]).drop("batch")
assert found.columns == expected.columns
of_stream, of_batch = ([*frame.orderBy("n").toArrow().to_pylist()] for frame in (found, expected))
different = [pair for pair in zip(of_stream, of_batch, strict=True) if pair[0] != pair[1]]
assert not different, (len(different), len(of_stream), different[:2])
assert len(of_stream) == len(rows(0))
