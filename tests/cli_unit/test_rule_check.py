"""The command `buckets rules check`: findings, exit codes, pages, and the files of events it looks at."""

import json
from pathlib import Path

import pytest

from buckets.lint.lint import codes
from buckets.resources import resource
from tests.cli_unit.ran import one_line

SCHEMA = resource("schemas/transaction.yaml")
RULES = """\
rules:
  - rule_id: never
    group_by: [cardId]
    where: {paymentType: CRD}
    aggregate: {function: count}
    window: {length: 10m}
    limit: {operator: "<", value: "1"}
  - rule_id: "[red]unused[/red]"
    group_by: [cardId]
    features:
      recent: {function: count, window: 1h}
      spare: {function: count, window: 2h}
    when: recent > 5
"""
SILENCED = RULES + "    silence: {B106: spare is shown in alerts}\n"


@pytest.fixture
def rules(tmp_path) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(RULES)
    return path


def without_error(rules: Path) -> None:
    rules.write_text(rules.read_text().replace('"<", value: "1"', '">", value: "5"'))


def events_file(folder: Path, rows: int) -> Path:
    path = folder / "events.jsonl"
    lines = [
        {"transactionId": f"t{at}", "eventTime": 1_768_291_200_000 + at, "cardId": f"c{at % 9}", "paymentType": "TRF"}
        for at in range(rows)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_findings_follow_the_line_that_says_that_rules_are_valid(buckets, rules):
    ran = buckets("rules", "check", rules, "--schema", SCHEMA)
    assert (ran.code, ran.err) == (1, "")
    first, *others = ran.out.splitlines()
    assert first == f"{rules}: 2 rules in 2 groups are valid"
    text = " ".join(" ".join(line.strip("│") for line in others).split())
    assert "B101 │ never │ `count < 1` is never true, for count is at least 1" in text
    assert "rules.yaml:7 limit" in text
    assert "rules.yaml:12 features.spare" in text
    assert "[red]unused[/red]" in text
    assert others[-1] == "1 error, 1 warning; --explain CODE says more"


def test_only_errors_fail_and_with_strict_warnings_too(buckets, rules):
    without_error(rules)
    assert buckets("rules", "check", rules).code == 0
    assert buckets("rules", "check", rules, "--strict").code == 1
    rules.write_text(SILENCED)
    without_error(rules)
    ran = buckets("rules", "check", rules, "--strict", "--schema", SCHEMA)
    assert ran == (0, f"{rules}: 2 rules in 2 groups are valid\n1 silenced (--all shows them)\n", "")
    shown = buckets("rules", "check", rules, "--strict", "--schema", SCHEMA, "--all")
    assert shown.code == 0
    assert "silenced: spare is shown in alerts" in shown.out


def test_json_is_a_line_for_each_finding_and_nothing_else(buckets, rules):
    rules.write_text(SILENCED)
    ran = buckets("rules", "check", rules, "--json", "--all")
    assert (ran.code, ran.err) == (1, "")
    never, unused = map(json.loads, ran.out.splitlines())
    assert never.pop("message").startswith("`count < 1` is never true")
    assert never == {
        "code": "B101", "level": "error", "rule_id": "never", "file": str(rules), "line": 7, "field": "limit",
        "silenced": None,
    }  # fmt: skip
    assert (unused["code"], unused["line"], unused["silenced"]) == ("B106", 12, "spare is shown in alerts")
    assert len(buckets("rules", "check", rules, "--json").out.splitlines()) == 1


def test_the_lines_of_a_folder_are_those_of_its_files(buckets, tmp_path):
    (tmp_path / "a.yaml").write_text(RULES.replace("never", "first"))
    (tmp_path / "b.yaml").write_text("# A line.\n" + RULES.replace("unused", "second"))
    found = [json.loads(line) for line in buckets("rules", "check", tmp_path, "--json").out.splitlines()]
    where = {(each["code"], Path(each["file"]).name, each["line"]) for each in found}
    assert {("B101", "a.yaml", 7), ("B101", "b.yaml", 8), ("B106", "b.yaml", 13)} <= where


@pytest.mark.parametrize("code", sorted(codes()))
def test_each_code_is_explained(buckets, code):
    ran = buckets("rules", "check", "--explain", code.lower())
    assert (ran.code, ran.err) == (0, "")
    assert f"{code}: {codes()[code].title}" in ran.out
    assert "What to do" in ran.out


def test_all_codes_are_listed(buckets):
    ran = buckets("rules", "check", "--codes")
    assert ran.code == 0
    assert all(code.code in ran.out and code.title in ran.out for code in codes().values())


def test_a_configuration_says_how_long_events_are_kept_and_which_schema_they_have(buckets, tmp_path, rules):
    without_error(rules)
    rules.write_text(
        rules.read_text().replace("{function: count, window: 2h}", "{function: time_since_first, window: 2h}")
    )
    conf = tmp_path / "conf.yaml"
    job = f"schema: {SCHEMA}\nsource: {{kind: json, path: in}}\ncheckpoint: c\noutput: {{path: out}}\nrules: {rules}\n"
    conf.write_text(f"{job}engine: {{precision: {{tail: 1h}}}}\n")
    ran = buckets("rules", "check", rules, "--conf", conf, "--json")
    assert ran.code == 1
    assert {"B301", "B106"} == {json.loads(line)["code"] for line in ran.out.splitlines()}
    conf.write_text(f"{job}engine: {{precision: {{tail: 2h}}}}\n")
    assert "are valid\n" in buckets("rules", "check", rules, "--conf", conf).out
    conf.write_text(job.replace("schema:", "shema:") + "checkpont: c\n")
    ran = buckets("rules", "check", rules, "--conf", conf)
    assert (ran.code, ran.out) == (1, "")
    assert [f"error: configuration {conf}:{line}: " in ran.err for line in (1, 6)] == [True, True]


def test_events_show_what_the_rules_alone_do_not(buckets, tmp_path, rules):
    without_error(rules)
    ran = buckets("rules", "check", rules, "--schema", SCHEMA, "--events", events_file(tmp_path, 300), "--json")
    messages = {(each["code"], each["rule_id"]): each["message"] for each in map(json.loads, ran.out.splitlines())}
    assert ran.code == 0
    assert messages["B501", "never"].startswith("passes none of 300 events; ")
    assert messages["B504", "[red]unused[/red]"].startswith("would have fired at 255 of 300 events (85%); ")


def test_bad_input_is_one_line(buckets, tmp_path, rules, as_worded):
    events = events_file(tmp_path, 3)
    check = ("rules", "check", rules)
    none = tmp_path / "none.jsonl"
    missing = one_line(buckets(*check, "--schema", SCHEMA, "--events", none), 1)
    assert as_worded(missing)
    events.write_text('{"transactionId": "", "eventTime": 1}\n')
    broken = one_line(buckets(*check, "--schema", SCHEMA, "--events", events), 1)
    assert as_worded(broken)
    unknown = one_line(buckets("rules", "check", "--explain", "B000"), 1)
    assert as_worded(unknown)
    assert as_worded(one_line(buckets("rules", "check", "--strict"), 2))


def test_the_schema_that_is_taken_where_none_is_named_is_told(buckets, rules, monkeypatch, as_worded):
    without_error(rules)
    assert buckets("rules", "check", rules).err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    ran = buckets("rules", "check", rules)
    assert ran.code == 0
    assert as_worded(ran.err)
    monkeypatch.delenv("FORCE_COLOR")
    rules.write_text(rules.read_text().replace("cardId", "card"))
    said = one_line(buckets("rules", "check", rules), 1)
    assert as_worded(said)


def test_lists_are_looked_up_and_tried(buckets, tmp_path, rules, as_worded):
    without_error(rules)
    rules.write_text(
        rules.read_text().replace("    when: recent > 5", "    when: recent > 5 AND cardId IN LIST watched")
    )
    (tmp_path / "watched.csv").write_text("key\n" + "".join(f"c{at}\n" for at in range(9)))
    check = ("rules", "check", rules, "--schema", SCHEMA, "--events", events_file(tmp_path, 300), "--json")
    other = one_line(buckets(*check, "--list", f"watche={tmp_path / 'watched.csv'}"), 1)
    assert as_worded(other)
    ran = buckets(*check, "--list", f"watched={tmp_path / 'watched.csv'}")
    assert ran.code == 0, ran.err
    fired = {
        each["rule_id"]: each["message"] for each in map(json.loads, ran.out.splitlines()) if each["code"] == "B504"
    }
    assert fired["[red]unused[/red]"].startswith("would have fired at 255 of 300 events")
