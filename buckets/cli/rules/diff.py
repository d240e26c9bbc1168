"""The command `buckets rules diff`: how two versions of the rules differ, and what that does to the state."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from buckets.changes.versions import read_version
from buckets.checkpoint.driver_state import Checkpoint
from buckets.cli.console import Terminal, TextTable, echo_report
from buckets.cli.options import AsJson
from buckets.clock import epoch_ms
from buckets.config.job import Job, load_job
from buckets.errors import BucketsError
from buckets.feeds.rules.rule_book import NO_RULES
from buckets.printable import capitalised
from buckets.rule_files.differences import RuleDifference, rules_that_differ
from buckets.rule_files.yaml_rules import load_rule_files
from buckets.rules.change import changes_between
from buckets.rules.revision import revise
from buckets.rules.rule import policy_sentence
from buckets.rules.rule_set import GroupChange, RuleSet, first_rule_set, group_changes
from buckets.rules.warmth import rules_warmth

One = Annotated[str, typer.Argument(metavar="ONE", help="A version of the rules, as in 3, or a rule file or folder.")]
Other = Annotated[
    str | None, typer.Argument(metavar="[OTHER]", help="Another; without it, the newest version of the checkpoint.")
]
OptionalConf = Annotated[
    Path | None, typer.Option(help="The job's configuration, whose checkpoint has the versions; not for two files.")
]


def diff(one: One, other: Other = None, conf: OptionalConf = None, as_json: AsJson = False) -> None:
    """Show how two versions of the rules differ, and what the step from the first to the second does to the state.

    A version is that of all rules, as `buckets rules history` counts them. A
    file is compared as if the job took it now.

    \b
    Examples:
      buckets rules diff 3 7 --conf conf/kafka.yaml
      buckets rules diff 7 new-rules.yaml --conf conf/kafka.yaml
      buckets rules diff old-rules.yaml new-rules.yaml
    """  # noqa: D301 - click needs the backspace itself
    job = None if conf is None else load_job(conf)
    before, after = _side(job, one), _side(job, other)
    rules = rules_that_differ(before.rule_set.rules, after.rule_set.rules)
    groups = group_changes(before.rule_set, after.rule_set)
    difference = VersionDifference(before, after, rules, groups, _warmth(job, after, rules))
    if as_json:
        echo_report(difference.to_json())
        return
    difference.show(Terminal())


@dataclass(frozen=True)
class Side:
    """One of two things that are compared: its name and its rules."""

    name: str
    rule_set: RuleSet


def version_number(text: str) -> int | None:
    """Return the number of a version of the rules; None where the text is no number."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _side(job: Job | None, written: str | None) -> Side:
    """Return a version of the rules, or a file as if the job took it now.

    Raises:
        BucketsError: there is no such version or file, or the job could not take it.
    """
    number = None if written is None else version_number(written)
    if written is None or number is not None:
        if job is None:
            what = "the newest version" if written is None else f"version {written}"
            message = f"{what} of the rules: is in the checkpoint of a job; give its --conf, or two files"
            raise BucketsError(message)
        version = read_version(job, number)
        return Side(f"version {version.version}", version)
    rules = load_rule_files(Path(written), None if job is None else job.event_schema)
    if job is None:
        return Side(written, first_rule_set(rule for rule in rules if rule.state != "DELETE"))
    kept = Checkpoint(job.checkpoint)
    latest = kept.versions.latest_rule_set() or NO_RULES
    asked, lateness_ms = changes_between(latest.rules, rules), job.settings.engine.allowed_lateness
    revision = revise(latest, asked, job.event_schema, kept.batches.arrived(), lateness_ms, kept.versions.gone_rules())
    if revision.refused:
        message = f"{written}: {revision.refused[0].reason}"
        raise BucketsError(message)
    return Side(written, revision.rule_set)


def _warmth(job: Job | None, after: Side, rules: Sequence[RuleDifference]) -> dict[str, str]:
    """Say since when the rules that differ are complete on the second side; empty where no job has versions."""
    kept = None if job is None else Checkpoint(job.checkpoint)
    if kept is None or kept.versions.latest_rule_set() is None:
        return {}
    warmth = rules_warmth(after.rule_set, kept.batches.arrived(), epoch_ms())
    return {rule.rule_id: warmth[rule.rule_id].sentence() for rule in rules if rule.after is not None}


@dataclass(frozen=True)
class VersionDifference:
    """How two versions of the rules differ."""

    before: Side
    after: Side
    rules: list[RuleDifference]
    groups: list[GroupChange]
    completeness: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """Return the difference as plain data."""
        return {
            "before": self.before.name,
            "after": self.after.name,
            "rules": [
                {
                    "rule_id": rule.rule_id,
                    "change": rule.change,
                    "version_before": None if rule.before is None else rule.before.version,
                    "version_after": None if rule.after is None else rule.after.version,
                    "fields": [asdict(field) for field in rule.fields],
                    "sentence_before": None if rule.before is None else rule.before.sentence(),
                    "sentence_after": None if rule.after is None else rule.after.sentence(),
                    "completeness": self.completeness.get(rule.rule_id),
                }
                for rule in self.rules
            ],
            "groups": [asdict(group) for group in self.groups],
        }

    def show(self, console: Terminal) -> None:
        """Print the difference as tables."""
        of = f"{self.before.name} → {self.after.name}"
        console.print(self._rules_table(f"Rules, {of}") if self.rules else f"{of}: the rules are the same")
        if self.groups:
            table = TextTable("What it does to the state", ("Group", "What"), show_lines=True)
            for group in self.groups:
                table.add_row(group.name, group.words)
            console.print(table)
        elif self.rules:
            console.print("what is kept of events stays as it is")

    def _rules_table(self, title: str) -> TextTable:
        table = TextTable(title, ("Rule", "What"), show_lines=True)
        for rule in self.rules:
            there = rule.after or rule.before
            assert there is not None
            lines = [str(field) for field in rule.fields] or [there.sentence(), policy_sentence(there)]
            complete = self.completeness.get(rule.rule_id)
            lines += [f"{capitalised(complete)}."] if complete else []
            table.add_row(f"{rule.rule_id}\n{rule.change}", "\n".join(line for line in lines if line))
        return table
