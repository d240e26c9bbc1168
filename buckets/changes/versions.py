"""Versions of a job's rules: read from its checkpoint, and what has changed with each.

What a rule on trial has raised so far, before it is released.
Rules that somebody names.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from buckets.checkpoint.rule_versions import RuleVersions
from buckets.config.job import Job, kept_results
from buckets.delta.whole_table import is_table
from buckets.errors import BucketsError
from buckets.feeds.rules.history import read_rule_changes, rows_of, rule_changes_path
from buckets.moment import time_text
from buckets.outputs.columns import SHADOW_ALERTS
from buckets.outputs.recorded_outputs import count_alerts, rules_with_alerts
from buckets.printable import counted
from buckets.rule_files.differences import difference
from buckets.rules.revision import names
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet


def read_version(job: Job, version: int | None) -> RuleSet:
    """Return a version of the rules from the checkpoint of a job; None for the newest.

    Raises:
        BucketsError: there is no such version.
    """
    versions = RuleVersions(job.checkpoint)
    latest = versions.latest_rule_set()
    if latest is None:
        message = f"checkpoint {job.checkpoint}: there are no versions of the rules yet; run the job first"
        raise BucketsError(message)
    if version is None:
        return latest
    if not 1 <= version <= latest.version:
        there = f"there are 1 to {latest.version}"
        message = f"checkpoint {job.checkpoint}: there is no version {version} of the rules; {there}"
        raise BucketsError(message)
    return versions.rule_set(version)


def changes_of(job: Job, rule_id: str | None = None) -> list[dict[str, Any]]:
    """Return the changes of a job's rules as rows of `rule_changes`, newest first; of one rule, with those of all."""
    table = rule_changes_path(job)
    rows = read_rule_changes(table) if is_table(table) else []
    since = max((row["ruleset_version"] for row in rows), default=0)
    rows += rows_of(RuleVersions(job.checkpoint).history(after=since))
    return [row for row in reversed(rows) if rule_id is None or row["rule_id"] in (rule_id, None)]


def with_differences(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return changes of rules, each with what differs in words and since when it is in force, in ms."""

    def read(text: str | None) -> Rule | None:
        return None if text is None else Rule.model_validate_json(text)

    return [
        row
        | {
            "difference": difference(read(row["rule_before"]), read(row["rule_after"])),
            "in_force_ms": None if row["in_force_at"] is None else row["in_force_at"] // 1000,
        }
        for row in rows
    ]


def trial_words(job: Job, rule: Rule) -> str:
    """Say how often a rule on trial has alerted, where its alerts are in a table."""
    folder = kept_results(job)
    table = None if folder is None else folder / SHADOW_ALERTS
    if table is None or not is_table(table):
        return "not known, there is no table of its alerts" + ("; `buckets audit` writes one" if table is None else "")
    trial = count_alerts(table, rule.rule_id)
    if trial.first_ms is None or trial.last_ms is None:
        return f"no alerts in {table}"
    times = f"{time_text(trial.first_ms)} to {time_text(trial.last_ms)} UTC"
    return f"{counted(trial.alerts, 'alert')} of {counted(trial.keys, 'key')}, for events of {times}"


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
