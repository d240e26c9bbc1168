"""Limits and conditions that nothing meets, or everything, and parts of them that decide nothing."""

from collections.abc import Iterator
from dataclasses import replace

from buckets.expressions.expression import Expression
from buckets.lint.logic import Facts, always_holds, conjuncts, may_hold, parts_of, shown
from buckets.lint.subject import Code, Finding, Subject
from buckets.rules.feature import VALUE
from buckets.rules.rule import Rule

NEVER = Code(
    "B101",
    "error",
    "a limit or condition that nothing meets",
    "`{what}` is never true{reason}; the rule never fires: mend the condition",
)
ALWAYS = Code(
    "B102",
    "warning",
    "a limit or condition that everything meets",
    "`{what}` is always true{unless}{reason}; the rule fires at every event: mend the condition",
)
IDLE_PART = Code(
    "B103",
    "warning",
    "a part of a condition that decides nothing",
    "`{what}` is {truth} true{reason}, so it decides nothing; leave it out, or mend it",
)


def find(subject: Subject) -> Iterator[Finding]:
    """Look at the limit or the condition of each rule whose filter lets events pass."""
    for rule in subject.rules:
        facts = subject.firing_facts[rule.rule_id]
        if facts is not None:
            yield from _of_rule(rule, facts)


def _of_rule(rule: Rule, facts: Facts) -> Iterator[Finding]:
    condition, path = rule.when.expression, rule.written_at("when")
    what = _words(rule, condition)
    if not may_hold(condition, facts):
        yield NEVER.at(rule, path, what=what, reason=_why(rule, _guilty(condition, facts), facts))
    elif always_holds(condition, _of_whole_events(rule, facts)):
        unless = "" if always_holds(condition, facts) else " unless a field of the event is null"
        yield ALWAYS.at(rule, path, what=what, unless=unless, reason=_why(rule, condition, facts))
    else:
        yield from _idle_parts(rule, condition, facts)


def _of_whole_events(rule: Rule, facts: Facts) -> Facts:
    """Leave NULL out of what fields of events can be; a feature may be NULL still, and its rule may ask for that."""
    features = {Expression("field", value=name) for name in rule.features}
    return replace(
        facts, domains={part: domain if part in features else domain.known for part, domain in facts.domains.items()}
    )


def _idle_parts(rule: Rule, condition: Expression, facts: Facts) -> Iterator[Finding]:
    for part in parts_of(condition):
        if part == condition:
            continue
        is_never = condition.operator == "or" and not may_hold(part, facts)
        if is_never or (condition.operator != "or" and always_holds(part, facts)):
            truth, reason = "never" if is_never else "always", _why(rule, part, facts)
            yield IDLE_PART.at(rule, ("when",), what=shown(part), truth=truth, reason=reason)


def _words(rule: Rule, condition: Expression) -> str:
    """Return a condition as its rule has written it."""
    if rule.limit is None:
        return shown(condition)
    of = "" if rule.measure is None else f" of {rule.measure}"
    return f"{rule.features[VALUE].function}{of} {rule.limit.operator} {rule.limit.value:f}"


def _guilty(condition: Expression, facts: Facts) -> Expression:
    """Return the part of a condition that is never true by itself; the whole of it where there is none."""
    return next((part for part in conjuncts(condition) if not may_hold(part, facts)), condition)


def _why(rule: Rule, condition: Expression, facts: Facts) -> str:
    """Say what is known of the names in a condition; nothing where nothing is."""
    known = []
    for name in dict.fromkeys(condition.fields()):
        words = None if facts.kinds.get(name) == "boolean" else facts.of_name(name).in_words()
        if words is not None:
            shown_name = rule.features[VALUE].function if rule.is_short else name
            known.append(f"{shown_name} is {words}")
    return f", for {' and '.join(known)}" if known else ""
