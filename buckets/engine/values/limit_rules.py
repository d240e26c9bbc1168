"""Rules with limits at events, as the kernel has computed them, in the form of `feature_rules`."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from buckets.aggregates.aggregate import Values
from buckets.aggregates.component import joined
from buckets.engine.values.feature_rules import FeatureValues, Judged
from buckets.engine.values.scored_group import ScoredGroup
from buckets.kernel.result_rows import Rows
from buckets.kernel.score import chosen_rows
from buckets.rules.rule import extra_digits


def judged_limits(group: ScoredGroup) -> Iterator[Judged]:
    """Return the rules with limits of a group, each at the events at which it was evaluated."""
    rows, plan = group.scored.rows, group.plan
    order = np.argsort(rows.rule, kind="stable")
    starts = np.searchsorted(rows.rule[order], np.arange(len(plan.rules) + 1)).tolist()
    for rule, scale, (start, end) in zip(plan.rules, plan.value_scales, pairwise(starts), strict=True):
        if start < end:
            chosen, (named,) = chosen_rows(rows, order[start:end]), rule.named_features()
            values = _values(chosen, scale, extra_digits(rule))
            warm = group.warm(chosen.event, chosen.rule)
            features = {named.name: FeatureValues(named, values, chosen.event_count, warm)}
            yield Judged(rule, group.table, chosen.event, features, chosen.fired)


def _values(rows: Rows, scale: int, digits: int) -> Values:
    """Return the values of one rule.

    Args:
        rows: its rows.
        scale: digits of its values after the point.
        digits: how many of them the kernel gives as millionths.
    """
    scaled = lower = upper = joined(rows.whole, rows.micro, digits)
    if not rows.exact.all():
        lower = joined(rows.lower_whole, rows.lower_micro, digits)
        upper = joined(rows.upper_whole, rows.upper_micro, digits)
    return Values(scaled, scale, rows.event_count > 0, lower, upper, rows.count_lower == 0, rows.exact)
