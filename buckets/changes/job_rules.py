"""The rules where a job reads them: read, and changed after each change has been checked."""

from collections.abc import Callable, Sequence
from functools import cached_property

from buckets.changes.origin import KeptRule, open_origin
from buckets.config.job import Job
from buckets.config.lists import list_fault
from buckets.config.raw_windows import raw_window_fault
from buckets.errors import BucketsError
from buckets.rules.change import RuleChange
from buckets.rules.encoding import encode_rule_set
from buckets.rules.revision import Revision, names, revise
from buckets.rules.rule import Rule
from buckets.rules.rule_set import first_rule_set


class JobRules:
    """The rules where a job reads them, as commands read and change them."""

    def __init__(self, job: Job, new_file: str = "", say: Callable[[str], None] = lambda line: None) -> None:
        """Open them; in a folder, new ones go into `new_file`. What is not valid among them is said, a line each."""
        self._job, self._say = job, say
        self._origin = open_origin(job, new_file)
        self.name = self._origin.name
        self.takes_control = self._origin.takes_control
        self.send = self._origin.send

    @cached_property
    def kept(self) -> list[KeptRule]:
        """The rules that are kept; what is not valid among them is reported and left out."""
        kept, refused = self._origin.read()
        for refusal in refused[:3]:
            self._say(f"not valid, and left out ({refusal.origin}): {refusal.reason}")
        if len(refused) > 3:
            self._say(f"and {len(refused) - 3} more that are not valid")
        return kept

    @property
    def rules(self) -> list[Rule]:
        """The same without what is known of their last changes."""
        return [kept.rule for kept in self.kept]

    def rule(self, rule_id: str) -> Rule:
        """Return a rule that is kept.

        Raises:
            BucketsError: it is not.
        """
        rules = {rule.rule_id: rule for rule in self.rules}
        if rule_id not in rules:
            message = f"there is no rule {rule_id!r} in {self.name}; rules there: {names(rules)}"
            raise BucketsError(message)
        return rules[rule_id]

    def revise(self, asked: Sequence[RuleChange]) -> Revision:
        """Return the result of changes, without making them.

        Raises:
            BucketsError: a change cannot be made, or the job could not carry the rules.
        """
        engine, schema = self._job.settings.engine, self._job.event_schema

        def fault(rule: Rule) -> str | None:
            return list_fault(rule, self._job.settings.lists) or raw_window_fault(rule, engine, schema)

        revision = revise(first_rule_set(self.rules), asked, schema, (), engine.allowed_lateness, fault=fault)
        if revision.refused:
            more = f" (and {len(revision.refused) - 1} more)" if len(revision.refused) > 1 else ""
            message = f"{revision.refused[0].reason}{more}; nothing has been written"
            raise BucketsError(message)
        encode_rule_set(revision.rule_set)
        return revision

    def publish(self, asked: Sequence[RuleChange], revision: Revision) -> None:
        """Make changes whose result is known."""
        self._origin.publish(asked, revision.made)

    def change(self, asked: Sequence[RuleChange]) -> Revision:
        """Make changes, where they change anything, and return the result; see `revise`."""
        revision = self.revise(asked)
        if revision.made:
            self.publish(asked, revision)
        return revision
