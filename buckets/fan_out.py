"""The first stage, as a pure function: a batch of arrivals in, payloads for the shards out.

Every event goes to one shard of every group whose filter it passes; the shard follows from group and key alone. Dead
letters and counts are not scored: they pass by on a shard of their own.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from buckets import payload
from buckets.arrivals import INGESTED, DeadLetter, Events, parse
from buckets.arrived import stretches_of
from buckets.event_schema import EventSchema
from buckets.grouping import relabel
from buckets.key import encode_keys, shard_of
from buckets.outputs import DEAD_LETTER_COLUMNS
from buckets.rule_set import Group, RuleSet
from buckets.where import matches

PASSING = -1
"""The shard of what is not scored."""
SAMPLED = 200
"""Times of arrival that are counted of one batch of rows at the most."""


@dataclass(frozen=True)
class Parcel:
    """Something for one shard."""

    shard: int
    payload: bytes


def measure_column(name: str) -> str:
    """Name of a measure's column in a payload of events."""
    return f"measure:{name}"


def attribute_column(name: str) -> str:
    """Name of an attribute's column in a payload of events."""
    return f"attribute:{name}"


def fan_out(rows: pa.RecordBatch, rule_set: RuleSet, schema: EventSchema, shards: int) -> Iterator[Parcel]:
    """Turn arrivals into parcels.

    Args:
        rows: arrivals, in the form of `arrivals`, in arrival order.
        rule_set: the rules of this batch.
        schema: the event schema.
        shards: how many shards there are.
    """
    events, letters = parse(rows, schema, rule_set.needed_fields)
    filtered: dict[str, int] = {}
    columns = events.attributes | events.measures
    for group in rule_set.groups:
        mask = matches(group.where, columns, schema)
        passed = np.flatnonzero(mask.to_numpy(zero_copy_only=False)) if mask is not None else None
        filtered[group.group_id] = 0 if passed is None else len(events) - len(passed)
        yield from _parcels(events, group, passed, shards)
    if letters:
        yield Parcel(PASSING, payload.pack(payload.DEAD_LETTERS, dead_letter_table(letters)))
    arrived = stretches_of(events.times_ms)
    counts = {"arrivals": rows.num_rows, "malformed": len(letters), "filtered": filtered, "arrived": arrived}
    if len(events):
        counts["span"] = [int(events.source_order.min()), int(events.source_order.max())]
    if INGESTED in rows.schema.names:
        counts["ingested_ms"] = _sample(rows.column(INGESTED).to_numpy())
    yield Parcel(PASSING, payload.COUNTS + json.dumps(counts).encode())


def _sample(values: np.ndarray) -> list[int]:
    """So many values that the distribution of all can be told from them, in ascending order."""
    ordered = np.sort(values)
    if len(ordered) > SAMPLED:
        ordered = ordered[np.linspace(0, len(ordered) - 1, SAMPLED).round().astype(np.int64)]
    return ordered.tolist()


def dead_letter_table(letters: list[DeadLetter]) -> pa.Table:
    """Dead letters as a table."""
    return pa.Table.from_pylist([vars(letter) for letter in letters], schema=DEAD_LETTER_COLUMNS)


def _parcels(events: Events, group: Group, passed: np.ndarray | None, shards: int) -> Iterator[Parcel]:
    """The events of one group, a parcel for each shard, in arrival order within it."""
    keys = encode_keys(group, events.attributes, len(events)).dictionary_encode()
    codes = keys.indices.to_numpy()
    if passed is not None:
        codes = codes[passed]
    if not len(codes):
        return
    distinct = keys.dictionary.to_pylist()
    shard_of_key = np.array([shard_of(group, key, shards) for key in distinct], np.int16)
    row_shards = shard_of_key[codes]
    by_shard = np.argsort(row_shards, kind="stable")
    order = by_shard if passed is None else passed[by_shard]
    table = _columns(events, group).take(pa.array(order))
    codes, row_shards = codes[by_shard], row_shards[by_shard]
    starts = np.flatnonzero(np.diff(row_shards, prepend=-1))
    labels = np.full(len(distinct), -1, np.int32)
    for start, end in zip(starts, [*starts[1:], len(codes)], strict=True):
        numbers, seen = relabel(codes[start:end], labels)
        key = pa.DictionaryArray.from_arrays(pa.array(numbers), keys.dictionary.take(pa.array(seen)))
        part = table.slice(start, end - start).append_column("key", key)
        yield Parcel(int(row_shards[start]), payload.pack(payload.EVENTS, part, group.group_id))


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
