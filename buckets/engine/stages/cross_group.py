"""Where the parts of rules meet that have features of several groups.

The groups of one event lie in different shards. Each shard puts out the parts that it has computed for such rules, and
the group of a rule's own key its events too. They meet here, in the same micro-batch, by the event that they belong to:
no state is needed, since each part was computed at that very event.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from buckets.aggregates.component import COMPUTED, Computed
from buckets.engine.batch import payload
from buckets.engine.batch.keyed_table import KeyedTable
from buckets.engine.stages.accounting import ARRIVAL
from buckets.engine.values.feature_rules import Judged, judge
from buckets.engine.values.group_parts import ComputedPart, GroupParts, ScoredGroup, from_columns, joined, to_columns
from buckets.engine.values.track_values import counts
from buckets.events.schema import EventSchema
from buckets.lists.index import NO_LISTS, Lists
from buckets.rules.feature import Part
from buckets.rules.group import Group
from buckets.rules.prepared import PreparedRules
from buckets.rules.rule_set import RuleSet

PARTS = "parts"  # The output that carries parts to where they meet
Int64s = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_CLOCK = "clock_ms"
_NO_FLAGS = np.empty(0, np.bool_)
_NO_NUMBERS: list[npt.NDArray[Any]] = [np.empty(0, np.int64)] * len(COMPUTED)
_NO_PART = ComputedPart(Computed(*_NO_NUMBERS)._replace(exact=_NO_FLAGS), _NO_FLAGS, _NO_FLAGS)
_EVENT_TYPES = {"position": pa.int64(), "source": pa.string(), "source_order": pa.int64(), "event_id": pa.string()}
_EVENT = tuple(_EVENT_TYPES)  # What an event is known by within a batch; nearly always the first of these are enough


def parts_payload(group: ScoredGroup, found: GroupParts) -> bytes | None:
    """Return the parts of a group for rules that span groups, at the events to which these apply; None for none."""
    table, of = group.table, group.plan.group
    wanted = np.zeros(len(found.events), np.bool_)
    for where in dict.fromkeys(rule.where for rule in of.spanning_rules):
        wanted |= counts(where, table, found.events)
    rows = np.flatnonzero(wanted)
    if not len(rows):
        return None
    events = found.events[rows]
    if any(map(of.is_home_of, of.spanning_rules)):
        codes = pa.array(table.codes[events].astype(np.int32))
        key = pa.DictionaryArray.from_arrays(codes, table.keys)
        clocks = pa.array(group.clocks_ms[events])
        taken = table.take(events).append_column("key", key).append_column(_CLOCK, clocks)
    else:
        taken = table.take(events, _EVENT)
    for name, column in to_columns([found.parts[part].take(rows) for part in of.spanning_parts]).items():
        taken = taken.append_column(name, column)
    return payload.pack(payload.EVENTS, taken, of.group_id)


def clocks_of(table: KeyedTable) -> Int64s:
    """Return to which time the clock of its key has come with each event that has met others."""
    return table.column(_CLOCK)


def meet(
    payloads: Iterable[bytes], rule_set: RuleSet, schema: EventSchema, lists: Lists = NO_LISTS
) -> Iterator[tuple[Group, Judged]]:
    """Judge the rules that span groups.

    Args:
        payloads: all of output `PARTS` of a batch.
        rule_set: the rules of the batch.
        schema: the event schema.
        lists: those of the batch, into which conditions may look.

    Yields:
        The group of each rule's own key, and the rule at its events.
    """
    tables: dict[str, list[pa.Table]] = {}
    for packed in payloads:
        table = payload.unpack(packed)
        tables.setdefault(payload.group_of(table), []).append(table)
    groups = {group.group_id: group for group in rule_set.groups}
    arrived = {
        identity: _Arrived.of(groups[identity], found, schema, lists)
        for identity, found in tables.items()
        if identity in groups
    }
    for needed, prepared in rule_set.spanning_rules.items():
        if needed[0] not in arrived:
            continue
        others = [arrived.get(identity) or _Arrived.nothing_of(groups[identity]) for identity in needed]
        for judged in _judge(prepared, others):
            yield groups[needed[0]], judged


def _judge(prepared: PreparedRules, needed: Sequence["_Arrived"]) -> Iterator[Judged]:
    """Judge rules that need some groups, the first of which is that of their own key.

    They are judged at the events that each group has, or that do not belong to it.
    """
    home = needed[0]
    assert home.table is not None
    rows = [home.rows_in(other) for other in needed]
    known = [(of_other >= 0) | home.lacks_key_of(other) for other, of_other in zip(needed, rows, strict=True)]
    there = np.flatnonzero(np.all(known, axis=0))
    parts = {
        frozenset(other.fields): {part: each.take_or_outside(of_other[there]) for part, each in other.parts.items()}
        for other, of_other in zip(needed, rows, strict=True)
    }
    yield from judge(prepared, home.table, there, parts)


@dataclass(frozen=True)
class _Arrived:
    """What has arrived of a group."""

    fields: tuple[str, ...]  # by which it groups
    known: pa.Table  # the columns of `_EVENT`
    parts: Mapping[Part, ComputedPart]  # its parts, at these events
    table: KeyedTable | None  # the events themselves, if some rule has its key in this group

    @classmethod
    def of(cls, group: Group, tables: list[pa.Table], schema: EventSchema, lists: Lists) -> "_Arrived":
        """Return what the tables of a group hold, one after the other."""
        parts = group.spanning_parts
        pieces = zip(*(from_columns(table, len(parts)) for table in tables), strict=True)
        plain = [
            table.select([name for name in table.column_names if ":" not in name or _is_field(name)])
            for table in tables
        ]
        whole = pa.concat_tables(plain).unify_dictionaries().combine_chunks()
        known = whole.select(_EVENT).set_column(1, "source", whole["source"].cast(pa.string()))
        of_parts = dict(zip(parts, map(joined, pieces), strict=True))
        if group.policies and len(tables) > 1:
            # A key's events may be in several tables, and what policies decide depends on their order.
            rows = pc.sort_indices(known, [(name, "ascending") for name in ARRIVAL])
            whole, known = whole.take(rows).combine_chunks(), known.take(rows)
            of_parts = {part: each.take(rows.to_numpy()) for part, each in of_parts.items()}
        keyed = None
        if "key" in whole.column_names:
            key = pa.concat_arrays(whole["key"].chunks)
            codes = key.indices.to_numpy().astype(np.int64)
            events = whole.drop_columns(["key"])
            keyed = KeyedTable(schema, events, lists, group=group, keys=key.dictionary, codes=codes)
        return cls(group.fields, known, of_parts, keyed)

    @classmethod
    def nothing_of(cls, group: Group) -> "_Arrived":
        """Return what has arrived of a group to which no event belongs."""
        known = pa.table({name: pa.array([], _EVENT_TYPES[name]) for name in _EVENT})
        return cls(group.fields, known, dict.fromkeys(group.spanning_parts, _NO_PART), None)

    def lacks_key_of(self, other: "_Arrived") -> Flags:
        """Return whether each event has no key in another group."""
        assert self.table is not None
        lacking = np.zeros(len(self.known), np.bool_)
        for column in self.table.fields(other.fields).values():
            if column.null_count:
                lacking |= column.is_null().to_numpy(zero_copy_only=False)
        return lacking

    def rows_in(self, other: "_Arrived") -> Int64s:
        """Return for each event its row in another group; -1 where it is not there."""
        if other is self:
            return np.arange(len(self.known))
        both, size = pa.concat_tables([self.known, other.known]), len(self.known)
        numbers = np.zeros(len(both), np.int64)
        for name in _EVENT:
            codes = both[name].combine_chunks().dictionary_encode().indices.to_numpy()
            # Both are less than the number of rows, so that the product has room.
            _, numbers = np.unique(numbers * len(both) + codes, return_inverse=True) if numbers.any() else (None, codes)
            if max(np.bincount(part).max(initial=0) for part in (numbers[:size], numbers[size:])) <= 1:
                break
        row_of = np.full(int(numbers.max(initial=-1)) + 1, -1, np.int64)
        row_of[numbers[size:]] = np.arange(len(both) - size)
        return row_of[numbers[:size]]


def _is_field(name: str) -> bool:
    return name.startswith(("attribute:", "measure:"))
