"""Versions of a job's rules: read from its checkpoint, and what has changed with each."""

from typing import Any

from buckets.checkpoint.rule_versions import RuleVersions
from buckets.config.job import Job
from buckets.delta.query import is_table
from buckets.errors import BucketsError
from buckets.feeds.rules.history import read_rule_changes, rows_of, rule_changes_path
from buckets.rule_files.differences import difference
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
