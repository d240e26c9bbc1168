"""Rules in a topic of a real broker: followed by the job, and changed by the commands of `buckets rules`."""

import json
import re
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.topic_generations import TopicPosition
from buckets.cli.commands import exit_code
from buckets.config.engine import EngineSettings
from buckets.errors import BucketsError, Outage
from buckets.feeds import topics as feed_topics
from buckets.feeds.rules.rule_book import RuleBook
from buckets.feeds.topics import LARGEST_REJECTED, RulesTopic
from buckets.kafka import follower
from buckets.rule_files.yaml_rules import load_rules
from buckets.rules.change import RuleChange, key_of, parse_change
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet
from tests.core import flink_demo
from tests.core.examples import SCHEMA, rule, until
from tests.kafka.broker import TestBroker

WAIT_S = 60


class Topic:
    """The topics of rules of a job, with its checkpoint."""

    def __init__(self, broker: TestBroker, root: Path, partitions: int = 1, **config: str) -> None:
        self.broker = broker
        self.name = f"rules-{uuid.uuid4().hex[:8]}"
        self.rejected, self.exported = f"{self.name}_rejected", f"{self.name}_export"
        broker.create(self.name, partitions, {"cleanup.policy": "compact"} | config)
        for topic in (self.rejected, self.exported):
            broker.create(topic)
        self.checkpoint = Checkpoint(root / "checkpoint")
        self.batch = 0
        self.patience_ms = broker.kafka.outage_patience
        self.schema = SCHEMA
        self.remarks: list[str] = []
        self.started: list[RuleBook] = []

    def feed(self) -> RulesTopic:
        kafka = self.broker.kafka.model_copy(update={"outage_patience": self.patience_ms})
        return RulesTopic(kafka, self.name, self.rejected, self.exported, self.remarks.append)

    def write(self, *changes: RuleChange) -> None:
        self.broker.produce(self.name, [each.to_json() for each in changes], [key_of(each) for each in changes])

    def raw(self, key: str | bytes | None, value: str | bytes | None) -> None:
        self.broker.produce(self.name, [value], [key])

    def start(self, checkpoint: Checkpoint | None = None) -> RuleBook:
        """The job starts: over its own checkpoint, or over a new one."""
        book = RuleBook(checkpoint or self.checkpoint, self.feed(), self.schema, EngineSettings(allowed_lateness="0ms"))
        book.start()
        self.started.append(book)
        return book

    def run(self, book: RuleBook) -> RuleSet:
        """A batch."""
        rule_set = book.for_batch(self.batch)
        book.done(self.batch, rule_set, until(1000))
        self.batch += 1
        return rule_set

    def run_until(self, book: RuleBook, reached: Callable[[RuleSet], bool]) -> RuleSet:
        """Batches, until one has the rules that are waited for."""
        until_s = time.monotonic() + WAIT_S
        while time.monotonic() < until_s:
            rule_set = self.run(book)
            if reached(rule_set):
                return rule_set
            time.sleep(0.02)
        message = f"not reached with {rule_set.rules}"
        raise AssertionError(message)

    def values(self, topic: str) -> list[Any]:
        return [json.loads(message.value()) for message in self.broker.read(topic)]


@pytest.fixture
def topic(broker, tmp_path) -> Iterator[Topic]:
    made = Topic(broker, tmp_path)
    yield made
    for book in made.started:
        book.stop()


def put(rule_id: str, **changes: Any) -> RuleChange:
    return RuleChange(change="put", rule=rule(rule_id, **changes), author="ann", reason="why")


def ids(rule_set: RuleSet) -> list[str]:
    return [each.rule_id for each in rule_set.rules]


CLEAR = RuleChange(change="clear_state", rule_id="a")


# Followed


def test_the_first_batch_has_all_that_was_written_before(topic):
    topic.write(put("a"), put("b"), put("a", length="2h"), RuleChange(change="delete", rule_id="b"), put("c"))
    rule_set = topic.run(topic.start())
    assert ids(rule_set) == ["a", "c"]
    assert rule_set.version == 1
    assert rule_set.rules[0] == rule("a", length="2h", version=2)


def test_an_empty_topic_is_a_job_without_rules(topic):
    book = topic.start()
    assert topic.run(book).rules == ()
    topic.write(put("a"))
    assert topic.run_until(book, lambda rule_set: bool(rule_set.rules)).version == 2


