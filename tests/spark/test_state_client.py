"""Calls on a real store of Spark's: what one task writes the next one reads, as the store is after each version."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from buckets.byte_strings import ByteStrings
from buckets.engine.stages.shard import Produced
from buckets.spark.arrow_types import from_arrow_schema
from buckets.spark.scored_batch import run_batch
from buckets.spark.state_client import StateConnection, StateEntries, state_tasks
from buckets.spark.windows import PRODUCED, as_rows

pytestmark = pytest.mark.spark

SMALL, LARGE_BYTES, PARTITIONS = 1_100, 1_000_000, 2
Step = tuple[dict[bytes, bytes], list[bytes]]
"""What is written, and what is removed."""


def entries() -> dict[bytes, bytes]:
    """Empty keys and values, all bytes, more than one call takes, three values of 1 MB."""
    small = {f"é{number}".encode() + bytes([0, number % 256]): bytes(range(number % 256)) for number in range(SMALL)}
    large = {f"large {number}".encode(): bytes([number]) * LARGE_BYTES for number in range(3)}
    return small | large | {b"": b"of the empty key"}


def tasks(
    spark: SparkSession, step: Step, asked: list[bytes], commits: bool = False, fails: bool = False, late: bytes = b""
) -> DataFrame:
    """Shards 0 to 3, two to a task, each of which takes a step, and puts out what it finds then.

    A task may say that its store is complete, and write something after that, or fail.
    """
    written, removed = step

    def stage(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for shard in (shard for batch in batches for shard in batch.column(0).to_pylist()):
            store = StateEntries(StateConnection.of_task(), shard)
            store.put([(key, value + bytes([shard])) for key, value in written.items()])
            store.remove(ByteStrings.of(removed))
            some = next(iter(store.list_keys()), None)  # the rest of the answer is of no use to the next call
            found = [*zip(asked, store.get(asked), strict=True), (b"listed", repr(sorted(store.list_keys())).encode())]
            assert (some is None) == (not [*store.list_keys()])
            yield as_rows(Produced(f"{shard} {key!r}", len(value), value) for key, value in found)
        connection = StateConnection.of_task()
        if commits:
            connection.commit()
        if late:
            StateEntries(connection, 0).put([(late, late)])
        if fails:
            message = "on purpose"
            raise RuntimeError(message)

    shards = spark.range(0, 4, 1, PARTITIONS)
    return shards.mapInArrow(stage, from_arrow_schema(PRODUCED))


def run(
    spark: SparkSession, folder: Path, version: int, step: Step, asked: list[bytes], commits: bool = False
) -> dict[str, bytes]:
    rows, sizes = run_batch(tasks(spark, step, asked, commits), str(folder), version)
    assert sizes["memoryUsedBytes"] > 0
    return {row.output: row.payload for row in rows}


def expected(now: dict[bytes, bytes], asked: list[bytes]) -> dict[str, bytes]:
    found = {}
    for shard in range(4):
        own = {key: value + bytes([shard]) for key, value in now.items()}
        found |= {f"{shard} {key!r}": own.get(key, b"") for key in asked}
        found[f"{shard} {b'listed'!r}"] = repr(sorted(own)).encode()
    return found


@pytest.mark.parametrize("commits", [False, True])
def test_each_version_has_what_was_written_until_then_and_can_be_computed_again(spark, tmp_path, commits):
    whole = entries()
    third = [key for number, key in enumerate(whole) if number % 3 == 0]
    asked = [*whole, b"missing", b"\xff" * 20]
    steps: list[Step] = [({}, []), (whole, []), ({}, third), ({b"new": b"", b"": b"other"}, []), ({}, [*whole, b"new"])]
    after: list[dict[bytes, bytes]] = []
    for written, removed in steps:
        now = (after[-1] if after else {}) | written
        after.append({key: value for key, value in now.items() if key not in removed})
    for version, step in enumerate(steps):
        assert run(spark, tmp_path, version, step, asked, commits) == expected(after[version], asked)
    # As after a failure: a version is computed once more, and goes on from the one before.
    assert run(spark, tmp_path, 2, steps[2], asked, commits) == expected(after[2], asked)
    assert run(spark, tmp_path, 3, ({b"other": b"2"}, []), [b"other"]) == expected(
        after[2] | {b"other": b"2"}, [b"other"]
    )


@pytest.mark.parametrize("commits", [False, True])
def test_a_task_that_fails_leaves_the_version_as_it_was(spark, tmp_path, commits):
    run(spark, tmp_path, 0, ({b"a": b"1"}, []), [])
    with pytest.raises(Exception, match="on purpose"):
        run_batch(tasks(spark, ({b"a": b"2", b"b": b"2"}, []), [], commits, fails=True), str(tmp_path), 1)
    assert run(spark, tmp_path, 1, ({}, []), [b"a", b"b"]) == expected({b"a": b"1"}, [b"a", b"b"])


def test_nothing_is_written_to_a_store_that_is_complete(spark, tmp_path):
    run(spark, tmp_path, 0, ({b"a": b"1"}, []), [])
    with pytest.raises(Exception, match="the state store refused a call"):
        run_batch(tasks(spark, ({b"a": b"2"}, []), [], commits=True, late=b"a"), str(tmp_path), 1)
    assert run(spark, tmp_path, 1, ({}, []), [b"a"]) == expected({b"a": b"1"}, [b"a"])


def test_tasks_that_read_a_partition_at_once_do_not_exchange_values(spark, tmp_path):
    many = {f"key {number}".encode(): bytes([number % 256]) * (number % 900) for number in range(5_000)}
    run(spark, tmp_path, 0, (many, []), [])
    stored = DataFrame(state_tasks(spark.sparkContext, "entries")(spark._jsparkSession, str(tmp_path), 1, 1), spark)
    of_first = {(shard, key, value + bytes([shard])) for key, value in many.items() for shard in range(2)}
    for _ in range(3):
        at_once = stored.union(stored).union(stored).collect()
        assert {(row.shard, bytes(row.state_key), bytes(row.value)) for row in at_once} == of_first


def test_a_task_without_state_is_told_so(spark, tmp_path):
    with pytest.raises(Exception, match="the task has no state"):
        tasks(spark, ({}, []), []).collect()
