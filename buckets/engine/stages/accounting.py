"""The accounting of a batch: every event that enters it leaves it with exactly one outcome.

    events in = no key + filtered out + evaluated + late + too late + duplicates + collisions not kept + dead letters
                + skipped + unjudged

*No key* are events that do not belong to the group, because a grouping field is null. *Skipped* are messages that are
neither events nor faulty, such as a deletion. *Unjudged* are events of a topic that only fills timelines. The first
stage counts the left side and the shards count the right side; both are compared for each group. If keys have roles, an
event that asks in one timeline and counts in another enters twice, and is unjudged where it counts.
"""

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from operator import add
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.arrays import Int64s
from buckets.engine.batch import payload
from buckets.engine.batch.key_partitions import Seen, joined_seen
from buckets.kernel.outcome import (
    COLLISION_NOT_KEPT,
    DUPLICATE,
    EVALUATED,
    LATE,
    OUTCOMES,
    OVERFLOW,
    TOO_LATE,
    UNJUDGED,
)
from buckets.rules.completeness import Stretch, Stretches, joined
from buckets.rules.rule_set import RuleSet

OVERFLOWED = "overflow"  # The reason of events that would take the sum of a rule past 64 bits


class ShardMemory(NamedTuple):
    """The memory that a worker uses for a shard: its log, and its cache of the store."""

    log_bytes: int
    cache_bytes: int


@dataclass(frozen=True)
class BatchFacts:
    """Counts of one batch."""

    # by output (`alerts`, `shadow_alerts`, `held_alerts`), how many rows each rule has in it
    rules: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    # events by what is wrong with them: the name of a field, `unreadable` or `overflow`
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    # messages that are neither events nor faulty, by a word that says why
    skipped: Mapping[str, int] = field(default_factory=dict)
    # event times by what there is to say of them, as `conversion.EventTimes` counts them
    times: Mapping[str, int] = field(default_factory=dict)
    rounded: Mapping[str, int] = field(default_factory=dict)  # by measure, how many values of its events were rounded
    new_keys: Mapping[str, int] = field(default_factory=dict)  # by group, how many keys have a timeline that had none
    evicted_keys: Mapping[str, int] = field(default_factory=dict)  # by group, how many keys have none any more
    # by number, what a worker holds of the shards that had something to do
    shards: Mapping[int, ShardMemory] = field(default_factory=dict)
    # by group, sampled keys and the partitions of the topic in which they were; empty of other sources
    partitions: Mapping[str, Seen] = field(default_factory=dict)


def evicted_count(by_group: Mapping[str, int]) -> bytes:
    """Encode how many keys of each group were evicted, as a count."""
    return msgspec.json.encode({"evicted_keys": by_group})


def shard_count(shard: int, held: ShardMemory) -> bytes:
    """Encode the memory that a worker uses for a shard, as a count."""
    return msgspec.json.encode({"shard": shard, "held": held})


def _facts(counts: Sequence[Mapping[str, Any]], overflowed: int) -> BatchFacts:
    """Add up the counts of a batch's stages; `overflowed` events would have taken a sum past 64 bits."""

    def total(name: str) -> Counter[str]:
        summed = Counter[str]()
        for count in counts:
            if name in count:
                summed.update(count[name])
        return summed

    rules: dict[str, Counter[str]] = {}
    for count in counts:
        for output, by_rule in count.get("rules", {}).items():
            rules.setdefault(output, Counter()).update(by_rule)
    return BatchFacts(
        rules=rules,
        dead_letters=total("reasons") + Counter({OVERFLOWED: overflowed}),
        skipped=total("skipped"),
        times=total("times"),
        rounded=total("rounded"),
        new_keys=total("new_keys"),
        evicted_keys=total("evicted_keys"),
        shards={count["shard"]: ShardMemory(*count["held"]) for count in counts if "shard" in count},
        partitions=joined_seen(count["partitions"] for count in counts if "partitions" in count),
    )


