"""A feed of rules that stay as they are."""

from collections.abc import Sequence

from buckets.errors import BucketsError
from buckets.feeds.feed import RuleFeed, RuleRead
from buckets.rules.change import changes_between
from buckets.rules.revision import Refusal
from buckets.rules.rule import Rule


class FixedRules(RuleFeed):
    """Rules that stay as they are."""

    origin = "fixed rules"

    def __init__(self, rules: Sequence[Rule]) -> None:
        """Offer `rules`."""
        self._rules = tuple(rules)

    def read(self, in_force: Sequence[Rule] = ()) -> RuleRead:
        """The rules that are not in force yet."""
        return RuleRead(changes_between(in_force, self._rules))

    def refuse(self, refusals: Sequence[Refusal]) -> None:
        """End the job: nobody can correct these rules while it runs.

        Raises:
            BucketsError: always.
        """
        raise BucketsError(refusals[0].reason)
