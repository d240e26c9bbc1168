"""Where the rules of a configuration are kept, as the commands of `buckets rules` read and change them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from buckets.errors import BucketsError, first_line
from buckets.event_schema import EventSchema
from buckets.job import Job
from buckets.kafka.rules_topic import RulesTopic
from buckets.kafka.sender import Sender
from buckets.kafka.settings import KafkaSettings
from buckets.revision import Change, Refusal, revise
from buckets.rule import Rule, State
from buckets.rule_book import NO_RULES
from buckets.rule_change import RuleChange, key_of
from buckets.rule_file import load_rules, rule_files
from buckets.rule_table import COLUMNS, change_of_row, open_rule_table, read_rule_rows
from buckets.rule_text import change_files
from buckets.rule_words import Words, words_about


@dataclass(frozen=True)
class KeptRule:
    """A rule as it is kept, and what is known of its last change.

    Attributes:
        rule: the rule.
        author: who changed it last.
        reason: why.
        time_ms: when, in ms since the epoch.
    """

    rule: Rule
    author: str = ""
    reason: str = ""
    time_ms: int | None = None


class RulePlace(Protocol):
    """A place of rules."""

    name: str
    """The place in words."""
    takes_control: bool
    """Whether it takes messages to the running job that are not about one rule's definition."""

    def read(self) -> tuple[list[KeptRule], list[Refusal]]:
        """The rules that are kept, and what stands there that is no valid change."""

    def publish(self, asked: Sequence[RuleChange], made: Sequence[Change]) -> None:
        """Make changes.

        Args:
            asked: what was asked for.
            made: what changes by it, with the versions that rules have then.
        """

    def send(self, change: RuleChange) -> None:
        """Send a message to the running job."""


def open_place(job: Job, new_file: str = "") -> RulePlace:
    """The place that a configuration names.

    Args:
        job: the configuration.
        new_file: name of the file that takes rules that come, where the place is a folder.
    """
    rules = job.settings.rules
    if rules.topic is not None:
        assert job.settings.kafka is not None
        return TopicPlace(job.settings.kafka, rules.topic, rules.rejected, rules.exported, job.event_schema)
    if rules.table is not None:
        return TablePlace(Path(rules.table), job.event_schema)
    assert rules.path is not None
    return FilePlace(Path(rules.path), job.event_schema, new_file)


class TopicPlace:
    """A topic. What changes a rule is sent as the whole rule, so that a compacted topic keeps what counts."""

    takes_control = True

    def __init__(self, kafka: KafkaSettings, topic: str, rejected: str, exported: str, schema: EventSchema) -> None:
        """Use `topic`, with the topics for what is rejected and exported."""
        self.name = f"topic {topic}"
        self._kafka = kafka
        self._topic = topic
        self._feed = RulesTopic(kafka, topic, rejected, exported)
        self._schema = schema

    def read(self) -> tuple[list[KeptRule], list[Refusal]]:
        """What all messages from the beginning of the topic to its end come to."""
        self._feed.start(None)
        self._feed.stop()
        found = self._feed.read(())
        revision = revise(NO_RULES, found.asked, self._schema, (), 0)
        last = {change.rule_id: change for change in revision.made}
        kept = [
            KeptRule(rule, last[rule.rule_id].author, last[rule.rule_id].reason, last[rule.rule_id].time)
            for rule in revision.rule_set.rules
        ]
        return kept, [*found.refused, *revision.refused]

    def publish(self, asked: Sequence[RuleChange], made: Sequence[Change]) -> None:
        """Send a message for each change."""
        self._send([_message(change) for change in made])

    def send(self, change: RuleChange) -> None:
        """Send a message under a key that is no rule's."""
        self._send([change])

    def _send(self, changes: Sequence[RuleChange]) -> None:
        sender = Sender(self._kafka)
        for change in changes:
            sender.send(self._topic, key_of(change), change.to_json(), {})
        sender.flush()