def test_changes_are_taken_while_the_job_runs_with_who_why_and_where(topic):
    topic.write(put("a"))
    book = topic.start()
    topic.run(book)
    topic.write(put("a", length="2h"))
    rule_set = topic.run_until(book, lambda rule_set: rule_set.version == 2)
    assert rule_set.rules == (rule("a", length="2h", version=2),)
    (change,) = topic.checkpoint.versions.history(after=1)[0].changes
    assert (change.author, change.reason, change.origin) == ("ann", "why", f"{topic.name}@1")
    assert abs(change.time / 1000 - time.time()) < WAIT_S


def test_a_bare_rule_is_put_and_no_value_deletes(topic):
    topic.raw("a", rule("a").model_dump_json(by_alias=True))
    topic.raw("b", rule("b").model_dump_json(by_alias=True))
    topic.raw("a", None)
    assert ids(topic.run(topic.start())) == ["b"]
    assert topic.values(topic.rejected) == []


def test_a_start_goes_on_after_what_was_read_and_clears_nothing_twice(topic):
    topic.write(put("a"))
    book = topic.start()
    topic.run(book)
    topic.write(CLEAR)
    topic.run_until(book, lambda rule_set: rule_set.version == 2)
    book.stop()
    again = topic.start()
    rule_set = topic.run(again)
    assert (rule_set.version, [group.generation for group in rule_set.groups]) == (2, [2])
    again.stop()
    topic.write(CLEAR, put("b"))
    rule_set = topic.run(topic.start())
    assert (rule_set.version, [group.generation for group in rule_set.groups]) == (3, [3])


def test_what_was_asked_of_an_empty_topic_while_the_job_was_down_is_done(topic):
    """Its start has been seen, so what comes after it is no history."""
    book = topic.start()
    topic.run(book)
    book.stop()
    topic.write(put("a"), RuleChange(change="export"))
    assert ids(topic.run(topic.start())) == ["a"]
    assert len(topic.values(topic.exported)) == 1


def test_another_checkpoint_gets_the_rules_and_does_not_repeat_what_was_asked_of_the_first(topic, tmp_path):
    topic.write(put("a"), CLEAR, RuleChange(change="export"), RuleChange(change="clear_all_state"), put("b"))
    first = topic.run(topic.start())
    topic.batch = 0
    second = topic.run(topic.start(Checkpoint(tmp_path / "other")))
    assert second == first
    assert [group.generation for group in second.groups] == [1]
    assert topic.values(topic.exported) == []


def test_a_topic_that_was_made_anew_is_read_from_its_beginning(topic):
    topic.write(put("a"), put("b"), put("c"))
    book = topic.start()
    topic.run(book)
    book.stop()
    topic.broker.delete(topic.name)
    topic.broker.create(topic.name)
    topic.write(put("d"))
    assert ids(topic.run(topic.start())) == ["a", "b", "c", "d"]
    position = topic.checkpoint.versions.position(f"topic {topic.name}")
    assert position is not None
    assert position.offset == 1


def test_a_topic_that_was_made_anew_and_is_longer_is_read_from_its_beginning(topic):
    topic.write(put("a"))
    book = topic.start()
    topic.run(book)
    book.stop()
    topic.broker.delete(topic.name)
    topic.broker.create(topic.name)
    topic.write(put("d"), CLEAR, put("e"))
    again = topic.run(topic.start())
    assert ids(again) == ["a", "d", "e"]
    assert {group.generation for group in again.groups} == {1}, "a request in it is history"


def test_a_position_without_a_known_topic_is_gone_on_with(topic):
    topic.write(put("a"), put("b"))
    book = topic.start()
    topic.run(book)
    book.stop()
    topic.checkpoint.versions.keep_position(TopicPosition(2), f"topic {topic.name}", 1)
    topic.write(CLEAR)
    again = topic.start()
    assert topic.run(again).groups[0].generation == 2, "it is not a history"


