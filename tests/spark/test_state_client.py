"""Pipelined state calls and the public ones, on a real state store: what one writes the other reads."""

import hashlib
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from buckets.spark import state_client
from buckets.spark.windows import STATE_KEY, STATE_VALUE
from tests.spark.job_folder import FIRST_MTIME_S

pytestmark = pytest.mark.spark

SMALL, MISSING, LARGE_BYTES = 150, 70, 1_000_000
MODES = ("pipelined", "plain")


def entries() -> dict[bytes, tuple[bytes, int]]:
    """More than two windows of keys, each with a value as bytes and how often they are repeated.

    Empty values, all bytes, three values of 1 MB.
    """
    small = {f"é{number}".encode() + bytes([0, number]): (bytes(range(number)), 1) for number in range(SMALL)}
    large = {f"large {number}".encode(): (bytes([number]), LARGE_BYTES) for number in range(3)}
    return small | large | {b"": (b"of the empty key", 1)}


def both_ways():
    """A processor that writes in the first batch and reads in every one, in each mode.

    It is made inside a function, so that it travels to the workers by value; that must stay below 1 MB.
    """

    class BothWays(StatefulProcessor):
        def init(self, handle):
            self.states = {mode: handle.getMapState(mode, STATE_KEY, STATE_VALUE) for mode in MODES}

        def handleInputRows(self, key, rows, timerValues):
            known = state_client.KNOWN_VERSION
            version_of = {"pipelined": known, "plain": "unknown"}
            (batch,) = [row.batch for row in rows]
            written = [(key, value * times) for key, (value, times) in wanted.items()]
            try:
                for writer, state in self.states.items():
                    state_client.KNOWN_VERSION = version_of[writer]
                    if batch == 0:
                        state_client.put_values(state, written)
                for reader in MODES:
                    state_client.KNOWN_VERSION = version_of[reader]
                    for writer, state in self.states.items():
                        found = state_client.get_values(state, [*wanted, *missing])
                        seen = hashlib.blake2b(repr(found).encode()).hexdigest()
                        pipelined = state_client.is_pipelined()
                        yield Row(batch=batch, writer=writer, reader=reader, pipelined=pipelined, found=seen)
            finally:
                state_client.KNOWN_VERSION = known

        def close(self):
            pass

    wanted = entries()
    missing = [f"missing {number}".encode() for number in range(MISSING)]
    return BothWays()


def test_what_one_way_of_calling_writes_every_way_reads(spark, tmp_path: Path):
    (tmp_path / "source").mkdir()
    for batch in (0, 1):
        file = tmp_path / "source" / f"{batch}.parquet"
        pq.write_table(pa.table({"shard": [1], "batch": [batch]}), file)
        os.utime(file, (FIRST_MTIME_S + batch, FIRST_MTIME_S + batch))
    stream = spark.readStream.schema("shard long, batch long").option("maxFilesPerTrigger", 1)
    stream = stream.parquet(str(tmp_path / "source"))
    columns = "batch long, writer string, reader string, pipelined boolean, found string"
    found = stream.groupBy("shard").transformWithState(both_ways(), columns, "update", "none")
    rows: list[Row] = []
    writer = found.writeStream.outputMode("update").foreachBatch(lambda frame, _: rows.extend(frame.collect()))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()

    values = [value * times for value, times in entries().values()] + [b""] * MISSING
    expected = hashlib.blake2b(repr(values).encode()).hexdigest()
    assert sorted(tuple(row) for row in rows) == [
        (batch, writer, reader, reader == "pipelined", expected)
        for batch in (0, 1)
        for writer in sorted(MODES)
        for reader in sorted(MODES)
    ]


def test_the_installed_pyspark_is_the_one_whose_calls_are_pipelined():
    assert state_client.is_pipelined()