class FilePlace:
    """A rule file, or a folder of them, changed in place."""

    takes_control = False

    def __init__(self, path: Path, schema: EventSchema, new_file: str) -> None:
        """Use the file or folder `path`; in a folder new rules go into `new_file`."""
        self.name = f"folder {path}" if path.is_dir() else f"file {path}"
        self._path = path
        self._schema = schema
        self._new_file = new_file

    def read(self) -> tuple[list[KeptRule], list[Refusal]]:
        """The rules of the files; what no command has changed is by the file's owner, when the file was changed."""
        kept = []
        for file in rule_files(self._path):
            words, owner, time_ms = words_about([file]), Words(_owner(file), ""), file.stat().st_mtime_ns // 1_000_000
            for rule in load_rules(file, self._schema):
                if rule.state != "DELETE":
                    said = words.get(rule.rule_id, owner)
                    kept.append(KeptRule(rule, said.author, said.reason, time_ms))
        return kept, []

    def publish(self, asked: Sequence[RuleChange], made: Sequence[Change]) -> None:
        """Change the files; versions stay as they are written, for the job counts them."""
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
        if self._path.is_dir() and any(changed[rule.rule_id].before is None for rule in put):
            self._check_new_file()
        words = {rule_id: Words(change.author, change.reason) for rule_id, change in changed.items() if rule_id}
        change_files(self._path, states, put, self._new_file, words)

    def _check_new_file(self) -> None:
        if Path(self._new_file).suffix not in (".yaml", ".yml"):
            message = f"rules {self._path}: new rules go into a file {self._new_file!r} there, which must end in .yaml"
            raise BucketsError(message)

    def send(self, change: RuleChange) -> None:
        """A file takes no message."""
        raise _only_a_topic(self.name, change)


class TablePlace:
    """A Delta table with a row for each rule; a deleted rule keeps its row, which says who deleted it and why."""

    takes_control = False

    def __init__(self, path: Path, schema: EventSchema) -> None:
        """Use the table at `path`, which may not be there yet."""
        self.name = f"table {path}"
        self._path = path
        self._schema = schema

    def read(self) -> tuple[list[KeptRule], list[Refusal]]:
        """The rules of the rows; a table that is not there yet has none."""
        if not self._path.exists():
            return [], []
        table = open_rule_table(self._path)
        place = f"{self._path}@{table.version()}"
        kept, refused = [], []
        for row in read_rule_rows(table):
            try:
                change = change_of_row(row, place, self._schema)
            except ValueError as error:
                refused.append(Refusal(place, f"rule {row['rule_id']!r}: {error}", str(row["rule"])))
                continue
            if change.rule is not None and change.rule.state != "DELETE":
                kept.append(KeptRule(change.rule, change.author, change.reason))
        return kept, refused

    def publish(self, asked: Sequence[RuleChange], made: Sequence[Change]) -> None:
        """Write the rows of the rules that change, with one commit."""
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
            write_deltalake(DeltaTable.create(self._path, COLUMNS), rows, mode="append")
            return
        table = open_rule_table(self._path)
        there = {field.name for field in table.schema().fields}
        columns = {name: f"new.{name}" for name in COLUMNS.names if name in there}
        merge = table.merge(rows, "old.rule_id = new.rule_id", source_alias="new", target_alias="old")
        merge.when_matched_update(columns).when_not_matched_insert(columns).execute()

    def send(self, change: RuleChange) -> None:
        """A table takes no message."""
        raise _only_a_topic(self.name, change)


def _message(made: Change) -> RuleChange:
    """A change as a message that says all of the rule, or that it is gone."""
    if made.after is None:
        return RuleChange(change="delete", rule_id=made.rule_id, author=made.author, reason=made.reason)
    return RuleChange(change="put", rule=made.after, author=made.author, reason=made.reason)


def _owner(file: Path) -> str:
    try:
        return file.owner()
    except (OSError, KeyError):
        return ""


def _only_a_topic(name: str, change: RuleChange) -> BucketsError:
    command = change.change.replace("_", "-")
    other = {"delete_all": "delete rules one by one with `buckets rules delete`"}
    remedy = other.get(change.change, "begin anew with another checkpoint")
    message = (
        f"{command}: rules come from {name}, which says what rules there are and cannot ask a running job for "
        f"something once; have `rules.topic` in the configuration, or {remedy}"
    )
    return BucketsError(message)
