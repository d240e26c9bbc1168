"""What is counted of a batch for those who watch a job: nothing that is scored, written or checked depends on it.

The stages add it to the counts that each batch brings to the driver anyway (`accounting`).
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from buckets.engine.batch.key_partitions import Seen, joined_seen
from buckets.kernel.outcome import OVERFLOW

OVERFLOWED = "overflow"
"""The reason of events that would take the sum of a rule past 64 bits."""


class ShardMemory(NamedTuple):
    """What a worker has of a shard in memory: its log, and what it remembers of the store besides."""

    log_bytes: int
    cache_bytes: int


@dataclass(frozen=True)
class BatchFacts:
    """Counts of one batch.

    Attributes:
        rules: by output (`alerts`, `shadow_alerts`, `held_alerts`), how many rows each rule has in it.
        dead_letters: events by what is wrong with them: the name of a field, `unreadable` or `overflow`.
        skipped: messages that are neither events nor faulty, by a word that says why.
        times: event times by what there is to say of them, as `conversion.EventTimes` counts them.
        rounded: by measure, how many values of its events were rounded.
        new_keys: by group, how many keys have a timeline that had none.
        evicted_keys: by group, how many keys have none any more.
        shards: by number, what a worker holds of the shards that had something to do.
        partitions: by group, sampled keys and the partitions of the topic in which they were; empty of other sources.
    """

    rules: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    times: Mapping[str, int] = field(default_factory=dict)
    rounded: Mapping[str, int] = field(default_factory=dict)
    new_keys: Mapping[str, int] = field(default_factory=dict)
    evicted_keys: Mapping[str, int] = field(default_factory=dict)
    shards: Mapping[int, ShardMemory] = field(default_factory=dict)
    partitions: Mapping[str, Seen] = field(default_factory=dict)


def evicted_count(by_group: Mapping[str, int]) -> bytes:
    """Return a count that says of which groups how many keys were evicted."""
    return json.dumps({"evicted_keys": by_group}).encode()


def shard_count(shard: int, held: ShardMemory) -> bytes:
    """Return a count that says what a worker holds of a shard."""
    return json.dumps({"shard": shard, "held": held}).encode()


def facts_of(counts: Sequence[Mapping[str, Any]], outcomes: Mapping[str, Sequence[int]]) -> BatchFacts:
    """Add up what the stages of a batch have told.

    Args:
        counts: what they have told.
        outcomes: by the identity of each group, how many events came to each outcome.
    """
    rules: dict[str, Counter[str]] = {}
    dead_letters, shards = Counter[str](), dict[int, ShardMemory]()
    skipped, times, rounded, new_keys, evicted_keys = (Counter[str]() for _ in range(5))
    for count in counts:
        skipped.update(count.get("skipped", {}))
        times.update(count.get("times", {}))
        rounded.update(count.get("rounded", {}))
        dead_letters.update(count.get("reasons", {}))
        for output, by_rule in count.get("rules", {}).items():
            rules.setdefault(output, Counter()).update(by_rule)
        new_keys.update(count.get("new_keys", {}))
        evicted_keys.update(count.get("evicted_keys", {}))
        if "shard" in count:
            shards[count["shard"]] = ShardMemory(*count["held"])
    partitions = joined_seen(count["partitions"] for count in counts if "partitions" in count)
    overflowed = sum(of_group[OVERFLOW] for of_group in outcomes.values())
    if overflowed:
        dead_letters[OVERFLOWED] += overflowed
    return BatchFacts(rules, dead_letters, skipped, times, rounded, new_keys, evicted_keys, shards, partitions)
