"""The first stage, as a pure function: a batch of arrivals in, messages for the shards out.

Every event goes to one shard of every group whose filter it passes; the shard follows from group and key alone. Dead
letters and counts are not scored: they pass on a shard of their own.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from buckets.engine import payload
from buckets.engine.counting_sort import relabel, sort_by_code
from buckets.engine.dead_letters import dead_letter_table
from buckets.engine.key import encode_keys, shards_of
from buckets.events.arrivals import INGESTED, Events, parse
from buckets.events.schema import EventSchema
from buckets.lists.lists import NO_LISTS, Lists
from buckets.rules.completeness import stretches_of
from buckets.rules.filter import matches
from buckets.rules.rule_set import Group, RuleSet

PASSING = -1
"""The shard of what is not scored."""
SAMPLED = 200
"""At most so many times of arrival are counted in one batch of rows."""


@dataclass(frozen=True)
class ShardMessage:
    """What one shard is to score.

    Attributes:
        shard: its number; `PASSING` for what is not scored.
        payload: as `payload.pack` writes it.
    """

    shard: int
    payload: bytes


def measure_column(name: str) -> str:
    """Name of a measure's column in a payload of events."""
    return f"measure:{name}"


def attribute_column(name: str) -> str:
    """Name of an attribute's column in a payload of events."""
    return f"attribute:{name}"


def fan_out(
    rows: pa.RecordBatch, rule_set: RuleSet, schema: EventSchema, shards: int, lists: Lists = NO_LISTS
) -> Iterator[ShardMessage]:
    """Turn arrivals into messages for shards.

    Args:
        rows: arrivals, in the form of `arrivals`, in arrival order.
        rule_set: the rules of this batch.
        schema: the event schema.
        shards: how many shards there are.
        lists: those of this batch, into which filters may look.
    """
    events, dead_letters = parse(rows, schema, rule_set.needed_fields)
    filtered: dict[str, int] = {}
    for group in rule_set.groups:
        passed = _passed(events, group, schema, lists)
        filtered[group.group_id] = 0 if passed is None else len(events) - len(passed)
        yield from _messages(events, group, passed, shards)
    if rule_set.fills:
        # Also a shard without an event goes on: all must be done in one batch.
        yield from (ShardMessage(shard, payload.FILL) for shard in range(shards))
    if dead_letters:
        yield ShardMessage(PASSING, payload.pack(payload.DEAD_LETTERS, dead_letter_table(dead_letters)))
    arrived = stretches_of(events.times_ms)
    counts = {"arrivals": rows.num_rows, "malformed": len(dead_letters), "filtered": filtered, "arrived": arrived}
    if len(events):
        counts["span"] = [int(events.source_order.min()), int(events.source_order.max())]
    if INGESTED in rows.schema.names:
        counts["ingested_ms"] = _sample(rows.column(INGESTED).to_numpy())
    yield ShardMessage(PASSING, payload.COUNTS + json.dumps(counts).encode())


def fan_out_group(
    rows: pa.RecordBatch, group: Group, needed: frozenset[str], schema: EventSchema, shards: int, lists: Lists
) -> Iterator[ShardMessage]:
    """Turn arrivals into messages for the shards of one group, and nothing else.

    Args:
        rows: arrivals, in the form of `arrivals`, in arrival order.
        group: the group.
        needed: the fields that must not be null, as all rules need them.
        schema: the event schema.
        shards: how many shards there are.
        lists: those into which the filter may look.
    """
    events, _ = parse(rows, schema, needed)
    yield from _messages(events, group, _passed(events, group, schema, lists), shards)


def _passed(events: Events, group: Group, schema: EventSchema, lists: Lists) -> np.ndarray | None:
    """The events that pass the filter of a group; None where all do."""
    columns = events.attributes | events.measures | {schema.event_time.field: pa.array(events.times_ms)}
    mask = matches(group.where, columns, schema, lists)
    return np.flatnonzero(mask.to_numpy(zero_copy_only=False)) if mask is not None else None


def _sample(values: np.ndarray) -> list[int]:
    """So many values that the distribution of all can be told from them, in ascending order."""
    ordered = np.sort(values)
    if len(ordered) > SAMPLED:
        ordered = ordered[np.linspace(0, len(ordered) - 1, SAMPLED).round().astype(np.int64)]
    return ordered.tolist()


def _messages(events: Events, group: Group, passed: np.ndarray | None, shards: int) -> Iterator[ShardMessage]:
    """The events of one group, a message for each shard: key by key, each key's in arrival order."""
    keys = encode_keys(group, events.attributes | events.measures, len(events)).dictionary_encode()
    codes = keys.indices.to_numpy()
    if passed is not None:
        codes = codes[passed]
    if not len(codes):
        return
    order, shard_start = sort_by_code(shards_of(group, keys.dictionary, shards)[codes], shards)
    labels = np.full(len(keys.dictionary), -1, np.int32)
    key_columns: dict[int, pa.Array] = {}
    for shard in np.flatnonzero(np.diff(shard_start)).tolist():
        rows = order[shard_start[shard] : shard_start[shard + 1]]
        numbers, seen = relabel(codes[rows], labels)
        by_key, _ = sort_by_code(numbers, len(seen))
        rows[:] = rows[by_key]
        of_shard = keys.dictionary.take(pa.array(seen))
        key_columns[shard] = pa.DictionaryArray.from_arrays(pa.array(numbers[by_key]), of_shard)
    table = _columns(events, group).take(pa.array(order if passed is None else passed[order]))
    for shard, key in key_columns.items():
        start, end = shard_start[shard].item(), shard_start[shard + 1].item()
        part = table.slice(start, end - start).append_column("key", key)
        yield ShardMessage(shard, payload.pack(payload.EVENTS, part, group.group_id))


def _columns(events: Events, group: Group) -> pa.Table:
    columns = {
        "source": events.source.dictionary_encode(),
        "source_order": pa.array(events.source_order),
        "position": pa.array(events.position),
        "event_id": events.event_id,
        "time_ms": pa.array(events.times_ms),
    }
    if events.ingested_ms is not None:
        columns[INGESTED] = events.ingested_ms
    columns |= {measure_column(name): values for name, values in events.measures.items()}
    others = {name: values for name, values in events.attributes.items() if name not in group.fields}
    columns |= {attribute_column(name): values for name, values in others.items()}
    return pa.table(columns)
