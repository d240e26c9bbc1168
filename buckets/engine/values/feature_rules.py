"""Evaluates rules at events: computes features from the parts of groups, then the condition over them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from buckets.aggregates.aggregate import Own, Values
from buckets.aggregates.component import NOTHING_COMPUTED, joined
from buckets.arrays import Flags, Int64s
from buckets.engine.batch.fan_out import KeyedTable
from buckets.engine.values.group_parts import ComputedPart, ScoredGroup
from buckets.engine.values.track_values import counts, has_value, values_of
from buckets.errors import BucketsError
from buckets.events.schema import EventSchema
from buckets.expressions.number_functions import Numbers
from buckets.kernel.result_rows import Rows
from buckets.kernel.score import chosen_rows
from buckets.numbers.wide_sum import MOST_DIGITS, decimals_of
from buckets.rules.condition import FeatureColumn, SqlScore, holds, readable_columns, scores
from buckets.rules.feature import NamedFeature, Part
from buckets.rules.filter import Filter
from buckets.rules.prepared import PreparedRule, PreparedRules, Template
from buckets.rules.role import asked_field, counted_field, has_role
from buckets.rules.rule import Rule, extra_digits

_MOST_ROWS = 100_000
"""The most rows, each an event and a condition, to evaluate at once, which bounds memory."""


@dataclass(frozen=True)
class FeatureValues:
    """A feature at the events of a rule."""

    values: Values  # its values and bounds
    counted: Int64s  # int64, how many events of its window it counts
    warm: Flags  # bool, whether nothing that its window needs can be missing


@dataclass(frozen=True)
class Judged:
    """A rule at the events that pass its filter and have all of its features."""

    rule: Rule  # the rule
    table: KeyedTable  # the events of the group of its own key
    events: Int64s  # int64, indices into that table
    features: dict[str, FeatureValues]  # by name, at these events
    fired: Flags  # bool, at which of them the condition is true
    compared: Rows | None = None  # at these events, of a rule whose limit the kernel has compared


PartsOfGroups = Mapping[frozenset[str], Mapping[Part, ComputedPart]]  # Parts by the fields of their group


def judge(
    prepared: PreparedRules, table: KeyedTable, events: Int64s, parts: PartsOfGroups, every: bool = True
) -> Iterator[Judged]:
    """Evaluate rules at events, and yield them in their order; shared features and filters are computed once.

    `parts` are those of all groups at these events, and include the own group even if no feature needs it. Yields
    `every` rule, or only rules that fire at some event.
    """
    chosen: dict[int, _Chosen] = {}
    filters = _Filters(table, events)
    fired: dict[int, Flags] = {}
    for template in prepared.templates:
        if template.choice not in chosen:
            choice = prepared.choices[template.choice]
            applies = filters.passed(choice.where).copy()
            for fields, part in choice.needed:
                applies &= parts[fields][part].there
            if choice.effective is not None:
                start_ms, end_ms = choice.effective.span_ms()
                times_ms = table.times_ms(events)
                applies &= (start_ms <= times_ms) & (times_ms < end_ms)
            chosen[template.choice] = _Chosen(prepared, filters, np.flatnonzero(applies), parts)
        flags = chosen[template.choice].fired(template)
        wanted = range(len(flags)) if every else np.flatnonzero(flags.any(axis=1)).tolist()
        fired |= {template.rules[index]: flags[index] for index in wanted}
    for number in sorted(fired):
        rule = prepared.rules[number]
        yield chosen[rule.choice].judged(rule, fired[number])


class _Filters:
    """Filters over some events, each evaluated once."""

    def __init__(self, table: KeyedTable, events: Int64s) -> None:
        self.table, self.events = table, events
        self._passed: dict[Filter, Flags] = {}

    def passed(self, where: Filter) -> Flags:
        """Return which events pass a filter, bool `(events,)`."""
        if where not in self._passed:
            self._passed[where] = counts(where, self.table, self.events)
        return self._passed[where]


class _Chosen:
    """The events of one choice, with the features that have been computed there so far."""

    def __init__(self, prepared: PreparedRules, filters: _Filters, rows: Int64s, parts: PartsOfGroups) -> None:
        self._prepared, self._filters, self._rows, self._parts = prepared, filters, rows, parts
        self._table, self._events = filters.table, filters.events[rows]
        self._features: dict[int, FeatureValues] = {}
        self._columns: dict[int, FeatureColumn] = {}
        self._fields: dict[str, pa.Array] = {}

    def judged(self, prepared: PreparedRule, fired: Flags) -> Judged:
        """Return a rule whose template has been evaluated."""
        features = {name: self._features[number] for name, number in prepared.features.items()}
        return Judged(prepared.rule, self._table, self._events, features, fired)

    def fired(self, template: Template) -> Flags:
        """Evaluate the conditions of a template: bool `(rules, events)`."""
        first, size, events = self._prepared.rules[template.rules[0]], len(template.rules), len(self._events)
        for number in first.features.values():
            self._compute(number)
        missing = [name for name in first.fields if name not in self._fields]
        if missing:
            self._fields |= self._table.fields(missing, self._events)
        fields = {name: self._fields[name] for name in first.fields}
        columns = {name: self._columns[number] for name, number in first.features.items()}
        if size == 1:
            lists = self._table.lists_at(self._events)
            return _flags(holds(first.rule.when, fields, columns, self._table.schema, events, lists), 1)
        at_once = min(max(_MOST_ROWS // max(events, 1), 1), size)
        pieces = (range(begin, min(begin + at_once, size)) for begin in range(0, size, at_once))
        return np.concatenate([self._fired_together(template, rules, fields, columns) for rules in pieces])

    def _fired_together(
        self, template: Template, rules: range, fields: Mapping[str, pa.Array], columns: Mapping[str, FeatureColumn]
    ) -> Flags:
        """Evaluate the conditions of some rules of a template in one table: bool `(rules, events)`."""
        events = len(self._events)
        named = set(template.condition.expression.fields())
        tested = {of.name for of in template.tests.values()}
        values = {**columns, **readable_columns(tested.intersection(fields), fields, self._table.schema)}
        tiled = np.tile(np.arange(events), len(rules))
        bounds = {name: column.rows(np.repeat(rules, events)) for name, column in template.bounds.items()}
        tests = {name: of.truths(values[of.name], rules) for name, of in template.tests.items()}
        features = {name: _taken(column, tiled) for name, column in columns.items() if name in named}
        of_events = {name: column.take(pa.array(tiled)) for name, column in fields.items() if name in named}
        known = features | bounds | tests
        return _flags(holds(template.condition, of_events, known, self._table.schema, len(tiled)), len(rules))

    def _compute(self, number: int) -> None:
        if number in self._features:
            return
        named = self._prepared.features[number]
        of_group, own = self._parts[frozenset(named.fields)], self._own(named)
        parts = {component: of_group[part].take(self._rows) for component, part in named.parts()}
        computed = {component: part.computed for component, part in parts.items()}
        warm = np.all([part.warm for part in parts.values()], axis=0)
        aggregate = named.feature.aggregate
        values = FeatureValues(aggregate.finalize(computed, own), aggregate.counted(computed, own), warm)
        outside = next((part.outside for part in parts.values()), None)
        values = values if outside is None else _null_where(outside, values)
        self._features[number], self._columns[number] = values, _column(values)

    def _own(self, named: NamedFeature) -> Own:
        table, events, field = self._table, self._events, named.feature.of or ""
        measure = table.schema.measures.get(field)
        of_alerts, no_flags = named.feature.on is not None, np.zeros(len(events), np.bool_)
        return Own(
            kind=named.feature.kind(table.schema),
            scale=0 if measure is None else measure.scale,
            times_ms=lambda: table.times_ms(events),
            counts=lambda: self._counts_itself(named),
            has_value=lambda: no_flags if of_alerts else has_value(field, table, events),
            value=lambda: no_flags.astype(np.int64) if of_alerts else values_of(field, table, events),
        )

    def _counts_itself(self, named: NamedFeature) -> Flags:
        """Return at which events a feature counts the event itself, bool `(events,)`."""
        if named.feature.on is not None:
            return np.zeros(len(self._events), np.bool_)
        counts = self._filters.passed(named.where)[self._rows] & named.feature.window.holds_its_event
        for field in filter(has_role, named.fields):
            asked, counted = asked_field(field), counted_field(field)
            both = self._table.fields([asked, counted], self._events)
            counts &= pc.equal(both[asked], both[counted]).fill_null(False).to_numpy(zero_copy_only=False)
        return counts


def scores_at(judged: Judged, rows: Int64s) -> Int64s:
    """Return the scores of a rule's alerts at some of its events."""
    score = judged.rule.score
    if not isinstance(score, SqlScore):
        return np.full(len(rows), score)
    named = set(score.expression.fields())
    features = {name: _taken(_column(of), rows) for name, of in judged.features.items() if name in named}
    table, events = judged.table, judged.events[rows]
    fields = table.fields(sorted(named.difference(features)), events)
    return scores(score, fields, features, table.schema, len(rows), table.lists_at(events))


