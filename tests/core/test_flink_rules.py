"""Files of the Flink demo's messages: wherever a rule file is read, what they amount to, each fault with its line."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buckets.errors import BucketsError
from buckets.feeds.rules.rule_book import RuleFiles
from buckets.rule_files.flink_rules import holds_flink_rules, read_flink_rules
from buckets.rule_files.yaml_editor import change_files, rules_text
from buckets.rule_files.yaml_rules import load_changes, load_rule_files, load_rules, rule_files
from buckets.rules.rule import Rule
from tests.core.flink_demo import RULES_FILE, SCHEMA

LINES = """\
1,(active),(paymentType),,(paymentAmount),(SUM),(>),(50),(20)
1,(delete),(paymentType),,(paymentAmount),(SUM),(>),(50),(20)
2,(active),(payeeId),,(paymentAmount),(SUM),(>),(10),(20)
2,(pause),(payeeId),,(paymentAmount),(SUM),(>),(10),(20)
"""


def message(number: int, state: str = "ACTIVE", **changes: Any) -> dict[str, Any]:
    written = {
        "ruleId": number,
        "ruleState": state,
        "groupingKeyNames": ["payeeId"],
        "aggregateFieldName": "paymentAmount",
        "aggregatorFunctionType": "MAX",
        "limitOperatorType": "GREATER",
        "limit": "0.1",
        "windowMinutes": 5,
    }
    return written | changes


def control(command: str) -> dict[str, Any]:
    return {"ruleState": "CONTROL", "controlType": command}


def gone(number: int) -> dict[str, Any]:
    return {"ruleId": number, "ruleState": "DELETE"}


def written(path: Path, *messages: dict[str, Any], one_a_line: bool = False) -> Path:
    path.write_text("\n".join(map(json.dumps, messages)) if one_a_line else json.dumps(messages, indent="\t"))
    return path


def ids(rules: tuple[Rule, ...]) -> list[str]:
    return [rule.rule_id for rule in rules]


def test_the_demos_own_rules_say_what_its_texts_say():
    assert [(rule.rule_id, rule.state, rule.sentence()) for rule in load_rules(RULES_FILE, SCHEMA)] == [
        (
            "1",
            "ACTIVE",
            "The sum of paymentAmount of events of the same payeeId and the same beneficiaryId over the last 30d is "
            "above 20,000,000",
        ),
        ("2", "PAUSE", "The number of events of the same paymentType over the last 24h is below 300"),
        (
            "3",
            "ACTIVE",
            "The sum of paymentAmount of events of the same beneficiaryId over the last 24h is at least 10,000,000",
        ),
        ("4", "ACTIVE", "The number of events of the same paymentType over the last 24h is at least 100"),
    ]
    assert [rule.reset_on_alert for rule in load_rules(RULES_FILE)] == [False, False, False, True]


@pytest.mark.parametrize("one_a_line", [True, False])
def test_a_list_and_one_object_after_the_other_are_the_same(one_a_line, tmp_path):
    file = written(tmp_path / "rules.json", message(1), message(2, "PAUSE"), one_a_line=one_a_line)
    assert [(rule.rule_id, rule.state) for rule in load_rules(file, SCHEMA)] == [("1", "ACTIVE"), ("2", "PAUSE")]


def test_plain_lines_are_rules_too(tmp_path):
    file = tmp_path / "rules.txt"
    file.write_text(LINES + json.dumps(message(3), indent=2))
    rules = load_rules(file, SCHEMA)
    assert [(rule.rule_id, rule.state) for rule in rules] == [("2", "PAUSE"), ("3", "ACTIVE")]


def test_messages_count_in_their_order(tmp_path):
    messages = [message(1), message(2), gone(1), message(2, limit=7), message(3), gone(4), message(1, limit=8)]
    rules = load_rules(written(tmp_path / "rules.json", *messages))
    assert [(rule.rule_id, str(rule.limit.value)) for rule in rules] == [("2", "7"), ("3", "0.1"), ("1", "8")]


def test_all_are_deleted_up_to_there_and_other_commands_change_nothing(tmp_path):
    exported, stopped = control("EXPORT_RULES_CURRENT"), control("CLEAR_STATE_ALL_STOP")
    cleared = control("CLEAR_STATE_ALL")
    messages = [message(1), exported, control("DELETE_RULES_ALL"), cleared, message(2), stopped]
    file = written(tmp_path / "rules.jsonl", *messages, one_a_line=True)
    assert ids(load_rules(file)) == ["2"]
    found = read_flink_rules(file, file.read_text())
    assert found.commands == [(2, "EXPORT_RULES_CURRENT"), (4, "CLEAR_STATE_ALL"), (6, "CLEAR_STATE_ALL_STOP")]


def test_an_imported_file_holds_the_same_rules(tmp_path):
    unique = {"aggregateFieldName": "COUNT_FLINK", "aggregatorFunctionType": "SUM", "unique": ["beneficiaryId"]}
    file = written(tmp_path / "rules.json", message(1), message(2, "PAUSE"), message(3, **unique))
    for source in (RULES_FILE, file):
        rules = load_rules(source, SCHEMA)
        copy = tmp_path / "copy.yaml"
        copy.write_text(rules_text(rules))
        assert load_rules(copy, SCHEMA) == rules


@pytest.mark.parametrize(
    "text",
    [
        "[{}]",
        '[{"ruleId": 1, "ruleState": "ACTIVE"}]',
        f"\n[{json.dumps(message(1))},\n\n{json.dumps(message(2, limit='x'))}]",
        f"{json.dumps(message(1))}\n\n{json.dumps(message(2, windw=1))}",
        LINES + "3,(active)\n",
        LINES + "and so on",
        LINES + "{",
        json.dumps([message(1)], indent=1) + "]",
        json.dumps([message(1), message(2)], indent=1).replace("},", "}"),
        "[" * 100_000,
        '[{"ruleId": 1, "ruleId": 2}]',
        '[{"limit": NaN}]',
        '[{"ruleId": "\\ud800"}]',
        '["1,(active)"]',
        '{"rule_id": "a"}',
        json.dumps([gone(1)]),
        "[]",
        json.dumps([message(1, groupingKeyNames=["cardId"])]),
    ],
)  # fmt: skip
def test_a_fault_has_its_line_and_the_demos_field(text, tmp_path, as_worded):
    file = tmp_path / "rules.json"
    file.write_text(text)
    with pytest.raises(BucketsError, check=as_worded) as error:
        load_rules(file, SCHEMA)
    assert "\n" not in error.value.message


@given(st.text('{}[],:"ruleIdStateACTIVE1(>) \n\t#\ufeff', max_size=60))
def test_whatever_a_file_holds_it_is_messages_or_refused(text):
    path = Path("rules.json")
    if holds_flink_rules(path, text):
        with contextlib.suppress(BucketsError):
            read_flink_rules(path, text)


# Beside files of our own


def test_a_file_of_our_own_stays_one_whatever_it_is_called(tmp_path):
    file = tmp_path / "rules.json"
    rules = load_rules(RULES_FILE)
    file.write_text(json.dumps({"rules": [rule.model_dump(by_alias=True, mode="json") for rule in rules]}))
    assert load_rules(file, SCHEMA) == rules


def test_a_folder_holds_both_kinds(tmp_path):
    (tmp_path / "a.yaml").write_text(rules_text(load_rules(RULES_FILE)))
    written(tmp_path / "b.json", message(5))
    written(tmp_path / "c.jsonl", message(6), message(7), one_a_line=True)
    (tmp_path / "rules.schema.json").write_text("{}")
    (tmp_path / ".a.yaml.changes.json").write_text("{}")
    (tmp_path / "notes.txt").write_text("none of them")
    assert [file.name for file in rule_files(tmp_path)] == ["a.yaml", "b.json", "c.jsonl"]
    assert ids(load_rule_files(tmp_path, SCHEMA)) == ["1", "2", "3", "4", "5", "6", "7"]


def test_a_rule_in_two_files_is_refused(tmp_path, as_worded):
    for name in ("a.json", "b.json"):
        written(tmp_path / name, message(1))
    with pytest.raises(BucketsError, check=as_worded):
        load_rule_files(tmp_path)


def test_a_watched_file_says_which_rules_are_in_force(tmp_path):
    file = written(tmp_path / "rules.json", message(1), message(2))
    feed = RuleFiles(file, SCHEMA)
    feed.start(None)
    asked = feed.read([load_rules(RULES_FILE)[0], load_rules(RULES_FILE)[2]]).asked
    assert [(change.change, change.subject) for change in asked] == [("delete", "3"), ("put", "1"), ("put", "2")]


def test_a_file_that_is_applied_deletes_what_it_says_and_nothing_else(tmp_path):
    kept = load_rules(RULES_FILE, SCHEMA)
    file = written(tmp_path / "rules.json", gone(3), gone(9), message(1), gone(2), message(2))
    asked = load_changes(file, SCHEMA, kept, author="ann")
    assert [(change.change, change.subject) for change in asked] == [("delete", "3"), ("put", "1"), ("put", "2")]
    assert {change.author for change in asked} == {"ann"}
    written(file, gone(3), control("DELETE_RULES_ALL"), message(2))
    asked = load_changes(file, SCHEMA, kept)
    assert [(change.change, change.subject) for change in asked] == [
        ("delete", "1"), ("delete", "3"), ("delete", "4"), ("put", "2"),
    ]  # fmt: skip


def test_no_command_changes_such_a_file(tmp_path, as_worded):
    file = written(tmp_path / "rules.json", message(1))
    before = file.read_bytes()
    with pytest.raises(BucketsError, check=as_worded):
        change_files(file, {"1": "PAUSE"}, [], "", {})
    assert file.read_bytes() == before
