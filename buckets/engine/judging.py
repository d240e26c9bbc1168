"""Rules with features at events: their features from the parts that groups have computed, and their condition."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.aggregates.aggregate import Own, Values
from buckets.engine.group_parts import ComputedPart
from buckets.engine.keyed_table import KeyedTable
from buckets.engine.track_values import counts, numbers_of
from buckets.expressions.decimals import Numbers
from buckets.rules.condition import FeatureColumn, holds
from buckets.rules.feature import NamedFeature
from buckets.rules.filter import Filter
from buckets.rules.part import Part
from buckets.rules.prepared import PreparedRule, PreparedRules
from buckets.rules.rule import Rule

Int64s = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class FeatureValues:
    """A feature at the events of a rule.

    Attributes:
        feature: the feature, without its name.
        values: its values and bounds.
        counted: int64, how many events its window holds that it counts.
        warm: bool, whether nothing that its window needs can be missing.
    """

    feature: NamedFeature
    values: Values
    counted: Int64s
    warm: Flags


@dataclass(frozen=True)
class Judged:
    """A rule at the events to which its filter applies, and of which all its features are known.

    Attributes:
        rule: the rule.
        table: the events of the group of its own key.
        events: int64, indices into that table.
        features: by name, at these events.
        fired: bool, at which of them the condition is true.
    """

    rule: Rule
    table: KeyedTable
    events: Int64s
    features: dict[str, FeatureValues]
    fired: Flags


PartsOfGroups = Mapping[frozenset[str], Mapping[Part, ComputedPart]]
"""Parts by the fields of their group."""


def judge(prepared: PreparedRules, table: KeyedTable, events: Int64s, parts: PartsOfGroups) -> Iterator[Judged]:
    """Evaluate rules at events; what several rules share is computed once.

    Args:
        prepared: the rules.
        table: the events of the group of the rules' own key.
        events: int64, indices of those at which the parts are given.
        parts: the parts of the rules' features, at these events; of their own group also where they have no feature
            there.
    """
    applied: dict[Filter, Flags] = {}
    chosen: dict[int, _Chosen] = {}
    for each in prepared.rules:
        if each.choice not in chosen:
            choice = prepared.choices[each.choice]
            if choice.where not in applied:
                applied[choice.where] = counts(choice.where, table, events)
            applies = applied[choice.where].copy()
            for fields, part in choice.needed:
                applies &= parts[fields][part].there
            chosen[each.choice] = _Chosen(prepared, table, np.flatnonzero(applies), events, parts)
        yield chosen[each.choice].judged(each)


class _Chosen:
    """The events of one choice, and what rules have computed there so far."""

    def __init__(
        self, prepared: PreparedRules, table: KeyedTable, rows: Int64s, events: Int64s, parts: PartsOfGroups
    ) -> None:
        self._prepared, self._table, self._rows, self._parts = prepared, table, rows, parts
        self._events = events[rows]
        self._features: dict[int, FeatureValues] = {}
        self._columns: dict[int, FeatureColumn] = {}
        self._fields: dict[str, pa.Array] = {"": pa.array(self._events)}

    def judged(self, prepared: PreparedRule) -> Judged:
        """Evaluate a rule."""
        rule = prepared.rule
        assert rule.when is not None
        for number in prepared.features.values():
            self._compute(number)
        missing = [name for name in prepared.fields if name not in self._fields]
        if missing:
            self._fields |= self._table.fields(missing, self._events)
        columns = {name: self._columns[number] for name, number in prepared.features.items()}
        fired = holds(rule.when, prepared.fields, self._fields, columns, self._table.schema)
        features = {name: self._features[number] for name, number in prepared.features.items()}
        return Judged(rule, self._table, self._events, features, fired.to_numpy(zero_copy_only=False))

    def _compute(self, number: int) -> None:
        """Compute a feature, unless it has been computed."""
        if number in self._features:
            return
        named = self._prepared.features[number]
        of_group = self._parts[frozenset(named.fields)]
        parts = {part: of_group[part].take(self._rows) for _, part in named.parts()}
        self._features[number] = _feature(named, self._table, self._events, parts)
        self._columns[number] = _column(self._features[number])


def _feature(
    named: NamedFeature, table: KeyedTable, events: Int64s, parts: Mapping[Part, ComputedPart]
) -> FeatureValues:
    of, schema = named.feature.of, table.schema
    own = Own(
        times_ms=table.times_ms(events),
        counts=counts(named.where, table, events),
        value=np.zeros(len(events), np.int64) if of is None else numbers_of(of, table, events),
        scale=schema.measures[of].scale if of in schema.measures else 0,
    )
    found = {component: parts[part].computed for component, part in named.parts()}
    aggregate = named.feature.aggregate
    warm = np.ones(len(events), np.bool_)
    for part in parts.values():
        warm &= part.warm
    return FeatureValues(named, aggregate.lower(found, own), aggregate.counted(found, own), warm)


def _column(feature: FeatureValues) -> FeatureColumn:
    """A feature as a column of a condition."""
    values = feature.values
    if feature.feature.feature.aggregate.is_boolean:
        return pa.array(values.scaled == 1, mask=~values.valid)
    largest = max(abs(int(values.scaled.min())), abs(int(values.scaled.max()))) if len(values.scaled) else 0
    return Numbers(values.scaled, values.scale, largest, values.valid)
