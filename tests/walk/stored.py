"""What the state of a job shows: pages, and buckets of each tier."""

from pathlib import Path

from pyspark.sql import SparkSession

from buckets.checkpoint.rule_versions import RuleVersions
from buckets.engine.shard_store import split_head_key
from buckets.spark.state_reader import read_stats, read_timeline
from tests.walk.rare import RarePaths

LARGEST = 12
NARROW_MS = 60_000
"""The resolution of the first tier of `plan.TIERED`: a bucket whose events lie further apart is of the second."""


def look_at_state(spark: SparkSession, checkpoint: Path, rare: RarePaths) -> None:
    """Count what the largest timelines of a job that does not run show."""
    groups = RuleVersions(checkpoint).groups()
    for found in read_stats(spark, checkpoint, LARGEST).largest:
        rare.saw("a page split", found.pages > 1)
        group_id, key = split_head_key(found.state_key)
        stored = read_timeline(spark, checkpoint, group_id, key, len(groups[group_id].measures))
        assert stored is not None
        wide = [
            cell for cell in stored.view.cells if cell.event_id is None and cell.last_ms - cell.first_ms > NARROW_MS
        ]
        rare.saw("a tier merged", len(wide))
