"""What rules with features found, as rows of alerts and of evaluations."""

import json
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.duration import format_duration
from buckets.engine.policies.policies import Decided, Fired
from buckets.engine.results.alerts import alert_id, event_rows
from buckets.engine.values.feature_rules import FeatureValues, Judged
from buckets.events.arrivals import INGESTED
from buckets.expressions.certainty import Between, Value, possible_truths
from buckets.expressions.interval import scaled_down
from buckets.numbers.fixed_point import format_scaled, readable
from buckets.outputs.columns import TIME, evaluation_columns, output_columns
from buckets.printable import one_line
from buckets.rules.condition import condition_fields, condition_words
from buckets.rules.filter import write_filter
from buckets.rules.rule import Rule

Int64s = npt.NDArray[np.int64]
_NUMBERS = ("value", "lower", "upper", "count", "count_lower", "count_upper", "operator", "limit")
"""What rows have of rules with one aggregate only."""


def judged_fired(judged: Judged) -> Fired:
    """The events at which the condition is true."""
    rows = np.flatnonzero(judged.fired)
    return Fired([judged.rule], np.zeros(len(rows), np.int64), judged.events[rows], _all(judged, rows, "warm"))


def judged_alerts(judged: Judged, ruleset_version: int, decided: Decided, output: str, mine: Int64s) -> pa.Table:
    """The rows of an output of alerts; with `ingested_ms` where the source knows that.

    Args:
        judged: the rule at its events.
        ruleset_version: version of the rule set that evaluated them.
        decided: what became of those of `judged_fired`.
        output: `alerts`, `shadow_alerts` or `held_alerts`.
        mine: which of these rows go there.
    """
    rule, table, schema = judged.rule, judged.table, judged.table.schema
    columns = output_columns(schema.largest_scale)[output]
    rows = np.flatnonzero(judged.fired)[mine]
    events = judged.events[rows]
    taken, keys, times_ms = table.take(events), table.key_column(events, rule.group_by), table.times_ms(events)
    ids, exact = taken["event_id"].to_pylist(), _all(judged, rows, "exact")
    alert_ids = [alert_id(rule, *each) for each in zip(keys.to_pylist(), ids, times_ms.tolist(), strict=True)]
    found = {
        "alert_id": pa.array(alert_ids, pa.string()),
        **_of_rule(rule, ruleset_version, len(rows)),
        "rule": _repeated(rule.sentence(), pa.string(), len(rows)),
        "key": keys,
        "event_id": taken["event_id"],
        "event_time": taken["time_ms"].cast(TIME),
        "exact": pa.array(exact),
        "certain": pa.array(certainties(judged, rows)),
        "warm": pa.array(decided.fired.warm[mine]),
        "window_start": pa.array(times_ms - rule.longest_window.length_ms).cast(TIME),
        "window_end": taken["time_ms"].cast(TIME),
        "event": pa.array(table.event_texts(events, taken), pa.string()),
        "terms": pa.array(term_texts(judged, rows), pa.string()),
        "condition": pa.array(conditions(judged, rows), pa.string()),
        **decided.columns(mine),
        "source": taken["source"].cast(pa.string()),
        "source_order": taken["source_order"],
        "position": taken["position"],
    }
    found |= {name: pa.nulls(len(rows), columns.field(name).type) for name in _NUMBERS}
    made = pa.table({name: found[name] for name in columns.names}, schema=columns)
    return made.append_column(INGESTED, taken[INGESTED]) if INGESTED in taken.column_names else made


def judged_variants(judged: Judged, mine: Int64s) -> pa.Table:
    """Return the rows of an output of variants.

    Args:
        judged: a variant at its events.
        mine: which of those of `judged_fired` go there.
    """
    events = judged.events[np.flatnonzero(judged.fired)[mine]]
    ids = _repeated(judged.rule.rule_id, pa.string(), len(events))
    return event_rows(judged.table, events, ids, judged.rule.group_by)


def judged_evaluations(judged: Judged, ruleset_version: int) -> pa.Table:
    """The rule at every event, in the columns of `evaluation_columns` and those of `expand_evaluations`."""
    table, rows = judged.table, np.arange(len(judged.events))
    columns = evaluation_columns(table.schema.largest_scale)
    taken = table.take(judged.events)
    found = {
        "event_id": taken["event_id"],
        **_of_rule(judged.rule, ruleset_version, len(rows)),
        "key": table.key_column(judged.events, judged.rule.group_by),
        "event_time": taken["time_ms"].cast(TIME),
        "exact": pa.array(_all(judged, rows, "exact")),
        "warm": pa.array(_all(judged, rows, "warm")),
        "fired": pa.array(judged.fired),
        "terms": pa.array(term_texts(judged, rows), pa.string()),
    }
    found |= {name: pa.nulls(len(rows), columns.field(name).type) for name in _NUMBERS if name in columns.names}
    origin = {
        "source": taken["source"].cast(pa.string()),
        "source_order": taken["source_order"],
        "position": taken["position"],
    }
    return pa.table({name: found[name] for name in columns.names} | origin)


