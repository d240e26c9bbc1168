"""The operator that puts carried state into the state store of a new checkpoint, and nothing else.

To Spark it is the operator `Windows`: the same grouping column, the same map state, the same modes. So what it leaves
is what the job goes on from, with schemas and metadata that Spark has written itself.
"""

import pickle
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from buckets.spark.running import Batch, Patience, Running
from buckets.spark.windows import PRODUCED, STATE, STATE_KEY, STATE_VALUE

if TYPE_CHECKING:
    from buckets.state_transfer.regrouping import CarriedGroup

MESSAGES = StructType(
    [
        StructField("shard", IntegerType()),
        StructField("state_key", BinaryType()),
        StructField("head", BinaryType()),
        StructField("policies", BinaryType()),
        StructField("page", BinaryType()),
        StructField("overview", BinaryType()),
        StructField("voters", BinaryType()),
    ]
)
"""A key (`head`, `policies`), a page, or what the shard knows of time (no `state_key`); `shard` is its number of
`ShardKeys`."""
_AT_ONCE = 10_000


class Install(StatefulProcessor):
    """Puts what comes for a shard into its store."""

    def __init__(self, groups: Sequence["CarriedGroup"]) -> None:
        """Keep the groups of the job.

        They are unpacked where they are needed: Spark starts a Python for `init` alone, whose imports it waits for ten
        seconds at most.
        """
        self._groups = pickle.dumps(groups)

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._state = handle.getMapState(STATE, STATE_KEY, STATE_VALUE)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Install a shard."""
        from buckets.engine.storage.shard_store import HEADS, PAGES, POLICIES, SCHEDULE, Section, ShardStore
        from buckets.spark.map_state_entries import MapStateEntries
        from buckets.state_transfer.installer import CarriedKey, Installer
        from buckets.state_transfer.shard_times import ShardTimes

        entries = MapStateEntries(self._state)
        store = ShardStore(*(Section(entries, name) for name in (HEADS, PAGES, SCHEDULE, POLICIES)))
        installer, times = Installer(store, pickle.loads(self._groups)), ShardTimes()
        while some := [*islice(rows, _AT_ONCE)]:
            keys: list[CarriedKey] = []
            pages: list[tuple[bytes, bytes]] = []
            for row in some:
                if row.state_key is None:
                    times = ShardTimes.read(bytes(row.overview), bytes(row.voters))
                elif row.page is not None:
                    pages.append((bytes(row.state_key), bytes(row.page)))
                else:
                    keys.append(CarriedKey(bytes(row.state_key), bytes(row.head), bytes(row.policies)))
            installer.put_pages(pages)
            installer.put_keys(keys)
        installer.end(times)
        yield from ()

    def close(self) -> None:
        """Do nothing: nothing is open."""


def install(spark: SparkSession, messages: Path, groups: Sequence["CarriedGroup"], checkpoint: Path) -> None:
    """Make Spark's part of a checkpoint, with state as after a batch 0.

    Args:
        spark: the session, with as many partitions as the job has.
        messages: a folder of Parquet files of `MESSAGES`.
        groups: those of the job.
        checkpoint: Spark's folder, a new one.

    Raises:
        BucketsError: it failed.
    """
    stream = spark.readStream.schema(MESSAGES).parquet(str(messages))
    produced = stream.groupBy("shard").transformWithState(Install(groups), PRODUCED, "update", "none")

    def begin(interval_ms: int | None, run_batch: Batch) -> StreamingQuery:
        writer = produced.writeStream.outputMode("update").foreachBatch(run_batch).trigger(availableNow=True)
        return writer.option("checkpointLocation", str(checkpoint)).start()

    def put(frame: DataFrame, batch_id: int) -> None:
        frame.count()

    Running(begin, put, Patience()).run(None)
