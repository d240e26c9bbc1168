"""The first stage, as a pure function: a batch of arrivals in, messages for the shards out.

Every event goes to one shard of every group that it belongs to and whose filter it passes; the shard follows from
group and key alone. An event does not belong to a group if a field that the group groups by is null. Dead letters and
counts are not scored: they pass on a shard of their own.
"""

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.arrays import Flags, Int64s, starts_of
from buckets.byte_strings import concatenated
from buckets.config.engine import EngineSettings
from buckets.engine.batch import payload
from buckets.engine.batch.dead_letters import dead_letter_table
from buckets.engine.batch.key_partitions import seen_partitions
from buckets.engine.batch.partitioner import Partitioned, assign_shards
from buckets.engine.batch.shard_events import EventsByKey, SentEvents, ShardEvents, ShardPayload, way_id
from buckets.engine.storage.key import decode_key, key_writer
from buckets.engine.storage.shard_store import strings_of
from buckets.events.arrivals import (
    INGESTED,
    JUDGED,
    DeadLetter,
    EventColumns,
    ParsedRows,
    convert,
    dead_letters,
    events_json,
    parse,
    skipped_rows,
)
from buckets.events.conversion import ARROW_TYPES, strings
from buckets.events.schema import EventSchema
from buckets.kernel.keyed_events import ASKS, COUNTS, FILLS
from buckets.lists.index import NO_LISTS, Lists, ListsAt
from buckets.rules.completeness import stretches_of
from buckets.rules.condition import ReadableColumns
from buckets.rules.filter import matches
from buckets.rules.group import Group
from buckets.rules.role import AS, asked_field, asks_alerts, counted_field, has_roles
from buckets.rules.rule_set import RuleSet


def judged_flags(events: pa.Table) -> Flags:
    """Return at which events rules are evaluated, bool `(events,)`."""
    return _flags_of(events[JUDGED].combine_chunks() if JUDGED in events.column_names else None, len(events))


def _flags_of(judged: pa.BooleanArray | None, events: int) -> Flags:
    if judged is None:
        return np.ones(events, np.bool_)
    flags: Flags = judged.fill_null(True).to_numpy(zero_copy_only=False).copy()
    return flags


def measure_column(name: str) -> str:
    """Name of a measure's column in a table of events."""
    return f"measure:{name}"


def attribute_column(name: str) -> str:
    """Name of an attribute's column in a table of events."""
    return f"attribute:{name}"


def without(table: pa.Table, names: Iterable[str]) -> pa.Table:
    """Return a table without the columns of these names; names that it does not have are ignored."""
    return table.drop_columns([name for name in names if name in table.column_names])


def stored_table(arrived: EventsByKey, group: Group) -> pa.Table:
    """Return the events of a group in the form in which files and the state hold them."""
    key = pa.DictionaryArray.from_arrays(pa.array(arrived.codes.astype(np.int32)), arrived.keys)
    return without(arrived.events, map(attribute_column, group.counted_fields)).append_column("key", key)


def with_own_fields(arrived: EventsByKey, group: Group, schema: EventSchema) -> EventsByKey:
    """Add a column for each grouping attribute, read from the keys, to events from a file or the state."""
    missing = [
        name
        for name in group.counted_fields
        if name in schema.attributes and attribute_column(name) not in arrived.events.column_names
    ]
    if not missing:
        return arrived
    events, keys = arrived.events, [decode_key(group, key, schema) for key in arrived.keys.to_pylist()]
    for name in missing:
        values = pa.array([key[name] for key in keys], ARROW_TYPES[schema.attributes[name]])
        events = events.append_column(attribute_column(name), values.take(pa.array(arrived.codes)))
    return arrived._replace(events=events)


