"""Results of rules at events as alerts and evaluations show them: values, bounds, terms and texts."""

import re
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.aggregates.component import COMPUTED
from buckets.arrays import Flags, Int64s
from buckets.engine.policies import Fired
from buckets.engine.results.alerts import FiredRules
from buckets.engine.values.feature_rules import FeatureValues, Judged, scores_at
from buckets.engine.values.group_parts import ScoredGroup
from buckets.engine.values.track_values import number_columns, row_columns
from buckets.events.schema import EventSchema
from buckets.expressions.certainty import Value, possible_truths
from buckets.expressions.number_functions import Interval, scaled_down
from buckets.json_text import write_json
from buckets.kernel.plan import GroupPlan
from buckets.kernel.result_rows import Rows
from buckets.kernel.score import chosen_rows
from buckets.numbers.fixed_point import format_scaled, readable
from buckets.outputs.columns import EVALUATIONS, TIME, columns_of
from buckets.printable import elements_shown, one_line
from buckets.rules.condition import condition_fields, condition_words
from buckets.rules.feature import VALUE, NamedFeature, sentence_of
from buckets.rules.filter import write_filter
from buckets.rules.rule import Rule, extra_digits

JSON_FLAG = {True: "true", False: "false"}


class RuleTexts(NamedTuple):
    """The texts that all results of a rule share."""

    term_starts: tuple[str, ...]  # the beginnings of the terms, in the order of the features
    template: str  # the condition in English, with `%s` in place of values
    names: tuple[str, ...]  # the features and fields whose values go there

    @classmethod
    def of(cls, rule: Rule) -> "RuleTexts":
        """Return the texts of a rule."""
        starts = tuple(_term_start(rule, named) for named in rule.named_features())
        names, mark = [*rule.features, *condition_fields(rule.when, rule.features)], "#"
        while mark in rule.when.text or mark in (rule.measure or ""):
            mark += "#"
        if rule.limit is None:
            marked = {name: f"{name} ({mark}{number})" for number, name in enumerate(names)}
            sentence = condition_words(rule.when, marked)
        else:
            sentence = sentence_of(rule.features[VALUE], rule.limit, rule.on, value=f"{mark}0")
        pieces = re.split(rf"{mark}(\d+)(?=\))", sentence)
        template = "%s".join(piece.replace("%", "%%") for piece in pieces[::2])
        return cls(starts, template, tuple(names[int(number)] for number in pieces[1::2]))


def _term_start(rule: Rule, named: NamedFeature) -> str:
    """Return the beginning of a feature's term, the same at all events, without what it shares with the rule."""
    feature = named.feature
    fixed: dict[str, Any] = {"name": named.name, "function": feature.function}
    fixed |= {"of": feature.of_text} if feature.of_text is not None else {}
    fixed |= {"p": format(feature.p, "f")} if feature.p is not None else {}
    fixed |= {"steps": feature.steps_in_words} if feature.steps else {}
    fixed["window"] = feature.window.text
    fixed |= {"where": write_filter(named.where)} if named.where != rule.where and not feature.steps else {}
    fixed |= {"group_by": list(named.fields)} if frozenset(named.fields) != frozenset(rule.group_by) else {}
    return write_json(fixed).removesuffix("}")


def fired_rules(judged: Iterable[Judged]) -> Iterator[FiredRules]:
    """Yield the rules of one group that fired, at the events at which they did.

    Rules that name a key's fields in the same order, and whose alerts have the same columns, come together.
    """
    alike: dict[tuple[bool, tuple[str, ...]], list[_FiredRows]] = {}
    for of_rule in judged:
        rows = np.flatnonzero(of_rule.fired)
        if len(rows):
            # The short form names the fields of keys as the group does.
            key_order = () if of_rule.rule.is_short else of_rule.rule.group_by
            alike.setdefault((of_rule.rule.is_short, key_order), []).append(_FiredRows(of_rule, rows))
    for (_, key_order), rules in alike.items():
        numbers = np.repeat(np.arange(len(rules)), [len(of.rows) for of in rules])
        events = np.concatenate([of.judged.events[of.rows] for of in rules])
        warm = np.concatenate([all_warm(of.judged, of.rows) for of in rules])
        fired = Fired([of.judged.rule for of in rules], numbers, events, warm)
        yield FiredRules(rules[0].judged.table, fired, partial(_columns, rules, numbers), key_order)


