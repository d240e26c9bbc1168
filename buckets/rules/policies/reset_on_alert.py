"""`reset_on_alert`: after an alert of a key the rule counts from the start again.

It holds nothing back. The kernel moves the left edge of the rule's window (`kernel/resets.py`), and
`RuleState.reset_ms` keeps where to.
"""

from collections.abc import Iterator, Sequence

from buckets.rules.policies.policy import AlertPolicy


class ResetOnAlert(AlertPolicy[bool]):
    """Lets a rule count only events that are later than its last alert."""

    field = "reset_on_alert"
    depends_on_alerts = True

    def words(self, group_by: Sequence[str]) -> Iterator[str]:
        """Say what an alert does."""
        yield "counts from the start again after an alert"