@dataclass(frozen=True)
class EventFields:
    """The fields of events."""

    schema: EventSchema  # the event schema
    events: pa.Table  # the events as they came in their payload
    # those of the batch, into which filters and conditions may look
    lists: Lists = field(default_factory=lambda: NO_LISTS)
    rows: Int64s | None = None  # int64, the row of each event; None where they are as they stand

    def __len__(self) -> int:
        return len(self.events) if self.rows is None else len(self.rows)

    def rows_of(self, events: Int64s | None) -> Int64s | None:
        """Return the rows of some events or all; None for all rows in table order."""
        if events is None or self.rows is None:
            return self.rows if events is None else events
        return self.rows[events]

    def fields(self, names: Iterable[str], events: Int64s | None = None) -> dict[str, pa.Array]:
        """Return fields of some events or all, by name.

        Attributes and arrays keep their types, measures are scaled int64, times are ms.
        """
        rows = self.rows_of(events)
        found = {name: self._field(name) for name in names}
        return found if rows is None else {name: column.take(pa.array(rows)) for name, column in found.items()}

    def _field(self, name: str) -> pa.Array:
        schema = self.schema
        if name == schema.event_time.field:
            return self.events["time_ms"].combine_chunks()
        column = measure_column(name) if name in schema.measures else attribute_column(name)
        return self.events[column].combine_chunks()


@dataclass(frozen=True)
class KeyedTable(EventFields):
    """Events with their keys. Methods take the indices of some events, int64 `(n,)`."""

    group: Group = field(kw_only=True)  # the group
    keys: pa.Array = field(kw_only=True)  # the key of each code, Arrow string `(keys,)`
    codes: Int64s = field(kw_only=True)  # int64 `(events,)`, each event's key

    def take(self, events: Int64s, names: Sequence[str] = ()) -> pa.Table:
        """Return rows of the events' table, with the named columns or all."""
        table = self.events.select(names) if names else self.events
        return table.take(pa.array(self.rows_of(events)))

    def column(self, name: str) -> Int64s:
        """Return an integer column for all events."""
        values: Int64s = self.events[name].to_numpy()
        return values if self.rows is None else values[self.rows]

    def times_ms(self, events: Int64s) -> Int64s:
        """Return event times in ms, int64."""
        times_ms: Int64s = self.events["time_ms"].to_numpy()[self.rows_of(events)]
        return times_ms

    def lists_at(self, events: Int64s) -> ListsAt:
        """Return the lists as of the times of these events."""
        return ListsAt(self.lists, self.times_ms(events))

    def key_column(self, events: Int64s, order: Sequence[str] = ()) -> pa.Array:
        """Return the keys of events as JSON text, their fields in `order` or else in the group's order."""
        codes, index = np.unique(self.codes[events], return_inverse=True)
        write = key_writer(self.group, self.schema, order)
        texts = [write(key) for key in self.keys.take(pa.array(codes)).to_pylist()]
        return pa.array(texts, pa.string()).take(pa.array(index))

    def event_texts(self, taken: pa.Table) -> list[str]:
        """Return events from `take` as JSON text, with the fields that the table has."""
        schema = self.schema
        names = {attribute_column(name): name for name in (*schema.attributes, *schema.arrays)}
        names |= {measure_column(name): name for name in schema.measures}
        names = {column: name for column, name in names.items() if column in taken.column_names}
        fields = {name: taken[column].to_pylist() for column, name in names.items()}
        return events_json(schema, taken["event_id"].to_pylist(), taken["time_ms"].to_pylist(), fields)


UNREADABLE = "unreadable"  # What is wrong with dead letters of which no field can be read
SAMPLED = 200  # The most arrival times that are sampled in one batch of rows


@dataclass(frozen=True)
class ShardMessage:
    """What one shard is to score."""

    shard: int  # its number; `payload.PASSING` for what is not scored
    payload: bytes  # as `shard_events.SentEvents` or `payload.pack` writes it


