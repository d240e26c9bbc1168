"""What the kernel found for rules with limits, as alerts show it."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.engine.policies.policies import Fired
from buckets.engine.results.alerts import FiredRules
from buckets.engine.results.terms import term_end, term_start
from buckets.engine.values.rule_values import number_columns, row_columns
from buckets.engine.values.scored_group import ScoredGroup
from buckets.kernel.result_rows import Rows
from buckets.numbers.fixed_point import AVERAGE_FACTOR, format_scaled, readable
from buckets.rules.rule import Rule
from buckets.rules.short_form import sentence_of

Int64s = npt.NDArray[np.int64]
_NO_BOUNDS: tuple[str, str] | None = None


def fired_limits(group: ScoredGroup) -> FiredRules:
    """Return the rules with limits of a group at the events at which they fired."""
    rows = _chosen(group.scored.rows, np.flatnonzero(group.scored.rows.fired))
    fired = Fired(group.plan.rules, rows.rule, rows.event, group.warm(rows.event, rows.rule))
    return FiredRules(group.table, fired, partial(_columns, group, rows, fired))


def _chosen(rows: Rows, chosen: Int64s) -> Rows:
    columns: list[npt.NDArray[Any]] = [column[chosen] for column in rows]
    return Rows(*columns)


def _columns(group: ScoredGroup, fired_rows: Rows, fired: Fired, chosen: Int64s) -> dict[str, pa.Array]:
    plan, rows = group.plan, _chosen(fired_rows, chosen)
    rules, exact = rows.rule.tolist(), rows.exact.tolist()
    of_rule = {rule: _Fixed.of(plan.rules[rule], plan.value_scales[rule]) for rule in set(rules)}
    fixed = [of_rule[rule] for rule in rules]
    values, bounds = _texts(fixed, rows.whole, rows.micro), [_NO_BOUNDS] * len(rules)
    if not all(exact):
        lower = _texts(fixed, rows.lower_whole, rows.lower_micro)
        upper = _texts(fixed, rows.upper_whole, rows.upper_micro)
        ends = zip(exact, lower, upper, strict=True)
        bounds = [None if is_exact else (f'"{least}"', f'"{most}"') for is_exact, least, most in ends]
    known = zip(fixed, values, bounds, rows.event_count.tolist(), fired.warm[chosen].tolist(), strict=True)
    terms = [
        of.term + term_end(f'"{value}"', ends, False, count, is_warm) + "]" for of, value, ends, count, is_warm in known
    ]
    conditions = [f"{of.before}{readable(value)}{of.after}" for of, value in zip(fixed, values, strict=True)]
    return {
        **number_columns(plan, group.table.schema, rows.rule, row_columns(rows)),
        "certain": pa.array(rows.certain),
        "operator": pa.array([of.operator for of in fixed]),
        "limit": pa.array([of.limit for of in fixed]),
        "terms": pa.array(terms),
        "condition": pa.array(conditions),
    }


def _texts(fixed: Sequence["_Fixed"], whole: Int64s, micro: npt.NDArray[np.int32]) -> list[str]:
    """Values as decimals with the digits of their rule."""
    numbers = zip(fixed, whole.tolist(), micro.tolist(), strict=True)
    return [format_scaled(one * of.factor + part, of.scale) for of, one, part in numbers]


class _Fixed(NamedTuple):
    """What all alerts of a rule share.

    Attributes:
        factor: how many of the last digits of a value make one unit of what the kernel gives.
        scale: the digits of a value after the point.
        term: the beginning of their terms, which are one.
        before: of their sentence what stands before the value.
        after: and what stands after it.
        operator: of the limit.
        limit: its number.
    """

    factor: int
    scale: int
    term: str
    before: str
    after: str
    operator: str
    limit: str

    @classmethod
    def of(cls, rule: Rule, scale: int) -> "_Fixed":
        """That of a rule whose values have so many digits after the point."""
        assert rule.limit is not None
        (named,), limit = rule.named_features(), rule.limit
        before, _, after = sentence_of(named.feature, limit, value=_SHOWN).partition(_SHOWN)
        factor = AVERAGE_FACTOR if named.feature.function == "avg" else 1
        return cls(
            factor, scale, f"[{term_start(rule, named)}", before, after, limit.operator, format(limit.value, "f")
        )


_SHOWN = "\0"
"""Stands for the value in a sentence; no name contains it."""
