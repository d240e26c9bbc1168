"""The origin of a configuration's rules (file, table or topic), which commands read and change."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from buckets.changes.versions import Completion
from buckets.config.engine import raw_window_fault
from buckets.config.job import Job
from buckets.config.lists import list_fault
from buckets.errors import BucketsError, as_errors, first_line, first_of
from buckets.feeds.rules.rule_book import COLUMNS, NO_RULES, change_of_row, open_rule_table, read_rule_rows
from buckets.feeds.topics import RulesTopic
from buckets.kafka.sender import send_messages
from buckets.moment import iso_text
from buckets.rule_files.flink_rules import ChangeNote, read_change_notes
from buckets.rule_files.yaml_editor import change_files
from buckets.rule_files.yaml_rules import load_rules, rule_files
from buckets.rules.change import RuleChange, key_of
from buckets.rules.revision import Change, Refusal, Revision, in_one_form, names, revise
from buckets.rules.rule import Rule, State, policy_sentence
from buckets.rules.rule_set import RuleSet, encode_rule_set, first_rule_set
from buckets.stores.location import location


@dataclass(frozen=True)
class KeptRule:
    """A rule in its origin, with its last change if known."""

    rule: Rule
    author: str = ""
    reason: str = ""
    time_ms: int | None = None


class JobRules(ABC):
    """The rules at their origin, a file, a table or a topic, which commands read and change."""

    takes_control = False  # whether it takes messages to the running job that are not about one rule's definition

    def __init__(self, name: str, job: Job, new_file: str, say: Callable[[str], None]) -> None:
        """Use the rules of a job; see `job_rules`."""
        self.name, self._job, self._new_file, self._say = name, job, new_file, say

    @cached_property
    def _path(self) -> Path:
        return location(str(self._job.settings.rules.table or self._job.settings.rules.path))

    @abstractmethod
    def _read(self) -> tuple[list[KeptRule], list[Refusal]]:
        """Read the stored rules, and the invalid changes among them."""

    @abstractmethod
    def publish(self, asked: Sequence[RuleChange], made: Sequence[Change]) -> None:
        """Apply changes: the requested ones, and the resulting ones with the new versions of rules."""

    def send(self, change: RuleChange) -> None:
        """Send a message to the running job; BucketsError if the origin is not a topic."""
        command = change.change.replace("_", "-")
        other = {"delete_all": "delete rules one by one with `buckets rules delete`"}
        remedy = other.get(change.change, "start again with another checkpoint")
        message = (
            f"{command}: rules come from {self.name}, which says what rules there are and cannot ask a running job for "
            f"something once; set `rules.topic` in the configuration, or {remedy}"
        )
        raise BucketsError(message)

    @cached_property
    def kept(self) -> list[KeptRule]:
        """The stored rules; invalid ones are reported and skipped."""
        kept, refused = self._read()
        for refusal in refused[:3]:
            self._say(f"not valid, and left out ({refusal.origin}): {refusal.reason}")
        if len(refused) > 3:
            self._say(f"and {len(refused) - 3} more that are not valid")
        return kept

    @property
    def rules(self) -> list[Rule]:
        """The same rules, without their last changes."""
        return [kept.rule for kept in self.kept]

    @cached_property
    def rule_set(self) -> RuleSet:
        """The same rules as a rule set, without events."""
        return first_rule_set(in_one_form(rule, self._job.event_schema) for rule in self.rules)

    def rule(self, rule_id: str) -> Rule:
        """Return a stored rule; BucketsError if it is missing."""
        rules = {rule.rule_id: rule for rule in self.rules}
        if rule_id not in rules:
            message = f"there is no rule {rule_id!r} in {self.name}; rules there: {names(rules)}"
            raise BucketsError(message)
        return rules[rule_id]

    def revise(self, asked: Sequence[RuleChange]) -> Revision:
        """Return the result of changes without applying them.

        BucketsError if a change cannot be made, or the job could not carry the rules.
        """
        engine, schema = self._job.settings.engine, self._job.event_schema

        def fault(rule: Rule) -> str | None:
            return list_fault(rule, self._job.settings.lists) or raw_window_fault(rule, engine, schema)

        revision = revise(self.rule_set, asked, schema, (), engine.allowed_lateness, fault=fault)
        if revision.refused:
            first = first_of(as_errors(refusal.reason for refusal in revision.refused))
            message = f"{first.message}; nothing has been written"
            raise BucketsError(message)
        encode_rule_set(revision.rule_set)
        return revision

    def change(self, asked: Sequence[RuleChange]) -> Revision:
        """Apply changes that have an effect, and return the result; see `revise`."""
        revision = self.revise(asked)
        if revision.made:
            self.publish(asked, revision.made)
        return revision

    def draft(self, rule: Rule) -> Rule:
        """Return a rule as a draft; BucketsError if its id belongs to a rule that is no longer a draft."""
        known = next((each for each in self.rules if each.rule_id == rule.rule_id), None)
        if known is not None and known.state != "DRAFT":
            message = (
                f"rule {rule.rule_id!r} is {known.state}, and a draft in its place would take it out of force; give "
                "the draft a rule_id of its own"
            )
            raise BucketsError(message)
        return rule.model_copy(update={"state": "DRAFT"})


def job_rules(job: Job, new_file: str = "", say: Callable[[str], None] = lambda line: None) -> JobRules:
    """Open the rules of a job; in a folder, new rules go into `new_file`.

    Invalid ones are reported, a line each.
    """
    rules = job.settings.rules
    if rules.topic is not None:
        return TopicRules(f"topic {rules.topic}", job, new_file, say)
    if rules.table is not None:
        return TableRules(f"table {location(str(rules.table))}", job, new_file, say)
    path = location(str(rules.path))
    return FileRules(f"folder {path}" if path.is_dir() else f"file {path}", job, new_file, say)


class TopicRules(JobRules):
    """Rules in a topic. A changed rule is sent whole, so that compaction loses nothing."""

    takes_control = True

    def _read(self) -> tuple[list[KeptRule], list[Refusal]]:
        rules, kafka = self._job.settings.rules, self._job.settings.kafka
        assert kafka is not None
        assert rules.topic is not None
        feed = RulesTopic(kafka, rules.topic, rules.rejected, rules.exported)
        feed.start(None)
        feed.stop()
        messages = feed.read(())
        revision = revise(NO_RULES, messages.asked, self._job.event_schema, (), 0)
        last = {change.rule_id: change for change in revision.made}
        changes = ((rule, last[rule.rule_id]) for rule in revision.rule_set.rules)
        kept = [KeptRule(rule, change.author, change.reason, change.time) for rule, change in changes]
        return kept, [*messages.refused, *revision.refused]

    def publish(self, asked: Sequence[RuleChange], made: Sequence[Change]) -> None:
        """Send each changed rule whole, and deletions."""
        self._send(
            RuleChange(change="delete", rule_id=change.rule_id, author=change.author, reason=change.reason)
            if change.after is None
            else RuleChange(change="put", rule=change.after, author=change.author, reason=change.reason)
            for change in made
        )

    def send(self, change: RuleChange) -> None:
        """Send a message under a key that belongs to no rule."""
        self._send([change])

    def _send(self, changes: Iterable[RuleChange]) -> None:
        messages = ((key_of(change), change.to_json(), dict[str, str]()) for change in changes)
        send_messages(self._job.settings.kafka, str(self._job.settings.rules.topic), messages)


class FileRules(JobRules):
    """Rules in a file, or a folder of them, changed in place."""

    def _read(self) -> tuple[list[KeptRule], list[Refusal]]:
        """Read the rules of the files; changes made by no command are attributed to the file's owner."""
        kept = []
        for file in rule_files(self._path):
            rules, notes, owner, time_ms = load_rules(file, self._job.event_schema), read_change_notes([file]), "", 0
            with contextlib.suppress(OSError, KeyError):
                time_ms = file.stat().st_mtime_ns // 1_000_000
                owner = file.owner()
            for rule in rules:
                if rule.state != "DELETE":
                    note = notes.get(rule.rule_id, ChangeNote(owner, ""))
                    kept.append(KeptRule(rule, note.author, note.reason, time_ms))
        return kept, []

    def publish(self, asked: Sequence[RuleChange], made: Sequence[Change]) -> None:
        """Change the files; versions stay as written, since the job counts them."""
        changed = {change.rule_id: change for change in made}
        states: dict[str, State] = {}
        put = []
        for change in asked:
            subject = change.subject or ""
            if subject not in changed:
                continue
            if changed[subject].after is None:
                states[subject] = "DELETE"
            elif change.rule is not None:
                put.append(change.rule)
            elif change.state is not None:
                states[subject] = change.state
        has_new = self._path.is_dir() and any(changed[rule.rule_id].before is None for rule in put)
        if has_new and Path(self._new_file).suffix not in (".yaml", ".yml"):
            message = f"rules {self._path}: new rules go into a file {self._new_file!r} there, which must end in .yaml"
            raise BucketsError(message)
        notes = {rule_id: ChangeNote(change.author, change.reason) for rule_id, change in changed.items() if rule_id}
        change_files(self._path, states, put, self._new_file, notes)


