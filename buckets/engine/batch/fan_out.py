"""The first stage, as a pure function: a batch of arrivals in, messages for the shards out.

Every event goes to one shard of every group that it belongs to and whose filter it passes; the shard follows from group
and key alone. It does not belong to a group if a field that the group groups by is null. Dead letters and counts are
not scored: they pass on a shard of their own.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.config.engine import EngineSettings
from buckets.engine.batch import payload
from buckets.engine.batch.counting_sort import relabel, sort_by_code
from buckets.engine.batch.dead_letters import dead_letter_table
from buckets.engine.storage.key import encode_keys, shards_of
from buckets.events.arrivals import INGESTED, DeadLetter, EventColumns, parse
from buckets.events.schema import EventSchema
from buckets.lists.lists import NO_LISTS, Lists
from buckets.rules.completeness import stretches_of
from buckets.rules.filter import matches
from buckets.rules.group import Group
from buckets.rules.rule_set import RuleSet

PASSING = -1
"""The shard of what is not scored."""
UNREADABLE = "unreadable"
"""What is wrong with dead letters of which no field can be read."""
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
    rows: pa.RecordBatch, rule_set: RuleSet, schema: EventSchema, engine: EngineSettings, lists: Lists = NO_LISTS
) -> Iterator[ShardMessage]:
    """Turn arrivals into messages for shards.

    Args:
        rows: arrivals, in the form of `arrivals`, in arrival order.
        rule_set: the rules of this batch.
        schema: the event schema.
        engine: how many shards there are, and what a null makes of an event.
        lists: those of this batch, into which filters may look.
    """
    shards = engine.shards
    events, dead_letters = parse(rows, schema, engine.required(rule_set.needed_fields))
    filtered: dict[str, int] = {}
    no_key: dict[str, int] = {}
    for group in rule_set.groups:
        keyed = _keyed(events, group)
        passed = _passed(events, group, keyed, schema, lists)
        with_key = len(events) if keyed is None else int(keyed.sum())
        no_key[group.group_id] = len(events) - with_key
        filtered[group.group_id] = with_key - (len(events) if passed is None else len(passed))
        yield from _messages(events, group, passed, shards)
    if rule_set.fills:
        # Also a shard without an event goes on: all must be done in one batch.
        yield from (ShardMessage(shard, payload.FILL) for shard in range(shards))
    if dead_letters:
        yield ShardMessage(PASSING, payload.pack(payload.DEAD_LETTERS, dead_letter_table(dead_letters)))
    arrived = stretches_of(events.times_ms)
    counts = {"arrivals": rows.num_rows, "malformed": len(dead_letters), "filtered": filtered, "arrived": arrived}
    counts |= {"no_key": no_key}
    if dead_letters:
        counts["reasons"] = _wrong_fields(dead_letters, schema)
    if len(events):
        counts["span"] = [int(events.source_order.min()), int(events.source_order.max())]
    if INGESTED in rows.schema.names:
        counts["ingested_ms"] = _sample(rows.column(INGESTED).to_numpy())
    yield ShardMessage(PASSING, payload.COUNTS + json.dumps(counts).encode())


def _wrong_fields(dead_letters: Iterable[DeadLetter], schema: EventSchema) -> dict[str, int]:
    """Return how many dead letters there are by the field that is wrong; reasons begin with it."""
    fields = {*schema.field_names}
    named = (letter.reason.partition(": ")[0] for letter in dead_letters)
    return Counter(name if name in fields else UNREADABLE for name in named)


def fan_out_group(
    rows: pa.RecordBatch, group: Group, required: frozenset[str], schema: EventSchema, shards: int, lists: Lists
) -> Iterator[ShardMessage]:
    """Turn arrivals into messages for the shards of one group, and nothing else.

    Args:
        rows: arrivals, in the form of `arrivals`, in arrival order.
        group: the group.
        required: the fields that must not be null in an event, as `EngineSettings.required` says of all rules.
        schema: the event schema.
        shards: how many shards there are.
        lists: those into which the filter may look.
    """
    events, _ = parse(rows, schema, required)
    passed = _passed(events, group, _keyed(events, group), schema, lists)
    yield from _messages(events, group, passed, shards)


def _keyed(events: EventColumns, group: Group) -> npt.NDArray[np.bool_] | None:
    """Return which events belong to a group; None where all do."""
    columns = events.attributes | events.measures
    lacking = [columns[field] for field in group.fields if columns[field].null_count]
    if not lacking:
        return None
    keyed: npt.NDArray[np.bool_] = np.all(
        [column.is_valid().to_numpy(zero_copy_only=False) for column in lacking], axis=0
    )
    return keyed


def _passed(
    events: EventColumns, group: Group, keyed: npt.NDArray[np.bool_] | None, schema: EventSchema, lists: Lists
) -> npt.NDArray[np.int64] | None:
    """Return the events that belong to a group and pass its filter; None where all do."""
    columns = events.attributes | events.measures | {schema.event_time.field: pa.array(events.times_ms)}
    mask = matches(group.where, columns, schema, lists)
    if mask is None:
        return None if keyed is None else np.flatnonzero(keyed)
    passed = mask.to_numpy(zero_copy_only=False)
    return np.flatnonzero(passed if keyed is None else passed & keyed)


def _sample(values: np.ndarray) -> list[int]:
    """So many values that the distribution of all can be told from them, in ascending order."""
    ordered = np.sort(values)
    if len(ordered) > SAMPLED:
        ordered = ordered[np.linspace(0, len(ordered) - 1, SAMPLED).round().astype(np.int64)]
    return ordered.tolist()


def _messages(
    events: EventColumns, group: Group, passed: npt.NDArray[np.int64] | None, shards: int
) -> Iterator[ShardMessage]:
    """Yield the events of one group, a message for each shard: key by key, each key's in arrival order."""
    columns = events.attributes | events.measures
    if passed is not None:
        columns = {field: columns[field].take(pa.array(passed)) for field in group.fields}
    keys = encode_keys(group, columns, len(events) if passed is None else len(passed)).dictionary_encode()
    codes = keys.indices.to_numpy()
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


def _columns(events: EventColumns, group: Group) -> pa.Table:
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