# Rejected and exported


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("a", b"\xff\xfe{"),
        ("a", "[" * 50_000),
        ("a", '{"rule_id": "\\ud800"}'),
        ("x", rule("a").model_dump_json(by_alias=True)),
        ("a", '{"change": "state", "rule_id": "a", "state": "PAUSE"}'),
        ("x", '{"change": "clear_state", "rule_id": "x"}'),
        ("!state x", '{"change": "state", "rule_id": "x", "state": "PAUSE"}'),
        ("n", rule("n", group_by=["nobody"]).model_dump_json(by_alias=True)),
        ("n", rule("n", version=2**40).model_dump_json(by_alias=True)),
        ("é", '{"change": "é"}'),
    ],
    ids=range(10),
)  # fmt: skip
def test_a_message_that_is_no_change_goes_to_the_rejected_with_the_reason_and_the_rest_is_done(
    topic, key, value, as_worded
):
    topic.write(put("a"))
    topic.raw(key, value)
    topic.write(put("b"))
    book = topic.start()
    assert ids(topic.run(book)) == ["a", "b"]
    book.stop()
    (rejected,) = topic.values(topic.rejected)
    assert as_worded(rejected["reason"])
    assert rejected["place"] == f"{topic.name}@1"
    assert rejected["characters"] == len(rejected["message"])
    assert f'"{key.removeprefix("!state ")}"' in rejected["message"] or rejected["message"] in (value, "\\xff\\xfe{")
    topic.run(topic.start())
    assert len(topic.values(topic.rejected)) == 1


def test_a_message_of_any_size_is_rejected_in_part(topic, as_worded):
    topic.raw("a", "\x00" * 900_000)
    topic.run(topic.start())
    (rejected,) = topic.values(topic.rejected)
    assert as_worded(rejected["reason"])
    assert (len(rejected["message"]), rejected["characters"]) == (LARGEST_REJECTED, 900_000)


def test_an_export_publishes_the_rules_in_force(topic):
    topic.write(put("a"))
    book = topic.start()
    topic.run(book)
    topic.write(put("b", state="SHADOW", description="é"), RuleChange(change="export"))
    topic.run_until(book, lambda rule_set: bool(topic.values(topic.exported)))
    exported = topic.values(topic.exported)
    assert [each["ruleset_version"] for each in exported] == [2, 2]
    assert tuple(Rule.model_validate(each["rule"]) for each in exported) == book.in_force.rules
    assert [message.key().decode() for message in topic.broker.read(topic.exported)] == ["a", "b"]


# Messages of the Flink demo


@pytest.fixture
def demo(broker, tmp_path) -> Iterator[Topic]:
    """A topic to which the demo could write: its messages have no keys, so it is not compacted."""
    made = Topic(broker, tmp_path, **{"cleanup.policy": "delete"})
    made.schema = flink_demo.SCHEMA
    yield made
    for book in made.started:
        book.stop()


def control(command: str) -> str:
    return json.dumps({"ruleId": None, "ruleState": "CONTROL", "controlType": command})


def test_the_messages_of_the_flink_demo_are_changes(demo):
    written = json.loads(flink_demo.RULES_FILE.read_text(encoding="utf-8"))
    demo.raw(None, control("CLEAR_STATE_ALL"))
    for each in written:
        demo.raw(None, json.dumps(each))
    book = demo.start()
    rule_set = demo.run(book)
    assert rule_set.rules == load_rules(flink_demo.RULES_FILE)
    assert [group.generation for group in rule_set.groups] == [1, 1, 1]

    demo.raw(None, json.dumps(written[0] | {"ruleState": "PAUSE", "limit": 1}))
    demo.raw("5", "5,(active),(payeeId),,(COUNT_FLINK),(SUM),(>),(50),(20)")
    demo.raw(None, json.dumps({"ruleId": 3, "ruleState": "DELETE"}))
    demo.raw(None, control("CLEAR_STATE_ALL_STOP"))
    rule_set = demo.run_until(book, lambda rule_set: ids(rule_set) == ["1", "2", "4", "5"])
    assert (rule_set.rules[0].state, rule_set.rules[0].version) == ("PAUSE", 2)

    old = {group.group_id: group.generation for group in rule_set.groups}
    demo.raw(None, control("CLEAR_STATE_ALL"))
    rule_set = demo.run_until(
        book, lambda rule_set: all(group.generation > old[group.group_id] for group in rule_set.groups)
    )
    demo.raw(None, control("EXPORT_RULES_CURRENT"))
    demo.run_until(book, lambda rule_set: bool(demo.values(demo.exported)))
    assert tuple(Rule.model_validate(each["rule"]) for each in demo.values(demo.exported)) == rule_set.rules
    demo.raw(None, control("DELETE_RULES_ALL"))
    demo.run_until(book, lambda rule_set: rule_set.rules == ())
    assert demo.values(demo.rejected) == []


