"""Events with which the sum of a rule would pass 64 bits; they become dead letters."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.engine.values.scored_group import ScoredGroup
from buckets.events.arrivals import DeadLetter, shortened
from buckets.kernel.outcome import OVERFLOW
from buckets.kernel.plan import GroupPlan


def has_overflows(group: ScoredGroup) -> bool:
    """Return whether there is such an event."""
    return bool(len(group.scored.beyond.rule) or (group.scored.outcomes.code == OVERFLOW).any())


def overflows(group: ScoredGroup) -> list[DeadLetter]:
    """Return a dead letter for each such event and sum: which rule has no result, and whether the group has any.

    A rule in force takes the event out of its group. One on trial has no result for it, and all others have theirs.
    """
    outcomes, beyond = group.scored.outcomes, group.scored.beyond
    refused = np.flatnonzero(outcomes.code == OVERFLOW)
    left_out = f"so group {group.plan.group.name!r} leaves it out"
    reasons = [(event, _sum(group.plan, index), left_out) for event, index in _pairs(refused, outcomes.rule[refused])]
    on_trial = "so this rule, which is on trial, has no result for it"
    reasons += [(event, _sum(group.plan, index), on_trial) for event, index in _pairs(beyond.event, beyond.rule)]
    different = list(dict.fromkeys(reasons))
    events = np.array([event for event, *_ in different], np.int64)
    taken = group.table.take(events)
    texts = group.table.event_texts(taken)
    sources = taken["source"].cast(pa.string()).to_pylist()
    orders, positions = taken["source_order"].to_pylist(), taken["position"].to_pylist()
    return [
        DeadLetter(source, order, position, f"{sum_of_rule}, {consequence}", shortened(text))
        for (_, sum_of_rule, consequence), source, order, position, text in zip(
            different, sources, orders, positions, texts, strict=True
        )
    ]


def _pairs(events: npt.NDArray[np.int64], rules: npt.NDArray[np.integer]) -> Iterator[tuple[int, int]]:
    return zip(events.tolist(), rules.tolist(), strict=True)


def _sum(plan: GroupPlan, index: int) -> str:
    """Return of which field the sum of a rule or part is, and of which rules; parts are numbered after the rules."""
    parts_from, fields = len(plan.rules), plan.group.fields
    rule = plan.rules[index] if index < parts_from else None
    if rule is not None and rule.is_short:
        return _would_pass(rule.measure, f"rule {rule.rule_id!r}")
    part = plan.parts[index - parts_from] if rule is None else rule.parts(fields)[0]
    owners = [repr(owner.rule_id) for owner in plan.group.rules if part in owner.parts(fields)]
    return _would_pass(None if part.column is None else part.column.of, f"a feature of rule {', '.join(owners)}")


def _would_pass(field: str | None, owner: str) -> str:
    return f"{field}: with this event the sum of {owner} would pass 64 bits"
