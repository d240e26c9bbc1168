"""How rules and terms reach the tasks of a batch: as local properties of the Spark job, set on the driver in advance.

They travel with every task of the batch, stateless and stateful, so that all of them see the same, and the next batch
may see the next. Of lists only the versions travel; tasks read them from the checkpoint.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from pyspark import SparkContext, TaskContext

from buckets.backfill.fill_chunks import ChunkFeed, FillChunks
from buckets.checkpoint.identity import Terms
from buckets.checkpoint.list_versions import lists_in
from buckets.engine.stages.cross_group import NO_SOURCES, FillSources
from buckets.lists.index import Lists
from buckets.rules.rule_set import RuleSet, decode_rule_set
from buckets.stores.location import location

PROPERTY = "buckets.ruleSet"
LISTS_PROPERTY = "buckets.lists"
TERMS_PROPERTY = "buckets.terms"
FILLS_PROPERTY = "buckets.fills"
BATCH_PROPERTY = "buckets.batch"
SPILL_PROPERTY = "buckets.spill"
Takes = Mapping[int, tuple[int, int | None, int]]
"""By the number of a fill: how many chunks of it there are, in all if that is known, and how many rows to take."""


def set_batch(context: SparkContext, batch_id: int) -> None:
    """Send the number of a batch along with the jobs that this thread starts next."""
    context.setLocalProperty(BATCH_PROPERTY, str(batch_id))


def batch_of_task() -> int:
    """Return the number of the batch that the running task belongs to."""
    return int(_of_task(BATCH_PROPERTY))


def set_spill(context: SparkContext, folder: Path, driver_bytes: int) -> None:
    """Send along where the payloads of a batch go that are too large for the driver.

    Args:
        context: of Spark.
        folder: for those of the batch.
        driver_bytes: of all payloads of the batch, how many bytes may come to the driver.
    """
    context.setLocalProperty(SPILL_PROPERTY, json.dumps([str(folder), driver_bytes]))


def spill_of_task() -> tuple[Path, int]:
    """Return where the payloads go that are too large for the driver, and how much may come to it."""
    folder, driver_bytes = json.loads(_of_task(SPILL_PROPERTY))
    return location(folder), driver_bytes


def set_rule_set(context: SparkContext, encoded: str) -> None:
    """Send a rule set along with the jobs that this thread starts next."""
    context.setLocalProperty(PROPERTY, encoded)


def rule_set_of_task() -> RuleSet:
    """Return the rule set of the batch that the running task belongs to."""
    return decode_rule_set(_of_task(PROPERTY))


def set_terms(context: SparkContext, terms: Terms) -> None:
    """Send terms along with the jobs that this thread starts next."""
    context.setLocalProperty(TERMS_PROPERTY, terms.model_dump_json())


def terms_of_task() -> Terms:
    """Return the terms of the batch that the running task belongs to."""
    return _read_terms(_of_task(TERMS_PROPERTY))


def set_lists(context: SparkContext, checkpoint: Path, pinned: Mapping[str, int]) -> Lists:
    """Send the versions of lists along with the jobs that this thread starts next.

    Returns:
        The lists as the driver sees them.
    """
    context.setLocalProperty(LISTS_PROPERTY, json.dumps([str(checkpoint), dict(pinned)]))
    return lists_in(checkpoint, pinned)


def lists_of_task() -> Lists:
    """Return the lists of the batch that the running task belongs to."""
    checkpoint, pinned = json.loads(_of_task(LISTS_PROPERTY))
    return lists_in(location(checkpoint), pinned)


def set_fills(context: SparkContext, taken: Takes) -> None:
    """Send along what a batch takes of the history of what is being filled; the versions of lists are sent before."""
    context.setLocalProperty(FILLS_PROPERTY, json.dumps(list(taken.items())))


def sources_of_task(shard: int) -> FillSources:
    """Return where the history comes from of what is being filled, for a shard of the batch of the running task."""
    taken: list[tuple[int, tuple[int, int | None, int]]] = json.loads(_of_task(FILLS_PROPERTY))
    if not taken:
        return NO_SOURCES
    checkpoint, pinned = json.loads(_of_task(LISTS_PROPERTY))
    path, lists = location(checkpoint), json.dumps(pinned, sort_keys=True)
    return {
        number: ChunkFeed(FillChunks(path, number), path, shard, ready, total, rows, lists)
        for number, (ready, total, rows) in taken
    }


@lru_cache(maxsize=4)
def _read_terms(text: str) -> Terms:
    return Terms.model_validate_json(text)


def _of_task(name: str) -> str:
    task = TaskContext.get()
    text: str | None = task.getLocalProperty(name) if task is not None else None
    if text is None:
        message = f"local property {name} is not set: it must be set before a batch runs"
        raise RuntimeError(message)
    return text
