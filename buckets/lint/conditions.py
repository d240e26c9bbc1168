"""Finds conditions and filters that are never or always true, and parts and features without effect."""

import re
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from itertools import combinations

from buckets.expressions.expression import Expression, conjuncts, normalise
from buckets.lint.logic import Facts, always_holds, implies, may_hold, never_false, parts_of, redundant, shown
from buckets.lint.subject import Code, FilterAt, Finding, Subject, event_facts
from buckets.rules.condition import LARGEST_SCORE, SqlScore
from buckets.rules.feature import VALUE
from buckets.rules.filter import filter_condition
from buckets.rules.rule import Rule
from buckets.validation import Location

NEVER = Code("B101", "`{what}` is never true{reason}; the rule never fires: mend the condition")
ALWAYS = Code("B102", "`{what}` is always true{unless}{reason}; the rule fires at every event: mend the condition")
IDLE_PART = Code("B103", "`{what}` is {truth} true{reason}, so it decides nothing; leave it out, or mend it")
IMPOSSIBLE = Code("B104", "no event can pass{culprits}; {so}: correct the filter")
EMPTY = Code("B105", "every event{unless} passes `{filter}`; leave the filter out, or mend it")
UNUSED = Code(
    "B106",
    "`{by}` not name {name}, which is computed at every event; leave it out, or silence this if alerts are to show it",
)
REDUNDANT = Code("B107", "`{what}` decides nothing beside `{other}`, {reason}; leave it out, or mend it")
NO_WILDCARD = Code(
    "B108", "`{what}` has neither % nor _, so that only the text itself matches; write =, or % where letters may follow"
)
FIXED_SCORE = Code("B109", "the score `{what}` is {end}, so that all alerts have {score}; mend it")
_MOST_PARTS = 50  # Up to so many parts are searched for pairs that exclude each other


def find(subject: Subject) -> Iterator[Finding]:
    """Check each filter, the condition of each rule whose filter lets events pass, and its features."""
    for filter_at in subject.filters():
        schema = subject.schema_of(filter_at.rule)
        condition = filter_condition(filter_at.where, schema)
        yield from _of_filter(filter_at, condition, event_facts(filter_at.rule, schema))
        yield from _plain_patterns(filter_at.rule, filter_at.path, condition)
    for rule in subject.rules:
        facts, named = subject.firing_facts[rule.rule_id], rule.named_in
        if facts is not None:
            yield from _of_rule(rule, facts)
            yield from _of_score(rule, facts)
        yield from _plain_patterns(rule, ("when",), rule.when.expression)
        for name in (name for name in rule.features if name not in named):
            by = "when` does" if not isinstance(rule.score, SqlScore) else "when` and `score` do"
            yield UNUSED.at(rule, ("features", name), name=name, by=by)


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
        idle = list(_idle_parts(rule, condition, facts))
        yield from idle or _redundant_parts(rule, path, condition, facts)


def _of_score(rule: Rule, facts: Facts) -> Iterator[Finding]:
    if isinstance(rule.score, SqlScore):
        what, score = shown(rule.score.expression), rule.score.expression
        above, largest = (Expression("number", value=Decimal(end)) for end in (0, LARGEST_SCORE))
        if not may_hold(normalise(Expression(">", (score, above))), facts):
            yield FIXED_SCORE.at(rule, ("score",), what=what, end="never above 0", score=0)
        elif always_holds(normalise(Expression(">=", (score, largest))), facts):
            end = f"{LARGEST_SCORE:,}"
            yield FIXED_SCORE.at(rule, ("score",), what=what, end=f"always {end} or more", score=end)


def _of_whole_events(rule: Rule, facts: Facts) -> Facts:
    """Exclude NULL from event fields; a feature may still be NULL, and its rule may test that."""
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


def _redundant_parts(rule: Rule, path: Location, condition: Expression, facts: Facts) -> Iterator[Finding]:
    for part, other in redundant(condition, facts):
        is_wider = implies(other, part, facts)
        reason = "where it is true too" if is_wider else "which is true where it is"
        yield REDUNDANT.at(rule, path, what=shown(part), other=shown(other), reason=reason)


def _plain_patterns(rule: Rule, path: Location, condition: Expression) -> Iterator[Finding]:
    if condition.operator == "like" and not re.search(r"(?<!\\)(\\\\)*[%_]", str(condition.value)):
        yield NO_WILDCARD.at(rule, path, what=shown(condition))
    for operand in condition.operands:
        yield from _plain_patterns(rule, path, operand)


def _words(rule: Rule, condition: Expression) -> str:
    if rule.limit is None:
        return shown(condition)
    of = "" if rule.measure is None else f" of {rule.measure}"
    return f"{rule.features[VALUE].function}{of} {rule.limit.operator} {rule.limit.value:f}"


def _why(rule: Rule, condition: Expression, facts: Facts) -> str:
    """State the facts about the names in a condition; empty without any."""
    names = dict.fromkeys(condition.fields())
    for relation, text in ((facts.orders, "{} is never above {}"), (facts.implied, "`{1}` where `{0}`")):
        for pair in relation:
            if {*pair[0].fields(), *pair[1].fields()} <= names.keys():
                return f", for {text.format(*map(shown, pair))}"
    known = []
    for name in names:
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
    else:
        yield from _redundant_parts(filter_at.rule, filter_at.path, condition, facts)


def _culprits(condition: Expression, facts: Facts) -> str:
    """Return the part that is never true, or two parts that exclude each other."""
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
