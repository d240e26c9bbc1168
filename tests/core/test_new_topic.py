"""What a checkpoint keeps of its topics, and Spark's notes of how far they are read."""

import json
from pathlib import Path

import pytest

from buckets.checkpoint.source_offsets import SourceOffsets
from buckets.checkpoint.topic_generations import (
    NewTopic,
    TopicGeneration,
    TopicGenerations,
    generation_name,
)
from buckets.errors import BucketsError
from buckets.events.messages import topic_of

SETTINGS = '{"batchWatermarkMs":0,"conf":{}}'


@pytest.fixture
def spark(tmp_path) -> Path:
    """Spark's folder of a checkpoint: batches 0 and 1 have ended, 2 is planned, with a state of two partitions."""
    folder = tmp_path / "spark"
    for name in ("offsets", "commits", "sources/0", "../state/0/0/shards", "../state/0/1/shards"):
        (folder / name).mkdir(parents=True)
    (folder / "sources" / "0" / "0").write_bytes(b'\0v1\n{"t":{"0":3,"1":0}}')
    for batch_id in range(3):
        text = f'v1\n{SETTINGS}\n{{"t":{{"0":{10 * batch_id + 10},"1":5}},"u":{{"0":7}}}}'
        (folder / "offsets" / str(batch_id)).write_text(text)
    for batch_id in range(2):
        (folder / "commits" / str(batch_id)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    for partition in "01":
        for name in ("2.changelog", "3.changelog", "3.zip", "30.zip"):
            (tmp_path / "state" / "0" / partition / "shards" / name).touch()
    return folder


def test_a_batch_that_is_planned_can_be_given_up_with_its_state(spark, tmp_path):
    offsets = SourceOffsets(tmp_path)
    assert (offsets.ended, offsets.unfinished) == (1, 2)
    assert offsets.before(2) == offsets.end(1) == {"t": {"0": 20, "1": 5}, "u": {"0": 7}}
    offsets.drop(2)
    assert (offsets.ended, offsets.unfinished) == (1, None)
    left = sorted(
        str(file.relative_to(tmp_path / "state" / "0")) for file in (tmp_path / "state").glob("0/[0-9]/shards/*")
    )
    assert left == [f"{partition}/shards/{name}" for partition in "01" for name in ("2.changelog", "30.zip")]


def test_it_can_be_ended_and_the_next_one_begins_elsewhere(spark, tmp_path):
    offsets = SourceOffsets(tmp_path)
    (spark / "offsets" / ".2.crc").touch()
    offsets.finish(2)
    offsets.move(3, {"t": {"0": 0}})
    assert (offsets.ended, offsets.unfinished) == (2, None)
    assert (spark / "offsets" / "2").read_text() == f'v1\n{SETTINGS}\n{{"t": {{"0": 0}}, "u": {{"0": 7}}}}'
    assert not (spark / "offsets" / ".2.crc").exists()


def test_the_first_batch_begins_where_spark_has_noted_it(spark, tmp_path):
    offsets = SourceOffsets(tmp_path)
    assert offsets.before(0) == {"t": {"0": 3, "1": 0}}
    offsets.move(0, {"t": {"0": 1}})
    assert (spark / "sources" / "0" / "0").read_bytes() == b'\0v1\n{"t": {"0": 1}}'
    (spark / "sources" / "0" / "0").unlink()
    offsets.move(0, {"t": {"0": 1}})
    assert offsets.before(0) == {}, "it has not begun, and begins as its settings say"


@pytest.mark.parametrize("content", ["v1", "v1\n{}\n[1]", "v1\n{}\nnothing"])
def test_a_file_of_another_form_is_left_alone(spark, tmp_path, content, as_worded):
    (spark / "offsets" / "1").write_text(content)
    with pytest.raises(BucketsError, check=as_worded):
        SourceOffsets(tmp_path).move(2, {"t": {"0": 0}})
    assert (spark / "offsets" / "1").read_text() == content


def test_generations_are_kept_and_told_by_their_ids(tmp_path, as_worded):
    topics = TopicGenerations(tmp_path)
    topics.check({"t": "one", "u": ""})
    topics.adopt({"t": "one", "u": ""})
    topics.adopt({"t": "two", "v": "three"})
    assert (topics.of("t"), topics.of("u")) == ((TopicGeneration("one"),), ())
    topics.check({"t": "one", "u": "any", "v": "three"})
    topics.check({"t": ""})
    with pytest.raises(NewTopic, check=as_worded):
        topics.check({"v": "three", "t": "two"})
    topics.add("t", TopicGeneration("two"))
    again = TopicGenerations(tmp_path)
    again.check({"t": "two"})
    assert again.of("t") == (TopicGeneration("one"), TopicGeneration("two"))
    assert json.loads((tmp_path / "buckets" / "topics.json").read_text())["topics"]["v"][0]["topic_id"] == "three"


def test_a_topic_that_is_gone_is_another_generation_when_it_comes_again(tmp_path):
    topics = TopicGenerations(tmp_path)
    topics.adopt({"t": "one", "u": "two"})
    topics.let_go("t")
    expected = (["u"], ["t", "u"], {"v": 1, "t": 2, "u": 1})
    assert (topics.live, sorted(topics.by_topic), topics.numbers(["v"])) == expected
    topics.check({"t": "three", "u": "two"})
    topics.adopt({"t": "three", "u": "two"})
    assert topics.of("t") == (TopicGeneration("one", is_gone=True), TopicGeneration("three"))
    assert (topics.live, topics.numbers([])) == (["t", "u"], {"t": 2, "u": 1})
    assert [topic_of(f"{generation_name('t', number)}[0]") for number in (1, 2)] == ["t", "t"]


def test_a_batch_can_begin_without_a_topic(spark, tmp_path):
    offsets = SourceOffsets(tmp_path)
    offsets.move(2, {}, without=["t"])
    assert offsets.before(2) == {"u": {"0": 7}}
    assert offsets.next_batch == 2


def test_the_first_generation_has_the_name_of_its_topic():
    assert [generation_name("t", number) for number in (1, 2, 3)] == ["t", "t#2", "t#3"]