@dataclass(frozen=True)
class FannedOut:
    """The result of `fan_out`: events for shards, and everything else."""

    sent: SentEvents | None  # the events for shards; None where none gets any
    others: Sequence[ShardMessage]  # what else they get, and what passes by them

    def messages(self) -> Iterator[ShardMessage]:
        """Yield everything as messages."""
        if self.sent is not None:
            yield from (ShardMessage(shard, packed) for shard, packed in self.sent.packed())
        yield from self.others

    def unpacked(self) -> Iterator[tuple[int, bytes | ShardPayload]]:
        """Yield each shard with its payload, not serialised, for use in this process."""
        if self.sent is not None:
            yield from ((shard, self.sent.of_shard(shard)) for shard in self.sent.shards)
        yield from ((message.shard, message.payload) for message in self.others)


def fan_out(
    rows: pa.RecordBatch,
    rule_set: RuleSet,
    schema: EventSchema,
    engine: EngineSettings,
    lists: Lists = NO_LISTS,
    whole: bool = True,
    counts: bool = True,
    parsed: ParsedRows | None = None,
) -> FannedOut:
    """Split arrivals, given in the form of `arrivals` and in arrival order, into messages for shards.

    Shards get `whole` events, as alerts show them, or only the attributes that a feature, filter or condition reads.
    Without `counts`, nothing is counted for the accounts of the batch. `parsed` saves parsing the rows again.
    """
    parsed = parsed or convert(rows, schema, engine.required(rule_set.needed_fields), counts)
    shards, events, letters = engine.shards, parsed.events, dead_letters(rows, parsed, schema)
    passed, with_key = _passed(events, rule_set.groups, schema, lists)
    entering = _entering(events, rule_set.groups, passed)
    partitioned = _partitioned(events, entering, shards)
    sent = events.attributes
    if not whole:
        sent = {name: values for name, values in sent.items() if name in rule_set.read_fields}
    found = _sent(replace(events, attributes=sent), entering.group_ids, partitioned)
    # Also a shard without an event goes on with what is being filled: all must be done in one batch.
    others = [ShardMessage(shard, payload.FILL) for shard in range(shards)] if rule_set.fills else []
    if letters:
        packed = payload.pack(payload.DEAD_LETTERS, dead_letter_table(letters))
        others.append(ShardMessage(payload.PASSING, packed))
    if counts:
        told = _counts(rows, events, letters, rule_set, passed, with_key, schema)
        told |= {"asked": entering.asked} if entering.asked else {}
        if INGESTED in rows.schema.names and partitioned is not None:
            # Only topics say when a message came, and have partitions.
            named = {group.group_id: group.name if group.fields else "" for group in rule_set.groups}
            names = [named[group_id] for group_id, _ in entering.keys]
            told["partitions"] = seen_partitions(partitioned, names, events.source)
        others.append(ShardMessage(payload.PASSING, payload.COUNTS + msgspec.json.encode(told)))
    return FannedOut(found, others)


def _counts(
    rows: pa.RecordBatch,
    events: EventColumns,
    letters: Sequence[DeadLetter],
    rule_set: RuleSet,
    passed: Flags,
    with_key: Sequence[int],
    schema: EventSchema,
) -> dict[str, Any]:
    """Return the counts of arrivals for the accounts of their batch."""
    filtered, no_key = dict[str, int](), dict[str, int]()
    for group, keyed, kept in zip(rule_set.groups, with_key, np.count_nonzero(passed, axis=1).tolist(), strict=True):
        filtered[group.group_id], no_key[group.group_id] = keyed - kept, len(events) - keyed
    arrived = stretches_of(events.times_ms)
    counts = {"arrivals": rows.num_rows, "malformed": len(letters), "filtered": filtered, "arrived": arrived}
    counts |= {"no_key": no_key}
    if letters:  # Their reasons begin with the field that is wrong.
        named = (letter.reason.partition(": ")[0] for letter in letters)
        counts["reasons"] = Counter(name if name in schema.all_fields else UNREADABLE for name in named)
    if events.rounded_values:
        counts["rounded"] = events.rounded_values
    skipped = skipped_rows(rows)
    if skipped:
        counts["skipped"] = skipped
    if events.times.total():
        counts["times"] = events.times
    if len(events):
        counts["span"] = [int(events.source_order.min()), int(events.source_order.max())]
    if INGESTED in rows.schema.names:
        counts["ingested_ms"] = _sample(rows.column(INGESTED).to_numpy())
    return counts


