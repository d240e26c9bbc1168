"""Finds windows that do not fit the job, groupings with few keys, and policies that are over or have no effect."""

from collections.abc import Iterator
from math import prod

from buckets.config.engine import raw_window_fault
from buckets.duration import format_duration
from buckets.expressions.expression import COMPARISONS, RULES_LIST, Expression
from buckets.lint.logic import given
from buckets.lint.subject import Code, Finding, Subject, event_facts
from buckets.moment import minute_text, moment_ms
from buckets.printable import short_line
from buckets.rules.feature import ALERT_RULE
from buckets.rules.filter import Filter, filter_condition
from buckets.rules.role import counted_field
from buckets.rules.rule import WHOLE_SHARE, Rule
from buckets.validation import Location

BEYOND_TAIL = Code("B301", "{reason}; a job with these settings refuses the rule", frozenset(["schema", "engine"]))
NEVER_WARM = Code("B302", "needs a complete window of {window}{but} shorten the window, or leave out `require_warm`")
LONG_COOLDOWN = Code(
    "B303",
    "after an alert {cooldown} are quiet, and the longest window is {window}; alerts of which no event was in the "
    "alert before are kept back: shorten the cooldown, or silence this if that is meant",
)
OVER = Code("B304", "has been over since {since} and costs its state still; delete the rule, or move `until`")
OLD_SNOOZE = Code("B305", "{which} over; leave out what is over")
WHOLE = Code("B306", "100% of all keys is what a rule without `rollout` has; leave it out")
SHORT_WINDOW = Code(
    "B307", "a window of {length} holds events of {span} alone; write the length that is meant, as in 1s or 10m"
)
UNWRITTEN = Code(
    "B308", "no ACTIVE rule writes {name}, so it is empty; correct the name, or give a rule `then: {{put: ...}}`"
)
WIDE_SESSION = Code(
    "B309",
    "events of a session may be {session} apart, and count up to {within} only, so that all of {within} are the "
    "session; write a shorter `session`, or {{length: {within}}}",
)
UNKNOWN_RULE = Code(
    "B310", "{what}: there is no rule of this name among those that are looked at; correct it, or put the rule beside"
)
FEW_KEYS = Code(
    "B401",
    "grouping by {by} makes {count} of all events, and one core scores a key's events one after the other; group by a "
    "field with many values too",
)
FEWEST = 8  # Fewer keys than this are few


def find(subject: Subject) -> Iterator[Finding]:
    """Check windows, groupings, lists and policies of each rule."""
    writing = (rule.then for rule in subject.rules if rule.state in ("ACTIVE", "PAUSE"))
    written = {RULES_LIST + then.put for then in writing if then is not None}
    for rule in subject.rules:
        schema = subject.schema_of(rule)
        if subject.engine is not None and schema is not None:
            fault = raw_window_fault(rule, subject.engine, schema)
            if fault is not None:
                field, _, reason = fault.partition(": ")
                yield BEYOND_TAIL.at(rule, tuple(field.split(".")), reason=reason)
        yield from _warmth(rule, subject)
        yield from _short_windows(rule)
        yield from _groupings(rule, subject)
        yield from _policies(rule, subject)
        if not subject.is_part:
            yield from _unknown_rules(rule, subject)
            unwritten = {str(test.value) for test in rule.rules_list_tests}.difference(written)
            yield from (UNWRITTEN.at(rule, ("when",), name=name) for name in sorted(unwritten))


def _short_windows(rule: Rule) -> Iterator[Finding]:
    for name, feature in rule.features.items():
        if feature.window.length_ms <= 1:
            span = "two milliseconds" if feature.window.left == "closed" else "one millisecond"
            length = format_duration(feature.window.length_ms)
            yield SHORT_WINDOW.at(rule, rule.written_at("features", name, "window"), length=length, span=span)
        if feature.window.session_ms > feature.window.length_ms:
            session, within = map(format_duration, (feature.window.session_ms, feature.window.length_ms))
            yield WIDE_SESSION.at(rule, ("features", name, "window"), session=session, within=within)


