"""A job that people ask about: its configuration, and where what it has recorded and its rules are."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from buckets.changes.origin import JobRules
from buckets.checkpoint.rule_versions import RuleVersions
from buckets.config.job import Job, kept_results
from buckets.errors import BucketsError
from buckets.outputs.recorded_outputs import has_alerts
from buckets.printable import quoted
from buckets.questions.long_questions import FollowedSchema
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet


@dataclass(frozen=True)
class AskedJob:
    """A job, running or not."""

    conf: Path  # its configuration
    first: Job  # what that says, when people began to ask

    @cached_property
    def _followed(self) -> FollowedSchema:
        return FollowedSchema(self.first)

    @property
    def job(self) -> Job:
        """What its configuration says, with the event schema as its file has it now, as long as that is valid."""
        return self._followed.job

    @property
    def results(self) -> Path:
        """The folder of the tables of alerts.

        Raises:
            BucketsError: nothing is recorded yet, or nowhere.
        """
        folder = kept_results(self.job)
        if folder is None:
            message = "the job's alerts go to topics, and no tables of them are kept; add `audit`, run `buckets audit`"
            raise BucketsError(message)
        if not has_alerts(folder):
            run = "buckets run" if self.job.settings.output.folder is not None else "buckets audit"
            message = f"nothing is recorded in {folder} yet; start the job with `{run} {quoted(str(self.conf))}`"
            raise BucketsError(message)
        return folder

    @property
    def rule_set(self) -> RuleSet | None:
        """The newest version of the rules that the job has; None where it has none yet."""
        return RuleVersions(self.job.checkpoint).latest_rule_set()

    @property
    def rules_in_force(self) -> list[Rule]:
        """The rules of that version that are in force."""
        rule_set = self.rule_set
        return [] if rule_set is None else [rule for rule in rule_set.rules if rule.is_in_force]

    def rules(self, new_file: str) -> JobRules:
        """Return the rules where the job reads them, as they are now; in a folder, new ones go into `new_file`."""
        return JobRules(self.job, new_file)
