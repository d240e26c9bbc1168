"""Lists in a topic of a real broker: followed by the job, and changed by the commands of `buckets lists`."""

import re
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
import yaml

from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.list_versions import ListVersions, PinnedLists
from buckets.errors import BucketsError
from buckets.feeds.lists import ListBook
from buckets.feeds.topics import ListTopic
from buckets.lists.base import Entry
from buckets.lists.index import ListIndex
from buckets.lists.keys import TEXT_KEYS, KeyForm
from tests.console.served import serving

WAIT_S = 60


@pytest.fixture
def checkpoint(tmp_path) -> Checkpoint:
    return Checkpoint(tmp_path / "checkpoint")


@pytest.fixture
def topic(broker) -> str:
    name = f"list-{uuid.uuid4().hex[:8]}"
    broker.create(name, 1, {"cleanup.policy": "compact"})
    return name


def open_book(broker, checkpoint: Checkpoint, topic: str, said: list[str] | None = None) -> ListBook:
    return ListBook(checkpoint, {"l": ListTopic(broker.kafka, topic)}, [].append if said is None else said.append)


def newest(checkpoint: Checkpoint, lists: ListBook) -> ListIndex:
    return PinnedLists(ListVersions(checkpoint.path), lists.newest())["l"]


def look_until(lists: ListBook, reached: Callable[[], bool]) -> None:
    until_s = time.monotonic() + WAIT_S
    while not reached():
        assert time.monotonic() < until_s, "the list has not changed"
        time.sleep(0.02)
        lists.look()


def test_a_list_is_read_from_its_topic_followed_and_gone_on_with(broker, topic, checkpoint):
    values = ['{"category": "casino", "until": "1970-01-01T00:00:01Z"}', '{"tier": 3}', "{}", None]
    broker.produce(topic, values, ["a", "b", "c", "c"])
    said: list[str] = []
    lists = open_book(broker, checkpoint, topic, said)
    lists.start_reading()
    index = newest(checkpoint, lists)
    assert index.get("a") == Entry({"category": "casino"}, 1_000)
    assert [index.get("b"), index.get("c")] == [Entry({"tier": "3"}), None]
    broker.produce(topic, ["[]", None, '{"reason": "moved"}'], ["x", "a", "d"])
    look_until(lists, lambda: lists.newest() == {"l": 2})
    index = newest(checkpoint, lists)
    assert [index.get("a"), index.get("d"), index.get("x")] == [None, Entry(reason="moved"), None]
    assert [line.split(": ", 1)[1] for line in said] == [
        f"{topic}@4: the value of 'x' must be a JSON object such as {{}}, or nothing to remove it"
    ]
    lists.stop()
    broker.produce(topic, ["{}"], ["e"])
    again = open_book(broker, Checkpoint(checkpoint.path), topic)
    again.start_reading()
    assert again.newest() == {"l": 3}
    index = newest(checkpoint, again)
    assert [index.get("b"), index.get("e")] == [Entry({"tier": "3"}), Entry()]
    again.stop()


def test_a_topic_that_was_made_anew_and_is_longer_is_read_from_its_beginning(broker, topic, checkpoint):
    broker.produce(topic, ["{}"], ["a"])
    lists = open_book(broker, checkpoint, topic)
    lists.start_reading()
    lists.stop()
    broker.delete(topic)
    broker.create(topic, 1, {"cleanup.policy": "compact"})
    broker.produce(topic, ["{}", "{}", None], ["b", "c", "a"])
    again = open_book(broker, Checkpoint(checkpoint.path), topic)
    again.start_reading()
    index = newest(checkpoint, again)
    assert [index.get("a"), index.get("b"), index.get("c")] == [None, Entry(), Entry()]
    again.stop()


def test_keys_are_read_as_the_settings_say_and_again_when_these_say_something_else(broker, topic, checkpoint):
    broker.produce(topic, ["{}", "{}", "{}"], ['["p1","b7"]', "10.0.0.0/8", "10.0.0.1/8"])
    found = []
    for form in (KeyForm(2), KeyForm(1, "cidr"), KeyForm(), KeyForm()):
        said: list[str] = []
        lists = ListBook(checkpoint, {"l": ListTopic(broker.kafka, topic, form=form)}, said.append)
        lists.start_reading()
        index = newest(checkpoint, lists)
        found.append((lists.newest()["l"], index.form, index.entries(), len(said)))
        keys = ('["p1","b7"]', "10.0.0.0/8", "10.0.0.1/8")
        assert [index.get(key) is not None for key in keys] == [
            form.match == "text",
            form.parts == 1,
            form == TEXT_KEYS,
        ]
        lists.stop()
    assert found == [(1, KeyForm(2), 1, 2), (2, KeyForm(1, "cidr"), 1, 2), (3, TEXT_KEYS, 3, 0), (3, TEXT_KEYS, 3, 0)]


def test_a_topic_of_several_partitions_is_refused(broker, checkpoint, as_worded):
    name = f"list-{uuid.uuid4().hex[:8]}"
    broker.create(name, 2)
    with pytest.raises(BucketsError, check=as_worded):
        open_book(broker, checkpoint, name).start_reading()


