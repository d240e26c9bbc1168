"""All policies. What enumerates policies, from the engine to the published schemas, asks here."""

from typing import Any

from buckets.rules.policies.cooldown import Cooldown
from buckets.rules.policies.policy import AlertPolicy
from buckets.rules.policies.require_warm import RequireWarm
from buckets.rules.policies.reset_on_alert import ResetOnAlert
from buckets.rules.policies.snoozes import Snoozes

POLICIES: tuple[type[AlertPolicy[Any]], ...] = (RequireWarm, Snoozes, Cooldown, ResetOnAlert)
"""In the order in which they decide: the first that holds an alert back is named."""
HELD_BY = tuple(policy.held_by for policy in POLICIES if policy.held_by is not None)
"""What can hold an alert back, as results name it."""


def policies_of(rule: object) -> tuple[AlertPolicy[Any], ...]:
    """Return the policies whose fields say something in a rule, in the order in which they decide."""
    return tuple(policy(getattr(rule, policy.field)) for policy in POLICIES if getattr(rule, policy.field))
