"""Rules that somebody names: they may have mistyped one, and then nothing is found of it."""

from collections.abc import Iterable
from pathlib import Path

from buckets.checkpoint.rule_versions import RuleVersions
from buckets.config.job import Job
from buckets.errors import BucketsError
from buckets.outputs.rule_alerts import rules_with_alerts
from buckets.rules.revision import names


def check_known_rules(rules: Iterable[str], job: Job | None, folder: Path) -> None:
    """See that rules are no typing errors: a job, if one is given, has or had them, or a folder has alerts of them.

    Raises:
        BucketsError: one is none of these.
    """
    known = set(rules_with_alerts(folder))
    if job is not None:
        known |= {rule.rule_id for rule in job.rules}
        versions = RuleVersions(job.checkpoint)
        in_force = versions.latest_rule_set()
        known |= {rule.rule_id for rule in in_force.rules} if in_force is not None else set()
        known |= versions.gone_rules().keys()
    unknown = next((rule_id for rule_id in rules if known and rule_id not in known), None)
    if unknown is not None:
        where = "in the job, and none with alerts" if job is not None else f"with alerts in {folder}"
        message = f"there is no rule {unknown!r} {where}; there are: {names(known)}"
        raise BucketsError(message)
