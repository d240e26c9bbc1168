"""`buckets rules import`, and the other commands of rules on files of the Flink demo's messages."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from buckets.resources import resource
from buckets.rule_files.yaml_rules import load_rules
from tests.cli_unit.ran import Ran, one_line

RULES = resource("conf/flink-demo-rules.json")
SCHEMA = resource("schemas/flink-demo-transaction.yaml")
PLAIN = "1,(active),(payeeId),,(paymentAmount),(SUM),(>),(50),(20)\n"


def told(ran: Ran) -> str:
    assert (ran.code, ran.err) == (0, "")
    return ran.out


@pytest.fixture
def conf(tmp_path) -> Path:
    """A configuration whose rules are in `rules.yaml`, which is not there yet."""
    (tmp_path / "source").mkdir()
    settings: dict[str, Any] = {
        "source": {"kind": "json", "path": "source"},
        "schema": str(SCHEMA),
        "rules": "rules.yaml",
        "checkpoint": "checkpoint",
        "output": {"path": "tables"},
    }
    (tmp_path / "conf.yaml").write_text(yaml.safe_dump(settings))
    return tmp_path / "conf.yaml"


def test_the_rules_are_printed_as_a_rule_file(buckets, tmp_path):
    copy = tmp_path / "copy.yaml"
    copy.write_text(told(buckets("rules", "import", RULES, "--schema", SCHEMA)))
    assert load_rules(copy) == load_rules(RULES)


def test_a_new_file_is_written_once(buckets, tmp_path, as_worded):
    out = tmp_path / "rules.yaml"
    assert as_worded(told(buckets("rules", "import", RULES, "--out", out)))
    assert load_rules(out) == load_rules(RULES)
    before = out.read_bytes()
    assert as_worded(one_line(buckets("rules", "import", RULES, "--out", out), 1))
    assert out.read_bytes() == before


def test_plain_lines_are_imported_from_a_file_of_any_name(buckets, tmp_path):
    file = tmp_path / "rules"
    file.write_text(PLAIN)
    assert told(buckets("rules", "import", file, "--out", tmp_path / "o.yaml")).endswith(f": 1 rule of {file}\n")


def test_commands_that_change_no_rule_are_named(buckets, tmp_path, as_worded):
    file = tmp_path / "topic.jsonl"
    file.write_text(PLAIN + json.dumps({"ruleState": "CONTROL", "controlType": "CLEAR_STATE_ALL"}))
    ran = buckets("rules", "import", file)
    assert ran.code == 0
    assert as_worded(ran.err)
    assert ran.out.startswith("rules:\n  - rule_id: '1'\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rules: []", "rule file F: holds no messages of the Flink demo; a YAML rule file needs no import"),
        ("", "rule file F: is empty"),
        ("[]", "rule file F: its messages leave no rule; nothing has been written"),
        (PLAIN + PLAIN.replace("50", "much"), "rule file F:2: limit: 'much' is not a decimal number"),
        (
            PLAIN.replace("payeeId", "taxiId"),
            "rule file F:1: groupingKeyNames: 'taxiId' is not an attribute of event schema",
        ),
    ],
)
def test_a_fault_is_one_line_and_nothing_is_written(buckets, tmp_path, text, said):
    file, out = tmp_path / "rules.json", tmp_path / "out.yaml"
    file.write_text(text)
    error = one_line(buckets("rules", "import", file, "--schema", SCHEMA, "--out", out), 1)
    assert error.replace(str(file), "F").startswith(said)
    assert not out.exists()


def test_a_file_that_cannot_be_written_is_one_line(buckets, tmp_path, as_worded):
    (tmp_path / "file").write_text("")
    out = tmp_path / "file" / "out.yaml"
    said = one_line(buckets("rules", "import", RULES, "--out", out), 1)
    assert as_worded(said)


def test_the_help_has_an_example_that_works(buckets):
    examples = told(buckets("rules", "import", "--help")).partition("Examples:\n")[2].split("\n")
    assert examples[0].split()[1:3] == ["rules", "import"]
    assert resource(examples[0].split()[3]) == RULES


def test_such_a_file_is_checked_and_shown_as_it_is(buckets, as_worded):
    assert as_worded(told(buckets("rules", "check", RULES, "--schema", SCHEMA)))
    assert "is above 20,000,000" in told(buckets("rules", "show", RULES))


def test_such_a_file_is_applied_and_deletes_what_it_says(buckets, conf, tmp_path):
    told(buckets("rules", "import", RULES, "--out", tmp_path / "rules.yaml"))
    file = tmp_path / "news.json"
    file.write_text(json.dumps([{"ruleId": 1, "ruleState": "DELETE"}, {"ruleId": 9, "ruleState": "DELETE"}]) + "\n")
    assert "1 of 1 rules are changed" in told(buckets("rules", "apply", file, "--conf", conf))
    assert "0 of 0 rules are changed" in told(buckets("rules", "apply", file, "--conf", conf))
    assert [rule.rule_id for rule in load_rules(tmp_path / "rules.yaml")] == ["2", "3", "4"]
    file.write_text(PLAIN)
    assert "1 of 1 rules are changed" in told(buckets("rules", "apply", file, "--conf", conf))
    assert [rule.rule_id for rule in load_rules(tmp_path / "rules.yaml")] == ["2", "3", "4", "1"]


def test_such_a_file_can_be_that_of_a_job_but_no_command_changes_it(buckets, conf, tmp_path, as_worded):
    (tmp_path / "rules.json").write_bytes(RULES.read_bytes())
    conf.write_text(conf.read_text().replace("rules.yaml", "rules.json"))
    assert "4 rules of file" in told(buckets("rules", "list", "--conf", conf))
    assert told(buckets("rules", "export", "--conf", conf)) == told(buckets("rules", "import", RULES))
    said = one_line(buckets("rules", "pause", "1", "--conf", conf), 1)
    assert as_worded(said)
