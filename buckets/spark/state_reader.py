"""What lies in a checkpoint's state, read with Spark's own reader, from a query that has ended or that still runs."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from buckets.errors import BucketsError
from buckets.spark.windows import STATE
from buckets.store import AGENDA, GROUP_BYTES, HEADS, PAGE_BYTES, PAGES, head_key, split_page_key
from buckets.view import TimelineView, summarise_heads, view_timeline

_SUMMARY = "place binary, clock_ms long, cells long, pages long, head_bytes long"


@dataclass(frozen=True)
class GroupState:
    """The state of a group.

    Attributes:
        group_id: its identity.
        keys: how many keys it has.
        cells: in all their timelines.
        pages: of all of them.
        state_bytes: keys and values of heads and pages, before the store's compression.
    """

    group_id: str
    keys: int
    cells: int
    pages: int
    state_bytes: int


@dataclass(frozen=True)
class KeyState:
    """The state of one key, `place` being where its head lies."""

    place: bytes
    clock_ms: int
    cells: int
    pages: int
    state_bytes: int


@dataclass(frozen=True)
class StateStats:
    """What lies in a checkpoint: its groups, the largest first, and its largest keys."""

    groups: tuple[GroupState, ...]
    largest: tuple[KeyState, ...]


def read_entries(spark: SparkSession, checkpoint: Path, section: bytes) -> DataFrame:
    """The entries of one of the maps of `store`, as columns `place` and `value`.

    Args:
        spark: a session.
        checkpoint: of a job.
        section: which map.
    """
    # The reader reports to the coordinator of state stores, which comes with the session's query manager.
    _ = spark.streams.active
    reader = spark.read.format("statestore").option("path", str(checkpoint / "spark")).option("stateVarName", STATE)
    entries = reader.load().select(
        F.col("user_map_key.key").alias("place"), F.col("user_map_value.timeline").alias("value")
    )
    first = F.substring("place", 1, GROUP_BYTES)
    if section == HEADS:
        return entries.where(~first.isin([F.lit(bytearray(other)) for other in (PAGES, AGENDA)]))
    mine = entries.where(first == F.lit(bytearray(section)))
    return mine.withColumn("place", F.expr(f"substring(place, {len(section) + 1})"))


def _summarise(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        heads = batch["value"].to_pylist()
        summary = summarise_heads(heads)
        places = batch["place"].to_pylist()
        sizes = np.array([len(place) + len(head) for place, head in zip(places, heads, strict=True)], np.int64)
        yield pa.RecordBatch.from_pydict(
            {
                "place": pa.array(places, pa.binary()),
                "clock_ms": summary.clocks_ms,
                "cells": summary.cells,
                "pages": summary.pages,
                "head_bytes": sizes,
            }
        )


def _check(checkpoint: Path) -> None:
    if not any((checkpoint / "spark" / "commits").glob("[0-9]*")):
        message = f"checkpoint {checkpoint} holds no state yet: no batch has ended"
        raise BucketsError(message)


def read_stats(spark: SparkSession, checkpoint: Path, largest: int) -> StateStats:
    """Sizes of all groups, and the largest keys.

    Args:
        spark: a session.
        checkpoint: of a job.
        largest: how many keys.

    Raises:
        BucketsError: no batch has ended yet, or the state was written by a later release.
    """
    _check(checkpoint)
    heads = read_entries(spark, checkpoint, HEADS).mapInArrow(_summarise, _SUMMARY)
    pages = read_entries(spark, checkpoint, PAGES)
    place = F.expr(f"substring(place, 1, length(place) - {PAGE_BYTES})")
    page_bytes = (F.length("place") + F.length("value")).cast("long")
    of_key = pages.groupBy(place.alias("place")).agg(F.sum(page_bytes).alias("page_bytes"))
    keys = heads.join(of_key, "place", "left").select(
        "place",
        "clock_ms",
        "cells",
        "pages",
        (F.col("head_bytes") + F.coalesce(F.col("page_bytes"), F.lit(0))).alias("state_bytes"),
    )
    keys = keys.persist()
    try:
        group = F.lower(F.hex(F.substring("place", 1, GROUP_BYTES)))
        sums = [F.count("*").alias("keys"), *(F.sum(name).alias(name) for name in ("cells", "pages", "state_bytes"))]
        groups = keys.groupBy(group.alias("group_id")).agg(*sums).orderBy(F.desc("state_bytes"), "group_id").collect()
        top = keys.orderBy(F.desc("state_bytes"), "place").limit(largest).collect()
    finally:
        keys.unpersist()
    return StateStats(
        tuple(GroupState(**row.asDict()) for row in groups),
        tuple(KeyState(**(row.asDict() | {"place": bytes(row.place)})) for row in top),
    )


@dataclass(frozen=True)
class StoredTimeline:
    """A timeline, and how many bytes it takes."""

    view: TimelineView
    state_bytes: int


def read_timeline(
    spark: SparkSession, checkpoint: Path, group_id: str, key: str, columns: int
) -> StoredTimeline | None:
    """The timeline of a key; None where it has none.

    Args:
        spark: a session.
        checkpoint: of a job.
        group_id: the key's group.
        key: the key, encoded.
        columns: measures of the group.

    Raises:
        BucketsError: no batch has ended yet, or the state was written by a later release.
    """
    _check(checkpoint)
    place = head_key(group_id, key)
    mine = F.col("place") == F.lit(bytearray(place))
    head = read_entries(spark, checkpoint, HEADS).where(mine).collect()
    if not head:
        return None
    of_head = F.expr(f"substring(place, 1, length(place) - {PAGE_BYTES})") == F.lit(bytearray(place))
    found = read_entries(spark, checkpoint, PAGES).where(of_head).collect()
    pages = {split_page_key(bytes(row.place))[1]: bytes(row.value) for row in found}
    data = bytes(head[0].value)
    view = view_timeline(data, lambda numbers: [pages[number] for number in numbers], columns)
    in_pages = sum(len(place) + PAGE_BYTES + len(page) for page in pages.values())
    return StoredTimeline(view, len(place) + len(data) + in_pages)
