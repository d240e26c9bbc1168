"""Events with which the sum of a rule would pass 64 bits; they become dead letters."""

import numpy as np
import pyarrow as pa

from buckets.engine.values.scored_group import ScoredGroup
from buckets.events.arrivals import DeadLetter, shortened
from buckets.kernel.outcome import OVERFLOW
from buckets.kernel.plan import GroupPlan


def has_overflows(group: ScoredGroup) -> bool:
    """Whether there is such an event."""
    return bool(len(group.scored.beyond.rule) or (group.scored.outcomes.code == OVERFLOW).any())


def overflows(group: ScoredGroup) -> list[DeadLetter]:
    """A dead letter for each such event and rule: which rule has no result, and whether the group has any.

    A rule in force takes the event out of its group. One on trial has no result for it, and all others have theirs.
    """
    outcomes, beyond = group.scored.outcomes, group.scored.beyond
    refused = np.flatnonzero(outcomes.code == OVERFLOW)
    events = np.concatenate([refused, beyond.event])
    sums = [_sum(group.plan, index) for index in [*outcomes.rule[refused].tolist(), *beyond.rule.tolist()]]
    taken = group.table.take(events)
    texts = group.table.event_texts(events, taken)
    sources = taken["source"].cast(pa.string()).to_pylist()
    orders, positions = taken["source_order"].to_pylist(), taken["position"].to_pylist()
    dead_letters = []
    for row, ((of, owner), text) in enumerate(zip(sums, texts, strict=True)):
        sum_of_rule = f"{of}: with this event the sum of {owner} would pass 64 bits"
        consequence = f"so group {group.plan.group.name!r} leaves it out"
        if row >= len(refused):
            consequence = "so this rule, which is on trial, has no result for it"
        reason = f"{sum_of_rule}, {consequence}"
        dead_letters.append(DeadLetter(sources[row], orders[row], positions[row], reason, shortened(text)))
    return dead_letters


def _sum(plan: GroupPlan, index: int) -> tuple[str, str]:
    """Of which field a sum is, and of which rule or rules; parts are numbered after the rules."""
    if index < len(plan.rules):
        rule = plan.rules[index]
        return str(rule.measure), f"rule {rule.rule_id!r}"
    part = plan.parts[index - len(plan.rules)]
    owners = [repr(rule.rule_id) for rule in plan.group.rules if part in rule.parts(plan.group.fields)]
    return str(part.column.of if part.column is not None else None), f"a feature of rule {', '.join(owners)}"
