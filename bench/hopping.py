"""Spark's own hopping windows: five aggregates of each key over an hour, moved on by a hop.

    python bench/hopping.py HOP DATA SECONDS WORK
    python bench/hopping.py --check

`groupBy(window(time, "60 minutes", hop), key)` with a watermark, in update mode. Answers are those of the last hop, not
of the event: the smaller the hop the more exact, and every event belongs to `60 minutes / hop` windows. The data is in
order of time, so a watermark without delay drops nothing, and state is kept as short as it can be.
"""

import sys
from pathlib import Path

from peer import WINDOW_MS, Event, run, session, small_run, stream
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

LENGTH = "60 minutes"
NO_CODE = {"spark.sql.codegen.wholeStage": False, "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""For hops with which an event is in thousands of windows: each is a branch of the generated code, which would take a
minute a micro-batch to compile. With fewer branches generated code is the faster way."""
COMPILED_HOPS = ("5 minutes", "1 minute", "10 seconds")
CHECKED_HOP, CHECKED_HOP_MS = "1 minute", 60_000


def hopped(frame: DataFrame, hop: str) -> DataFrame:
    """The query."""
    timed = frame.select(F.timestamp_millis("ts").alias("time"), "key", "amount").withWatermark("time", "0 seconds")
    functions = (F.sum, F.count, F.avg, F.min, F.max)
    names = ("sum", "count", "avg", "min", "max")
    aggregates = [function("amount").alias(name) for function, name in zip(functions, names, strict=True)]
    return timed.groupBy(F.window("time", LENGTH, hop), "key").agg(*aggregates)


def expected(events: list[Event], hop_ms: int) -> dict[tuple[int, str], tuple]:
    """Results of each window (its start in ms) and key, by a plain loop."""
    amounts_of: dict[tuple[int, str], list[int]] = {}
    for ts, key, amount in events:
        last = ts // hop_ms * hop_ms
        for start in range(last, ts - WINDOW_MS, -hop_ms):
            amounts_of.setdefault((start, key), []).append(amount)
    return {at: (sum(of), len(of), sum(of) / len(of), min(of), max(of)) for at, of in amounts_of.items()}


def check() -> None:
    """Compare the last result of each window and key with a plain loop."""

    def query(frame: DataFrame) -> DataFrame:
        return hopped(frame, CHECKED_HOP).withColumn("window", F.unix_millis("window.start"))

    events, rows = small_run("check", query)
    found = {(row.window, row.key): tuple(row)[2:] for row in rows}
    assert found == expected(events, CHECKED_HOP_MS), "hopping windows differ from a plain loop"
    print(f"hopping windows: {len(found)} windows as by a plain loop")


def main() -> None:
    """Check, or run and print what was measured."""
    if sys.argv[1:] == ["--check"]:
        check()
        return
    hop, data, seconds, work = sys.argv[1:]
    spark = session("hopping", {} if hop in COMPILED_HOPS else NO_CODE)
    run(hopped(stream(spark, Path(data)), hop), Path(work), float(seconds))


if __name__ == "__main__":
    main()
