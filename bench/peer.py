"""What the peers share: the product's Spark settings, steady data as a stream, and batches until the time is up."""

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyarrow.parquet as pq
from measure import WARM_UP_BATCHES
from pyspark.sql import DataFrame, Row, SparkSession
from steady import Steady, write_steady

from buckets.spark.session import start_session

COLUMNS = "ts long, key string, amount long, event_id string, off long"
POLL_S = 0.2
WINDOW_MS = 3_600_000
SMALL = Steady(keys=5, events_in_window=40, files=4, rows_per_file=150)
"""Data that a plain loop goes over, to see that a peer is right."""

Event = tuple[int, str, int]


def session(name: str, settings: Mapping[str, str | int | bool] | None = None) -> SparkSession:
    """A session with the settings of the product: RocksDB, changes uploaded, as many shuffle partitions as cores.

    Args:
        name: of the session.
        settings: of Spark, which win.
    """
    return start_session(name, 2, settings)


def stream(spark: SparkSession, data: Path) -> DataFrame:
    """Steady data as a stream, a file a micro-batch."""
    return spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(data))


def run(result: DataFrame, work: Path, seconds: float) -> None:
    """Run a query and print a line of JSON for each batch.

    Args:
        result: what it computes; thrown away.
        work: folder for the checkpoint.
        seconds: how long to go on after the first batch; one batch after the warm-up is finished in any case.
    """
    writer = result.writeStream.format("noop").outputMode("update").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(work / "checkpoint")).start()
    ends_s = None
    while not query.awaitTermination(POLL_S):
        last = query.lastProgress
        if last is not None and ends_s is None:
            ends_s = time.monotonic() + seconds
        if last is not None and last.batchId >= WARM_UP_BATCHES and time.monotonic() > ends_s:
            query.stop()
    for progress in query.recentProgress:
        if progress.numInputRows and "triggerExecution" in progress.durationMs:
            line = {"batch": progress.batchId, "events": progress.numInputRows}
            print(json.dumps(line | {"ms": progress.durationMs["triggerExecution"]}))


def small_run(name: str, make: Callable[[DataFrame], DataFrame]) -> tuple[list[Event], list[Row]]:
    """Run a query over `SMALL`.

    Args:
        name: of the session.
        make: the query, of the stream.

    Returns:
        The events as (time in ms, key, amount), in order of arrival; and the rows that came out, in order of batches.
    """
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="buckets-bench-") as work:
        data = write_steady(SMALL, Path(work))
        result = make(stream(session(name), data))
        writer = result.writeStream.foreachBatch(lambda frame, _: rows.extend(frame.collect())).outputMode("update")
        writer = writer.option("checkpointLocation", f"{work}/checkpoint").trigger(availableNow=True)
        writer.start().awaitTermination()
        return list(_read(data)), rows


def _read(data: Path) -> Iterator[Event]:
    for file in sorted(data.glob("*.parquet")):
        table = pq.read_table(file, columns=["ts", "key", "amount"])
        yield from zip(*(table[name].to_pylist() for name in ("ts", "key", "amount")), strict=True)
