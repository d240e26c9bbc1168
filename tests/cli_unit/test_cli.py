"""The command line without Spark: help, options, and errors as one clear line."""

import json
import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from buckets.cli.alerts import readable
from buckets.cli.main import exit_code
from buckets.shipped import shipped

GOOD_RULES = """\
rules:
  - rule_id: big-sum
    group_by: [payerId]
    aggregate: {function: sum, measure: paymentAmount}
    window: {length: 24h}
    limit: {operator: ">", value: "200000"}
  - rule_id: many
    group_by: [cardId]
    state: SHADOW
    aggregate: {function: count}
    window: {length: 90s}
    limit: {operator: ">=", value: 5}
"""
SCHEMA = str(shipped("schemas/transaction.yaml"))


class Ran(NamedTuple):
    code: int
    out: str
    err: str


Buckets = Callable[..., Ran]


@pytest.fixture
def buckets(monkeypatch, capsys) -> Buckets:
    """Runs a command line and gives its exit code and what it printed."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["buckets", *map(str, arguments)])
        code = exit_code()
        printed = capsys.readouterr()
        return Ran(code, printed.out, printed.err)

    return run


@pytest.fixture
def rules(tmp_path):
    path = tmp_path / "rules.yaml"
    path.write_text(GOOD_RULES)
    return path


def one_line(ran: Ran, code: int) -> str:
    """The error, which is one line on stderr and nothing else."""
    assert ran.code == code
    assert ran.out == ""
    assert ran.err.startswith("error: ")
    assert ran.err.count("\n") == 1
    assert ran.err.endswith("\n")
    return ran.err.removeprefix("error: ").strip()


# Help


@pytest.mark.parametrize("command", ["run", "evaluate", "alerts", "generate", "demo", "rules check", "rules show"])
def test_the_help_of_a_command_has_examples_that_begin_with_it(buckets, command):
    ran = buckets(*command.split(), "--help")
    assert ran.code == 0
    assert ran.err == ""
    examples = ran.out.partition("Examples:\n")[2]
    assert examples.strip().startswith(f"buckets {command}")


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_without_a_command_there_is_the_list_of_commands(buckets, arguments):
    ran = buckets(*arguments)
    assert ran.code == 0
    for command in ("run", "evaluate", "alerts", "generate", "demo", "rules"):
        assert f"\n  {command} " in ran.out


# Options


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["runn"], "runn"),
        (["rules"], "Missing command"),
        (["rules", "lint"], "lint"),
        (["run"], "'conf'"),
        (["run", "a", "b"], "b"),
        (["rules", "check"], "'file'"),
        (["rules", "check", "f", "--strict"], "--strict"),
        (["alerts"], "DIR"),
        (["alerts", "d", "--limit", "0"], "--limit"),
        (["alerts", "d", "--limit", "many"], "--limit"),
        (["evaluate"], "--events"),
        (["evaluate", "--events", "e", "--rules", "r", "--out", "o", "--batch-rows", "0"], "--batch-rows"),
        (["evaluate", "--events", "e", "--rules", "r", "--out", "o", "--shards", "9999"], "--shards"),
        (["generate"], "--out"),
        (["demo", "--transactions", "5"], "--transactions"),
        (["--version-of-everything"], "--version-of-everything"),
    ],
)
def test_a_wrong_option_is_one_line_and_exit_code_2(buckets, arguments, named):
    assert named in one_line(buckets(*arguments), 2)


# rules check, rules show


def test_rules_check_counts_good_rules(buckets, rules):
    ran = buckets("rules", "check", rules)
    assert ran == (
        0,
        f"{rules}: 2 rules in 2 groups are valid; fields are not checked: give --schema to check them\n",
        "",
    )
    assert buckets("rules", "check", rules, "--schema", SCHEMA) == (0, f"{rules}: 2 rules in 2 groups are valid\n", "")


def test_the_rules_that_are_shipped_are_valid(buckets):
    assert buckets("rules", "check", shipped("conf/demo-rules.yaml"), "--schema", SCHEMA).code == 0


def test_rules_show_tells_each_rule_in_english(buckets, rules):
    ran = buckets("rules", "show", rules)
    assert (ran.code, ran.err) == (0, "")
    assert "The sum of paymentAmount of events of the same payerId over the last 24h is above 200,000" in ran.out
    assert "The number of events of the same cardId over the last 90s is at least 5" in ran.out
    assert "SHADOW" in ran.out


@pytest.mark.parametrize("command", ["check", "show"])
@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("24h", "1 day", ":5: rules[1].window.length: '1 day' is not a duration"),
        ('">"', ">", ":6: broken YAML: "),
        ("rule_id: many", "rule_id: big-sum", ":7: rule_id 'big-sum' is already used on line 2"),
        ("[payerId]", "[payer]", ":3: rules[1].group_by: 'payer' is no attribute of event schema 'transaction'"),
        (GOOD_RULES, "", ": is empty"),
        (
            "rule_id: big-sum",
            'rule_id: big-sum\n    description: "[/red] [bold"\n    x: 1',
            ":4: rules[1].x: unknown field",
        ),
    ],
)
def test_a_bad_rule_file_is_one_line(buckets, rules, command, old, new, fault):
    rules.write_text(GOOD_RULES.replace(old, new, 1))
    assert one_line(buckets("rules", command, rules, "--schema", SCHEMA), 1).startswith(f"rule file {rules}{fault}")


def test_a_missing_file_is_one_line(buckets, tmp_path, rules):
    none = tmp_path / "none.yaml"
    assert one_line(buckets("rules", "check", none), 1) == f"rule file {none}: no such file; check the path"
    missing = one_line(buckets("rules", "check", rules, "--schema", none), 1)
    assert missing == f"event schema {none}: no such file; check the path"
    assert one_line(buckets("run", none), 1) == f"configuration {none}: no such file; check the path"


def test_square_brackets_in_rules_are_shown_as_they_are(buckets, rules):
    rules.write_text(GOOD_RULES.replace("big-sum", '"[red]big[/red]"').replace("[payerId]", '["[bold]f"]'))
    ran = buckets("rules", "show", rules)
    assert ran.code == 0
    assert "[red]big[/red]" in ran.out
    assert "[bold]f" in ran.out


@pytest.mark.parametrize("value", ["{{ limit }}", "2024-02-30", "[1"])
def test_broken_values_of_yaml_are_one_line(buckets, rules, value):
    rules.write_text(GOOD_RULES.replace('"200000"', value))
    one_line(buckets("rules", "check", rules), 1)


# alerts


def alert(number: int, **changes) -> dict:
    fields = {
        "event_time": 1_700_000_000_000 + number, "rule_id": "r1", "rule": "The sum is above 1",
        "key": {"payerId": "p[1]"}, "event_id": f"e{number}", "value": "1234567.50", "limit": "1",
        "operator": ">", "count": 1000, "certain": True, "warm": True,
    }  # fmt: skip
    return fields | changes


def write(folder, name: str, rows: list[dict]) -> None:
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_alerts_are_shown_newest_first(buckets, tmp_path):
    write(tmp_path, "alerts", [alert(1), alert(3), alert(2, warm=False)])
    ran = buckets("alerts", tmp_path)
    assert (ran.code, ran.err) == (0, "")
    assert "3 of 3 alerts, newest first" in ran.out
    assert ran.out.index("e3") < ran.out.index("e2") < ran.out.index("e1")
    assert "2023-11-14" in ran.out
    assert "22:13:20.003" in ran.out
    assert "payerId p[1]" in ran.out
    assert "1,234,567.50" in ran.out
    assert "of 1,000 events" in ran.out
    assert ran.out.count("behind the history that is kept") == 1


def test_alerts_may_be_narrowed_to_a_rule_and_a_number(buckets, tmp_path):
    write(tmp_path, "alerts", [alert(1), alert(2, rule_id="r2"), alert(3, rule_id="r2")])
    ran = buckets("alerts", tmp_path, "--rule", "r2", "--limit", 1)
    assert "1 of 2 alerts, newest first" in ran.out
    assert "e3" in ran.out
    assert "e2" not in ran.out
    assert "e1" not in ran.out
    assert buckets("alerts", tmp_path, "--rule", "none") == (0, f"no alerts in {tmp_path} of rule none\n", "")


def test_alerts_of_rules_on_trial_are_apart(buckets, tmp_path):
    write(tmp_path, "alerts", [])
    write(tmp_path, "shadow_alerts", [alert(7)])
    assert buckets("alerts", tmp_path) == (0, f"no alerts in {tmp_path}\n", "")
    assert "e7" in buckets("alerts", tmp_path, "--shadow").out


@pytest.mark.parametrize(
    ("name", "fault"),
    [("none", "no such folder; name the output folder"), (".", "neither a table alerts nor a file alerts.jsonl")],
)
def test_a_folder_without_alerts_is_one_line(buckets, tmp_path, name, fault):
    assert fault in one_line(buckets("alerts", tmp_path / name), 1)


@pytest.mark.parametrize("text", ['{"event_time": 1, "ru', '{"event_time": null}', "{}"])
def test_broken_alerts_are_one_line(buckets, tmp_path, text):
    (tmp_path / "alerts.jsonl").write_text(text + "\n")
    one_line(buckets("alerts", tmp_path), 1)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("0.00000000", "0"), ("100.50000000", "100.50"), ("1234567.00", "1,234,567"), ("-0.05", "-0.05"),
        ("-1234.5", "-1,234.50"), ("0.33333333", "0.33333333"),
    ],
)  # fmt: skip
def test_a_value_is_shown_without_the_zeros_of_its_column(value, shown):
    assert readable(value) == shown


# evaluate, generate, demo: what is refused before any work


def test_evaluate_refuses_bad_input_before_it_starts_spark(buckets, tmp_path, rules, monkeypatch):
    monkeypatch.setitem(sys.modules, "buckets.spark.session", None)
    events, out = tmp_path / "day.jsonl", tmp_path / "out"
    asked = ["evaluate", "--rules", rules, "--out", out, "--events"]
    assert "no such file" in one_line(buckets(*asked, events), 1)
    assert "is a directory" in one_line(buckets(*asked, tmp_path), 1)
    events.write_text('{"when": 1}\n')
    assert "no field 'transactionId'" in one_line(buckets(*asked, events), 1)
    assert not out.exists()
    events.write_text('{"transactionId": "a", "eventTime": 1}\n')
    out.write_text("a file")
    assert "is a file; name a folder" in one_line(buckets(*asked, events), 1)
    assert out.read_text() == "a file"


def test_evaluate_names_what_does_not_fit_the_schema(buckets, tmp_path, rules):
    rules.write_text(GOOD_RULES.replace("measure: paymentAmount", "measure: total"))
    events = tmp_path / "day.jsonl"
    events.write_text("{}\n")
    ran = buckets("evaluate", "--rules", rules, "--out", tmp_path / "out", "--events", events)
    assert f"rule file {rules}:4: rules[1].aggregate.measure: 'total' is no measure" in one_line(ran, 1)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("engine: {shards: 0}", ":1: engine.shards: Input should be greater than or equal to 1, not '0'"),
        ("engine: {precision: {tail: 2h}}", ":1: engine.precision.tail: '2h' is not supported"),
        ("engine: {late: never}", ":1: engine.late: Input should be 'add', 'evaluate' or 'drop', not 'never'"),
        ("engine: {sharts: 4}", ":1: engine.sharts: unknown field"),
        ("- engine", ": must be a mapping of fields, not list"),
    ],
)
def test_evaluate_names_a_bad_engine_part(buckets, tmp_path, rules, text, fault):
    conf, events = tmp_path / "conf.yaml", tmp_path / "day.jsonl"
    conf.write_text(text)
    events.write_text("{}\n")
    ran = buckets("evaluate", "--rules", rules, "--out", tmp_path / "out", "--events", events, "--conf", conf)
    assert one_line(ran, 1).startswith(f"configuration {conf}{fault}")


def test_demo_replaces_nothing_but_a_demo(buckets, tmp_path):
    (tmp_path / "letter.txt").write_text("dear")
    assert "holds something that is no earlier demo" in one_line(buckets("demo", "--out", tmp_path), 1)
    assert (tmp_path / "letter.txt").read_text() == "dear"


@pytest.mark.parametrize("option", [["--max-delay", "soon"], ["--late-rate", "2"], ["--days", "0"]])
def test_generate_names_a_bad_setting(buckets, tmp_path, option):
    assert one_line(buckets("generate", "--out", tmp_path / "stream", *option), 1)
    assert not (tmp_path / "stream").exists()
