"""Versions of a job's rules: their changes, the alerts of rules on trial, and since when rules are complete."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from buckets.backfill.fill_chunks import FillStatus, read_fills
from buckets.checkpoint.driver_state import Checkpoint, read_warmth
from buckets.checkpoint.rule_versions import RuleVersions
from buckets.clock import epoch_ms
from buckets.config.job import Job, kept_results
from buckets.delta.whole_table import is_table
from buckets.errors import BucketsError
from buckets.feeds.rules.history import read_rule_changes, rows_of, rule_changes_path
from buckets.moment import time_text
from buckets.outputs.columns import SHADOW_ALERTS
from buckets.outputs.recorded_outputs import count_alerts, rules_with_alerts
from buckets.printable import counted
from buckets.rule_files.differences import difference
from buckets.rules.change import RuleChange
from buckets.rules.revision import names, revise, same_definition
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet
from buckets.rules.warmth import Warmth, rules_warmth


def read_version(job: Job, version: int | None) -> RuleSet:
    """Return a version of the rules from a checkpoint, None for the newest; BucketsError if there is none."""
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
    """Return a job's rule changes as rows of `rule_changes`, newest first; for one rule, also changes made to all."""
    table = rule_changes_path(job)
    rows = read_rule_changes(table) if is_table(table) else []
    since = max((row["ruleset_version"] for row in rows), default=0)
    rows += rows_of(RuleVersions(job.checkpoint).history(after=since))
    return [row for row in reversed(rows) if rule_id is None or row["rule_id"] in (rule_id, None)]


def with_differences(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add to changes of rules their differences in words, and the time when they came into force, in ms."""

    def read(text: str | None) -> Rule | None:
        return None if text is None else Rule.model_validate_json(text)

    shown = []
    for row in rows:
        words = difference(read(row["rule_before"]), read(row["rule_after"]))
        in_force_ms = None if row["in_force_at"] is None else row["in_force_at"] // 1000
        shown.append(row | {"difference": words, "in_force_ms": in_force_ms})
    return shown


def trial_words(job: Job, rule: Rule) -> str:
    """Say how often a rule on trial has alerted, if its alerts are in a table."""
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
    """Check rule ids for typing errors: a job, if given, must have or have had them, or a folder alerts of them.

    BucketsError for an unknown one.
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


@dataclass(frozen=True)
class Completion:
    """The completeness of a rule."""

    words: str  # when it is or will be complete, in a few words
    # the same as times; None where the job does not evaluate the rule as it stands in its origin
    warmth: Warmth | None = None
    fills: tuple[FillStatus, ...] = ()  # how far its history is filled in from the archive, where that is asked for

    @property
    def is_complete(self) -> bool:
        """Whether the windows of the rule are complete now."""
        return self.warmth is not None and self.warmth.current is not None


def read_completions(job: Job, rules: Iterable[Rule]) -> dict[str, Completion]:
    """Read the state of rules, by id, from the checkpoint of a job."""
    rule_set = Checkpoint(job.checkpoint).versions.latest_rule_set()
    in_force = {} if rule_set is None else {rule.rule_id: rule for rule in rule_set.rules}
    warmth, fills = read_warmth(job.checkpoint), read_fills(job.checkpoint)
    completions = {}
    for rule in rules:
        there, own_warmth = in_force.get(rule.rule_id), None
        if rule.state == "DRAFT":
            words = "not in force, keeps nothing"
        elif there is None or there.state == "DRAFT":
            words = "not in force yet"
        elif not same_definition(there, rule, job.event_schema):
            words = f"not in force yet as it is here: the job has version {there.version}"
        else:
            # A running job may have made a version between the two reads.
            own_warmth = warmth.get(rule.rule_id)
            words = "not in force yet" if own_warmth is None else own_warmth.sentence()
        own_fills = tuple(fill for fill in fills if rule.rule_id in fill.rule_ids)
        words = "; ".join((words, *(fill.words for fill in own_fills)))
        completions[rule.rule_id] = Completion(words, own_warmth, own_fills)
    return completions


def expected_completion(job: Job, rule: Rule) -> Completion:
    """Say when a rule will be complete if the next batch evaluates it in this form."""
    kept = Checkpoint(job.checkpoint)
    rule_set = kept.versions.latest_rule_set()
    if rule_set is None:
        return Completion("complete from the first event on, as the job has seen none yet")
    arrived, lateness_ms = kept.batches.arrived(), job.settings.engine.allowed_lateness
    put = RuleChange(change="put", rule=rule)
    revision = revise(rule_set, [put], job.event_schema, arrived, lateness_ms, kept.versions.gone_rules())
    warmth = rules_warmth(revision.rule_set, arrived, epoch_ms()).get(rule.rule_id)
    return Completion("not known") if warmth is None else Completion(warmth.sentence(), warmth)
