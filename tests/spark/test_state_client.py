"""Pipelined state calls and the public ones, on a real state store: what one writes the other reads."""

import hashlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from buckets.spark import state_client
from buckets.spark.windows import STATE_KEY, STATE_VALUE

pytestmark = pytest.mark.spark

SMALL, MISSING, LARGE_BYTES = 150, 70, 1_000_000
MODES = ("pipelined", "plain")


def entries() -> dict[bytes, bytes]:
    """More than two windows of keys: empty values, all bytes, three values of 1 MB."""
    small = {f"é{number}".encode() + bytes([0, number % 256]): bytes(range(number)) for number in range(SMALL)}
    large = {f"large {number}".encode(): bytes([number]) * LARGE_BYTES for number in range(3)}
    return small | large | {b"": b"of the empty key"}


def digest(values: list[bytes]) -> str:
    return hashlib.blake2b(repr(values).encode()).hexdigest()


def both_ways():
    """A processor that writes in one batch and reads in this and every later one, in each mode.

    It is made inside a function, so that it travels to the workers by value.
    """

    class BothWays(StatefulProcessor):
        def init(self, handle):
            self.states = {mode: handle.getMapState(mode, STATE_KEY, STATE_VALUE) for mode in MODES}

        def handleInputRows(self, key, rows, timerValues):
            known = state_client.KNOWN_VERSION
            (batch,) = [row.batch for row in rows]
            keys = [*wanted, *missing]
            try:
                for mode, state in self.states.items():
                    state_client.KNOWN_VERSION = known if mode == "pipelined" else "none"
                    assert state_client.is_pipelined() == (mode == "pipelined")
                    if batch == 0:
                        state_client.put_values(state, list(wanted.items()))
                for reader in MODES:
                    state_client.KNOWN_VERSION = known if reader == "pipelined" else "none"
                    for writer, state in self.states.items():
                        values = state_client.get_values(state, keys)
                        yield Row(batch=batch, writer=writer, reader=reader, values=digest_of(values))
            finally:
                state_client.KNOWN_VERSION = known

        def close(self):
            pass

    wanted = entries()
    missing = [f"missing {number}".encode() for number in range(MISSING)]
    digest_of = digest
    return BothWays()


def test_what_one_way_of_calling_writes_every_way_reads(spark, tmp_path: Path):
    for batch in (0, 1):
        (tmp_path / "source").mkdir(exist_ok=True)
        pq.write_table(pa.table({"shard": [1], "batch": [batch]}), tmp_path / "source" / f"{batch}.parquet")
    stream = spark.readStream.schema("shard long, batch long").option("maxFilesPerTrigger", 1)
    stream = stream.parquet(str(tmp_path / "source"))
    columns = "batch long, writer string, reader string, values string"
    found = stream.groupBy("shard").transformWithState(both_ways(), columns, "update", "none")
    rows: list[Row] = []
    writer = found.writeStream.outputMode("update").foreachBatch(lambda frame, _: rows.extend(frame.collect()))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()

    expected = digest([*entries().values(), *[b""] * MISSING])
    assert {(row.batch, row.writer, row.reader) for row in rows} == {
        (batch, writer, reader) for batch in (0, 1) for writer in MODES for reader in MODES
    }
    assert {row["values"] for row in rows} == {expected}


def test_the_installed_pyspark_is_the_one_whose_calls_are_pipelined():
    assert state_client.is_pipelined()
