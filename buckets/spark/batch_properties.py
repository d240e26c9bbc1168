"""How rules and terms reach the tasks of a batch: as local properties of the Spark job, which the driver sets first.

They travel with every task of the batch, stateless or stateful, so all tasks see the same values while the next batch
may see others. Of lists only the versions travel; tasks read the lists from the checkpoint.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from itertools import chain
from pathlib import Path

from pyspark import SparkContext, TaskContext

from buckets.backfill.fill_chunks import ChunkFeed, FillChunks
from buckets.checkpoint.identity import Terms
from buckets.checkpoint.list_versions import lists_in
from buckets.engine.stages.cross_group import NO_SOURCES, FillSources
from buckets.lists.index import Lists
from buckets.rules.rule_set import RuleSet, decode_rule_set
from buckets.spark.state_client import state_tasks
from buckets.stores.location import location

RULES, LISTS, TERMS = "buckets.ruleSet", "buckets.lists", "buckets.terms"
FILLS, SPILL = "buckets.fills", "buckets.spill"
Takes = Mapping[int, tuple[int, int | None, int]]
"""Per fill number: how many chunks exist, how many there will be in total if known, and how many rows to take."""


def set_batch(
    context: SparkContext,
    rule_set: str,
    terms: Terms,
    lists: tuple[Path, Mapping[str, int]],
    fills: Takes,
    spill: tuple[Path, int],
) -> None:
    """Attach what the tasks of a batch need to the Spark jobs that this thread starts next.

    `lists` is the checkpoint and the version of each list by name; `spill` is the folder for payloads too large for the
    driver, and the bytes that the driver can take from all tasks together.
    """
    properties = {
        RULES: rule_set,
        TERMS: terms.model_dump_json(),
        LISTS: json.dumps([str(lists[0]), dict(lists[1])]),
        FILLS: json.dumps(list(fills.items())),
        SPILL: json.dumps([str(spill[0]), spill[1]]),
    }
    # One JVM call instead of five
    state_tasks(context, "setProperties")(context._jsc, "\0".join(chain.from_iterable(properties.items())))


def spill_of_task() -> tuple[Path, int]:
    """Return the folder for payloads too large for the driver, and the bytes that the driver can take in total."""
    folder, driver_bytes = json.loads(_of_task(SPILL))
    return location(folder), driver_bytes


def rule_set_of_task() -> RuleSet:
    """Return the rule set of the batch that the running task belongs to."""
    return decode_rule_set(_of_task(RULES))


def terms_of_task() -> Terms:
    """Return the terms of the batch that the running task belongs to."""
    return _read_terms(_of_task(TERMS))


def lists_of_task() -> Lists:
    """Return the lists of the batch that the running task belongs to."""
    checkpoint, pinned = json.loads(_of_task(LISTS))
    return lists_in(location(checkpoint), pinned)


def sources_of_task(shard: int) -> FillSources:
    """Return where a shard reads the history for running fills, in the batch of the running task."""
    taken: list[tuple[int, tuple[int, int | None, int]]] = json.loads(_of_task(FILLS))
    if not taken:
        return NO_SOURCES
    checkpoint, pinned = json.loads(_of_task(LISTS))
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