def fan_out_group(
    rows: pa.RecordBatch, group: Group, required: frozenset[str], schema: EventSchema, shards: int, lists: Lists
) -> Iterator[ShardMessage]:
    """Turn arrivals into messages for the shards of one group, without dead letters or counts.

    `required` fields must not be null in an event; `EngineSettings.required` gives them for all rules.
    """
    events, _ = parse(rows, schema, required)
    passed, _ = _passed(events, [group], schema, lists)
    entering = Entering([group.group_id], [group.way_in], passed)
    sent = _sent(events, entering.group_ids, _partitioned(events, entering, shards))
    if sent is None:
        return
    for shard in sent.shards:
        arrived = ShardEvents.of([sent.of_shard(shard)], [group.group_id]).by_key(0)
        yield ShardMessage(shard, payload.pack(payload.EVENTS, stored_table(arrived, group), group.group_id))


def _passed(
    events: EventColumns, groups: Sequence[Group], schema: EventSchema, lists: Lists
) -> tuple[Flags, list[int]]:
    """Find the events that have a key in each group and pass its filter.

    Returns them as bool `(groups, events)`, and how many events have a key in each group.
    """
    columns = events.attributes | events.measures | {schema.event_time.field: pa.array(events.times_ms)}
    known = {
        name: column.is_valid().to_numpy(zero_copy_only=False) for name, column in columns.items() if column.null_count
    }
    passed, with_key = np.ones((len(groups), len(events)), np.bool_), []
    readable = ReadableColumns(columns, schema)
    for number, group in enumerate(groups):
        for name in known.keys() & group.counted_fields:
            passed[number] &= known[name]
        if asks_alerts(group.fields):
            asked = [known[name] for name in known.keys() & set(map(asked_field, group.fields))]
            judged = _judged(events)
            passed[number] = np.where(judged, np.all([judged, *asked], axis=0), passed[number])
        with_key.append(int(np.count_nonzero(passed[number])) if known else len(events))
        mask = matches(group.where, readable, schema, lists)
        if mask is not None:
            passed[number] &= mask.to_numpy(zero_copy_only=False)
    return passed, with_key


def _sample(values: np.ndarray) -> list[int]:
    """Return a sorted sample of at most `SAMPLED` values that keeps their distribution."""
    ordered = np.sort(values)
    if len(ordered) > SAMPLED:
        ordered = ordered[np.linspace(0, len(ordered) - 1, SAMPLED).round().astype(np.int64)]
    return ordered.tolist()


class Entering(NamedTuple):
    """Which events enter timelines, and by which fields; a group whose key has roles has several rows."""

    group_ids: list[str]  # of each row, the group, and in which way; see `shard_events.way_id`
    keys: list[tuple[str, tuple[str, ...]]]  # of each row, the group and the fields of the key
    passed: Flags  # bool `(rows, events)`
    asked: Mapping[str, int] = MappingProxyType({})  # by group, how many events ask in a timeline in which others count


