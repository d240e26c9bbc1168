"""Read a checkpoint's state from Spark's stores, whether its query has ended or still runs."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from buckets.byte_strings import ByteStrings
from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.source_offsets import SourceOffsets, state_folder
from buckets.engine.storage.shard_store import (
    GROUP_BYTES,
    HEADS,
    LOG,
    PAGE_BYTES,
    PAGES,
    POLICIES,
    SCHEDULE,
    head_key,
    split_page_key,
)
from buckets.errors import BucketsError
from buckets.spark.arrow_types import from_arrow_schema
from buckets.spark.state_client import state_tasks
from buckets.state.live_log import decode_segment
from buckets.timeline.inspection import TimelineView, summarise_heads, view_timeline

_SUMMARY = "state_key binary, clock_ms long, cells long, pages long, head_bytes long"
_LOGGED = pa.schema({"shard": pa.int32(), "state_key": pa.binary(), "value": pa.binary(), "segment": pa.binary()})


def read_entries(spark: SparkSession, checkpoint: Path, section: bytes) -> DataFrame:
    """Read the entries of one map of `store` as columns `shard`, `state_key` and `value`."""
    stored = read_stored(spark, checkpoint)
    # Pages are never in the log.
    entries = stored if section == PAGES else _with_log(stored)
    first = F.substring("state_key", 1, GROUP_BYTES)
    if section == HEADS:
        return entries.where(~first.isin([F.lit(bytearray(other)) for other in (PAGES, SCHEDULE, POLICIES)]))
    of_section = entries.where(first == F.lit(bytearray(section)))
    return of_section.withColumn("state_key", F.expr(f"substring(state_key, {len(section) + 1})"))


def read_stored(spark: SparkSession, checkpoint: Path, batch_id: int | None = None) -> DataFrame:
    """Read the stores as of a batch, by default the last ended one, with log segments unchanged."""
    record, ended = Checkpoint(checkpoint).job, SourceOffsets(checkpoint).ended if batch_id is None else batch_id
    entries = state_tasks(spark.sparkContext, "entries")
    version = 0 if ended is None else ended + 1
    return DataFrame(entries(spark._jsparkSession, str(state_folder(checkpoint)), version, record.partitions), spark)


def _with_log(stored: DataFrame) -> DataFrame:
    """Return the stored entries with those in the log's segments, which override older ones."""
    in_log = F.substring("state_key", 1, GROUP_BYTES) == F.lit(bytearray(LOG))
    segments = stored.where(in_log & (F.length("state_key") > GROUP_BYTES))
    logged = segments.mapInArrow(_logged, from_arrow_schema(_LOGGED))
    newest = logged.groupBy("shard", "state_key").agg(F.max_by("value", "segment").alias("value"))
    kept = stored.where(~in_log).join(newest.select("shard", "state_key"), ["shard", "state_key"], "left_anti")
    return kept.unionByName(newest.where(F.length("value") > 0))


def _logged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the entries in segments, each with the key of its segment."""
    for batch in batches:
        for shard, segment, data in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            keys, values = (held.to_list() for held in decode_segment(data))
            columns = [[shard] * len(keys), keys, values, [segment] * len(keys)]
            yield pa.RecordBatch.from_arrays(list(map(pa.array, columns, _LOGGED.types)), schema=_LOGGED)


def _summarise(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        heads = batch["value"].to_pylist()
        summary = summarise_heads(ByteStrings.of(heads))
        state_keys = batch["state_key"].to_pylist()
        sizes = np.array([len(key) + len(head) for key, head in zip(state_keys, heads, strict=True)], np.int64)
        yield pa.RecordBatch.from_pydict(
            {
                "state_key": pa.array(state_keys, pa.binary()),
                "clock_ms": summary.clocks_ms,
                "cells": summary.cells,
                "pages": summary.pages,
                "head_bytes": sizes,
            }
        )


def last_ended(checkpoint: Path) -> int:
    """Return the last ended batch; at least one must exist."""
    ended = SourceOffsets(checkpoint).ended
    if ended is None:
        message = f"checkpoint {checkpoint} holds no state yet: no batch has ended"
        raise BucketsError(message)
    return ended


def read_stats(spark: SparkSession, checkpoint: Path, largest: int) -> tuple[list[Row], list[Row]]:
    """Return statistics of a checkpoint: its groups, largest first, and its largest keys.

    A group has `group_id`, `keys`, `cells`, `pages` and `state_bytes`: the bytes of keys and values of heads and pages,
    uncompressed. A key has `state_key` (that of its head, without the section), `clock_ms`, `cells`, `pages` and
    `state_bytes`.
    """
    last_ended(checkpoint)
    heads = read_entries(spark, checkpoint, HEADS).mapInArrow(_summarise, _SUMMARY)
    pages = read_entries(spark, checkpoint, PAGES)
    of_head = F.expr(f"substring(state_key, 1, length(state_key) - {PAGE_BYTES})")
    page_bytes = (F.length("state_key") + F.length("value")).cast("long")
    of_key = pages.groupBy(of_head.alias("state_key")).agg(F.sum(page_bytes).alias("page_bytes"))
    keys = heads.join(of_key, "state_key", "left").select(
        "state_key",
        "clock_ms",
        "cells",
        "pages",
        (F.col("head_bytes") + F.coalesce(F.col("page_bytes"), F.lit(0))).alias("state_bytes"),
    )
    keys = keys.persist()
    try:
        group = F.lower(F.hex(F.substring("state_key", 1, GROUP_BYTES)))
        sums = [F.count("*").alias("keys"), *(F.sum(name).alias(name) for name in ("cells", "pages", "state_bytes"))]
        groups = keys.groupBy(group.alias("group_id")).agg(*sums).orderBy(F.desc("state_bytes"), "group_id")
        return groups.collect(), keys.orderBy(F.desc("state_bytes"), "state_key").limit(largest).collect()
    finally:
        keys.unpersist()


def read_timeline(
    spark: SparkSession, checkpoint: Path, group_id: str, key: str, text_columns: Sequence[bool]
) -> tuple[TimelineView, int] | None:
    """Return the timeline of a key and its size in bytes; `text_columns` says which columns hold text.

    None if the key has no timeline.
    """
    last_ended(checkpoint)
    state_key = head_key(group_id, key)
    is_head = F.col("state_key") == F.lit(bytearray(state_key))
    head = read_entries(spark, checkpoint, HEADS).where(is_head).collect()
    if not head:
        return None
    of_head = F.expr(f"substring(state_key, 1, length(state_key) - {PAGE_BYTES})") == F.lit(bytearray(state_key))
    rows = read_entries(spark, checkpoint, PAGES).where(of_head).collect()
    pages = {split_page_key(bytes(row.state_key))[1]: bytes(row.value) for row in rows}
    data = bytes(head[0].value)
    view = view_timeline(data, lambda numbers: [pages[number] for number in numbers], text_columns)
    in_pages = sum(len(state_key) + PAGE_BYTES + len(page) for page in pages.values())
    return view, len(state_key) + len(data) + in_pages
