"""A feed of rules that stay as they are."""

from collections.abc import Sequence

from buckets.checkpoint.topic_generations import TopicPosition
from buckets.errors import BucketsError
from buckets.events.schema import EventSchema
from buckets.feeds.feed import RuleRead
from buckets.rules.change import changes_between
from buckets.rules.revision import Refusal
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet


class FixedRules:
    """Rules that stay as they are."""

    origin = "fixed rules"
    fault = None

    def __init__(self, rules: Sequence[Rule]) -> None:
        """Offer `rules`."""
        self._rules = tuple(rules)

    def start(self, position: TopicPosition | None) -> None:
        """Nothing to follow."""

    def read(self, in_force: Sequence[Rule]) -> RuleRead:
        """The rules that are not in force yet."""
        return RuleRead(changes_between(in_force, self._rules))

    def follow_schema(self, schema: EventSchema) -> None:
        """Nothing was refused that could be valid by now."""

    def refuse(self, refusals: Sequence[Refusal]) -> None:
        """End the job: nobody can correct these rules while it runs.

        Raises:
            BucketsError: always.
        """
        raise BucketsError(refusals[0].reason)

    def export(self, rule_set: RuleSet) -> None:
        """Nobody can ask for it."""

    def stop(self) -> None:
        """Nothing to end."""
