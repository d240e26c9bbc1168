"""`buckets state export`: the state of a checkpoint as a folder of Delta tables, see its manifest."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

import buckets
from buckets.byte_strings import ByteStrings
from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.lock import Lock
from buckets.checkpoint.source_offsets import find_state
from buckets.clock import epoch_ms
from buckets.engine.eviction.schedule import CLOCK, OVERVIEW
from buckets.engine.eviction.shard_clock import ShardClock
from buckets.engine.storage import shard_store
from buckets.engine.storage.key import key_json
from buckets.engine.storage.shard_store import split_head_key
from buckets.errors import BucketsError
from buckets.events.schema import EventSchema
from buckets.rules.group import Group
from buckets.spark.state_reader import read_entries
from buckets.state_transfer.export_manifest import (
    CHECKED,
    KEYS,
    PAGES,
    RECORDS,
    SHARDS,
    ExportManifest,
    carried_files,
    check_table,
    last_batch,
)
from buckets.timeline.inspection import extents_of, summarise_heads

_TIME = pa.timestamp("us", "UTC")
KEY_COLUMNS = pa.schema(
    {
        "shard": pa.int32(),
        "group": pa.string(),
        "key": pa.string(),
        "clock": _TIME,
        "events": pa.int64(),
        "first_event": _TIME,
        "last_event": _TIME,
        "cells": pa.int64(),
        "pages": pa.int64(),
        "codec": pa.int32(),
        "state_key": pa.binary(),
        "head": pa.binary(),
        "policies": pa.binary(),
    }
)
"""A row a key. What reads `shard`, `state_key`, `head` and `policies` has all there is; the others are for people."""
SHARD_COLUMNS = pa.schema({"shard": pa.int32(), "clock": _TIME, "overview": pa.binary(), "voters": pa.binary()})
RECORD_COLUMNS = pa.schema({"path": pa.string(), "content": pa.binary()})


def export_state(spark: SparkSession, checkpoint: Path, folder: Path, say: Callable[[str], None]) -> ExportManifest:
    """Write the state of a checkpoint, as it is after the last batch."""
    known = Checkpoint(checkpoint)
    job = known.job.written()
    if folder.exists() and any(folder.iterdir()):
        message = f"--to {folder} is there already, and an export is written into a new folder; name another one"
        raise BucketsError(message)
    with Lock(checkpoint):
        find_state(checkpoint)
        batch_id = last_batch(checkpoint)
        say(f"reading the state after batch {batch_id}")
        rule_set = known.versions.latest_rule_set()
        assert rule_set is not None
        if rule_set.fills:
            message = (
                f"checkpoint {checkpoint} is filling in the history of rules, which is not exported half done; start "
                "the job until `buckets rules list` says that it is done, or delete these rules"
            )
            raise BucketsError(message)
        groups = known.versions.timelines()
        pages = read_entries(spark, checkpoint, shard_store.PAGES).withColumnRenamed("value", "page")
        keys = _keys(spark, checkpoint, groups, known.job.event_schema())
        for name, frame in ((KEYS, keys), (PAGES, pages)):
            frame.write.format("delta").option("compression", "zstd").save(str(folder / name))
        write_deltalake(folder / SHARDS, _shards(spark, checkpoint))
        write_deltalake(folder / RECORDS, _records(checkpoint, batch_id))
        say("computing checksums")
        tables = {name: check_table(folder, name) for name in CHECKED}
    manifest = ExportManifest(
        release=buckets.__version__,
        made_ms=epoch_ms(),
        checkpoint=str(checkpoint),
        job=job,
        batch_id=batch_id,
        ruleset_version=rule_set.version,
        tables=tables,
    )
    manifest.write(folder)
    return manifest


def _keys(spark: SparkSession, checkpoint: Path, groups: Mapping[str, Group], schema: EventSchema) -> DataFrame:
    heads = read_entries(spark, checkpoint, shard_store.HEADS).withColumnRenamed("value", "head")
    policies = read_entries(spark, checkpoint, shard_store.POLICIES).withColumnRenamed("value", "policies")
    both = heads.join(policies, ["shard", "state_key"], "full_outer").select("shard", "state_key", "head", "policies")

    def describe(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield described_keys(batch, groups, schema)

    return both.mapInArrow(describe, from_arrow_schema(KEY_COLUMNS))


def described_keys(batch: pa.RecordBatch, groups: Mapping[str, Group], schema: EventSchema) -> pa.RecordBatch:
    """Return keys as the export has them.

    Args:
        batch: columns `shard`, `state_key`, `head` and `policies`.
        groups: all groups that there ever were.
        schema: the event schema.
    """
    heads = [head or b"" for head in batch["head"].to_pylist()]
    summary, extents = summarise_heads(ByteStrings.of(heads)), extents_of(ByteStrings.of(heads))
    names = [split_head_key(state_key) for state_key in batch["state_key"].to_pylist()]
    has_events = extents.events > 0
    columns = {
        "shard": batch["shard"],
        "group": [groups[group_id].name if group_id in groups else group_id for group_id, _ in names],
        "key": [key_json(groups[group_id], key, schema) if group_id in groups else key for group_id, key in names],
        "clock": _times(summary.clocks_ms, [bool(head) for head in heads]),
        "events": extents.events,
        "first_event": _times(extents.first_ms, has_events),
        "last_event": _times(extents.last_ms, has_events),
        "cells": summary.cells,
        "pages": summary.pages,
        "codec": [head[0] if head else None for head in heads],
        "state_key": batch["state_key"],
        "head": heads,
        "policies": [state or b"" for state in batch["policies"].to_pylist()],
    }
    return pa.RecordBatch.from_pydict(columns, schema=KEY_COLUMNS)


def _times(times_ms: Iterable[int], known: Iterable[bool]) -> list[int | None]:
    """Return times in us; None where they are not known, or beyond what a table can have."""
    return [
        int(time_ms) * 1000 if is_known and abs(int(time_ms)) < 2**53 else None
        for time_ms, is_known in zip(times_ms, known, strict=True)
    ]


def _shards(spark: SparkSession, checkpoint: Path) -> pa.Table:
    wanted = [F.lit(bytearray(name)) for name in (OVERVIEW, CLOCK)]
    entries = read_entries(spark, checkpoint, shard_store.SCHEDULE).where(F.col("state_key").isin(wanted)).collect()
    by_shard: dict[int, dict[bytes, bytes]] = {}
    for row in entries:
        by_shard.setdefault(row.shard, {})[bytes(row.state_key)] = bytes(row.value)
    rows = []
    for shard, of_shard in sorted(by_shard.items()):
        voters = of_shard.get(CLOCK, b"")
        clock_ms = ShardClock.from_bytes(voters).time_ms
        (clock,) = _times([clock_ms or 0], [clock_ms is not None])
        rows.append({"shard": shard, "clock": clock, "overview": of_shard.get(OVERVIEW, b""), "voters": voters})
    return pa.Table.from_pylist(rows, schema=SHARD_COLUMNS)


def _records(checkpoint: Path, batch_id: int) -> pa.Table:
    files = [*carried_files(checkpoint, batch_id)]
    content = [(checkpoint / file).read_bytes() for file in files]
    return pa.table([pa.array(map(str, files), pa.string()), pa.array(content, pa.binary())], schema=RECORD_COLUMNS)