@pytest.mark.parametrize(
    "value",
    [
        '{"ruleId": 1, "ruleState": "PAUSE"}',
        '{"ruleId": 1, "rule_id": "1"}',
        "1,(active),(taxiId),,(paymentAmount),(SUM),(>),(50),(20)",
    ],
    ids=range(3),
)
def test_a_message_of_the_flink_demo_that_is_not_valid_is_rejected_and_the_next_is_done(demo, value, as_worded):
    demo.raw(None, value)
    demo.raw(None, "2,(active),(payeeId),,(paymentAmount),(SUM),(>),(50),(20)")
    assert ids(demo.run(demo.start())) == ["2"]
    (rejected,) = demo.values(demo.rejected)
    assert as_worded(rejected["reason"])


# Topics that do not fit


def test_more_than_one_partition_is_refused(broker, tmp_path, as_worded):
    wide = Topic(broker, tmp_path, partitions=2)
    with pytest.raises(BucketsError, check=as_worded):
        wide.start()


def test_a_topic_that_is_missing_is_named(broker, as_worded):
    with pytest.raises(BucketsError, check=as_worded):
        RulesTopic(broker.kafka, "none", "no", "nil").start(None)


# Compaction


def compacted(topic: Topic) -> None:
    """Wait until the broker has compacted all but the last segment."""
    until_s = time.monotonic() + WAIT_S
    while time.monotonic() < until_s:
        topic.raw("!tick", json.dumps({"change": "export", "reason": uuid.uuid4().hex}))
        keys = [message.key() for message in topic.broker.read(topic.name)]
        if keys.count(b"a") == 1:
            return
        time.sleep(0.2)
    message = f"not compacted: {keys}"
    raise AssertionError(message)


def test_a_compacted_topic_gives_the_same_rules(broker, tmp_path):
    eager = {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.001", "max.compaction.lag.ms": "100"}
    topic = Topic(broker, tmp_path, **eager, **{"delete.retention.ms": "100"})
    lengths = [put("a", length=f"{hours}h") for hours in range(1, 20)]
    gone = RuleChange(change="delete", rule_id="b", author="bob")
    topic.write(put("b"), *lengths, CLEAR, gone, put("c", state="PAUSE"))
    book = topic.start()
    before = topic.run(book)
    book.stop()
    compacted(topic)
    again = topic.start(Checkpoint(tmp_path / "other"))
    topic.batch = 0
    after = topic.run(again)
    again.stop()
    plain = [[each.model_copy(update={"version": 1}) for each in rule_set.rules] for rule_set in (before, after)]
    assert plain[0] == plain[1]
    assert topic.values(topic.rejected) == []


# What must be seen: rules that are not followed


@pytest.fixture
def looking_often(monkeypatch) -> None:
    monkeypatch.setattr(follower, "LOOK_EVERY_S", 0.2)
    monkeypatch.setattr(follower, "LOOK_WITHIN_S", 0.2)


def wait_until(condition: Callable[[], bool]) -> None:
    until_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.02)


@pytest.mark.usefixtures("looking_often")
def test_a_broker_that_is_away_is_seen_and_changes_that_come_after_it_are_taken(topic, broker):
    topic.write(put("a"))
    book = topic.start()
    topic.run(book)
    assert book.fault is None
    with broker.frozen():
        wait_until(lambda: book.fault is not None)
        assert book.fault.startswith(f"topic {topic.name} is not followed: kafka {broker.kafka.bootstrap_servers}: no")
        assert topic.run(book).version == 1
    topic.write(put("b"))
    assert topic.run_until(book, lambda rule_set: rule_set.version == 2).rules == (rule("a"), rule("b"))
    assert book.fault is None
    assert topic.remarks[0].startswith(f"topic {topic.name} is not followed: ")
    assert topic.remarks[-1] == f"topic {topic.name} is followed again"


@pytest.mark.usefixtures("looking_often")
def test_rules_that_are_not_followed_for_longer_than_one_waits_end_the_job(topic, broker):
    topic.patience_ms = 0
    book = topic.start()
    topic.run(book)
    with broker.frozen():
        wait_until(lambda: book.fault is not None)
        said = r"is not followed: .*it lasts longer than kafka\.outage_patience, 0ms"
        with pytest.raises(BucketsError, match=said) as failed:
            topic.run(book)
    assert not isinstance(failed.value, Outage)


@pytest.mark.usefixtures("looking_often")
def test_a_topic_that_is_deleted_is_seen_and_one_made_anew_is_read_from_its_beginning(topic):
    topic.write(put("a"), put("b"))
    book = topic.start()
    topic.run(book)
    topic.broker.delete(topic.name)
    wait_until(lambda: "the topic is not there" in (book.fault or ""))
    topic.broker.create(topic.name)
    topic.write(put("c"), put("d"), put("e"))
    assert ids(topic.run_until(book, lambda rule_set: len(rule_set.rules) == 5)) == ["a", "b", "c", "d", "e"]
    wait_until(lambda: book.fault is None)


