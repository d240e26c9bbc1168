"""State calls for many entries, for each of them and public ones, on a real state store: what one writes all read."""

import hashlib
import os
import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.proto import StateMessage_pb2 as proto
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from buckets.byte_strings import ByteStrings
from buckets.spark import state_client
from buckets.spark.windows import STATE_KEY, STATE_VALUE
from tests.spark.job_folder import FIRST_MTIME_S

pytestmark = pytest.mark.spark

SMALL, MISSING, LARGE_BYTES, BATCHES = 150, 70, 1_000_000, 3
WAYS = ("bulk", "one by one", "public")


def entries() -> dict[bytes, tuple[bytes, int]]:
    """Many keys, each with a value as bytes and how often they are repeated.

    Empty values, all bytes, three values of 1 MB.
    """
    small = {f"é{number}".encode() + bytes([0, number]): (bytes(range(number)), 1) for number in range(SMALL)}
    large = {f"large {number}".encode(): (bytes([number]), LARGE_BYTES) for number in range(3)}
    return small | large | {b"": (b"of the empty key", 1)}


def removed(batch: int) -> list[bytes]:
    """What is removed in a batch: nothing in the first, every third key in the second, all others in the third."""
    return [key for number, key in enumerate(entries()) if batch and (number % 3 == 0) == (batch == 1)]


def left(batch: int) -> list[bytes]:
    """What each entry's value is after a batch; empty once it was removed."""
    gone = {key for each in range(batch + 1) for key in removed(each)}
    return [b"" if key in gone else value * times for key, (value, times) in entries().items()]


def digest(values) -> str:
    return hashlib.blake2b(repr(values).encode()).hexdigest()


def every_way():
    """A processor that writes in the first batch, removes in those that follow and reads in every one, in each way.

    It is made inside a function, so that it travels to the workers by value; that must stay below 1 MB.
    """

    class EveryWay(StatefulProcessor):
        def init(self, handle):
            self.states = {way: handle.getMapState(way, STATE_KEY, STATE_VALUE) for way in WAYS}

        def handleInputRows(self, key, rows, timerValues):
            known, bulk_from = state_client.KNOWN_VERSION, state_client.BULK_FROM
            (batch,) = [row.batch for row in rows]
            written = [(key, value * times) for key, (value, times) in wanted.items()]

            def calls(way, state):
                state_client.KNOWN_VERSION = "unknown" if way == "public" else known
                state_client.BULK_FROM = bulk_from if way == "bulk" else 1_000_000
                return state_client.StateEntries(state)

            try:
                for writer, state in self.states.items():
                    entries = calls(writer, state)
                    if batch == 0:
                        entries.put(written)
                    entries.remove(ByteStrings.of(gone[batch]))
                for reader in WAYS:
                    for writer, state in self.states.items():
                        entries = calls(reader, state)
                        found = entries.get([*wanted, *missing])
                        listed = sorted(state_client.StateEntries(state).list_keys())
                        seen = [hashlib.blake2b(repr(each).encode()).hexdigest() for each in (found, listed)]
                        how = {"known": state_client.is_known(), "bulk": entries.takes_bulk()}
                        yield Row(batch=batch, writer=writer, reader=reader, **how, found=seen[0], listed=seen[1])
            finally:
                state_client.KNOWN_VERSION, state_client.BULK_FROM = known, bulk_from

        def close(self):
            pass

    wanted = entries()
    missing = [f"missing {number}".encode() for number in range(MISSING)]
    gone = [removed(batch) for batch in range(BATCHES)]
    return EveryWay()


def test_what_one_way_of_calling_writes_and_removes_every_way_reads_and_lists(spark, tmp_path: Path):
    (tmp_path / "source").mkdir()
    for batch in range(BATCHES):
        file = tmp_path / "source" / f"{batch}.parquet"
        pq.write_table(pa.table({"shard": [1], "batch": [batch]}), file)
        os.utime(file, (FIRST_MTIME_S + batch, FIRST_MTIME_S + batch))
    stream = spark.readStream.schema("shard long, batch long").option("maxFilesPerTrigger", 1)
    stream = stream.parquet(str(tmp_path / "source"))
    columns = "batch long, writer string, reader string, known boolean, bulk boolean, found string, listed string"
    found = stream.groupBy("shard").transformWithState(every_way(), columns, "update", "none")
    rows: list[Row] = []
    writer = found.writeStream.outputMode("update").foreachBatch(lambda frame, _: rows.extend(frame.collect()))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()

    values = {batch: left(batch) + [b""] * MISSING for batch in range(BATCHES)}
    gone = {batch: {key for each in range(batch + 1) for key in removed(each)} for batch in range(BATCHES)}
    listed = {batch: sorted(entries().keys() - gone[batch]) for batch in range(BATCHES)}
    assert [len(listed[batch]) for batch in range(BATCHES)] == [154, 102, 0]
    assert sorted(tuple(row) for row in rows) == [
        (batch, writer, reader, reader != "public", True, digest(values[batch]), digest(listed[batch]))
        for batch in range(BATCHES)
        for writer in sorted(WAYS)
        for reader in sorted(WAYS)
    ]


def test_the_installed_pyspark_is_the_one_whose_private_parts_are_known():
    assert state_client.is_known()


@pytest.mark.parametrize("size", [0, 1, 100, 127, 128, 4095, 4096, 70_000, 2_500_000])
def test_requests_are_those_of_the_protobuf_classes(size):
    key, value = (b"key",), (bytes(size),)
    calls = {
        state_client.GET: proto.MapStateCall(stateName="pages", getValue=proto.GetValue(userKey=row(value))),
        state_client.REMOVE: proto.MapStateCall(stateName="pages", removeKey=proto.RemoveKey(userKey=row(value))),
    }
    for call, expected in calls.items():
        assert state_client.request("pages", call, value) == whole(expected)
    update = proto.UpdateValue(userKey=row(key), value=row(value))
    expected = proto.MapStateCall(stateName="pages", updateValue=update)
    assert state_client.request("pages", state_client.UPDATE, key + value) == whole(expected)


def row(fields: tuple[bytes, ...]) -> bytes:
    return pickle.dumps(fields, protocol=5)


def whole(call: proto.MapStateCall) -> bytes:
    variable = proto.StateVariableRequest(mapStateCall=call)
    return proto.StateRequest(stateVariableRequest=variable).SerializeToString()


@pytest.mark.parametrize("size", [0, 1, 127, 128, 20_000])
def test_the_value_of_an_answer_is_read(size):
    assert state_client.value_of(proto.StateResponse(value=bytes(size)).SerializeToString()) == bytes(size)


def test_a_refused_call_is_an_error(as_worded):
    answer = proto.StateResponse(statusCode=1, errorMessage="no such state").SerializeToString()
    with pytest.raises(RuntimeError, check=as_worded):
        state_client.value_of(answer)
