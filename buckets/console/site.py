"""What all pages of a console share: the job that it is about, and what is known of it."""

import threading
from dataclasses import dataclass, field

from buckets.changes.job_rules import JobRules
from buckets.console.activity import Activity
from buckets.console.person import People
from buckets.console.sampler import Sampler
from buckets.questions.asked_job import AskedJob
from buckets.questions.long_questions import Questions
from buckets.questions.rule_checks import RuleChecks

_NEW_FILE = "console.yaml"


@dataclass(frozen=True)
class Site(AskedJob):
    """A console.

    Attributes:
        conf: the configuration of its job.
        first: what that says, when it was opened.
        people: who may do what.
        sampler: what the job has done in the last hour.
        questions: the long questions that are asked.
        checks: of rules as they are typed.
        activity: what the console does.
        closing: set when the console ends, so that streams do.
    """

    people: People
    sampler: Sampler
    questions: Questions
    checks: RuleChecks
    activity: Activity = field(default_factory=Activity)
    closing: threading.Event = field(default_factory=threading.Event)

    @property
    def name(self) -> str:
        """What the job is called: its configuration, or the folder where that says more."""
        path = self.conf.resolve()
        return path.parent.name if path.stem in ("conf", "config", "job") else path.stem

    def rules(self, new_file: str = _NEW_FILE) -> JobRules:
        """Return the rules where the job reads them, as they are now; in a folder, new ones go into a file."""
        return super().rules(new_file)