@dataclass(frozen=True)
class GroupAccount:
    """What became of the events of one batch in one group.

    `rounded` is not an outcome: it says how many values of measures were rounded, in all of the events that came in.
    """

    group_id: str
    group: str
    events_in: int
    filtered: int
    evaluated: int
    late: int
    too_late: int
    duplicates: int
    collisions_not_kept: int
    dead_letters: int
    alerts: int
    held_alerts: int
    no_key: int
    skipped: int = 0
    unjudged: int = 0
    rounded: int = 0

    @property
    def balance(self) -> int:
        """Events that went in and did not come out; 0 or the engine is broken."""
        out = self.no_key + self.filtered + self.evaluated + self.late + self.too_late + self.skipped
        return self.events_in - out - self.unjudged - self.duplicates - self.collisions_not_kept - self.dead_letters


@dataclass(frozen=True)
class BatchAccount:
    """What became of the events of one batch."""

    batch_id: int
    ruleset_version: int  # of the rules that evaluated it
    events_in: int  # rows that arrived
    malformed: int  # rows that were not events
    arrived: Stretches  # the event times in it
    groups: tuple[GroupAccount, ...]
    # when the source took arrivals in, in ms since the epoch, and for how many arrivals each of these times stands;
    # empty where it does not say
    ingested: tuple[tuple[int, float], ...] = ()
    span: tuple[int, int] | None = None  # the least and the greatest `source_order` of its events; None without any
    facts: BatchFacts = field(default_factory=BatchFacts, compare=False)  # what is counted besides, for those who watch

    def check(self) -> None:
        """Check that the accounts balance.

        Raises:
            RuntimeError: they do not; the batch must not be committed.
        """
        for account in self.groups:
            if account.balance:
                message = f"batch {self.batch_id}: {account.balance} events of group {account.group!r} are unaccounted"
                raise RuntimeError(message)

    @property
    def latest_ms(self) -> int | None:
        """The greatest event time in it, None where it holds no event."""
        return self.arrived[-1].last_ms if self.arrived else None

    def rows(self) -> list[dict[str, Any]]:
        """Return rows of `batches`."""
        moment = None if self.latest_ms is None else datetime.fromtimestamp(self.latest_ms / 1000, UTC)
        fixed = {"batch_id": self.batch_id, "ruleset_version": self.ruleset_version, "latest_event_time": moment}
        return [fixed | vars(account) for account in self.groups]


def account_batch(batch_id: int, rule_set: RuleSet, counts: Iterable[bytes]) -> BatchAccount:
    """Add up the counts of a batch's stages: JSON from `fan_out`, `shard` and `alert_stage`."""
    arrived: list[Stretch] = []
    ingested: list[tuple[int, float]] = []
    orders: list[int] = []
    every_group = (*rule_set.groups, *rule_set.alert_groups)
    of_events, tallies = Counter[str](), {group.group_id: Counter[str]() for group in every_group}
    outcomes = {group.group_id: [0] * OUTCOMES for group in every_group}
    told = [msgspec.json.decode(text) for text in counts]
    for count in told:
        if "arrivals" in count:
            of_events.update(arrivals=count["arrivals"], malformed=count["malformed"])
            of_events.update({name: sum(count.get(name, {}).values()) for name in ("skipped", "rounded")})
            arrived += [Stretch(*each) for each in count["arrived"]]
            orders += count.get("span", ())
            sample = count.get("ingested_ms", ())
            ingested += [(moment, count["arrivals"] / len(sample)) for moment in sample]
            for name in ("filtered", "no_key", "asked"):
                for identity, number in count.get(name, {}).items():
                    tallies[identity][name] += number
        elif "alerts_in" in count:
            names = ("malformed", "filtered", "no_key")
            tallies[count["group_id"]].update(arrivals=count["alerts_in"], **{name: count[name] for name in names})
        elif "groups" in count:
            for identity, of_group in count["groups"].items():
                tallies[identity]["alerts"] += of_group["alerts"]
                tallies[identity]["held_alerts"] += of_group["held_alerts"]
                outcomes[identity] = [*map(add, outcomes[identity], of_group["outcomes"])]
    over_alerts = {group.group_id for group in rule_set.alert_groups}
    groups = []
    for group in every_group:
        tally, came_to = tallies[group.group_id], outcomes[group.group_id]
        came_in = tally if group.group_id in over_alerts else of_events
        account = GroupAccount(
            group_id=group.group_id,
            group=group.name,
            events_in=came_in["arrivals"] + tally["asked"],
            filtered=tally["filtered"],
            evaluated=came_to[EVALUATED],
            late=came_to[LATE],
            too_late=came_to[TOO_LATE],
            duplicates=came_to[DUPLICATE],
            collisions_not_kept=came_to[COLLISION_NOT_KEPT],
            dead_letters=came_in["malformed"] + came_to[OVERFLOW],
            alerts=tally["alerts"],
            held_alerts=tally["held_alerts"],
            no_key=tally["no_key"],
            skipped=came_in["skipped"],
            unjudged=came_to[UNJUDGED],
            rounded=came_in["rounded"],
        )
        groups.append(account)
    return BatchAccount(
        batch_id=batch_id,
        ruleset_version=rule_set.version,
        events_in=of_events["arrivals"],
        malformed=of_events["malformed"],
        arrived=joined(arrived),
        groups=tuple(groups),
        ingested=tuple(ingested),
        span=(min(orders), max(orders)) if orders else None,
        facts=_facts(told, sum(of_group[OVERFLOW] for of_group in outcomes.values())),
    )


