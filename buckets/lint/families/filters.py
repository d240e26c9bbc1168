"""Filters that no event can pass, filters that every event passes, and features that no condition names."""

from collections.abc import Iterator
from itertools import combinations

from buckets.expressions.expression import Expression
from buckets.lint.logic import Facts, always_holds, filter_condition, may_hold, never_false, parts_of, shown
from buckets.lint.subject import Code, FilterAt, Finding, Subject, event_facts

IMPOSSIBLE = Code(
    "B104", "error", "a filter that no event can pass", "no event can pass{culprits}; {so}: mend the filter"
)
EMPTY = Code(
    "B105",
    "warning",
    "a filter that every event passes",
    "every event{unless} passes `{filter}`; leave the filter out, or mend it",
)
UNUSED = Code(
    "B106",
    "warning",
    "a feature that the condition does not name",
    "`when` does not name {name}, which is computed at every event; leave it out, or silence this if alerts are to "
    "show it",
)
_MOST_PARTS = 50  # Of so many parts pairs that exclude each other are looked for


def find(subject: Subject) -> Iterator[Finding]:
    """Look at each filter, and at which features a rule needs."""
    for filter_at in subject.filters():
        schema = subject.schema_of(filter_at.rule)
        yield from _of_filter(filter_at, filter_condition(filter_at.where, schema), event_facts(filter_at.rule, schema))
    for rule in subject.rules:
        named = frozenset(rule.when.expression.fields())
        for name in rule.features:
            if name not in named:
                yield UNUSED.at(rule, ("features", name), name=name)


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
        words = [f"{name} is {facts.of_name(name).in_words()}" for name in never.fields() if _is_bounded(name, facts)]
        return f" `{shown(never)}`{', for ' + ', '.join(words) if words else ''}"
    for pair in combinations(parts, 2):
        if not may_hold(Expression("and", pair), facts):
            return f": `{shown(pair[0])}` and `{shown(pair[1])}` exclude each other"
    return f" `{shown(condition)}`"


def _is_bounded(name: str, facts: Facts) -> bool:
    return facts.kinds.get(name) == "number" and facts.of_name(name).in_words() is not None