class _FiredRows(NamedTuple):
    judged: Judged
    rows: Int64s


def all_warm(judged: Judged, rows: Int64s) -> Flags:
    """Return at which of some events all features are warm, bool `(rows,)`."""
    return np.all([np.ones(len(rows), np.bool_), *(of.warm[rows] for of in judged.features.values())], axis=0)


def all_exact(judged: Judged, rows: Int64s) -> Flags:
    """Return at which of some events all features are exact, bool `(rows,)`."""
    exact = (of.values.exact[rows] for of in judged.features.values())
    return np.all([np.ones(len(rows), np.bool_), *exact], axis=0)


def term_texts(judged: Judged, rows: Int64s, texts: RuleTexts) -> list[str]:
    """Return the terms of each of some events as JSON text: a list of objects, one a feature, in the rule's order."""
    of_features = zip(texts.term_starts, judged.features.values(), strict=True)
    terms = [_terms(start, of, rows) for start, of in of_features]
    return [f"[{', '.join(of[row] for of in terms)}]" for row in range(len(rows))]


def _columns(rules: Sequence[_FiredRows], numbers: Int64s, chosen: Int64s) -> dict[str, pa.Array]:
    """Return the result columns of alerts for chosen rows, which are sorted; `numbers` has the rule of every row."""
    of_rules, begin = np.unique(numbers[chosen], return_index=True)
    pieces = [
        _FiredRows(rules[number].judged, rules[number].rows[of_rule - first])
        for number, first, of_rule in zip(
            of_rules.tolist(), np.searchsorted(numbers, of_rules).tolist(), np.split(chosen, begin[1:]), strict=True
        )
    ]
    texts = [RuleTexts.of(of.judged.rule) for of in pieces]
    known = list(zip(pieces, texts, strict=True))
    return {
        "exact": pa.array(np.concatenate([all_exact(*of) for of in pieces])),
        "certain": pa.array(np.concatenate([_certain(*of) for of in pieces])),
        "terms": pa.array([terms for of, texts in known for terms in term_texts(*of, texts)], pa.string()),
        "condition": pa.array([filled for of, texts in known for filled in _filled(*of, texts)], pa.string()),
        "score": pa.array(np.concatenate([scores_at(*of) for of in pieces])),
        **(_limit_columns(pieces) if pieces[0].judged.rule.is_short else {}),
    }


def _filled(judged: Judged, rows: Int64s, texts: RuleTexts) -> list[str]:
    named = {name: _shown_values(of, rows) for name, of in judged.features.items() if name in texts.names}
    if len(named) < len(texts.names):
        named |= {name: [_shown_field(value) for value in values] for name, values in _fields(judged, rows).items()}
    if not texts.names:
        return [texts.template % ()] * len(rows)
    return [*map(texts.template.__mod__, zip(*(named[name] for name in texts.names), strict=True))]


def _limit_columns(pieces: Sequence[_FiredRows]) -> dict[str, pa.Array]:
    """Return the columns that only alerts of rules in the short form have."""
    limits = [(of.judged.rule.limit, len(of.rows)) for of in pieces]
    of_rules = [chosen_rows(of.judged.compared, of.rows) for of in pieces if of.judged.compared is not None]
    compared = Rows(*map(np.concatenate, zip(*of_rules, strict=True)))
    scales = [of.judged.features[VALUE].values.scale - extra_digits(of.judged.rule) for of in pieces]
    are_counts = [of.judged.rule.is_count for of in pieces]
    schema = pieces[0].judged.table.schema
    sizes = [len(of.rows) for of in pieces]
    return {
        **number_columns(np.repeat(scales, sizes), np.repeat(are_counts, sizes), schema, row_columns(compared)),
        "operator": pa.array([limit.operator for limit, size in limits if limit for _ in range(size)]),
        "limit": pa.array([format(limit.value, "f") for limit, size in limits if limit for _ in range(size)]),
    }


