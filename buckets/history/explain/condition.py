"""Explains a rule's condition: which parts hold, how far each is from changing, or why it was not evaluated."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final, Literal

import numpy as np

from buckets.aggregates.plain import PlainValue
from buckets.archive.arrived_rows import JUDGED
from buckets.duration import format_duration
from buckets.errors import BucketsError
from buckets.events.messages import topic_of
from buckets.expressions.certainty import Value, possible_number, possible_truths
from buckets.expressions.expression import COMPARISONS, Expression
from buckets.expressions.number_functions import scaled_down
from buckets.expressions.wording import in_words, value_in_words
from buckets.history.explain.explanation import ConditionPart, Reason, Truth, shown
from buckets.history.explain.history_lookup import Past
from buckets.history.explain.key import KeyHistory, Target, required_fields
from buckets.lists.index import ListsAt
from buckets.moment import exact_time_text
from buckets.numbers.fixed_point import format_scaled, readable
from buckets.printable import quoted
from buckets.rules.condition import SqlFilter
from buckets.rules.feature import Limit, NamedFeature
from buckets.rules.filter import Condition, describe_filter
from buckets.rules.revision import names
from buckets.rules.rule import Rule

_VERBS: Final = {
    "=": ("is exactly", "is not exactly"),
    "!=": ("is not", "is"),
    ">": ("is above", "is not above"),
    ">=": ("is at least", "is below"),
    "<": ("is below", "is not below"),
    "<=": ("is at most", "is above"),
}
"""The verb of a comparison if it is true, and if it is false."""
_JOINS: Final[dict[str, Literal["all", "any", "not"]]] = {"and": "all", "or": "any", "not": "not"}
_TRUTHS: Final[dict[bool | None, Truth]] = {None: "unknown", True: "true", False: "false"}


@dataclass(frozen=True)
class KnownValues:
    """The values in a condition."""

    values: Mapping[str, Value]  # by name, features and fields of the event; NULL is None
    why_null: Mapping[str, str]  # by name, why a feature has no value
    lists: ListsAt | None  # at the time of the event

    def words(self, name: str) -> str:
        """Return a name with its value."""
        return f"{name} ({shown(self.values[name])})"


def explain_condition(when: SqlFilter, known: KnownValues) -> ConditionPart:
    """Explain a condition part by part, in its written order."""
    from buckets.expressions.parser import parse_expression

    return _part(parse_expression(when.text), known)


def explain_test(name: str, value: PlainValue, limit: Limit) -> ConditionPart:
    """Explain a comparison made by the kernel, with all digits, also those not displayed."""
    assert isinstance(value.exact, Fraction)
    assert isinstance(value.shown, Decimal)
    test = Expression(limit.operator, (Expression("field", value=name), Expression("number", value=limit.value)))
    holds = COMPARISONS[limit.operator](value.exact, Fraction(limit.value))
    return _compared(test, value.shown, limit.value, "true" if holds else "false")


def _part(expression: Expression, known: KnownValues) -> ConditionPart:
    operator = expression.operator
    truths = possible_truths(expression, known.values, known.lists)
    truth: Truth = "uncertain" if len(truths) > 1 else _TRUTHS[next(iter(truths))]
    if operator in ("and", "or", "not"):
        parts = tuple(_part(operand, known) for operand in expression.operands)
        return ConditionPart(_JOINS[operator], _words(expression, known), truth, parts=parts)
    nulls = [name for name in dict.fromkeys(expression.fields()) if known.values[name] is None]
    if truth == "unknown" and nulls:
        because = "; ".join(known.why_null.get(name, f"{name} is missing") for name in nulls)
        return ConditionPart("test", f"{_words(expression, known)} is unknown: {because}", truth)
    if operator in COMPARISONS:
        first, second = (possible_number(operand, known.values, known.lists) for operand in expression.operands)
        if first is not None and second is not None and first.is_exact and second.is_exact:
            return _compared(expression, first.lower, second.lower, truth)
    holds = {"true": "holds", "false": "does not hold", "unknown": "is unknown", "uncertain": "may hold"}[truth]
    return ConditionPart("test", f"{_words(expression, known)}: {holds}", truth)


def _compared(expression: Expression, first: Decimal, second: Decimal, truth: Truth) -> ConditionPart:
    """Explain a comparison of two numbers, with their distance."""
    left, right = expression.operands
    verb = _VERBS[expression.operator][truth != "true"]
    distance = abs(first - second)
    apart = f"by {readable(distance)}" if distance else "they are equal"
    text = f"{_side(left, first)} {verb} {_side(right, second)}"
    if expression.operator in ("=", "!="):
        text += "" if not distance else f", {readable(distance)} apart"
    else:
        text += f" {apart}" if distance else f", {apart}"
    return ConditionPart("test", text, truth, distance)


def _side(expression: Expression, value: Decimal) -> str:
    """Return a side of a comparison, with its value unless it is a literal."""
    if expression.operator == "number":
        return readable(value)
    words = value_in_words(expression)
    return f"{words} {readable(value)}"


def _words(expression: Expression, known: KnownValues) -> str:
    return in_words(expression, {name: known.words(name) for name in set(expression.fields())})


def missing_rule(past: Past, rule_id: str, target: Target) -> Reason:
    """Explain why the rules of an event's batch lack a rule."""
    version = past.cuts[target.batch_id].ruleset_version
    last = past.versions.latest_change(rule_id, version)
    if last is not None:
        made, change = last
        by = f" by {change.author}" if change.author else ""
        when = "" if made.made_ms is None else f" at {exact_time_text(made.made_ms)}"
        return Reason("deleted", f"rule {rule_id} had been deleted{by}{when}, in version {made.version} of the rules")
    later = next(
        (made for made in past.versions.history(version) if any(change.rule_id == rule_id for change in made.changes)),
        None,
    )
    if later is None:
        then = [rule.rule_id for rule in past.rule_set(target.batch_id).rules if rule.state != "DELETE"]
        message = f"there is no rule {quoted(rule_id)}, and there never was one; rules then: {names(then)}"
        raise BucketsError(message)
    when = "" if later.made_ms is None else f" at {exact_time_text(later.made_ms)}"
    since = f"it came with version {later.version}{when}, from batch {later.first_batch} on"
    return Reason("not yet", f"rule {rule_id} did not exist yet in batch {target.batch_id}: {since}")