def term_texts(judged: Judged, rows: Int64s) -> list[str]:
    """The features of a rule at some of its events, as JSON text: a list of objects, in the order of the rule."""
    terms = [_terms(name, each, judged.rule, rows) for name, each in judged.features.items()]
    return [json.dumps(of_event, ensure_ascii=False) for of_event in zip(*terms, strict=True)]


def _terms(name: str, of: FeatureValues, rule: Rule, rows: Int64s) -> list[dict[str, Any]]:
    """A feature at some events."""
    feature, values = of.feature.feature, of.values
    fixed: dict[str, Any] = {"name": name, "function": feature.function}
    fixed |= {"of": feature.of} if feature.of is not None else {}
    fixed |= {"p": format(feature.p, "f")} if feature.p is not None else {}
    fixed["window"] = format_duration(feature.window.length_ms)
    fixed |= {"where": write_filter(of.feature.where)} if of.feature.where != rule.where else {}
    fixed |= {"group_by": list(of.feature.fields)} if frozenset(of.feature.fields) != frozenset(rule.group_by) else {}
    is_boolean = feature.aggregate.is_boolean

    def shown(number: Any) -> str | bool:
        return bool(number) if is_boolean else format_scaled(int(number), values.scale)

    terms = []
    for row in rows.tolist():
        term = fixed | {"value": shown(values.scaled[row]) if values.valid[row] else None}
        is_exact = bool(values.exact[row])
        if not is_exact:
            term |= {"lower": shown(values.lower[row]), "upper": shown(values.upper[row])}
            term |= {"may_be_null": True} if values.may_be_null[row] else {}
        terms.append(term | {"exact": is_exact, "count": int(of.counted[row]), "warm": bool(of.warm[row])})
    return terms


def conditions(judged: Judged, rows: Int64s) -> list[str]:
    """The condition of a rule at some of its events, in English with the numbers in it."""
    when = judged.rule.when
    named = {name: _shown_values(each, rows) for name, each in judged.features.items()}
    fields = _fields(judged, rows)
    named |= {name: [_shown_field(value) for value in values] for name, values in fields.items()}
    texts = []
    for row in range(len(rows)):
        words = {name: f"{name} ({values[row]})" for name, values in named.items()}
        texts.append(condition_words(when, words))
    return texts


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


def _fields(judged: Judged, rows: Int64s) -> dict[str, list[Any]]:
    """The fields of events that a condition names: measures as decimals, the event time in ms."""
    rule, table = judged.rule, judged.table
    columns = table.fields(condition_fields(rule.when, judged.features), judged.events[rows])
    found: dict[str, list[Any]] = {}
    for name, column in columns.items():
        measure = table.schema.measures.get(name)
        values = column.to_pylist()
        if measure is not None:
            values = [None if each is None else scaled_down(each, measure.scale) for each in values]
        found[name] = values
    return found


def certainties(judged: Judged, rows: Int64s) -> npt.NDArray[np.bool_]:
    """At which of some events the condition is true whatever lies between the bounds of its features."""
    certain = _all(judged, rows, "exact")
    when = judged.rule.when
    unsure = np.flatnonzero(~certain)
    if len(unsure):
        fields = _fields(judged, rows[unsure])
        for index, row in enumerate(unsure.tolist()):
            known: dict[str, Value] = {name: values[index] for name, values in fields.items()}
            known |= {name: _between(each, int(rows[row])) for name, each in judged.features.items()}
            lists = judged.table.lists_at(judged.events[rows[row : row + 1]])
            certain[row] = possible_truths(when.expression, known, lists) == {True}
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


def _all(judged: Judged, rows: Int64s, what: str) -> npt.NDArray[np.bool_]:
    """Whether all features of a rule are exact, or warm, at some events."""
    found = np.ones(len(rows), np.bool_)
    for each in judged.features.values():
        found &= (each.values.exact if what == "exact" else each.warm)[rows]
    return found


def _of_rule(rule: Rule, ruleset_version: int, rows: int) -> dict[str, pa.Array]:
    return {
        "rule_id": _repeated(rule.rule_id, pa.string(), rows),
        "rule_version": _repeated(rule.version, pa.int32(), rows),
        "ruleset_version": _repeated(ruleset_version, pa.int64(), rows),
    }


def _repeated(value: Any, kind: pa.DataType, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), rows)
