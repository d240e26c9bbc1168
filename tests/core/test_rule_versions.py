"""The versions of the rules that a checkpoint keeps, and how far a topic of them has been read."""

import json
from dataclasses import replace

from buckets.checkpoint.topic_generations import TopicPosition
from buckets.rules.revision import Change
from buckets.rules.rule_set import first_rule_set
from tests.core.checkpoints import ONE, OTHER, book_of, ran, write_sealed
from tests.core.examples import rule

CHANGE = Change("put", "one", 1, None, ONE[0], "ann", "first", 5, "topic rules@0")


def test_a_version_is_kept_with_what_led_to_it(checkpoint):
    checkpoint.versions.keep(first_rule_set(ONE), [CHANGE], 3, TopicPosition(17, "id"), "topic rules")
    (version,) = checkpoint.versions.history()
    assert (version.version, version.first_batch, version.origin) == (1, 3, "topic rules")
    assert version.position == TopicPosition(17, "id")
    assert version.changes == (CHANGE,)
    assert version.made_ms is not None
    assert checkpoint.versions.history(after=1) == []
    assert checkpoint.versions.rule_set(1) == first_rule_set(ONE)


def test_the_versions_are_in_the_order_of_their_numbers_beyond_a_million(checkpoint):
    for version in (999_999, 1_000_000):
        file = checkpoint.path / "buckets" / "rule_sets" / f"{version:06d}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        write_sealed(file, json.loads(replace(first_rule_set(ONE), version=version).to_json()), checkpoint.path)
    assert checkpoint.versions.latest_rule_set().version == 1_000_000


def test_a_position_is_that_of_what_was_written_last(checkpoint):
    assert checkpoint.versions.position("t") is None
    checkpoint.versions.keep_position(TopicPosition(4, "id"), "t", 0)
    assert checkpoint.versions.position("t") == TopicPosition(4, "id")
    checkpoint.versions.keep(first_rule_set(ONE), (), 0, TopicPosition(9, "other"), "t")
    assert checkpoint.versions.position("t") == TopicPosition(9, "other")
    checkpoint.versions.keep_position(TopicPosition(2), "t", 1)
    assert checkpoint.versions.position("t") == TopicPosition(2)


def test_a_position_counts_for_its_own_origin_only(checkpoint):
    checkpoint.versions.keep(first_rule_set(ONE), (), 0, TopicPosition(9), "topic a")
    assert checkpoint.versions.position("topic b") is None
    checkpoint.versions.keep_position(TopicPosition(3), "topic b", 1)
    assert checkpoint.versions.position("topic a") is None
    assert checkpoint.versions.position("topic b") == TopicPosition(3)


def test_groups_are_all_that_ever_were_each_as_it_was_last(checkpoint):
    assert checkpoint.versions.groups() == {}
    for batch, rules in enumerate(([rule("a")], [rule("a"), rule("f", "fee")], OTHER)):
        ran(book_of(checkpoint, rules), batch)
    groups = checkpoint.versions.groups()
    assert [(group.fields, group.measures) for group in groups.values()] == [
        (("payer",), ("amount", "fee")),
        (("kind",), ("amount",)),
    ]
    assert all(identity == group.group_id for identity, group in groups.items())
