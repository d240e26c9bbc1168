"""Limits that the kernel compares with itself, so that many of them on one feature cost what one does.

A condition is one if it says `feature OP number` and nothing else, in the short form or in SQL, and the rule's one
feature is a sum, a count, an average, a minimum or a maximum of all events of its group. An average is compared with
all its digits there, and in any other condition with those that are shown.
"""

from decimal import Decimal

from buckets.aggregates.registry import SHORT_FUNCTIONS
from buckets.expressions.expression import COMPARISONS
from buckets.rules.rule import Rule
from buckets.rules.short_form import Limit


def kernel_limit(rule: Rule) -> Limit | None:
    """Return the limit that the kernel compares the one feature of a rule with; None where it cannot do that."""
    if rule.limit is not None:
        return rule.limit
    condition = rule.when.expression
    if len(rule.features) != 1 or condition.operator not in COMPARISONS:
        return None
    compared, number = (operand.value for operand in condition.operands)
    (named,) = rule.named_features()
    is_of_group = frozenset(named.fields) == frozenset(rule.group_by) and not named.counted
    if compared != named.name or not isinstance(number, Decimal) or not is_of_group:
        return None
    if named.feature.function not in SHORT_FUNCTIONS:
        return None
    return Limit.model_construct(operator=condition.operator, value=number)
