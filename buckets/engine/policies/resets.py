"""When rules with `reset_on_alert` last fired, by key: what policies remember, as an array for the kernel and back."""

import numpy as np
import numpy.typing as npt

from buckets.engine.policies.policy_state import PolicyState
from buckets.kernel.plan import GroupPlan
from buckets.kernel.score import NO_RESET

Int64s = npt.NDArray[np.int64]


def read_resets(plan: GroupPlan, state: PolicyState, keys: int) -> Int64s:
    """Return when each of the plan's resetting rules last fired, int64 `(keys, rules)`; NO_RESET for never.

    Args:
        plan: the group's plan.
        state: what policies remember; read where some rule is reset.
        keys: how many keys there are.
    """
    reset_ms = np.full((keys, len(plan.resetting)), NO_RESET, np.int64)
    if plan.resetting:
        state.read(range(keys))
    for column, rule in enumerate(plan.resetting):
        rule_id = plan.rules[rule].rule_id
        for key in range(keys):
            last_ms = state.of(key, rule_id).reset_ms
            if last_ms is not None:
                reset_ms[key, column] = last_ms
    return reset_ms


def keep_resets(plan: GroupPlan, state: PolicyState, before_ms: Int64s, after_ms: Int64s) -> None:
    """Let policies remember what has changed; both arrays are as `read_resets` gives them."""
    if not plan.resetting:
        return
    for key, column in np.argwhere(before_ms != after_ms).tolist():
        rule_id, last_ms = plan.rules[plan.resetting[column]].rule_id, int(after_ms[key, column])
        state.put(key, rule_id, state.of(key, rule_id)._replace(reset_ms=last_ms), last_ms)
