"""Kinds of sources: each is read as its class."""

import re
from typing import get_args

import pytest

from buckets.config.source import KINDS, FileSource, SourceSettings, TopicSelection, check_pattern


def test_every_kind_of_source_has_a_class_of_its_own():
    assert set(get_args(SourceSettings.model_fields["kind"].annotation)) == set(KINDS)
    assert len(set(KINDS.values())) == len(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_source_is_read_as_the_class_of_its_kind(kind: str):
    order = {"arrival": "at"} if kind == "delta" else {}
    source = SourceSettings.model_validate({"kind": kind, KINDS[kind].needs: "payments"} | order)
    assert type(source) is KINDS[kind]
    assert (source.folder is not None) == isinstance(source, FileSource)


def test_topics_are_named_or_found_by_a_pattern_and_some_only_fill_timelines():
    given = {"kind": "kafka", "topic_pattern": "pay-.*", "topics": ["cards", {"name": "atm", "judge": False}]}
    source = SourceSettings.model_validate(given)
    assert (source.all_topics, source.unjudged) == (("atm", "cards"), ("atm",))
    assert source.name == "kafka atm, cards, topics like pay-.*"
    assert source.place == "topics atm, cards, topics like pay-.*"
    assert source.selection.of(["pay-1", "pay", "pay-2", "other"]) == ["atm", "cards", "pay-1", "pay-2"]
    only = SourceSettings.model_validate({"kind": "kafka", "topic_pattern": "pay-.*"})
    assert (only.name, only.place, only.all_topics) == ("kafka topics like pay-.*", "topics like pay-.*", ())


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("a-.*", ["a-1", "a-x.y"]),
        (".*", ["a-1", "a-x.y", "ba"]),
        (r"a-(\d|x\.y)", ["a-1", "a-x.y"]),
        ("(?!ba)[ab].{1,2}", ["a-1"]),
        ("a-1|ba", ["a-1", "ba"]),
        ("[^-]+", ["ba"]),
    ],
)
def test_a_pattern_is_of_whole_names_and_of_no_topic_of_kafka_itself(pattern, found):
    assert check_pattern(pattern) == pattern
    topics = TopicSelection(pattern=pattern)
    there = ["a-1", "a-x.y", "ba", "__consumer_offsets"]
    assert topics.of(there) == found
    assert [topic for topic in there if re.search(topics.expression, topic)] == found, "as Spark reads it"


@pytest.mark.parametrize(
    "pattern", ["", "(", "[[a]b]", "a{", "{,2}a", r"\p{L}", "(?i)a", "(?P<a>b)", "ä", "a b", "[]a]", r"\Qa\E"]
)
def test_what_java_and_python_read_otherwise_is_no_pattern(pattern):
    with pytest.raises(ValueError, match=r"regular expression|more than names of topics need"):
        check_pattern(pattern)