def of_state(rule: Rule, target: Target) -> Iterator[Reason]:
    """Explain a rule that is not evaluated because of its state or its time."""
    if rule.state == "PAUSE":
        yield Reason("paused", "the rule was paused (PAUSE): it kept its events and was not evaluated")
    if not rule.is_in_force:
        yield Reason("draft", f"the rule was a draft ({rule.state}): it was not in force")
    if rule.effective is not None:
        first_ms, end_ms = rule.effective.span_ms()
        if not first_ms <= target.time_ms < end_ms:
            start = "" if rule.effective.start is None else f" from {exact_time_text(first_ms)}"
            until = "" if rule.effective.until is None else f" until {exact_time_text(end_ms)}"
            yield Reason("not effective", f"the rule is in effect{start}{until}, and the event is outside of that")


def of_event(past: Past, rule: Rule, target: Target) -> Iterator[Reason]:
    """Explain a missing field that the rules need: the event is a dead letter, or the rule does not see it."""
    rule_set = past.rule_set(target.batch_id)
    groups = rule_set.groups if target.on == "events" else rule_set.alert_groups
    of_rule = [group for group in groups if any(other.rule_id == rule.rule_id for other in group.rules)]
    required = frozenset().union(*(required_fields(past, group, target.batch_id) for group in of_rule))
    for name in sorted(required):
        if target.value(name) is None:
            yield Reason("dead letter", f"the event was a dead letter: {name}: is missing or null")
    for name in sorted(frozenset(rule.group_by) - required):
        if target.value(name) is None:
            yield Reason("no key", f"the rule does not see the event: it groups by {name}, which is missing or null")


def of_topic(target: Target) -> Iterator[Reason]:
    """Explain that events of the event's topic only fill timelines, if so."""
    judged = target.arrivals.columns.get(JUDGED)
    if judged is not None and judged[0].as_py() is False:
        topic = topic_of(target.arrivals.origins[0][0])
        yield Reason("not judged", f"the event is in the timeline and not judged: its topic {topic} is `judge: false`")


