"""What the state of a job shows: pages, and buckets of each tier."""

from pathlib import Path

from pyspark.sql import SparkSession

from buckets.checkpoint.rule_versions import RuleVersions
from buckets.engine.storage.shard_store import GROUP_BYTES, HEADS, PAGES, split_page_key
from buckets.spark.state_reader import read_entries
from buckets.timeline.inspection import view_timeline
from tests.walk.rare import RarePaths

NARROW_MS = 60_000
"""The resolution of the first tier of `plan.TIERED`: a bucket whose events lie further apart is of the second."""


def look_at_state(spark: SparkSession, checkpoint: Path, rare: RarePaths) -> None:
    """Count what the timelines of a job that does not run show."""
    groups = RuleVersions(checkpoint).groups()
    pages = {
        split_page_key(bytes(row.state_key)): bytes(row.value)
        for row in read_entries(spark, checkpoint, PAGES).collect()
    }
    for row in read_entries(spark, checkpoint, HEADS).collect():
        key = bytes(row.state_key)
        group = groups.get(key[:GROUP_BYTES].hex())
        if group is None:
            continue
        read = lambda numbers, key=key: [pages[key, number] for number in numbers]  # noqa: E731
        view = view_timeline(bytes(row.value), read, [False] * len(group.measures))
        rare.saw("a page split", len(view.pages) > 1)
        buckets = (cell for cell in view.cells if cell.event_id is None)
        rare.saw("a tier merged", sum(cell.last_ms - cell.first_ms > NARROW_MS for cell in buckets))
