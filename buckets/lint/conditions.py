"""Conditions and filters that nothing meets, or everything, and parts and features that decide nothing."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

from buckets.expressions.expression import Expression, conjuncts
from buckets.lint.logic import Facts, always_holds, may_hold, never_false, parts_of, shown
from buckets.lint.subject import Code, FilterAt, Finding, Subject, event_facts
from buckets.rules.feature import VALUE
from buckets.rules.filter import filter_condition
from buckets.rules.rule import Rule

NEVER = Code("B101", "`{what}` is never true{reason}; the rule never fires: mend the condition")
ALWAYS = Code("B102", "`{what}` is always true{unless}{reason}; the rule fires at every event: mend the condition")
IDLE_PART = Code("B103", "`{what}` is {truth} true{reason}, so it decides nothing; leave it out, or mend it")
IMPOSSIBLE = Code("B104", "no event can pass{culprits}; {so}: correct the filter")
EMPTY = Code("B105", "every event{unless} passes `{filter}`; leave the filter out, or mend it")
UNUSED = Code(
    "B106",
    "`when` does not name {name}, which is computed at every event; leave it out, or silence this if alerts are to "
    "show it",
)
_MOST_PARTS = 50  # Of so many parts pairs that exclude each other are looked for


def find(subject: Subject) -> Iterator[Finding]:
    """Look at each filter, at the condition of each rule whose filter lets events pass, and at its features."""
    for filter_at in subject.filters():
        schema = subject.schema_of(filter_at.rule)
        yield from _of_filter(filter_at, filter_condition(filter_at.where, schema), event_facts(filter_at.rule, schema))
    for rule in subject.rules:
        facts, named = subject.firing_facts[rule.rule_id], frozenset(rule.when.expression.fields())
        if facts is not None:
            yield from _of_rule(rule, facts)
        for name in (name for name in rule.features if name not in named):
            yield UNUSED.at(rule, ("features", name), name=name)


def _of_rule(rule: Rule, facts: Facts) -> Iterator[Finding]:
    condition, path = rule.when.expression, rule.written_at("when")
    what = _words(rule, condition)
    if not may_hold(condition, facts):
        guilty = next((part for part in conjuncts(condition) if not may_hold(part, facts)), condition)
        yield NEVER.at(rule, path, what=what, reason=_why(rule, guilty, facts))
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
    if rule.limit is None:
        return shown(condition)
    of = "" if rule.measure is None else f" of {rule.measure}"
    return f"{rule.features[VALUE].function}{of} {rule.limit.operator} {rule.limit.value:f}"


def _why(rule: Rule, condition: Expression, facts: Facts) -> str:
    """Say what is known of the names in a condition; nothing where nothing is."""
    known = []
    for name in dict.fromkeys(condition.fields()):
        words = None if facts.kinds.get(name) == "boolean" else facts.of_name(name).in_words()
        if words is not None:
            shown_name = rule.features[VALUE].function if rule.is_short else name
            known.append(f"{shown_name} is {words}")
    return f", for {' and '.join(known)}" if known else ""


def _of_filter(filter_at: FilterAt, condition: Expression, facts: Facts) -> Iterator[Finding]:
    if not may_hold(condition, facts):
        so = "the rule never fires" if filter_at.feature is None else f"{filter_at.feature} counts nothing"
        yield IMPOSSIBLE.at(filter_at.rule, filter_at.path, culprits=_culprits(condition, facts), so=so)
    elif never_false(condition, facts):
        unless = "" if always_holds(condition, facts) else " in which no field of it is null"
        yield EMPTY.at(filter_at.rule, filter_at.path, unless=unless, filter=shown(condition))


def _culprits(condition: Expression, facts: Facts) -> str:
    """Return the part that is never true, or two that exclude each other."""
    if condition.operator == "or":
        return f" `{shown(condition)}`"
    parts = parts_of(condition)[:_MOST_PARTS]
    never = next((part for part in parts if not may_hold(part, facts)), None)
    if never is not None:
        known = {name: facts.of_name(name).in_words() for name in never.fields() if facts.kinds.get(name) == "number"}
        words = [f"{name} is {said}" for name, said in known.items() if said is not None]
        return f" `{shown(never)}`{', for ' + ', '.join(words) if words else ''}"
    for pair in combinations(parts, 2):
        if not may_hold(Expression("and", pair), facts):
            return f": `{shown(pair[0])}` and `{shown(pair[1])}` exclude each other"
    return f" `{shown(condition)}`"
