"""Where the kernel has found values beyond their limits, as alerts show it."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.engine.policies.policies import Fired
from buckets.engine.results.alerts import FiredRules
from buckets.engine.results.rule_texts import RuleTexts, term_end
from buckets.engine.values.rule_values import number_columns, row_columns
from buckets.engine.values.scored_group import ScoredGroup
from buckets.kernel.plan import GroupPlan
from buckets.kernel.result_rows import Rows
from buckets.kernel.score import chosen_rows
from buckets.numbers.figures import readable
from buckets.numbers.fixed_point import format_scaled
from buckets.rules.rule import Rule, extra_digits

Int64s = npt.NDArray[np.int64]


def fired_limits(group: ScoredGroup) -> Iterator[FiredRules]:
    """Yield the rules whose limits the kernel has compared, at the events at which they fired.

    Those in one form that name the fields of a key in one order are together; the short form names them as the group
    does.
    """
    fired_at = np.flatnonzero(group.scored.rows.fired)
    if not len(fired_at):
        return
    rows = chosen_rows(group.scored.rows, fired_at)
    rules, alike = group.plan.rules, dict[tuple[bool, tuple[str, ...]], list[int]]()
    for number in np.unique(rows.rule).tolist():
        rule = rules[number]
        alike.setdefault((rule.is_short, () if rule.is_short else rule.group_by), []).append(number)
    for (_, key_order), numbers in alike.items():
        of_rules = rows if len(alike) == 1 else chosen_rows(rows, np.flatnonzero(np.isin(rows.rule, numbers)))
        fired = Fired(rules, of_rules.rule, of_rules.event, group.warm(of_rules.event, of_rules.rule))
        yield FiredRules(group.table, fired, partial(_columns, group, of_rules, fired), key_order)


def _columns(group: ScoredGroup, fired_rows: Rows, fired: Fired, chosen: Int64s) -> dict[str, pa.Array]:
    """Return what alerts say of values, in the columns of the form in which their rules are written."""
    plan, rows = group.plan, chosen_rows(fired_rows, chosen)
    of_rule = {number: _OfRule.of(plan, number) for number in np.unique(rows.rule).tolist()}
    of_rows = [of_rule[number] for number in rows.rule.tolist()]
    values, is_short = _texts(of_rows, rows.whole, rows.micro), of_rows[0].rule.is_short
    shown = [f'"{value}"' for value in values]
    # The short form has never said whether a value may be NULL.
    may_be_null = np.zeros(len(of_rows), np.bool_) if is_short else rows.count_lower == 0
    counts, warm = rows.event_count.tolist(), fired.warm[chosen].tolist()
    known = zip(of_rows, shown, _bounds(of_rows, rows), may_be_null.tolist(), counts, warm, strict=True)
    named = zip(of_rows, values, strict=True)
    found = {
        "certain": pa.array(rows.certain),
        "terms": pa.array([f"[{of.texts.term_starts[0]}{term_end(*rest)}]" for of, *rest in known]),
        "condition": pa.array([of.texts.condition({of.feature: readable(value)}) for of, value in named]),
    }
    if not is_short:
        return found | {"exact": pa.array(rows.exact)}
    limits = [of.rule.limit for of in of_rows if of.rule.limit is not None]
    return {
        **found,
        **number_columns(plan, group.table.schema, rows.rule, row_columns(rows)),
        "operator": pa.array([limit.operator for limit in limits]),
        "limit": pa.array([format(limit.value, "f") for limit in limits]),
    }


def _bounds(of_rows: Sequence["_OfRule"], rows: Rows) -> list[tuple[str, str] | None]:
    """Return the bounds of values as texts, None of those that are exact."""
    if rows.exact.all():
        return [None] * len(of_rows)
    lower = _texts(of_rows, rows.lower_whole, rows.lower_micro)
    upper = _texts(of_rows, rows.upper_whole, rows.upper_micro)
    ends = zip(rows.exact.tolist(), lower, upper, strict=True)
    return [None if is_exact else (f'"{least}"', f'"{most}"') for is_exact, least, most in ends]


def _texts(of_rows: Sequence["_OfRule"], whole: Int64s, micro: npt.NDArray[np.int32]) -> list[str]:
    """Return values as decimals with the digits of their rules."""
    numbers = zip(of_rows, whole.tolist(), micro.tolist(), strict=True)
    return [format_scaled(one * of.factor + part, of.scale) for of, one, part in numbers]


class _OfRule(NamedTuple):
    """What all alerts of a rule share.

    Attributes:
        rule: the rule.
        feature: the name of its feature.
        texts: what they say alike.
        factor: how many of the last digits of a value make one unit of what the kernel gives.
        scale: the digits of a value after the point.
    """

    rule: Rule
    feature: str
    texts: RuleTexts
    factor: int
    scale: int

    @classmethod
    def of(cls, plan: GroupPlan, number: int) -> "_OfRule":
        """Return that of a rule of a plan."""
        rule = plan.rules[number]
        (name,) = rule.features
        return cls(rule, name, RuleTexts.of(rule), 10 ** extra_digits(rule), plan.value_scales[number])
