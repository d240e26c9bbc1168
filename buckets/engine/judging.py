"""Rules with features at events: their features from the parts that groups have computed, and their condition."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.aggregates.aggregate import COUNT, Own, Values
from buckets.engine.group_parts import ComputedPart
from buckets.engine.keyed_table import KeyedTable
from buckets.engine.track_values import counts, numbers_of
from buckets.expressions.decimals import Numbers
from buckets.rules.condition import FeatureColumn, condition_fields, holds
from buckets.rules.feature import NamedFeature
from buckets.rules.part import Part
from buckets.rules.rule import Rule

Int64s = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class FeatureValues:
    """A feature at the events of a rule.

    Attributes:
        feature: the feature.
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


def judge(rule: Rule, table: KeyedTable, events: Int64s, parts: PartsOfGroups) -> Judged:
    """Evaluate a rule.

    Args:
        rule: a rule with features.
        table: the events of the group of its own key.
        events: int64, indices of those at which the parts are given.
        parts: the parts of its features, at these events; of its own group also where it has no feature there.
    """
    chosen = counts(rule.where, table, events)
    for part in (part for of_group in parts.values() for part in of_group.values()):
        chosen &= part.there
    rows = np.flatnonzero(chosen)
    events = events[rows]
    features = {
        named.name: _feature(named, table, events, _of_feature(named, parts, rows)) for named in rule.named_features()
    }
    assert rule.when is not None
    columns = table.fields(condition_fields(rule.when, features), events) | {"": pa.array(events)}
    fired = holds(rule.when, columns, {name: _column(each) for name, each in features.items()}, table.schema)
    return Judged(rule, table, events, features, fired.to_numpy(zero_copy_only=False))


def _of_feature(named: NamedFeature, parts: PartsOfGroups, rows: Int64s) -> dict[Part, ComputedPart]:
    of_group = parts[frozenset(named.fields)]
    return {part: of_group[part].take(rows) for _, part in named.parts()}


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
    first = next(iter(found.values()))
    counted = found[COUNT].whole if COUNT in found else first.event_count
    warm = np.ones(len(events), np.bool_)
    for part in parts.values():
        warm &= part.warm
    return FeatureValues(named, named.feature.aggregate.lower(found, own), counted, warm)


def _column(feature: FeatureValues) -> FeatureColumn:
    """A feature as a column of its rule's condition."""
    values = feature.values
    if feature.feature.feature.aggregate.is_boolean:
        return pa.array(values.scaled == 1, mask=~values.valid)
    largest = max(abs(int(values.scaled.min())), abs(int(values.scaled.max()))) if len(values.scaled) else 0
    return Numbers(values.scaled, values.scale, largest, values.valid)