def _terms(start: str, of: FeatureValues, rows: Int64s) -> list[str]:
    values = of.values

    def shown(value: Any) -> str:
        if values.kind == "text":
            return write_json(value)
        return JSON_FLAG[bool(value)] if values.kind == "boolean" else f'"{format_scaled(int(value), values.scale)}"'

    end = ', "type": "text"}' if values.kind == "text" else "}"
    terms = []
    columns = (values.scaled, values.valid, values.exact, of.counted, of.warm)
    for row, scaled, is_valid, is_exact, count, is_warm in zip(
        rows.tolist(), *(column[rows].tolist() for column in columns), strict=True
    ):
        value = shown(scaled) if is_valid else "null"
        if not is_exact:
            if values.kind != "text":
                value += f', "lower": {shown(values.lower[row])}, "upper": {shown(values.upper[row])}'
            value += ', "may_be_null": true' if values.may_be_null[row] else ""
        flags = f'"exact": {JSON_FLAG[is_exact]}, "count": {count}, "warm": {JSON_FLAG[is_warm]}'
        terms.append(f'{start}, "value": {value}, {flags}{end}')
    return terms


def _fields(judged: Judged, rows: Int64s) -> dict[str, list[Any]]:
    """Return the fields that the condition names, at some events: measures as decimals, the event time in ms."""
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
    """Return at which of some events the condition is true for all values between the bounds of its features."""
    if judged.compared is not None:
        return judged.compared.certain[rows]
    certain = all_exact(judged, rows)
    is_open = ~certain
    for of in judged.features.values():
        if of.values.kind == "text":  # One that is not exact may be any text.
            is_open &= of.values.exact[rows]
    unsure = np.flatnonzero(is_open)
    if len(unsure):
        fields = _fields(judged, rows[unsure])
        for index, row in enumerate(unsure.tolist()):
            known: dict[str, Value] = {name: values[index] for name, values in fields.items()}
            known |= {name: _between(of, int(rows[row])) for name, of in judged.features.items()}
            lists = judged.table.lists_at(judged.events[rows[row : row + 1]])
            certain[row] = possible_truths(judged.rule.when.expression, known, lists) == {True}
    return certain


def _between(of: FeatureValues, row: int) -> Value:
    """Return the values that a feature can have at an event."""
    values = of.values
    if values.kind == "text":
        return values.scaled[row] if values.valid[row] else None
    lower, upper = int(values.lower[row]), int(values.upper[row])
    if values.kind == "boolean":
        is_null = values.exact[row] and not values.valid[row]
        truths = frozenset[bool | None]([] if is_null else [bool(lower), bool(upper)])
        return truths | {None} if is_null or (values.may_be_null[row] and not values.exact[row]) else truths
    if values.exact[row]:
        return scaled_down(int(values.scaled[row]), values.scale) if values.valid[row] else None
    may_be_null = bool(values.may_be_null[row])
    return Interval(scaled_down(lower, values.scale), scaled_down(upper, values.scale), may_be_null)


def _shown_values(of: FeatureValues, rows: Int64s) -> list[str]:
    kind, scale = of.values.kind, of.values.scale

    def shown(value: Any) -> str:
        if kind == "number":
            return readable(format_scaled(int(value), scale)) if scale else f"{int(value):,}"
        return one_line(value) if kind == "text" else "yes" if value else "no"

    found = zip(of.values.scaled[rows].tolist(), of.values.valid[rows].tolist(), strict=True)
    return [shown(value) if is_valid else "no value" for value, is_valid in found]