def _unknown_rules(rule: Rule, subject: Subject) -> Iterator[Finding]:
    """Find filters of alerts that name missing rules."""
    known = {each.rule_id for each in subject.rules}
    filters: list[tuple[Location, Filter]] = [(("where",), rule.where)] if rule.on == "alerts" else []
    for name, feature in rule.features.items():
        if rule.on == "alerts" or feature.on is not None:
            filters += [(("features", name, *path), where) for path, where in feature.filters.items()]
    for location, where in filters:
        for rule_id in sorted(set(_rules_named(filter_condition(where, None))) - known):
            yield UNKNOWN_RULE.at(rule, location, what=short_line(f"{ALERT_RULE} {rule_id!r}"))


def _rules_named(part: Expression) -> Iterator[str]:
    if part.operator in (*COMPARISONS, "in") and Expression("field", value=ALERT_RULE) in part.operands:
        yield from (str(operand.value) for operand in part.operands if operand.operator == "text")
    for operand in part.operands:
        yield from _rules_named(operand)


def _groupings(rule: Rule, subject: Subject) -> Iterator[Finding]:
    """Find groupings of events (alerts are few) with so few keys that all land on one or a handful."""
    for path, fields, where in groupings_of(rule) if rule.on == "events" else ():
        keys = _most_keys(subject, rule, fields, where)
        if keys is not None and keys < FEWEST:
            by = "no field" if not fields else " and ".join(fields)
            yield FEW_KEYS.at(rule, path, by=by, count="one key" if keys == 1 else f"at most {keys} keys")


def groupings_of(rule: Rule) -> Iterator[tuple[tuple[str, ...], tuple[str, ...], Filter]]:
    """Yield the location of each grouping, its fields, and the filter of its group."""
    yield ("group_by",), rule.group_by, rule.group_where
    for name, feature in rule.features.items():
        if feature.group_by is not None and not feature.aggregate.by_value:
            yield ("features", name, "group_by"), feature.group_by, ()


def _most_keys(subject: Subject, rule: Rule, fields: tuple[str, ...], where: Filter) -> int | None:
    """Return the greatest possible number of keys; None if very many, or none at all."""
    schema = subject.schema_of(rule)
    facts = given(filter_condition(where, schema), event_facts(rule, schema))
    if facts is None:
        return None
    sizes = [facts.of_name(counted_field(field)).size for field in fields]
    known = [size for size in sizes if size is not None]
    return prod(known) if len(known) == len(sizes) else None


def _policies(rule: Rule, subject: Subject) -> Iterator[Finding]:
    until = None if rule.effective is None else rule.effective.until
    if until is not None and moment_ms(until) <= subject.now_ms:
        yield OVER.at(rule, ("effective", "until"), since=minute_text(moment_ms(until)))
    longest_ms = rule.longest_window.begins_ms
    if rule.cooldown is not None and rule.cooldown > longest_ms and rule.features:
        cooldown, window = format_duration(rule.cooldown), format_duration(longest_ms)
        yield LONG_COOLDOWN.at(rule, ("cooldown",), cooldown=cooldown, window=window)
    over = sum(moment_ms(snooze.until) <= subject.now_ms for snooze in rule.snoozes)
    if over:
        which = "a snooze is" if over == 1 else f"{over} snoozes are"
        yield OLD_SNOOZE.at(rule, ("snoozes",), which=which)
    if rule.rollout == WHOLE_SHARE and "rollout" in subject.written.get(rule.rule_id, ()):
        yield WHOLE.at(rule, ("rollout",))


def _warmth(rule: Rule, subject: Subject) -> Iterator[Finding]:
    if not rule.require_warm:
        return
    window_ms = rule.longest_window.begins_ms
    window, schema = format_duration(window_ms), subject.schema_of(rule)
    if rule.effective is not None and rule.effective.start is not None and rule.effective.until is not None:
        in_effect_ms = moment_ms(rule.effective.until) - moment_ms(rule.effective.start)
        if in_effect_ms <= window_ms:
            but = (
                f" and is in effect for {format_duration(in_effect_ms)}; it fires only if it is in the job well "
                f"before it is in effect: put it there {window} earlier,"
            )
            yield NEVER_WARM.at(rule, ("require_warm",), window=window, but=but)
    elif schema is not None:
        times = schema.event_time
        if times.latest_ms - times.earliest_ms <= window_ms:
            taken = format_duration(times.latest_ms - times.earliest_ms)
            but = f", and the event schema takes events of {taken} only (earliest, latest);"
            yield NEVER_WARM.at(rule, ("require_warm",), window=window, but=but)
