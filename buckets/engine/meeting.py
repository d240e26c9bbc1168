"""Where the parts of rules meet that have features of several groups.

The groups of one event lie in different shards. Each shard puts out the parts that it has computed for such rules, and
the group of a rule's own key its events too. They meet here, in the same micro-batch, by the event that they belong to:
no state is needed, since each part was computed at that very event.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.engine import payload
from buckets.engine.group_parts import ComputedPart, GroupParts, from_columns, joined, to_columns
from buckets.engine.judging import Judged, judge
from buckets.engine.keyed_table import KeyedTable
from buckets.engine.scored_group import ScoredGroup
from buckets.engine.track_values import counts
from buckets.events.schema import EventSchema
from buckets.rules.part import Part
from buckets.rules.prepared import PreparedRules
from buckets.rules.rule import Rule
from buckets.rules.rule_set import Group, RuleSet

PARTS = "parts"
"""The output that carries parts to where they meet."""
Int64s = npt.NDArray[np.int64]
_EVENT = ("position", "source", "source_order", "event_id")
"""What an event is known by within a batch; nearly always the first of these are enough."""


def parts_payload(group: ScoredGroup, found: GroupParts) -> bytes | None:
    """The parts of a group for rules that span groups, at the events to which these apply; None if there are none."""
    table, of = group.table, group.plan.group
    rules = of.spanning_rules
    wanted = np.zeros(len(found.events), np.bool_)
    for rule in rules:
        wanted |= counts(rule.where, table, found.events)
    rows = np.flatnonzero(wanted)
    if not len(rows):
        return None
    chosen = GroupParts(found.events[rows], {part: each.take(rows) for part, each in found.parts.items()})
    taken = table.take(chosen.events)
    if any(map(of.is_home_of, rules)):
        codes = pa.array(table.codes[chosen.events].astype(np.int32))
        taken = taken.append_column("key", pa.DictionaryArray.from_arrays(codes, pa.array(table.keys, pa.string())))
    else:
        taken = taken.select(_EVENT)
    for name, column in to_columns(chosen, _parts(of, rules), _numbers(of)).items():
        taken = taken.append_column(name, column)
    return payload.pack(payload.EVENTS, taken, of.group_id)


def meet(payloads: Iterable[bytes], rule_set: RuleSet, schema: EventSchema) -> Iterator[tuple[Group, Judged]]:
    """Judge the rules that span groups.

    Args:
        payloads: all of output `PARTS` of a batch.
        rule_set: the rules of the batch.
        schema: the event schema.

    Yields:
        The group of each rule's own key, and the rule at its events.
    """
    tables: dict[str, list[pa.Table]] = {}
    for packed in payloads:
        table = payload.unpack(packed)
        tables.setdefault(payload.group_of(table), []).append(table)
    groups = {group.group_id: group for group in rule_set.groups if group.group_id in tables}
    arrived = {identity: _Arrived.of(group, tables[identity], schema) for identity, group in groups.items()}
    for needed, prepared in rule_set.spanning_rules.items():
        home = groups.get(needed[0])
        if home is not None and all(identity in arrived for identity in needed):
            for judged in _judge(prepared, [arrived[identity] for identity in needed]):
                yield home, judged


def _judge(prepared: PreparedRules, needed: Sequence["_Arrived"]) -> Iterator[Judged]:
    """Judge rules that need some groups, the first of which is that of their own key, at the events that all have."""
    home = needed[0]
    assert home.table is not None
    rows = [home.rows_in(other) for other in needed]
    there = np.flatnonzero(np.all([each >= 0 for each in rows], axis=0))
    parts = {
        frozenset(other.fields): {part: each.take(of_other[there]) for part, each in other.parts.items()}
        for other, of_other in zip(needed, rows, strict=True)
    }
    yield from judge(prepared, home.table, there, parts)


@dataclass(frozen=True)
class _Arrived:
    """What has arrived of a group.

    Attributes:
        fields: by which it groups.
        known: the columns of `_EVENT`.
        parts: its parts, at these events.
        table: the events themselves, if some rule has its key in this group.
    """

    fields: tuple[str, ...]
    known: pa.Table
    parts: Mapping[Part, ComputedPart]
    table: KeyedTable | None

    @classmethod
    def of(cls, group: Group, tables: list[pa.Table], schema: EventSchema) -> "_Arrived":
        """What the tables of a group hold, one after the other."""
        parts = _parts(group, group.spanning_rules)
        pieces = [from_columns(table, parts, _numbers(group)) for table in tables]
        plain = [
            table.select([name for name in table.column_names if ":" not in name or _is_field(name)])
            for table in tables
        ]
        whole = pa.concat_tables(plain).unify_dictionaries().combine_chunks()
        known = whole.select(_EVENT).set_column(1, "source", whole["source"].cast(pa.string()))
        keyed = None
        if "key" in whole.column_names:
            key = pa.concat_arrays(whole["key"].chunks)
            codes = key.indices.to_numpy().astype(np.int64)
            keyed = KeyedTable(group, schema, whole.drop_columns(["key"]), key.dictionary.to_pylist(), codes)
        return cls(group.fields, known, {part: joined([piece[part] for piece in pieces]) for part in parts}, keyed)

    def rows_in(self, other: "_Arrived") -> Int64s:
        """For each event its row in another group; -1 where it is not there."""
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


def _parts(group: Group, rules: Iterable[Rule]) -> list[Part]:
    return list(dict.fromkeys(part for rule in rules for part in rule.parts(group.fields)))


def _numbers(group: Group) -> dict[Part, int]:
    return {part: index for index, part in enumerate(group.parts)}
