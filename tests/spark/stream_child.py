"""A program with a session of its own that streams files and writes each batch once, by its number: WORK EVENTS."""

import sys
from pathlib import Path

from pyspark.sql import SparkSession

import buckets.spark as bs
from tests.spark.test_frames import COLUMNS, RULES, SCHEMA

work, events = map(Path, sys.argv[1:])
out = work / "out"
out.mkdir(parents=True, exist_ok=True)
spark = SparkSession.builder.master("local[2]").config(map=bs.session_settings()).getOrCreate()


def write(batch: bs.StreamBatch) -> None:
    """Write the features of a batch, over those of an earlier try."""
    features = batch.features.toPandas().to_json(orient="records", default_handler=str)
    hidden = out / f"_{batch.id}"
    hidden.write_text(features)
    hidden.replace(out / f"{batch.id:09d}.json")


frame = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(events))
live = bs.stream(frame, RULES, SCHEMA, checkpoint=work / "checkpoint", order_by=["n"])
live.for_each_batch(write).start(available_now=True).awaitTermination()