def test_messages_that_are_gone_before_they_were_read_are_said(broker, tmp_path, as_worded):
    topic = Topic(broker, tmp_path, **{"cleanup.policy": "delete"})
    topic.write(put("a"))
    book = topic.start()
    topic.run(book)
    book.stop()
    topic.write(put("b"), put("c"), put("d"))
    broker.forget(topic.name, 3)
    again = topic.start()
    assert ids(topic.run(again)) == ["a", "d"]
    again.stop()
    (rejected,) = topic.values(topic.rejected)
    assert rejected["place"] == f"{topic.name}@1"
    assert as_worded(rejected["reason"])


def test_a_message_that_nobody_foresaw_is_rejected_and_the_next_is_taken(topic, monkeypatch):
    def fail_at_first(key, *others):
        if key == "a":
            raise ZeroDivisionError
        return parse_change(key, *others)

    monkeypatch.setattr(feed_topics, "parse_change", fail_at_first)
    topic.write(put("a"), put("b"))
    assert ids(topic.run(topic.start())) == ["b"]
    assert [rejected["reason"] for rejected in topic.values(topic.rejected)] == ["ZeroDivisionError"]


def test_a_thread_that_fails_is_seen_and_goes_on_where_it_was(topic, monkeypatch):
    failing = ["why"]

    def fail(*given):
        if failing:
            raise KeyError(*failing)
        return parse_change(*given)

    def raise_again(error):
        raise error

    book = topic.start()
    topic.run(book)
    monkeypatch.setattr(feed_topics, "parse_change", fail)
    monkeypatch.setattr(feed_topics, "first_line", raise_again)
    topic.write(put("a"))
    wait_until(lambda: book.fault is not None)
    assert book.fault == f"topic {topic.name} is not followed: KeyError: 'why'"
    failing.clear()
    assert ids(topic.run_until(book, lambda rule_set: bool(rule_set.rules))) == ["a"]
    wait_until(lambda: book.fault is None)


# Commands


class Commands:
    """Runs `buckets rules` over a topic."""

    def __init__(self, topic: Topic, root: Path, run: Callable[..., tuple[int, str, str]]) -> None:
        self.topic = topic
        self.file = root / "new.yaml"
        self._run = run
        self._conf = root / "conf.yaml"
        (root / "source").mkdir()
        (root / "schema.yaml").write_text(yaml.safe_dump(SCHEMA.model_dump(mode="json")))
        settings = {
            "kafka": {"bootstrap_servers": topic.broker.kafka.bootstrap_servers},
            "source": {"kind": "json", "path": "source"},
            "schema": "schema.yaml",
            "rules": {"topic": topic.name},
            "checkpoint": "checkpoint",
            "output": {"path": "tables"},
        }
        self._conf.write_text(yaml.safe_dump(settings))

    def __call__(self, *arguments: object) -> str:
        code, out, err = self.tried(*arguments)
        assert (code, err) == (0, "")
        return out

    def tried(self, *arguments: object) -> tuple[int, str, str]:
        return self._run("rules", *arguments, "--conf", self._conf)

    def apply(self, *rules: Rule) -> str:
        data = [each.model_dump(by_alias=True, mode="json") for each in rules]
        self.file.write_text(yaml.safe_dump({"rules": data}))
        return self("apply", self.file, "--author", "ann", "--reason", "from a file")


@pytest.fixture
def commands(topic, tmp_path, monkeypatch, capsys) -> Commands:
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["buckets", *map(str, arguments)])
        code = exit_code()
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return Commands(topic, tmp_path, run)


def test_the_commands_change_what_the_job_evaluates(topic, commands):
    assert "2 of 2 rules are changed in topic" in commands.apply(rule("a"), rule("b", group_by=["kind"]))
    book = topic.start()
    assert ids(topic.run(book)) == ["a", "b"]
    assert "a: ACTIVE until now, PAUSE from the next batch on" in commands("pause", "a", "--reason", "noise")
    topic.run_until(book, lambda rule_set: rule_set.rules[0].state == "PAUSE")
    commands("shadow", "a")
    commands("delete", "b", "--author", "bob", "--reason", "old")
    rule_set = topic.run_until(book, lambda rule_set: ids(rule_set) == ["a"])
    assert rule_set.rules[0] == rule("a", state="SHADOW", version=3)
    (gone,) = [
        each for version in topic.checkpoint.versions.history() for each in version.changes if each.change == "delete"
    ]
    assert (gone.rule_id, gone.author, gone.reason) == ("b", "bob", "old")
    assert "from a file" in commands("history", "b")
    assert topic.values(topic.rejected) == []