ARRIVAL = ("source_order", "source", "position")  # The order of arrival
PIECES = 32  # The number of pieces, and so the most tasks that can work on the results of a batch at once


def cut_by_event(packed: bytes) -> list[bytes]:
    """Cut a payload of parts into `PIECES` payloads by event; empty bytes for a piece without rows."""
    table = payload.unpack(packed)
    return _cut(table, event_numbers(table) % PIECES, packed[:1], payload.group_of(table))


def cut_by_key(table: pa.Table) -> list[bytes]:
    """Cut decoded rows of an output into `PIECES` payloads by key; empty bytes for a piece without rows."""
    keys = pa.chunked_array(table["key"]).cast(pa.string()).combine_chunks().dictionary_encode()
    hashes = [zlib.crc32((key or "").encode()) for key in [*keys.dictionary.to_pylist(), None]]
    codes = keys.indices.fill_null(len(keys.dictionary)).to_numpy(zero_copy_only=False)
    return _cut(table, np.array(hashes, np.int64)[codes] % PIECES, payload.ROWS, "")


def by_arrival(table: pa.Table, most_rows: int) -> Iterator[pa.Table]:
    """Yield rows in the arrival order of their events, about `most_rows` at once, those of an event together."""
    if len(table) <= most_rows:
        yield table
        return
    ordered = table.take(pc.sort_indices(table, [(name, "ascending") for name in ARRIVAL]))
    starts = np.flatnonzero(np.diff(event_numbers(ordered))) + 1
    wanted = np.arange(most_rows, len(table), most_rows)
    cuts = np.unique(np.append(starts, len(table))[np.searchsorted(starts, wanted)])
    for start, end in pairwise([0, *cuts.tolist(), len(table)]):
        if end > start:
            yield ordered.slice(start, end - start)


def event_numbers(table: pa.Table) -> Int64s:
    """Number each event by its position: the same in all groups, and almost always unique."""
    orders, positions = (table[name].to_numpy() for name in ("source_order", "position"))
    numbers: Int64s = orders * 1_000_003 + positions
    return numbers


def _cut(table: pa.Table, piece: Int64s, kind: bytes, group_id: str) -> list[bytes]:
    order = np.argsort(piece, kind="stable")
    start = np.searchsorted(piece[order], np.arange(PIECES + 1))
    rows = (order[start[number] : start[number + 1]] for number in range(PIECES))
    return [payload.pack(kind, compact(table.take(pa.array(of))), group_id) if len(of) else b"" for of in rows]


def compact(table: pa.Table) -> pa.Table:
    """Rebuild the dictionaries of a table taken from a larger one, so that they hold only its own values."""
    for index, each in enumerate(table.schema):
        if pa.types.is_dictionary(each.type):
            column = table[each.name].cast(each.type.value_type).dictionary_encode()
            table = table.set_column(index, each.name, column)
    return table