def _shown_field(value: Any) -> str:
    if isinstance(value, list):
        return elements_shown([_shown_field(element) for element in value])
    if isinstance(value, Decimal):
        return readable(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "missing" if value is None else one_line(str(value))


def condition_evaluations(judged: Judged, ruleset_version: int) -> pa.Table:
    """Return the evaluations of a rule with a condition, in the columns of `expand_evaluations`."""
    table, rows = judged.table, np.arange(len(judged.events))
    taken = table.take(judged.events)
    columns = {
        "event_id": taken["event_id"],
        "rule_id": pa.repeat(judged.rule.rule_id, len(rows)),
        "rule_version": pa.repeat(pa.scalar(judged.rule.version, pa.int32()), len(rows)),
        "ruleset_version": pa.repeat(ruleset_version, len(rows)),
        "key": table.key_column(judged.events, judged.rule.group_by),
        "event_time": taken["time_ms"].cast(TIME),
        "exact": pa.array(all_exact(judged, rows)),
        "warm": pa.array(all_warm(judged, rows)),
        "fired": pa.array(judged.fired),
        "terms": pa.array(term_texts(judged, rows, RuleTexts.of(judged.rule)), pa.string()),
    }
    return _table(columns, table.schema, taken)


def _table(found: dict[str, pa.Array], schema: EventSchema, origins: pa.Table) -> pa.Table:
    """Return the columns of evaluations in order, nulls for missing ones, and the origin of each event."""
    columns = columns_of(EVALUATIONS, schema.largest_scale)
    known = {field.name: found.get(field.name, pa.nulls(len(origins), field.type)) for field in columns}
    origin = {
        "source": origins["source"].cast(pa.string()),
        "source_order": origins["source_order"],
        "position": origins["position"],
    }
    return pa.table(known | origin)


def compact_evaluations(group: ScoredGroup) -> pa.Table:
    """Return the results of rules in the short form, one row per event with its results as lists.

    `expand_evaluations` turns them into rows.
    """
    rows, are_short = group.scored.rows, np.array([rule.is_short for rule in group.plan.rules], np.bool_)
    if not are_short.all():
        rows = chosen_rows(rows, are_short[rows.rule])
    starts = np.flatnonzero(np.diff(rows.event, prepend=-1))
    events = rows.event[starts]
    offsets = pa.array(np.append(starts, len(rows.event)).astype(np.int32))
    taken = group.table.take(events)
    columns = {
        "rule": rows.rule,
        "fired": rows.fired,
        "warm": group.warm(rows.event, rows.rule),
        **row_columns(rows),
    }
    return pa.table(
        {
            "event_id": taken["event_id"],
            "key": group.table.key_column(events).dictionary_encode(),
            "time_ms": taken["time_ms"],
            "source": taken["source"],
            "source_order": taken["source_order"],
            "position": taken["position"],
        }
        | {name: pa.ListArray.from_arrays(offsets, pa.array(values)) for name, values in columns.items()}
    )


def expand_evaluations(compact: pa.Table, plan: GroupPlan, schema: EventSchema, ruleset_version: int) -> pa.Table:
    """Expand compact evaluations into one row per event and rule, in the columns of the output `evaluations`.

    Three more columns, `source`, `source_order` and `position`, say where the event came from.
    """
    names = ["rule", "fired", "warm", *(name for name in COMPUTED if name in compact.column_names)]
    lists = {name: compact[name].combine_chunks() for name in names}
    flat = {name: pc.list_flatten(values) for name, values in lists.items()}
    events, rules = pc.list_parent_indices(lists["rule"]), flat["rule"].to_numpy()
    rows = {name: flat[name].to_numpy(zero_copy_only=False) for name in names if name in COMPUTED}
    scales = np.array(plan.value_scales, np.int64) - [extra_digits(rule) for rule in plan.rules]
    are_counts = np.array([rule.is_count for rule in plan.rules], np.bool_)
    rule_ids = pa.array([rule.rule_id for rule in plan.rules])
    versions = pa.array([rule.version for rule in plan.rules], pa.int32())
    columns = {
        "event_id": compact["event_id"].take(events),
        "rule_id": rule_ids.take(flat["rule"]),
        "rule_version": versions.take(flat["rule"]),
        "ruleset_version": pa.array(np.full(len(rules), ruleset_version)),
        "key": compact["key"].cast(pa.string()).take(events),
        "event_time": compact["time_ms"].cast(TIME).take(events),
        **number_columns(scales[rules], are_counts[rules], schema, rows),
        "warm": flat["warm"],
        "fired": flat["fired"],
    }
    return _table(columns, schema, compact.select(["source", "source_order", "position"]).take(events))
