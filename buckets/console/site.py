"""What all pages of a console share: the job that it is about, and what is known of it."""

import threading
from dataclasses import dataclass, field
from pathlib import Path

from buckets.changes.job_rules import JobRules
from buckets.checkpoint.rule_versions import RuleVersions
from buckets.config.job import Job, kept_results
from buckets.console.person import People
from buckets.console.sampler import Sampler
from buckets.console.work.questions import Questions
from buckets.errors import BucketsError
from buckets.outputs.rule_alerts import has_alerts
from buckets.printable import quoted
from buckets.rules.rule_set import RuleSet


@dataclass(frozen=True)
class Site:
    """A console.

    Attributes:
        conf: the configuration of its job.
        job: what that says.
        people: who may do what.
        sampler: what the job has done in the last hour.
        questions: the long questions that are asked.
        new_file: in a folder of rules, the file for new ones.
        closing: set when the console ends, so that streams do.
    """

    conf: Path
    job: Job
    people: People
    sampler: Sampler
    questions: Questions
    new_file: str = "console.yaml"
    closing: threading.Event = field(default_factory=threading.Event)

    @property
    def name(self) -> str:
        """What the job is called: its configuration, or the folder where that says more."""
        path = self.conf.resolve()
        return path.parent.name if path.stem in ("conf", "config", "job") else path.stem

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

    def rules(self, new_file: str = "") -> JobRules:
        """Return the rules where the job reads them, as they are now."""
        return JobRules(self.job, new_file or self.new_file)
