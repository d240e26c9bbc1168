"""A query of Spark that does nothing, from topic to topic, in the session of a job.

    python bench/floor_engine.py CONF MODE

Modes: `jvm`, values are passed on by the JVM; `python`, through a Python worker by Arrow; `batch`, that, collected by
`foreachBatch` and sent by a producer, as the product sends its results; `state`, that, through `transformWithState`
with one map state that is opened and asked for one key.
"""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from buckets.config.job import load_job
from buckets.spark.prepared_job import job_session

ALERTS = "alerts"


class Nothing(StatefulProcessor):
    """Passes rows on, and counts calls in a map state."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._state = handle.getMapState("calls", "key binary", "value binary")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Pass rows on."""
        self._state.getValue((b"key",))
        self._state.updateValue((b"key",), (b"value",))
        for row in rows:
            yield Row(value=row.value)

    def close(self) -> None:
        """Do nothing: nothing is open."""


def same(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pass columns on."""
    yield from batches


def main() -> None:
    """Run until told to end."""
    conf, mode = Path(sys.argv[1]), sys.argv[2]
    job = load_job(conf)
    assert job.settings.kafka is not None
    assert job.settings.source.topic is not None
    topic, servers = job.settings.source.topic, job.settings.kafka.bootstrap_servers
    spark = job_session(job)
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    source = source.option("subscribe", topic).option("startingOffsets", "latest")
    frame = source.option("maxOffsetsPerTrigger", 100_000).load().select("value")
    if mode != "jvm":
        frame = frame.mapInArrow(same, "value binary")
    if mode == "state":
        by_shard = frame.selectExpr("0 AS shard", "value").groupBy("shard")
        frame = by_shard.transformWithState(Nothing(), "value binary", "update", "none")
    if mode in ("batch", "state"):
        producer = Producer({"bootstrap.servers": servers, "linger.ms": 0, "acks": "all"})

        def send(batch: DataFrame, _: int) -> None:
            for row in batch.collect():
                producer.produce(ALERTS, bytes(row.value))
                producer.poll(0)
            producer.flush()

        writer = frame.writeStream.foreachBatch(send).outputMode("update")
    else:
        to_topic = frame.writeStream.format("kafka").option("kafka.bootstrap.servers", servers)
        writer = to_topic.option("topic", ALERTS)
    query = writer.option("checkpointLocation", str(conf.with_name("floor"))).start()
    print("started", flush=True)
    query.awaitTermination()


if __name__ == "__main__":
    main()