def _flags(found: pa.BooleanArray, rules: int) -> Flags:
    flags: Flags = found.to_numpy(zero_copy_only=False)
    return flags.reshape(rules, len(flags) // rules)


def _taken(column: FeatureColumn, rows: Int64s) -> FeatureColumn:
    """Return the rows of a column at these indices."""
    return column.rows(rows) if isinstance(column, Numbers) else column.take(pa.array(rows))


def _null_where(outside: Flags, of: FeatureValues) -> FeatureValues:
    """Set a feature to NULL at events that do not belong to its group."""
    values = of.values
    null = values._replace(
        scaled=np.where(outside, 0, values.scaled),
        valid=values.valid & ~outside,
        lower=np.where(outside, 0, values.lower),
        upper=np.where(outside, 0, values.upper),
        may_be_null=values.may_be_null | outside,
        exact=values.exact | outside,
    )
    return replace(of, values=null, counted=np.where(outside, 0, of.counted))


def _column(feature: FeatureValues) -> FeatureColumn:
    values = feature.values
    if values.kind != "number":
        return pa.array(*_plain(values), mask=~values.valid)
    largest = max(abs(int(values.scaled.min())), abs(int(values.scaled.max()))) if len(values.scaled) else 0
    return Numbers(values.scaled, values.scale, largest, values.valid)


def _plain(values: Values) -> tuple[npt.NDArray[Any], pa.DataType]:
    """Return texts or booleans, and their type."""
    if values.kind == "boolean":
        return values.scaled == 1, pa.bool_()
    return np.where(values.valid, values.scaled, ""), pa.string()


def judged_limits(group: ScoredGroup, every: bool = True) -> Iterator[Judged]:
    """Yield the rules with limits of a group, at every event at which they were evaluated or only where they fired."""
    rows, plan = group.scored.rows, group.plan
    if not every:
        fired = np.flatnonzero(rows.fired)
        if not len(fired):
            return
        rows = chosen_rows(rows, fired)
    order = np.argsort(rows.rule, kind="stable")
    numbers, starts = np.unique(rows.rule[order], return_index=True)
    for number, (start, end) in zip(numbers.tolist(), pairwise([*starts.tolist(), len(order)]), strict=True):
        rule, chosen = plan.rules[number], chosen_rows(rows, order[start:end])
        (named,) = rule.named_features()
        values = _values(chosen, plan.value_scales[number], rule)
        features = {named.name: FeatureValues(values, chosen.event_count, group.warm(chosen.event, chosen.rule))}
        yield Judged(rule, group.table, chosen.event, features, chosen.fired, chosen)


def _values(rows: Rows, scale: int, rule: Rule) -> Values:
    digits = extra_digits(rule)
    scaled = lower = upper = joined(rows.whole, rows.micro, digits)
    if not rows.exact.all():
        lower = joined(rows.lower_whole, rows.lower_micro, digits)
        upper = joined(rows.upper_whole, rows.upper_micro, digits)
    valid, may_be_null = rows.event_count > 0, rows.count_lower == 0
    return Values(scaled, scale, valid | rule.is_count, lower, upper, may_be_null & (not rule.is_count), rows.exact)


FEATURES = "features"  # The output that carries features as columns, a table for a rule and a shard
RULE, POSITION, FIRED = "rule_id", "position", "fired"
_NO_EVENTS = np.empty(0, np.int64)


def feature_column(name: str, what: Literal["value", "exact", "warm"]) -> str:
    """Return the name of a feature's column: its values, or flags that say whether they are exact or warm."""
    return f"{what}:{name}"


def feature_types(rule: Rule, schema: EventSchema) -> dict[str, pa.DataType]:
    """Return the features of a rule with the types of their columns.

    Booleans are bool and texts are string; numbers are int64 without digits after the point, otherwise decimals of 38
    digits.
    """
    return {named.name: _type_of(named, schema) for named in rule.named_features()}


def _type_of(named: NamedFeature, schema: EventSchema) -> pa.DataType:
    """Return the type of a feature, with the digits of its aggregate's value over no events."""
    aggregate, kind = named.feature.aggregate, named.feature.kind(schema)
    if kind != "number":
        return pa.bool_() if kind == "boolean" else pa.string()
    measure = schema.measures.get(named.feature.of or "")
    computed = dict.fromkeys((component for component, _ in named.parts()), NOTHING_COMPUTED)
    own_scale, flags = 0 if measure is None else measure.scale, _NO_EVENTS.astype(np.bool_)
    own = Own(kind, own_scale, lambda: _NO_EVENTS, lambda: flags, lambda: flags, lambda: _NO_EVENTS)
    scale = aggregate.finalize(computed, own).scale
    return pa.decimal128(MOST_DIGITS, scale) if scale else pa.int64()


def judged_columns(judged: Judged) -> pa.Table:
    """Return an evaluated rule in the columns of output `FEATURES`.

    They are `rule_id`, `position` and `fired`, and for each feature its values, whether they are exact, and whether
    they are warm. BucketsError if a value has more digits than a decimal can hold.
    """
    types = feature_types(judged.rule, judged.table.schema)
    columns: dict[str, pa.Array] = {}
    for name, of in judged.features.items():
        columns[feature_column(name, "value")] = _feature_columns_values(judged.rule, name, of.values, types[name])
        columns[feature_column(name, "exact")] = pa.array(of.values.exact)
        columns[feature_column(name, "warm")] = pa.array(of.warm)
    positions = judged.table.column(POSITION)[judged.events]
    rule_ids = pa.DictionaryArray.from_arrays(np.zeros(len(positions), np.int32), [judged.rule.rule_id])
    return pa.table({RULE: rule_ids, POSITION: pa.array(positions), FIRED: pa.array(judged.fired), **columns})


def _feature_columns_values(rule: Rule, name: str, values: Values, kind: pa.DataType) -> pa.Array:
    if values.kind != "number":
        return pa.array(*_plain(values), mask=~values.valid)
    if not pa.types.is_decimal(kind):
        return pa.array(values.scaled, kind, mask=~values.valid)
    try:
        return decimals_of(values.scaled, values.valid, kind)
    except OverflowError:
        message = (
            f"feature {rule.rule_id}.{name}: has a value of more than {MOST_DIGITS} digits, for which a column has no "
            "room; leave the feature out, or take stddev for a variance"
        )
        raise BucketsError(message) from None
