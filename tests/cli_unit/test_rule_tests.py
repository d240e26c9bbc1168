"""The command `buckets rules test`."""

from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from buckets.resources import DEFAULT_SCHEMA, DEMO_RULES, resource
from tests.cli_unit.ran import Ran, one_line

RULES = """\
rules:
  - rule_id: payer-24h
    group_by: [payerId]
    aggregate: {function: sum, measure: paymentAmount}
    window: {length: 24h}
    limit: {operator: ">", value: "100"}
  - rule_id: busy-card
    group_by: [cardId]
    aggregate: {function: count}
    window: {length: 10m}
    limit: {operator: ">=", value: 3}
"""
TESTS = """\
tests:
  - name: fires above a hundred
    rules: [payer-24h]
    given: [{payerId: p1, paymentAmount: 100.01, at: 0s}]
    expect: {alerts: [{event: 1}]}
  - name: does not fire at a hundred
    rules: [payer-24h]
    given: [{payerId: p1, paymentAmount: 100, at: 0s}]
    expect: {alerts: []}
"""


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(RULES + TESTS)
    return path


def told(ran: Ran) -> str:
    assert (ran.code, ran.err) == (0, "")
    return ran.out


def test_the_help_has_examples_that_begin_with_the_command(buckets):
    examples = told(buckets("rules", "test", "--help")).partition("Examples:\n")[2]
    assert examples.strip().startswith("buckets rules test")


def test_tests_that_pass_are_shown_and_rules_without_one_are_named(buckets, file):
    said = told(buckets("rules", "test", file))
    assert said.count("passed") == 3
    assert "rules.yaml:13" in said
    assert "1 rule has no test: busy-card\n" in said
    assert "2 passed\n" in said


def test_a_failure_is_said_in_plain_lines_and_the_exit_code_is_1(buckets, file, as_worded):
    file.write_text(file.read_text().replace("alerts: []", "alerts: [{event: 1}]"))
    ran = buckets("rules", "test", file)
    assert ran.code == 1
    assert as_worded(ran.err)
    assert "\nfailed: does not fire at a hundred\n" in ran.out
    assert f"\n  {file}:20: expected an alert of payer-24h at event 1 (e1); it did not fire: 100 > 100 is" in ran.out
    assert "2 tests in " in ran.out


def test_tests_are_chosen_by_rule_and_by_name(buckets, file, as_worded):
    assert ": 1 passed\n" in told(buckets("rules", "test", file, "-k", "does not"))
    assert ": 2 passed\n" in told(buckets("rules", "test", file, "--rule", "payer-24h"))
    assert "no test:" not in told(buckets("rules", "test", file, "--rule", "payer-24h"))
    ran = buckets("rules", "test", file, "--rule", "busy-card", "-k", "fires")
    assert as_worded(one_line(ran, 1))
    ran = buckets("rules", "test", file, "--rule", "nobody")
    assert as_worded(one_line(ran, 1))


def test_a_rule_without_a_test_is_an_error_where_tests_are_required(buckets, file, as_worded):
    ran = buckets("rules", "test", file, "--require")
    assert ran.code == 1
    assert as_worded(ran.err)
    assert told(buckets("rules", "test", DEMO_RULES, "--require"))


def test_a_file_without_tests_says_so(buckets, file):
    file.write_text(RULES)
    assert f"{file}: has no tests; write some under `tests`" in told(buckets("rules", "test", file))
    assert buckets("rules", "test", file, "--require").code == 1


def test_the_junit_report_is_xml_that_says_the_same(buckets, file, tmp_path, as_worded):
    told(buckets("rules", "test", file, "--junit", tmp_path / "new" / "report.xml"))
    root = ElementTree.parse(tmp_path / "new" / "report.xml").getroot()
    assert (root.get("tests"), root.get("failures")) == ("2", "0")
    file.write_text(file.read_text().replace("alerts: []", "alerts: [{event: 1}]"))
    assert buckets("rules", "test", file, "--junit", tmp_path / "new" / "report.xml").code == 1
    root = ElementTree.parse(tmp_path / "new" / "report.xml").getroot()
    assert (root.get("tests"), root.get("failures")) == ("2", "1")
    ran = buckets("rules", "test", file, "--junit", file / "report.xml")
    assert as_worded(one_line(ran, 1))


def test_a_folder_is_tested_file_by_file_and_a_rule_stands_in_one_of_them(buckets, file, tmp_path, as_worded):
    ran = buckets("rules", "test", resource("conf/rules"), "--schema", resource("schemas/card-payment.yaml"))
    assert (ran.code, "spike-over-own-average.yaml:" in ran.out) == (0, True)
    (tmp_path / "second.yaml").write_text(RULES)
    assert as_worded(one_line(buckets("rules", "test", tmp_path), 1))


def test_schema_and_engine_come_from_the_configuration_and_nothing_else_of_it_is_needed(
    buckets, file, tmp_path, as_worded
):
    schema = yaml.safe_load(DEFAULT_SCHEMA.read_text())
    (tmp_path / "schema.yml").write_text(yaml.safe_dump(schema | {"name": "mine"}))
    conf = tmp_path / "conf.yml"
    conf.write_text("schema: schema.yml\nengine: {late: evaluate}\nsource: {path: not-there}\n")
    late = """\
  - name: a late payment is evaluated
    rules: [payer-24h]
    defaults: {payerId: p1, paymentAmount: 101}
    given: [{paymentAmount: 1, at: 10m}, {at: 0s}]
    expect: {alerts: [{event: 2}], late_events: [2]}
"""
    file.write_text(file.read_text() + late)
    assert buckets("rules", "test", file).code == 1
    told(buckets("rules", "test", file, "--conf", conf))
    file.write_text(file.read_text().replace("payerId: p1, paymentAmount: 101", "payer: p1"))
    assert as_worded(one_line(buckets("rules", "test", file, "--conf", conf), 1))
    assert as_worded(one_line(buckets("rules", "test", file, "--conf", conf, "--schema", DEFAULT_SCHEMA), 1))


def test_other_commands_take_a_rule_file_with_tests_and_refuse_broken_ones(buckets, file, as_worded):
    assert "2 rules in 2 groups are valid" in told(buckets("rules", "check", file))
    assert "payer-24h" in told(buckets("rules", "show", file))
    file.write_text(file.read_text().replace("alerts: []", "alarms: []"))
    assert as_worded(one_line(buckets("rules", "check", file), 1))


def test_folders_whose_rules_are_not_read_are_named_and_file_names_stay_whole(buckets, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    folder = tmp_path / "rules"
    for name in ("one/a.yaml", "two/inner/b.yaml", ".three/c.yaml", "other-country-than-before.yaml"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(RULES + TESTS.replace("a hundred\n", "a hundred, with a name of many words\n"))
    ran = buckets("rules", "test", folder)
    assert ran.code == 0
    assert ran.err == f"{folder}: rules in folder one are not read with it; name a folder to read its rules\n"
    assert "other-country-than-before.yaml:13 " in ran.out