def test_applied_twice_is_sent_once(topic, commands):
    commands.apply(rule("a"), rule("b"))
    before = len(topic.broker.read(topic.name))
    assert "0 of 2 rules are changed" in commands.apply(rule("a"), rule("b"))
    assert len(topic.broker.read(topic.name)) == before


def test_nothing_is_sent_unless_all_is_valid(topic, commands):
    commands.file.write_text("rules:\n  - {rule_id: a}\n")
    code, out, err = commands.tried("apply", commands.file)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert topic.broker.read(topic.name) == []


def test_all_messages_of_a_rule_have_its_key_and_say_all_of_it(topic, commands):
    commands.apply(rule("a"))
    commands("pause", "a")
    commands("delete", "a")
    commands.apply(rule("b"))
    commands("clear-state", "b", "--yes")
    commands("clear-all-state", "--yes")
    commands("delete-all", "--yes")
    found = [
        (message.key().decode(), json.loads(message.value())["change"]) for message in topic.broker.read(topic.name)
    ]
    assert found == [
        ("a", "put"), ("a", "put"), ("a", "delete"), ("b", "put"), ("!clear_state b", "clear_state"),
        ("!clear_all_state", "clear_all_state"), ("!delete_all", "delete_all"),
    ]  # fmt: skip


def test_list_and_export_say_what_the_topic_comes_to(topic, commands, tmp_path):
    assert commands("list").startswith("no rules in topic")
    commands.apply(rule("a"), rule("b", description="é"))
    commands("pause", "a", "--author", "bob", "--reason", "noise")
    topic.raw("x", "{")
    code, out, err = commands.tried("list")
    assert code == 0
    assert re.fullmatch(rf"not valid, and left out \({topic.name}@3\): broken JSON.*\n", err)
    for words in (
        "2 rules of topic",
        "PAUSE",
        "bob",
        "noise",
        "ann",
        "from a file",
        time.strftime("%Y-", time.gmtime()),
    ):
        assert words in out
    assert commands.tried("export", "--out", tmp_path / "out.yaml")[0] == 0
    assert load_rules(tmp_path / "out.yaml") == (rule("a", state="PAUSE", version=2), rule("b", description="é"))


def test_a_rule_whose_topic_was_freed_of_its_deletion_is_gone(topic, commands):
    commands.apply(rule("a"), rule("b"))
    commands("delete", "a")
    topic.raw("a", None)
    assert ids(topic.run(topic.start())) == ["b"]
    assert topic.values(topic.rejected) == []


@pytest.mark.parametrize("command", [["clear-state", "a"], ["clear-all-state"], ["delete-all"]])
def test_what_cannot_be_taken_back_is_asked_first(topic, commands, monkeypatch, command):
    commands.apply(rule("a"), rule("b"))
    asked = []
    monkeypatch.setattr("typer.confirm", lambda text: asked.append(text))
    code, out, err = commands.tried(*command)
    assert (code, out, err) == (1, "", "error: not confirmed; nothing has been sent\n")
    assert asked[0].endswith("; this cannot be taken back. Go on?")
    assert len(topic.broker.read(topic.name)) == 2
    if command[0] == "clear-state":
        assert asked[0].startswith("the timelines of a, b are cleared")


def test_clearing_and_deleting_reach_the_job(topic, commands):
    commands.apply(rule("a"), rule("b", group_by=["kind"]))
    book = topic.start()
    topic.run(book)
    commands("clear-state", "a", "--yes")
    topic.run_until(book, lambda rule_set: [group.generation for group in rule_set.groups] == [2, 1])
    commands("clear-all-state", "--yes")
    topic.run_until(book, lambda rule_set: [group.generation for group in rule_set.groups] == [3, 3])
    commands("delete-all", "--yes")
    topic.run_until(book, lambda rule_set: rule_set.rules == ())
    assert "clear_all_state" in commands("history")


def test_a_broker_that_is_away_is_one_line(own_broker, tmp_path, monkeypatch, capsys):
    broker = own_broker()
    topic = Topic(broker, tmp_path)
    broker.stop()

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["buckets", *map(str, arguments)])
        return exit_code(), *capsys.readouterr()

    code, out, err = Commands(topic, tmp_path, run).tried("list")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "no broker answers" in err