def of_filter(past: Past, rule: Rule, target: Target) -> Iterator[Reason]:
    """Name the parts of the rule's filter that do not hold for the event."""
    if not rule.where or past.passing(rule.where, target.arrivals).all():
        return
    if isinstance(rule.where, SqlFilter):
        explained = explain_condition(rule.where, known_fields(past, rule.where, target))
        parts = [part.text for part in explained.tests() if part.truth != "true"]
    else:
        parts = [
            f"{describe_filter((test,))}, and {test.field} is {_value(target, test)}"
            for test in rule.where
            if not past.passing((test,), target.arrivals).all()
        ]
    yield Reason("filter", f"the rule does not apply to the event: {'; '.join(parts)}")


def known_fields(past: Past, where: SqlFilter, target: Target) -> KnownValues:
    """Return the event fields that a condition names, and the lists at that time."""
    schema = target.arrivals.schema
    values = {}
    for name in set(where.expression.fields()) & set(schema.all_fields):
        value = target.value(name)
        measure = schema.measures.get(name)
        if measure is not None and value is not None:
            value = scaled_down(value, measure.scale)
        values[name] = value
    lists = past.lists(target.batch_id)
    return KnownValues(values, {}, ListsAt(lists, np.array([target.time_ms])))


def _value(target: Target, test: Condition) -> str:
    value, measure = target.value(test.field), target.arrivals.schema.measures.get(test.field)
    if value is None:
        return "missing"
    return format_scaled(value, measure.scale) if measure is not None else shown(value)


def of_key(past: Past, history: KeyHistory, target: Target) -> Iterator[Reason]:
    """Explain the fate of the event in a group, if it keeps rules from being evaluated."""
    group, fate, clock_ms, arrivals = history.group.name, history.fate, history.clock_ms, history.arrivals
    other = history.others.get(history.target, history.target)
    had = "id and time" if arrivals.times_ms[other] == target.time_ms else "id"
    source, _, position = arrivals.origins[history.target]
    behind = (
        "" if clock_ms is None else f"the latest event of its key in group {group} was at {exact_time_text(clock_ms)}"
    )
    match fate:
        case "too late":
            yield Reason(fate, f"the event came too late: {behind}, and further back nothing is kept")
        case "dropped":
            yield Reason(fate, f"the event came late, and the job drops late events: {behind}")
        case "repeat":
            batch = arrivals.batches[other]
            yield Reason(fate, f"the event is a repeat: its {had} had arrived before, in batch {batch}")
        case "not kept":
            first = arrivals.ids[other].as_py()
            yield Reason(fate, f"the event shares its time with {first}, which came first and is kept instead")
        case "refused":
            yield Reason("dead letter", f"the event was a dead letter: {past.refused[source, position]}")
        case "malformed":
            lack = "a field that its rules need is missing"
            yield Reason("dead letter", f"the event was a dead letter of group {group}: {lack}")
        case "left out":
            yield Reason("filter", f"the filter of group {group} leaves the event out")
        case "before":
            yield Reason(fate, f"group {group} was not kept yet")
        case "late" if history.regime.late == "add":
            yield Reason(fate, f"the event came late, and the job only adds late events (`late: add`): {behind}")
        case "late" if clock_ms is not None and not history.regime.is_raw(target.time_ms, clock_ms):
            yield Reason(fate, f"the event came later than events are kept one by one: {behind}")


def of_patience(rule: Rule, named: NamedFeature, history: KeyHistory, target: Target) -> Iterator[Reason]:
    """Explain that an event was too late, or that its window reaches beyond the raw events, if so."""
    if history.fate != "late" or history.clock_ms is None:
        return
    lateness_ms = history.regime.horizon_ms - history.group.longest_window_ms
    tail_ms = history.regime.precision.tail if rule.reset_on_alert else None
    behind = f"the latest event of its key was at {exact_time_text(history.clock_ms)}"
    if target.time_ms < history.clock_ms - lateness_ms:
        allowed = f"`allowed_lateness` is {format_duration(lateness_ms)}"
        yield Reason("late", f"the event came too late to be evaluated: {allowed}, and {behind}")
    elif tail_ms is not None and target.time_ms - named.feature.window.reach_ms < history.clock_ms - tail_ms:
        yield Reason("late", f"the event came so late that its window is not whole any more: {behind}")