def _entering(events: EventColumns, groups: Sequence[Group], passed: Flags) -> Entering:
    """Return how events enter the groups whose filters they passed."""
    plain = Entering([each.group_id for each in groups], [each.way_in for each in groups], passed)
    if not any(has_roles(group.fields) for group in groups):
        return plain
    found = [(way_id(key[0], COUNTS), key, flags) for key, flags in zip(plain.keys, passed, strict=True)]
    asked: dict[str, int] = {}
    for number, group in enumerate(groups):
        if not has_roles(group.fields):
            continue
        if asks_alerts(group.fields):
            judged, is_same = _judged(events), np.zeros(len(events), np.bool_)  # Alerts are not judged there.
            asks, counts = passed[number] & judged, passed[number] & ~judged
        else:
            asks, is_same = _asking(events, group, passed[number])
            counts = passed[number] & ~is_same
        key = group.group_id, tuple(map(asked_field, group.key_fields))
        found[number] = (*found[number][:2], is_same)
        # First those that ask: of alerts, none is there yet that the event itself raises.
        found.append((way_id(group.group_id, ASKS), key, asks & ~is_same))
        found.append((way_id(group.group_id, FILLS), plain.keys[number], counts))
        if not asks_alerts(group.fields):
            asked[group.group_id] = int(np.count_nonzero(asks & ~is_same))
    identities, keys, flags = zip(*found, strict=True)
    return Entering([*identities], [*keys], np.array(flags), asked)


def _judged(events: EventColumns) -> Flags:
    return _flags_of(events.judged, len(events))


def _asking(events: EventColumns, group: Group, counts: Flags) -> tuple[Flags, Flags]:
    """Return which events ask in a group's timelines, and which of them ask in the one where they count themselves."""
    asks, is_same = _judged(events), counts.copy()
    columns = events.attributes | events.measures
    for name in group.fields:
        asked, counted = columns[asked_field(name)], columns[counted_field(name)]
        asks &= asked.is_valid().to_numpy(zero_copy_only=False)
        if AS in name:
            is_same &= pc.equal(asked, counted).fill_null(False).to_numpy(zero_copy_only=False)
    return asks, is_same & asks


def _partitioned(events: EventColumns, entering: Entering, shards: int) -> Partitioned | None:
    """Assign the events of groups to shards; None if no event passed."""
    passed = entering.passed
    if not passed.any():
        return None
    fields, indices, starts, seeds = _layout(tuple(entering.keys))
    columns = events.attributes | events.measures
    texts = [strings_of(strings(columns[field])) for field in fields]
    return Partitioned(*assign_shards(concatenated(texts), indices, starts, seeds, passed, shards))


def _sent(events: EventColumns, group_ids: Sequence[str], partitioned: Partitioned | None) -> SentEvents | None:
    """Return the events to send to shards; None if nothing was assigned."""
    if partitioned is None:
        return None
    columns = {
        "source": events.source.dictionary_encode(),
        "source_order": pa.array(events.source_order),
        "position": pa.array(events.position),
        "event_id": events.event_id,
        "time_ms": pa.array(events.times_ms),
    }
    columns |= {INGESTED: events.ingested_ms} if events.ingested_ms is not None else {}
    columns |= {JUDGED: events.judged} if events.judged is not None else {}
    columns |= {measure_column(name): values for name, values in events.measures.items()}
    columns |= {attribute_column(name): values for name, values in events.attributes.items()}
    return SentEvents(group_ids, partitioned, pa.Table.from_arrays([*columns.values()], names=[*columns]))


@lru_cache(maxsize=64)
def _layout(groups: tuple[tuple[str, tuple[str, ...]], ...]) -> tuple[Sequence[str], Int64s, Int64s, Int64s]:
    """Return the key fields of groups in the form that `assign_shards` expects.

    Returns:
        The distinct fields of all groups; indices into these, group by group; where the indices of each group begin;
        and the CRC-32 of each group's identity, which seeds the CRC-32 of its keys.
    """
    fields = list(dict.fromkeys(field for _, of_group in groups for field in of_group))
    indices = [fields.index(field) for _, of_group in groups for field in of_group]
    starts = starts_of([len(of_group) for _, of_group in groups])
    seeds = [zlib.crc32(group_id.encode()) for group_id, _ in groups]
    return fields, np.array(indices, np.int64), starts, np.array(seeds, np.int64)
