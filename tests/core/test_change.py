"""Changes of rules as messages: what is read, what is refused and why, and which key each has."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buckets.rules.change import LONGEST_MESSAGE, LONGEST_TEXT, RuleChange, changes_between, key_of, parse_change
from tests.core.examples import rule, written_rule

RULE = written_rule()
PUT = {"change": "put", "rule": RULE}


def nested(levels: int) -> list:
    """Lists in lists."""
    value: list = []
    for _ in range(levels - 1):
        value = [value]
    return value


def parsed(key: str | None, value: object, time_ms: int | None = 7) -> RuleChange:
    return parse_change(key, value if value is None or isinstance(value, str) else json.dumps(value), "t@3", time_ms)


def test_a_bare_rule_is_put():
    assert parsed("r", RULE) == parsed("r", PUT) == RuleChange(change="put", rule=rule(), time=7, origin="t@3")


def test_no_value_deletes_the_rule_that_the_key_names():
    assert parsed("r", None) == RuleChange(change="delete", rule_id="r", time=7, origin="t@3")


def test_a_message_says_who_asks_why_and_when_but_not_where_it_stands():
    said = {"author": "ann", "reason": "too many", "time": 5, "place": "elsewhere"}
    change = parsed("r", PUT | said)
    assert (change.author, change.reason, change.time, change.origin) == ("ann", "too many", 5, "t@3")


@pytest.mark.parametrize("time_ms", [None, 0])
def test_a_message_without_a_time_has_that_of_the_broker_or_none(time_ms):
    assert parsed("r", PUT, time_ms).time == time_ms


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, None),
        ("", None),
        ("r", "{"),
        ("r", ""),
        ("r", "\\xff\\x00"),
        ("r", "[" * 100_000),
        ("r", '{"rule_id": "r", "rule_id": "r"}'),
        ("r", '{"limit": NaN}'),
        ("r", '{"rule_id": "\\ud800"}'),
        ("r", "[1]"),
        ("r", "null"),
        ("r", "{}"),
        ("r", {**PUT, "origin": "elsewhere"}),
        ("r", {**RULE, "windw": 1}),
        ("r", {**RULE, "window": {"length": "soon"}}),
        ("r", {**RULE, "state": "OFF"}),
        ("r", {"change": "explode"}),
        ("r", {"change": "put"}),
        (None, {"change": "state", "rule_id": "r"}),
        (None, {"change": "state", "rule_id": "r", "state": "DELETE"}),
        (None, {"change": "delete"}),
        (None, {"change": "delete_all", "rule_id": "r"}),
        ("r", {**PUT, "author": "a" * (LONGEST_TEXT + 1)}),
        ("r", {**PUT, "author": "a\x1b[2J"}),
        ("r", {**PUT, "reason": "a\rb"}),
        ("r", {**PUT, "time": 10**30}),
        ("!state r", {**RULE, "rule_id": "!state r"}),
        ("r\n", {**RULE, "rule_id": "r\n"}),
        (" ", {**RULE, "rule_id": " "}),
        ("r", {**RULE, "description": "\x1b]0;x\x07"}),
        ("r", {**RULE, "a\nb": 1}),
        ("r", {**RULE, "where": {"kind": nested(31)}}),
        ("r", {**RULE, "where": {"kind": nested(900)}}),
        ("r", {**RULE, "where": {"kind": nested(29)}}),
        ("r", json.dumps(RULE).replace('"r"', "9" * 5000)),
        ("r", {**PUT, "time": -1}),
        ("r", json.dumps(RULE) + " " * LONGEST_MESSAGE),
        ("other", PUT),
        ("other", {"change": "delete", "rule_id": "r"}),
        (
            "r",
            {"change": "state", "rule_id": "r", "state": "PAUSE"}
        ),
        ("r", {"change": "clear_state", "rule_id": "r"}),
    ],
)  # fmt: skip
def test_what_is_no_change_is_refused_with_the_reason(key, value, as_worded):
    with pytest.raises(ValueError, check=as_worded) as error:
        parsed(key, value)
    assert len(str(error.value).encode()) < 400


def test_numbers_are_the_text_that_was_written():
    text = json.dumps(RULE).replace('"100"', "0.10000000000000000000000000000000001")
    assert str(parsed("r", text).rule.limit.value) == "0.10000000000000000000000000000000001"


@given(st.text(max_size=40), st.text(max_size=60))
def test_whatever_stands_in_a_topic_is_a_change_or_refused(key, value):
    with contextlib.suppress(ValueError):
        parse_change(key, value, "t@0", 0)


CHANGES = [
    RuleChange(change="put", rule=rule("a", where={"kind": ["x", "y"]}, state="SHADOW"), author="é", reason="why"),
    RuleChange(change="state", rule_id="a", state="PAUSE", time=9),
    RuleChange(change="delete", rule_id="a"),
    RuleChange(change="clear_state", rule_id="a"),
    RuleChange(change="clear_all_state"),
    RuleChange(change="delete_all", author="ann"),
    RuleChange(change="export"),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.change)
def test_a_change_that_is_written_is_read_back_under_its_key(change):
    assert parse_change(key_of(change), change.to_json(), "", change.time) == change


@pytest.mark.parametrize("rule_id", ["!state r", " ", "a\nb"])
def test_a_rule_that_an_earlier_release_let_be_called_so_can_be_deleted(rule_id):
    for value in (None, {"change": "delete", "rule_id": rule_id}, {**RULE, "rule_id": rule_id, "state": "DELETE"}):
        assert parsed(rule_id, value).subject == rule_id


def test_only_a_whole_rule_or_its_end_has_the_key_of_the_rule():
    own = [change.change for change in CHANGES if key_of(change) == "a"]
    assert own == ["put", "delete"]
    assert len({key_of(change) for change in CHANGES}) == len(CHANGES) - 1


def test_the_changes_between_two_lists_name_what_goes_comes_and_differs():
    before = [rule("stays"), rule("goes"), rule("ends"), rule("differs")]
    after = [rule("stays"), rule("ends", state="DELETE"), rule("differs", length="2h"), rule("comes")]
    found = changes_between(before, after, author="ann")
    assert [(change.change, change.subject) for change in found] == [
        ("delete", "goes"), ("delete", "ends"), ("put", "differs"), ("put", "comes"),
    ]  # fmt: skip
    assert {change.author for change in found} == {"ann"}


@pytest.mark.parametrize(
    ("there", "put", "changes"), [(5, 1, False), (5, 5, False), (5, 6, True)], ids=["older", "the same", "newer"]
)
def test_the_same_rule_is_put_again_only_under_a_higher_version(there, put, changes):
    assert bool(changes_between([rule(version=there)], [rule(version=put)])) is changes
