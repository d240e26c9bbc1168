"""Lists that rules write: an alert puts a key of its event into a list, for some time.

    then: {put: blocked, key: payerId, until: 7d}
    when: beneficiaryId IN LIST rules.blocked

Such a list is not stored. Its entries are the alerts of the rules that write it, so a lookup is a feature over these:
the number of alerts on the key that have not expired. So a list depends only on the events and their order, alerts
explain it, and its state is timelines of alerts.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from buckets.duration import format_duration
from buckets.expressions.expression import RULES_LIST, Expression, normalise, to_sql
from buckets.numbers.fixed_point import parse_decimal
from buckets.rules.condition import SqlFilter, SqlScore
from buckets.rules.feature import ALERT_RULE, Feature
from buckets.rules.role import AS
from buckets.rules.rule import Rule

_NOTHING: Final = Expression("number", value=parse_decimal("0"))
Found = Mapping[tuple[str, str], Expression]
"""By key field and list name, whether some alert has put the key into the list."""


def linked(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Return rules in evaluated form: a lookup becomes a feature for each rule that writes the list."""
    known = tuple(rules)
    writers: dict[str, list[Rule]] = {}
    for rule in known:
        if rule.then is not None and rule.is_in_force and not rule.is_variant:
            writers.setdefault(RULES_LIST + rule.then.put, []).append(rule)
    return tuple(_linked(rule, writers) if rule.rules_list_tests else rule for rule in known)


def _linked(rule: Rule, writers: Mapping[str, Sequence[Rule]]) -> Rule:
    features, found = dict(rule.features), {}
    for test in rule.rules_list_tests:
        field, name = str(test.operands[0].value), str(test.value)
        if (field, name) in found:
            continue
        key = Expression("field", value=field)
        # NULL where the key is, and else false: the list of no rule.
        found[field, name] = Expression("not", (Expression("=", (key, key)),))
        entries = []
        for writer in writers.get(name, ()):
            of_writer = _name_of(f"{name.removeprefix(RULES_LIST)}_{field}_{writer.rule_id}", features)
            features[of_writer] = _alerts_of(writer, field)
            entries.append(Expression(">", (Expression("field", value=of_writer), _NOTHING)))
        if entries:
            found[field, name] = entries[0] if len(entries) == 1 else Expression("or", tuple(entries))
    condition, score = normalise(_replaced(rule.when.expression, found)), rule.score
    if isinstance(score, SqlScore):
        number = _replaced(score.expression, found)
        score = SqlScore(number, to_sql(number))
    when = SqlFilter(condition, to_sql(condition))
    return rule.model_copy(update={"features": features, "when": when, "score": score})


def _name_of(wanted: str, taken: Mapping[str, Feature]) -> str:
    """Return an unused name for a feature."""
    name = re.sub(r"\W", "_", wanted, flags=re.ASCII)[:90]
    others = (f"{name}_{number}" for number in range(2, len(taken) + 2))
    return name if name not in taken else next(other for other in others if other not in taken)


def _alerts_of(writer: Rule, field: str) -> Feature:
    """Return a feature that counts the unexpired alerts by which a rule has put the value of a field into a list."""
    assert writer.then is not None
    return Feature.model_validate(
        {
            "function": "count",
            "on": "alerts",
            "where": {ALERT_RULE: writer.rule_id},
            "window": {"length": format_duration(writer.then.until_ms), "left": "open"},
            "group_by": [field if field == writer.then.key else f"{field}{AS}{writer.then.key}"],
        }
    )


def _replaced(expression: Expression, found: Found) -> Expression:
    if expression.operator == "in_list" and str(expression.value).startswith(RULES_LIST):
        return found[str(expression.operands[0].value), str(expression.value)]
    return replace(expression, operands=tuple(_replaced(each, found) for each in expression.operands))
