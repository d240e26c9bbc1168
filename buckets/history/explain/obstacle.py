"""Why a rule was not evaluated at an event: the first of these reasons that applies."""

from collections.abc import Iterator

import numpy as np

from buckets.checkpoint.topic_generations import topic_of
from buckets.duration import format_duration
from buckets.errors import BucketsError
from buckets.expressions.decimals import scaled_down
from buckets.history.explain.condition import Computation, KnownValues, explain_condition, shown
from buckets.history.explain.explanation import Reason
from buckets.history.explain.history_lookup import Past
from buckets.history.explain.key import KeyHistory, Target, required_fields
from buckets.lists.index import ListsAt
from buckets.moment import exact_time_text
from buckets.numbers.fixed_point import format_scaled
from buckets.printable import quoted
from buckets.rules.filter import Condition, Filter, describe_filter
from buckets.rules.revision import names
from buckets.rules.rule import Rule
from buckets.rules.sql_filter import SqlFilter


def missing_rule(past: Past, rule_id: str, target: Target) -> Reason:
    """Return why the rules of an event's batch lack a rule.

    Raises:
        BucketsError: no version of the rules has it.
    """
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
        message = (
            f"there is no rule {quoted(rule_id)}, and there never was one; rules then: {names(_rules_of(past, target))}"
        )
        raise BucketsError(message)
    when = "" if later.made_ms is None else f" at {exact_time_text(later.made_ms)}"
    since = f"it came with version {later.version}{when}, from batch {later.first_batch} on"
    return Reason("not yet", f"rule {rule_id} did not exist yet in batch {target.batch_id}: {since}")


def _rules_of(past: Past, target: Target) -> list[str]:
    return [rule.rule_id for rule in past.rule_set(target.batch_id).rules if rule.state != "DELETE"]


def of_state(rule: Rule, target: Target) -> Iterator[Reason]:
    """Say whether its state or its time keeps a rule from being evaluated."""
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
    """Say whether the event lacks a field that the rules need: a dead letter, or one that the rule does not see."""
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
    """Say whether the event's topic only fills timelines."""
    if target.number in target.arrivals.unjudged:
        topic = topic_of(target.arrivals.origins[0][0])
        yield Reason("not judged", f"the event is in the timeline and not judged: its topic {topic} is `judge: false`")


def of_filter(past: Past, rule: Rule, target: Target) -> Iterator[Reason]:
    """Say which parts of the rule's filter do not hold for the event."""
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


def known_fields(past: Past, where: Filter, target: Target) -> KnownValues:
    """Return the fields of the event that a condition names, and the lists as they were."""
    schema = target.arrivals.schema
    names = where.expression.fields() if isinstance(where, SqlFilter) else [test.field for test in where]
    values = {}
    for name in set(names) & set(schema.field_names):
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
    """Say what became of the event in a group, where that keeps rules from being evaluated."""
    group, fate, clock_ms = history.group.name, history.fate, history.clock_ms
    behind = (
        "" if clock_ms is None else f"the latest event of its key in group {group} was at {exact_time_text(clock_ms)}"
    )
    other = history.others.get(history.target)
    name = "" if other is None else history.arrivals.ids[other].as_py()
    is_of_time = other is not None and history.arrivals.times_ms[other] == target.time_ms
    had = "id and time" if is_of_time else "id"
    sentences = {
        "too late": f"the event came too late: {behind}, and further back nothing is kept",
        "dropped": f"the event came late, and the job drops late events: {behind}",
        "repeat": f"the event is a repeat: its {had} had arrived before, in batch {_batch_of(history, other)}",
        "not kept": f"the event shares its time with {name}, which came first and is kept instead",
        "refused": f"the event was a dead letter: {_refusal(past, history)}",
        "malformed": f"the event was a dead letter of group {group}: a field that its rules need is missing",
        "left out": f"the filter of group {group} leaves the event out",
        "before": f"group {group} was not kept yet",
    }
    if fate in sentences:
        codes = {"refused": "dead letter", "malformed": "dead letter", "left out": "filter"}
        yield Reason(codes.get(fate, fate), sentences[fate])
    elif fate == "late" and history.regime.late == "add":
        yield Reason("late", f"the event came late, and the job only adds late events (`late: add`): {behind}")
    elif fate == "late" and not history.regime.is_raw(target.time_ms, target.time_ms if clock_ms is None else clock_ms):
        yield Reason("late", f"the event came later than events are kept one by one: {behind}")


def of_patience(rule: Rule, computed: Computation, history: KeyHistory, target: Target) -> Iterator[Reason]:
    """Say whether an event came too late, or its window reaches further back than events are kept raw."""
    if history.fate != "late" or history.clock_ms is None:
        return
    lateness_ms = history.regime.horizon_ms - history.group.longest_window_ms
    tail_ms = history.regime.precision.tail if rule.reset_on_alert else None
    behind = f"the latest event of its key was at {exact_time_text(history.clock_ms)}"
    if target.time_ms < history.clock_ms - lateness_ms:
        allowed = f"`allowed_lateness` is {format_duration(lateness_ms)}"
        yield Reason("late", f"the event came too late to be evaluated: {allowed}, and {behind}")
    elif tail_ms is not None and computed.start_ms(target.time_ms) < history.clock_ms - tail_ms:
        yield Reason("late", f"the event came so late that its window is not whole any more: {behind}")


def _batch_of(history: KeyHistory, other: int | None) -> int | None:
    return None if other is None else int(history.arrivals.batches[other])


def _refusal(past: Past, history: KeyHistory) -> str:
    if history.fate != "refused":
        return ""
    source, _, position = history.arrivals.origins[history.target]
    return past.refused[source, position]