class TableRules(JobRules):
    """Rules in a Delta table, one per row; a deleted rule keeps its row, with author and reason."""

    def _read(self) -> tuple[list[KeptRule], list[Refusal]]:
        """Read the rules of the rows; a missing table has none."""
        if not self._path.exists():
            return [], []
        table = open_rule_table(self._path)
        origin = f"{self._path}@{table.version()}"
        kept, refused = [], []
        for row in read_rule_rows(table):
            try:
                change = change_of_row(row, origin, self._job.event_schema)
            except ValueError as error:
                refused.append(Refusal(origin, f"rule {row['rule_id']!r}: {error}", str(row["rule"])))
                continue
            if change.rule is not None and change.rule.state != "DELETE":
                kept.append(KeptRule(change.rule, change.author, change.reason))
        return kept, refused

    def publish(self, asked: Sequence[RuleChange], made: Sequence[Change]) -> None:
        """Write the rows of changed rules in one commit."""
        rows = []
        for change in made:
            rule = change.after
            if rule is None:
                assert change.before is not None
                rule = change.before.model_copy(update={"state": "DELETE"})
            text = rule.model_dump_json(by_alias=True)
            rows.append({"rule_id": rule.rule_id, "rule": text, "author": change.author, "reason": change.reason})
        if not rows:
            return
        try:
            self._write(pa.Table.from_pylist(rows, schema=COLUMNS))
        except BucketsError:
            raise
        except Exception as error:  # deltalake has no class for all that may be wrong with a table
            message = f"rules {self._path}: the table cannot be written ({first_line(error)}); nothing has changed"
            raise BucketsError(message) from None

    def _write(self, rows: pa.Table) -> None:
        if not self._path.exists():
            write_deltalake(DeltaTable.create(str(self._path), COLUMNS), rows, mode="append")
            return
        table = open_rule_table(self._path)
        there = {field.name for field in table.schema().fields}
        columns = {name: f"new.{name}" for name in COLUMNS.names if name in there}
        merge = table.merge(rows, "old.rule_id = new.rule_id", source_alias="new", target_alias="old")
        merge.when_matched_update(columns).when_not_matched_insert(columns).execute()


def listed_rule(kept: KeptRule, completion: Completion) -> dict[str, Any]:
    """Return a rule with its known state; timestamps are ISO 8601."""
    rule, warmth = kept.rule, completion.warmth
    now = None if warmth is None else warmth.current
    return {
        "rule_id": rule.rule_id,
        "version": rule.version,
        "state": rule.state,
        "sentence": rule.sentence(),
        "policy": policy_sentence(rule),
        "author": kept.author,
        "reason": kept.reason,
        "changed_at": _iso(kept.time_ms),
        "completeness": completion.words,
        "complete_since": None if now is None else _iso(now.from_ms),
        "complete_from": None if warmth is None else _iso(warmth.complete_from_ms),
        "warm": [{"from": _iso(one.from_ms), "until": _iso(one.until_ms)} for one in (warmth.warm if warmth else ())],
        "latest_event_time": None if warmth is None else _iso(warmth.latest_ms),
        "backfill": [fill.to_json() for fill in completion.fills],
        "rule": rule.model_dump(by_alias=True, mode="json"),
    }


def _iso(time_ms: int | None) -> str | None:
    return None if time_ms is None else iso_text(time_ms)
