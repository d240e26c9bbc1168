"""What a rule with a condition found, as alerts and evaluations show it."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.engine.policies.policies import Fired
from buckets.engine.results.alerts import FiredRules
from buckets.engine.results.terms import JSON_FLAG, term_end, term_start
from buckets.engine.values.feature_rules import FeatureValues, Judged
from buckets.expressions.certainty import Between, Value, possible_truths
from buckets.expressions.interval import scaled_down
from buckets.numbers.fixed_point import format_scaled, readable
from buckets.printable import one_line
from buckets.rules.condition import condition_fields, condition_words
from buckets.rules.rule import Rule

Int64s = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def fired_conditions(judged: Judged) -> FiredRules:
    """Return a rule with a condition at the events at which it fired."""
    rows = np.flatnonzero(judged.fired)
    fired = Fired([judged.rule], np.zeros(len(rows), np.int64), judged.events[rows], all_warm(judged, rows))
    return FiredRules(judged.table, fired, lambda chosen: _columns(judged, rows[chosen]), judged.rule.group_by)


def all_warm(judged: Judged, rows: Int64s) -> Flags:
    """Whether no window of a feature can lack something, at some of the events."""
    return np.all([of.warm[rows] for of in judged.features.values()], axis=0)


def all_exact(judged: Judged, rows: Int64s) -> Flags:
    """Whether all features are known to the last digit, at some of the events."""
    return np.all([of.values.exact[rows] for of in judged.features.values()], axis=0)


def term_texts(judged: Judged, rows: Int64s) -> pa.Array:
    """The features at some of the events, as JSON text: a list of objects, in the order of the rule."""
    terms = [_terms(judged.rule, name, of, rows) for name, of in judged.features.items()]
    return pa.array([f"[{', '.join(of_event)}]" for of_event in zip(*terms, strict=True)], pa.string())


def _columns(judged: Judged, rows: Int64s) -> dict[str, pa.Array]:
    return {
        "exact": pa.array(all_exact(judged, rows)),
        "certain": pa.array(_certain(judged, rows)),
        "terms": term_texts(judged, rows),
        "condition": pa.array(_conditions(judged, rows), pa.string()),
    }


def _terms(rule: Rule, name: str, of: FeatureValues, rows: Int64s) -> list[str]:
    """A feature at some events."""
    start, values = term_start(rule, replace(of.feature, name=name)), of.values
    is_boolean = of.feature.feature.aggregate.is_boolean

    def shown(number: Any) -> str:
        return JSON_FLAG[bool(number)] if is_boolean else f'"{format_scaled(int(number), values.scale)}"'

    terms = []
    for row in rows.tolist():
        value = shown(values.scaled[row]) if values.valid[row] else "null"
        bounds = None if values.exact[row] else (shown(values.lower[row]), shown(values.upper[row]))
        may_be_null, count = bool(values.may_be_null[row]), int(of.counted[row])
        terms.append(start + term_end(value, bounds, may_be_null, count, bool(of.warm[row])))
    return terms


def _conditions(judged: Judged, rows: Int64s) -> list[str]:
    """The condition in English, with the values of features and fields behind their names."""
    named = {name: _shown_values(of, rows) for name, of in judged.features.items()}
    named |= {name: [_shown_field(value) for value in values] for name, values in _fields(judged, rows).items()}
    texts = []
    for row in range(len(rows)):
        words = {name: f"{name} ({values[row]})" for name, values in named.items()}
        texts.append(condition_words(judged.rule.when, words))
    return texts


def _fields(judged: Judged, rows: Int64s) -> dict[str, list[Any]]:
    """The fields of events that the condition names: measures as decimals, the event time in ms."""
    table, named = judged.table, condition_fields(judged.rule.when, judged.features)
    fields: dict[str, list[Any]] = {}
    for name, column in table.fields(named, judged.events[rows]).items():
        measure = table.schema.measures.get(name)
        values = column.to_pylist()
        if measure is not None:
            values = [None if value is None else scaled_down(value, measure.scale) for value in values]
        fields[name] = values
    return fields


def _certain(judged: Judged, rows: Int64s) -> Flags:
    """At which of some events the condition is true whatever lies between the bounds of its features."""
    certain = all_exact(judged, rows)
    unsure = np.flatnonzero(~certain)
    if len(unsure):
        fields = _fields(judged, rows[unsure])
        for index, row in enumerate(unsure.tolist()):
            known: dict[str, Value] = {name: values[index] for name, values in fields.items()}
            known |= {name: _between(of, int(rows[row])) for name, of in judged.features.items()}
            lists = judged.table.lists_at(judged.events[rows[row : row + 1]])
            certain[row] = possible_truths(judged.rule.when.expression, known, lists) == {True}
    return certain


def _between(of: FeatureValues, row: int) -> Value:
    """What a feature can be at an event."""
    values = of.values
    lower, upper = int(values.lower[row]), int(values.upper[row])
    if of.feature.feature.aggregate.is_boolean:
        return frozenset([bool(lower), bool(upper)])
    if values.exact[row]:
        return scaled_down(int(values.scaled[row]), values.scale) if values.valid[row] else None
    may_be_null = bool(values.may_be_null[row])
    return Between(scaled_down(lower, values.scale), scaled_down(upper, values.scale), may_be_null)


def _shown_values(of: FeatureValues, rows: Int64s) -> list[str]:
    values, is_boolean = of.values, of.feature.feature.aggregate.is_boolean

    def shown(row: int) -> str:
        if not values.valid[row]:
            return "no value"
        number = int(values.scaled[row])
        return ("yes" if number else "no") if is_boolean else readable(format_scaled(number, values.scale))

    return [shown(row) for row in rows.tolist()]


def _shown_field(value: Any) -> str:
    if isinstance(value, Decimal):
        return readable(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "missing" if value is None else one_line(str(value))
