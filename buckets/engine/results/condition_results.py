"""What a rule with a condition found, as alerts and evaluations show it."""

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.engine.policies.policies import Fired
from buckets.engine.results.alerts import FiredRules
from buckets.engine.results.rule_texts import JSON_FLAG, RuleTexts, term_end
from buckets.engine.values.feature_rules import FeatureValues, Judged
from buckets.expressions.certainty import Value, possible_truths
from buckets.expressions.interval import Interval, scaled_down
from buckets.numbers.figures import readable
from buckets.numbers.fixed_point import format_scaled
from buckets.printable import elements_shown, one_line
from buckets.rules.condition import condition_fields

Int64s = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def fired_conditions(judged: Iterable[Judged]) -> Iterator[FiredRules]:
    """Yield rules of one group at the events at which they fired, those together that name a key's fields in one order.

    Nothing comes of a rule that fired at no event.
    """
    orders: dict[tuple[str, ...], list[_FiredRows]] = {}
    for of_rule in judged:
        rows = np.flatnonzero(of_rule.fired)
        if len(rows):
            orders.setdefault(of_rule.rule.group_by, []).append(_FiredRows(of_rule, rows))
    for order, rules in orders.items():
        numbers = np.repeat(np.arange(len(rules)), [len(of.rows) for of in rules])
        events = np.concatenate([of.judged.events[of.rows] for of in rules])
        warm = np.concatenate([all_warm(of.judged, of.rows) for of in rules])
        fired = Fired([of.judged.rule for of in rules], numbers, events, warm)
        yield FiredRules(rules[0].judged.table, fired, partial(_columns, rules, numbers), order)


class _FiredRows(NamedTuple):
    """At which of its events a rule fired."""

    judged: Judged
    rows: Int64s


def all_warm(judged: Judged, rows: Int64s) -> Flags:
    """Return whether no window of a feature can lack something, at some of the events."""
    return np.all([of.warm[rows] for of in judged.features.values()], axis=0)


def all_exact(judged: Judged, rows: Int64s) -> Flags:
    """Return whether all features are known to the last digit, at some of the events."""
    return np.all([of.values.exact[rows] for of in judged.features.values()], axis=0)


def term_texts(judged: Judged, rows: Int64s, texts: RuleTexts) -> pa.Array:
    """Return the features at some of the events, as JSON text: a list of objects, in the order of the rule."""
    of_features = zip(texts.term_starts, judged.features.values(), strict=True)
    terms = [_terms(start, of, rows) for start, of in of_features]
    return pa.array([f"[{', '.join(of_event)}]" for of_event in zip(*terms, strict=True)], pa.string())


def _columns(rules: Sequence[_FiredRows], numbers: Int64s, chosen: Int64s) -> dict[str, pa.Array]:
    """Return what alerts say of some rows, which are in order; for each of all rows there is the number of its rule."""
    starts, pieces = np.searchsorted(numbers, np.arange(len(rules))), []
    for number in np.unique(numbers[chosen]).tolist():
        judged, of_rule = rules[number].judged, chosen[numbers[chosen] == number]
        rows = rules[number].rows[of_rule - starts[number]]
        exact, certain = pa.array(all_exact(judged, rows)), pa.array(_certain(judged, rows))
        texts = RuleTexts.of(judged.rule)
        conditions = pa.array(_conditions(judged, rows, texts), pa.string())
        pieces.append((exact, certain, term_texts(judged, rows, texts), conditions))
    columns = (pa.concat_arrays(of_rules) for of_rules in zip(*pieces, strict=True))
    return dict(zip(("exact", "certain", "terms", "condition"), columns, strict=True))


def _terms(start: str, of: FeatureValues, rows: Int64s) -> list[str]:
    """Return the terms of a feature at some events."""
    values, is_boolean = of.values, of.feature.feature.aggregate.is_boolean

    def shown(number: Any) -> str:
        return JSON_FLAG[bool(number)] if is_boolean else f'"{format_scaled(int(number), values.scale)}"'

    terms = []
    for row in rows.tolist():
        value = shown(values.scaled[row]) if values.valid[row] else "null"
        bounds = None if values.exact[row] else (shown(values.lower[row]), shown(values.upper[row]))
        may_be_null, count = bool(values.may_be_null[row]), int(of.counted[row])
        terms.append(start + term_end(value, bounds, may_be_null, count, bool(of.warm[row])))
    return terms


def _conditions(judged: Judged, rows: Int64s, texts: RuleTexts) -> list[str]:
    """Return the condition in English, with the values of features and fields behind their names."""
    named = {name: _shown_values(of, rows) for name, of in judged.features.items() if name in texts.names}
    named |= {name: [_shown_field(value) for value in values] for name, values in _fields(judged, rows).items()}
    return [texts.condition({name: values[row] for name, values in named.items()}) for row in range(len(rows))]


def _fields(judged: Judged, rows: Int64s) -> dict[str, list[Any]]:
    """Return the fields of events that the condition names: measures as decimals, the event time in ms."""
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
    """Return at which of some events the condition is true whatever lies between the bounds of its features."""
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
    """Return what a feature can be at an event."""
    values = of.values
    lower, upper = int(values.lower[row]), int(values.upper[row])
    if of.feature.feature.aggregate.is_boolean:
        return frozenset([bool(lower), bool(upper)])
    if values.exact[row]:
        return scaled_down(int(values.scaled[row]), values.scale) if values.valid[row] else None
    may_be_null = bool(values.may_be_null[row])
    return Interval(scaled_down(lower, values.scale), scaled_down(upper, values.scale), may_be_null)


def _shown_values(of: FeatureValues, rows: Int64s) -> list[str]:
    values, is_boolean = of.values, of.feature.feature.aggregate.is_boolean

    def shown(row: int) -> str:
        if not values.valid[row]:
            return "no value"
        number = int(values.scaled[row])
        return ("yes" if number else "no") if is_boolean else readable(format_scaled(number, values.scale))

    return [shown(row) for row in rows.tolist()]


def _shown_field(value: Any) -> str:
    if isinstance(value, list):
        return elements_shown([_shown_field(element) for element in value])
    if isinstance(value, Decimal):
        return readable(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "missing" if value is None else one_line(str(value))
