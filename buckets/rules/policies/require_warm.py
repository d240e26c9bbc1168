"""`require_warm`: no alert whose windows may lack something."""

from collections.abc import Iterator, Sequence

from buckets.rules.policies.policy import AlertPolicy, EarlierAlerts, FiredAt
from buckets.rules.policies.rule_state import RuleState


class RequireWarm(AlertPolicy[bool]):
    """Holds back alerts whose windows may lack something."""

    field = "require_warm"
    held_by = "warm"

    def holds_back(self, fired: FiredAt, state: RuleState) -> bool:
        """Return whether a window may lack something."""
        return not fired.is_warm

    def explain(self, fired: FiredAt, earlier: EarlierAlerts) -> Iterator[str]:
        """Say that a window was not complete."""
        if not fired.is_warm:
            yield "require_warm: a window of it was not complete"

    def words(self, group_by: Sequence[str]) -> Iterator[str]:
        """Say for what alerts wait."""
        yield "no alert before its windows are complete"