@pytest.fixture
def conf(broker, topic, tmp_path) -> Path:
    """The configuration of a job with the list of the topic, and a rule that looks into it."""
    broker.create(f"{topic}-pairs", 1, {"cleanup.policy": "compact"})
    pairs = {"kind": "kafka", "topic": f"{topic}-pairs", "key": ["a", "b"]}
    written = {
        "source": {"kind": "kafka", "topic": "payments"},
        "schema": "schema.yaml",
        "rules": "rules.yaml",
        "lists": {
            "l": {"kind": "kafka", "topic": topic},
            "pairs": pairs,
        },
        "checkpoint": "checkpoint",
        "output": {"path": "tables"},
        "kafka": {"bootstrap_servers": broker.kafka.bootstrap_servers},
    }
    schema = {"event_id": "id", "event_time": {"field": "at"}, "attributes": {"payer": "string"}, "measures": {}}
    rule = {
        "rule_id": "often",
        "group_by": ["payer"],
        "where": "payer NOT IN LIST l",
        "aggregate": {"function": "count"},
        "window": {"length": "1h"},
        "limit": {"operator": ">", "value": "2"},
    }
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump(schema))
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"rules": [rule]}))
    (tmp_path / "conf.yaml").write_text(yaml.safe_dump(written))
    return tmp_path / "conf.yaml"


def test_the_commands_change_entries(broker, topic, checkpoint, conf, buckets):
    options = ("--conf", str(conf))
    said = ("--until", "1970-01-02", "--value", "category=a=b", "--author", "ann", "--reason", "because")
    assert buckets("lists", "put", "l", "a", *said, *options).code == 0
    assert buckets("lists", "put", "l", "b", "--author", "", *options).code == 0
    assert buckets("lists", "remove", "l", "b", "--author", "bob", "--reason", "gone", *options).code == 0
    assert dict(broker.read(topic)[-1].headers()) == {"author": b"bob", "reason": b"gone"}
    assert buckets("lists", "put", "pairs", '[ "a", "b" ]', *options).code == 0
    assert broker.read(f"{topic}-pairs")[-1].key() == b'["a","b"]'
    lists = open_book(broker, checkpoint, topic)
    lists.start_reading()
    index = newest(checkpoint, lists)
    assert index.get("a") == Entry({"category": "a=b"}, 86_400_000, "ann", "because")
    assert index.get("b") is None
    lists.stop()


def test_the_console_changes_an_entry_after_it_has_shown_what_that_does(broker, topic, checkpoint, conf):
    lists = open_book(broker, checkpoint, topic)
    lists.start_reading()
    entry = {"name": "l", "key": "<b> a", "what": "put", "until": "1970-01-02", "values": "category=a=b\n\ntier=3"}
    with serving(conf, "ann") as served, serving(conf, "eve", is_read_only=True) as watching:
        _, _, used_by = served.ask("/list?name=l").text.partition("Used by rules")
        assert ">often</a>" in used_by.partition("</dd>")[0]
        shown = served.ask("/list/preview", entry)
        assert shown.status == 200
        assert "&lt;b&gt; a" in shown.text
        assert "<b> a" not in shown.text
        assert "often (ACTIVE)" in shown.text
        seen = re.search(r'name="seen" value="([^"]+)"', shown.text)[1]
        assert served.ask("/list/change", entry | {"seen": seen, "reason": " "}).status == 400
        assert served.ask("/list/change", entry | {"seen": seen, "reason": "because"}).status == 303
        look_until(lists, lambda: lists.newest() == {"l": 2})
        assert newest(checkpoint, lists).get("<b> a") == Entry(
            {"category": "a=b", "tier": "3"}, 86_400_000, "ann", "because"
        )
        assert "because" in served.ask(f"/list?name=l&key={quote('<b> a')}").text
        late = served.ask("/list/change", entry | {"what": "remove", "seen": seen, "reason": "again"})
        assert (late.status, "has changed since this page was opened" in late.text) == (400, True)
        shown = served.ask("/list/preview", entry | {"what": "remove"})
        seen = re.search(r'name="seen" value="([^"]+)"', shown.text)[1]
        watching.ask("/list?name=l")
        assert watching.ask("/list/change", entry | {"what": "remove", "seen": seen, "reason": "no"}).status == 403
        assert served.ask("/list/change", entry | {"what": "remove", "seen": seen, "reason": "moved"}).status == 303
        look_until(lists, lambda: lists.newest() == {"l": 3})
        assert newest(checkpoint, lists).get("<b> a") is None
        for given, said in (
            ({"key": ""}, "a key has 1 to 1,000 characters"),
            ({"until": "soon"}, "is not a time"),
            ({"values": "category"}, "write NAME=TEXT"),
            ({"values": "until=1"}, "write NAME=TEXT"),
            ({"name": "other"}, "here is no list"),
        ):
            refused = served.ask("/list/preview", entry | given)
            assert (refused.status, said in refused.text) == (400, True)
    lists.stop()
