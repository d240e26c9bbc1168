"""The command line without Spark: help, options, and errors as one clear line."""

import json
import sys
from collections.abc import Callable

import pytest
from rich.console import Console

from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.identity import CheckpointIdentity
from buckets.checkpoint.rule_versions import RuleVersions
from buckets.cli.alerts import COLUMNS, alert_table
from buckets.cli.state import encode_key, find_group
from buckets.config.engine import EngineSettings
from buckets.engine.storage.key import key_of_values
from buckets.events.schema import load_event_schema
from buckets.exit_codes import MISUSED
from buckets.feeds.rules.rule_book import RuleBook
from buckets.moment import iso_text
from buckets.numbers.fixed_point import readable
from buckets.outputs.recorded_outputs import TIMES
from buckets.resources import resource
from buckets.rules.rule import Rule
from buckets.rules.rule_set import first_rule_set
from tests.cli_unit.ran import Ran, one_line
from tests.fixed_rules import FixedRules

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
SCHEMA = str(resource("schemas/transaction.yaml"))


@pytest.fixture
def rules(tmp_path):
    path = tmp_path / "rules.yaml"
    path.write_text(GOOD_RULES)
    return path


# Help


@pytest.mark.parametrize(
    "command",
    ["run", "evaluate", "alerts", "generate", "demo", "rules check", "rules show", "state stats", "state show"],
)
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
    for command in ("run", "evaluate", "alerts", "generate", "demo", "rules", "state"):
        assert f"\n  {command} " in ran.out


# Options


@pytest.mark.parametrize(
    "arguments",
    [
        ["runn"],
        ["rules"],
        ["rules", "lint"],
        ["run"],
        ["run", "a", "b"],
        ["rules", "check"],
        ["rules", "check", "f", "--stricter"],
        ["alerts"],
        ["alerts", "d", "--limit", "0"],
        ["alerts", "d", "--limit", "many"],
        ["evaluate"],
        ["evaluate", "--events", "e", "--rules", "r", "--out", "o", "--batch-rows", "0"],
        ["evaluate", "--events", "e", "--rules", "r", "--out", "o", "--shards", "9999"],
        ["generate"],
        ["state"],
        ["state", "stats"],
        ["state", "stats", "c", "--largest", "-1"],
        ["state", "show", "c"],
        ["state", "show", "c", "--group", "g", "--limit", "0"],
        ["demo", "--transactions", "5"],
        ["--version-of-everything"],
    ],
)
def test_a_wrong_option_is_one_line_and_exit_code_2(buckets, arguments, as_worded):
    assert as_worded(one_line(buckets(*arguments), 2))


# rules check, rules show


def test_rules_check_counts_good_rules(buckets, rules):
    ran = buckets("rules", "check", rules)
    assert ran == (0, f"{rules}: 2 rules in 2 groups are valid\n", "")
    assert buckets("rules", "check", rules, "--schema", SCHEMA) == (0, f"{rules}: 2 rules in 2 groups are valid\n", "")


def test_the_rules_that_come_with_the_project_are_valid(buckets):
    assert buckets("rules", "check", resource("conf/demo-rules.yaml"), "--schema", SCHEMA).code == 0


def test_rules_show_tells_each_rule_in_english(buckets, rules):
    ran = buckets("rules", "show", rules)
    assert (ran.code, ran.err) == (0, "")
    assert "The sum of paymentAmount of events of the same payerId over the last 24h is above 200,000" in ran.out
    assert "The number of events of the same cardId over the last 90s is at least 5" in ran.out
    assert "SHADOW" in ran.out


@pytest.mark.parametrize("command", ["check", "show"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("24h", "1 day"),
        ('">"', ">"),
        ("rule_id: many", "rule_id: big-sum"),
        ("[payerId]", "[payer]"),
        (GOOD_RULES, ""),
        ("rule_id: big-sum", 'rule_id: big-sum\n    description: "[/red] [bold"\n    x: 1'),
    ],
)
def test_a_bad_rule_file_is_one_line(buckets, rules, command, old, new, as_worded):
    rules.write_text(GOOD_RULES.replace(old, new, 1))
    assert as_worded(one_line(buckets("rules", command, rules, "--schema", SCHEMA), 1))


def test_a_missing_file_is_one_line(buckets, tmp_path, rules, as_worded):
    none = tmp_path / "none.yaml"
    assert as_worded(one_line(buckets("rules", "check", none), 1))
    missing = one_line(buckets("rules", "check", rules, "--schema", none), 1)
    assert as_worded(missing)
    assert as_worded(one_line(buckets("run", none), MISUSED))


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
        "alert_id": f"{number:02d}" * 16, "event_time": 1_700_000_000_000 + number,
        "rule_id": "r1", "rule": "The sum is above 1",
        "key": {"payerId": "p[1]"}, "event_id": f"e{number}", "value": "1234567.50", "limit": "1",
        "operator": ">", "count": 1000, "certain": True, "warm": True, "exact": True, "lower": "1234567.50",
        "upper": "1234567.50",
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
    assert ran.out.count("beyond the history that is kept") == 1


def test_alerts_may_be_narrowed_to_a_rule_and_a_number(buckets, tmp_path):
    write(tmp_path, "alerts", [alert(1), alert(2, rule_id="r2"), alert(3, rule_id="r2")])
    ran = buckets("alerts", tmp_path, "--rule", "r2", "--limit", 1)
    assert "1 of 2 alerts, newest first" in ran.out
    assert "e3" in ran.out
    assert "e2" not in ran.out
    assert "e1" not in ran.out
    assert buckets("alerts", tmp_path, "--rule", "none") == (0, f"no alerts in {tmp_path} of rule none\n", "")


def test_alerts_may_be_narrowed_to_a_key_and_a_time(buckets, tmp_path, as_worded):
    keys = [{"payerId": "p1", "vip": True}, {"payerId": "p1", "vip": False}, {}, {"payerId": "p1", "vip": True}]
    write(tmp_path, "alerts", [alert(n, key=key, event_time=n * 3_600_000) for n, key in enumerate(keys)])

    def chosen(*options: str) -> list[str]:
        ran = buckets("alerts", tmp_path, "--json", *options)
        assert (ran.code, ran.err) == (0, "")
        return [row["event_id"] for row in json.loads(ran.out)]

    assert chosen() == ["e3", "e2", "e1", "e0"]
    assert chosen("--key", "payerId=p1") == ["e3", "e1", "e0"]
    assert chosen("--key", "payerId=p1,vip=true") == ["e3", "e0"]
    assert chosen("--key", '{"payerId": "p1", "vip": false}') == ["e1"]
    assert chosen("--from", "1970-01-01T01:00", "--to", "1970-01-01T03:00Z") == ["e2", "e1"]
    assert chosen("--limit", "1", "--key", "vip=true") == ["e3"]
    assert as_worded(one_line(buckets("alerts", tmp_path, "--key", "p1"), 1))
    assert as_worded(one_line(buckets("alerts", tmp_path, "--from", "2026-01-02", "--to", "2026-01-01"), 1))


def test_alerts_as_json_are_whole(buckets, tmp_path):
    row = alert(1, terms=None, tags=[], held_back=0, severity=None, condition=None, event={"id": "e1"})
    write(tmp_path, "alerts", [row])
    times = {name: iso_text(row[name]) for name in TIMES if name in row}
    assert times["event_time"] == "2023-11-14T22:13:20.001Z"
    assert json.loads(buckets("alerts", tmp_path, "--json").out) == [row | times]


def test_ids_of_alerts_are_as_short_as_names_each_among_all(buckets, tmp_path):
    write(tmp_path, "alerts", [alert(1, alert_id="0123456789" + "a" * 22), alert(2, alert_id="f" * 32)])
    assert "alert 01234567 " in buckets("alerts", tmp_path).out
    write(tmp_path, "held_alerts", [alert(3, alert_id="0123456789" + "b" * 22)])
    shown = buckets("alerts", tmp_path).out
    assert "alert 0123456789a " in shown
    assert "alert fffffffffff " in shown


def test_alerts_of_rules_on_trial_are_apart(buckets, tmp_path):
    write(tmp_path, "alerts", [])
    write(tmp_path, "shadow_alerts", [alert(7)])
    assert buckets("alerts", tmp_path) == (0, f"no alerts in {tmp_path}\n", "")
    assert "e7" in buckets("alerts", tmp_path, "--shadow").out


def test_alerts_that_were_held_back_say_by_what_and_others_how_many_there_were(buckets, tmp_path, as_worded):
    write(tmp_path, "alerts", [alert(1, severity="high", tags=["cards"], held_back=1_200), alert(2)])
    write(tmp_path, "held_alerts", [alert(7, held_by="cooldown", severity=None, tags=[], held_back=0)])
    assert "high, cards, 1,200 held back before it" in buckets("alerts", tmp_path).out
    held = buckets("alerts", tmp_path, "--held").out
    assert "held back by cooldown" in held
    assert "e7" in held
    both = one_line(buckets("alerts", tmp_path, "--held", "--shadow"), 1)
    assert as_worded(both)


@pytest.mark.parametrize(
    ("certain", "said"),
    [
        (True, "between 100.50 and 1,234,567.50, the limit is crossed in any case"),
        (False, "not certain: between 100.50 and 1,234,567.50"),
    ],
)
def test_an_alert_that_is_not_exact_says_between_what_its_value_lies(buckets, tmp_path, certain, said):
    write(tmp_path, "alerts", [alert(1, exact=False, certain=certain, lower="100.50"), alert(2)])
    ran = buckets("alerts", tmp_path)
    assert said in ran.out
    assert ran.out.count("between") == 1


@pytest.mark.parametrize("name", ["none", "."])
def test_a_folder_without_alerts_is_one_line(buckets, tmp_path, name, as_worded):
    assert as_worded(one_line(buckets("alerts", tmp_path / name), 1))


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


def test_evaluate_refuses_bad_input_before_it_starts_spark(buckets, tmp_path, rules, monkeypatch, as_worded):
    monkeypatch.setitem(sys.modules, "buckets.spark.session", None)
    events, out = tmp_path / "day.jsonl", tmp_path / "out"
    asked = ["evaluate", "--rules", rules, "--out", out, "--events"]
    assert as_worded(one_line(buckets(*asked, events), 1))
    assert as_worded(one_line(buckets(*asked, tmp_path), 1))
    events.write_text('{"when": 1}\n')
    assert as_worded(one_line(buckets(*asked, events), 1))
    assert not out.exists()
    events.write_text('{"transactionId": "a", "eventTime": 1}\n')
    out.write_text("a file")
    assert as_worded(one_line(buckets(*asked, events), 1))
    assert out.read_text() == "a file"


def test_evaluate_writes_all_outputs_without_spark(buckets, tmp_path, rules, monkeypatch, as_worded):
    monkeypatch.setitem(sys.modules, "pyspark", None)
    events, out = tmp_path / "day.jsonl", tmp_path / "out"
    known = {"payerId": "p", "beneficiaryId": "b", "cardId": "c", "paymentType": "X", "paymentAmount": "1000000"}
    payments = [{"transactionId": f"t{n}", "eventTime": n} | known for n in range(5)]
    events.write_text("".join(f"{json.dumps(payment)}\n" for payment in payments) + "{\n")
    out.mkdir()
    (out / "alerts.jsonl").write_text("of an earlier run\n")
    ran = buckets("evaluate", "--rules", rules, "--out", out, "--events", events, "--batch-rows", 2)
    assert ran.code == 0, ran.err
    assert as_worded(ran.err.splitlines()[-1])
    lines = {path.name: path.read_text().splitlines() for path in out.iterdir()}
    assert len(lines) == 8
    evaluated = [json.loads(line) for line in lines["evaluations.jsonl"]]
    expected = [(f"t{n}", rule_id) for n in range(5) for rule_id in ("big-sum", "many")]
    assert [(row["event_id"], row["rule_id"]) for row in evaluated] == expected
    assert [json.loads(line)["position"] for line in lines["dead_letters.jsonl"]] == [6]
    assert "of an earlier run" not in lines["alerts.jsonl"]


def test_evaluate_refuses_a_rule_that_needs_events_which_are_not_kept(buckets, tmp_path, rules, as_worded):
    events, conf, out = tmp_path / "day.jsonl", tmp_path / "conf.yaml", tmp_path / "out"
    events.write_text('{"transactionId": "a", "eventTime": 1}\n')
    conf.write_text("engine: {precision: {tail: 1m}, allowed_lateness: 1m}\n")
    rules.write_text(GOOD_RULES.replace("    group_by:", "    reset_on_alert: true\n    group_by:", 1))
    ran = buckets("evaluate", "--rules", rules, "--out", out, "--events", events, "--conf", conf)
    assert as_worded(one_line(ran, 1))
    assert list(out.iterdir()) == []


def test_evaluate_names_what_does_not_fit_the_schema(buckets, tmp_path, rules, as_worded):
    rules.write_text(GOOD_RULES.replace("measure: paymentAmount", "measure: total"))
    events = tmp_path / "day.jsonl"
    events.write_text("{}\n")
    ran = buckets("evaluate", "--rules", rules, "--out", tmp_path / "out", "--events", events)
    assert as_worded(one_line(ran, 1))


@pytest.mark.parametrize(
    "text",
    [
        "engine: {shards: 0}",
        "engine: {precision: {tail: 2x}}",
        "engine: {late: never}",
        "engine: {sharts: 4}",
        "- engine",
    ],
)
def test_evaluate_names_a_bad_engine_part(buckets, tmp_path, rules, text, as_worded):
    conf, events = tmp_path / "conf.yaml", tmp_path / "day.jsonl"
    conf.write_text(text)
    events.write_text("{}\n")
    ran = buckets("evaluate", "--rules", rules, "--out", tmp_path / "out", "--events", events, "--conf", conf)
    assert as_worded(one_line(ran, MISUSED))


def test_demo_replaces_nothing_but_a_demo(buckets, tmp_path, as_worded):
    (tmp_path / "letter.txt").write_text("dear")
    assert as_worded(one_line(buckets("demo", "--out", tmp_path), 1))
    assert (tmp_path / "letter.txt").read_text() == "dear"


@pytest.mark.parametrize("option", [["--max-delay", "soon"], ["--late-rate", "2"], ["--days", "0"]])
def test_generate_names_a_bad_setting(buckets, tmp_path, option):
    assert one_line(buckets("generate", "--out", tmp_path / "stream", *option), 1)
    assert not (tmp_path / "stream").exists()


# run: settings of precision


CONF = """\
source: {{kind: json, path: source}}
schema: {schema}
rules: rules.yaml
checkpoint: checkpoint
output: {{path: tables}}
engine: {engine}
"""
DAY_TIER = {"after": "2d", "resolution": "1h"}


@pytest.fixture
def run_with(buckets, tmp_path, rules, monkeypatch) -> Callable[[dict], Ran]:
    """`buckets run` with an engine part; nothing of Spark can be started."""
    monkeypatch.setitem(sys.modules, "buckets.spark.session", None)
    (tmp_path / "source").mkdir()

    def run(engine: dict) -> Ran:
        conf = tmp_path / "conf.yaml"
        conf.write_text(CONF.format(schema=SCHEMA, engine=json.dumps(engine)))
        return buckets("run", conf)

    return run


@pytest.mark.parametrize(
    "precision",
    [
        {"tail": "1h", "resolution": "7m", "tiers": [DAY_TIER]},
        {"tail": "1h", "tiers": [DAY_TIER, {"after": "9d", "resolution": "90m"}]},
        {"tail": "1h", "resolution": "1h", "tiers": [DAY_TIER]},
        {"tail": "1h", "tiers": [{"after": "9d", "resolution": "1h"}, {"after": "2d", "resolution": "1d"}]},
        {"tail": "2d", "tiers": [DAY_TIER]},
        {"tail": "all", "tiers": [DAY_TIER]},
        {"tiers": [DAY_TIER]},
        {"tail": "1h", "resolution": "0ms"},
        {"tail": "1h", "resolution": "8d"},
        {"tail": "1h", "tiers": [{"after": "9d", "resolution": "8d"}]},
        {"tail": "ever"},
        {"tail": 3600},
        {"tail": "1h", "resolution": "1 minute"},
        {"tail": "1h", "edge": "guess"},
        {"tail": "1h", "tier": []},
        {"groups": [{"tail": "1h"}]},
        {"groups": [{"group_by": ["payerId"], "tail": "1h", "resolution": "8d"}]},
        {"groups": [{"group_by": ["cardId"]}, {"group_by": ["cardId"], "tail": "1h"}]},
    ],
)
def test_a_precision_that_cannot_be_is_one_line(run_with, tmp_path, precision, as_worded):
    fault = one_line(run_with({"precision": precision}), MISUSED)
    assert as_worded(fault)
    assert not (tmp_path / "checkpoint").exists()


@pytest.mark.parametrize("policy", [{"late": "evaluate"}, {"collision": "replace"}, {"collision": "keep_first"}])
@pytest.mark.parametrize(
    "precision", [{"tail": "59m"}, {"groups": [{"group_by": ["payerId"], "tail": "59m"}]}], ids=["job", "group"]
)
def test_a_tail_shorter_than_the_allowed_lateness_is_one_line_where_a_policy_needs_raw_events(
    run_with, policy, precision, as_worded
):
    fault = one_line(run_with({"allowed_lateness": "1h", "precision": precision} | policy), MISUSED)
    assert as_worded(fault)


def test_a_precision_for_a_group_that_no_rule_has_is_one_line_with_the_groups_that_there_are(run_with, as_worded):
    groups = [{"group_by": ["cardId"], "tail": "1h"}, {"group_by": ["payerId", "cardId"], "tail": "1h"}]
    fault = one_line(run_with({"precision": {"groups": groups}}), MISUSED)
    assert as_worded(fault)


def test_a_group_whose_filter_is_written_in_two_ways_stands_there_twice(run_with, rules, as_worded):
    text = rules.read_text()
    rules.write_text(text.replace("    aggregate:", "    where: {paymentAmount: 100}\n    aggregate:"))
    groups = [{"group_by": ["cardId"], "where": {"paymentAmount": amount}} for amount in ("100.00", "1e2")]
    fault = one_line(run_with({"precision": {"groups": groups}}), MISUSED)
    assert as_worded(fault)


def test_a_group_with_a_filter_is_another_group(run_with, as_worded):
    groups = [{"group_by": ["cardId"], "where": {"channel": "ATM"}, "tail": "1h"}]
    fault = one_line(run_with({"precision": {"groups": groups}}), MISUSED)
    assert as_worded(fault)


# state: what is refused before Spark is started


def grouping(rule_id: str, group_by: list[str], **where: str) -> Rule:
    return Rule.model_validate(
        {
            "rule_id": rule_id,
            "group_by": group_by,
            "where": where,
            "aggregate": {"function": "count"},
            "window": {"length": "1h"},
            "limit": {"operator": ">", "value": "1"},
        }
    )


@pytest.fixture
def checkpoint(tmp_path, monkeypatch):
    """A checkpoint of a job that has started, with four groups; two of them with the same fields."""
    monkeypatch.setitem(sys.modules, "buckets.spark.session", None)
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    schema = load_event_schema(resource("schemas/transaction.yaml"))
    checkpoint.job.open(CheckpointIdentity("json /events", schema, EngineSettings()))
    rules = [
        grouping("a", ["payerId", "beneficiaryId"]),
        grouping("b", ["cardId"], paymentType="CARD"),
        grouping("c", ["cardId"], paymentType="CASH"),
        grouping("d", []),
    ]
    RuleBook(checkpoint, FixedRules(rules), schema, EngineSettings(allowed_lateness="0ms")).for_batch(0)
    return checkpoint.path


@pytest.mark.parametrize("command", [["stats"], ["show", "--group", "payerId"]], ids=["stats", "show"])
@pytest.mark.parametrize("name", ["none", "."])
def test_the_state_of_what_is_no_checkpoint_is_one_line(buckets, tmp_path, command, name):
    ran = buckets("state", command[0], tmp_path / name, *command[1:])
    said = f"{tmp_path / name} is not a checkpoint: there is no buckets/job.json in it; give the folder that"
    assert one_line(ran, 1).startswith(said)


@pytest.mark.parametrize(
    "group",
    [
        "payerId",
        "cardId",
        "payerId,beneficiaryId,cardId",
    ],
)
def test_a_group_that_is_not_one_is_one_line_with_those_that_there_are(buckets, checkpoint, group, as_worded):
    assert as_worded(one_line(buckets("state", "show", checkpoint, "--group", group, "--key", "x"), 1))


@pytest.mark.parametrize(
    "key",
    [
        "p1",
        "",
        "p1,b1,x",
        '["p1"]',
        '["p1", "b1"',
        '{"payerId": "p1"}',
    ],
)
def test_a_key_without_a_value_for_each_field_is_one_line(buckets, checkpoint, key, as_worded):
    said = one_line(buckets("state", "show", checkpoint, "--group", "payerId,beneficiaryId", "--key", key), 1)
    assert as_worded(said)


@pytest.mark.parametrize("written", ["payerId,beneficiaryId", "beneficiaryId, payerId", "payerId, beneficiaryId"])
def test_a_group_may_be_named_by_its_fields_in_any_order(checkpoint, written):
    groups = RuleVersions(checkpoint).groups()
    assert find_group(groups, written).fields == ("payerId", "beneficiaryId")


def test_a_group_may_be_named_as_stats_shows_it_or_by_its_identity(checkpoint):
    groups = RuleVersions(checkpoint).groups()
    for group in groups.values():
        assert find_group(groups, group.name) == find_group(groups, group.group_id) == group


@pytest.mark.parametrize(
    ("fields", "written", "values"),
    [
        (["payerId", "beneficiaryId"], "p1,b 1", ["p1", "b 1"]),
        (["payerId", "beneficiaryId"], '["p,1", "[b"]', ["p,1", "[b"]),
        (["payerId"], "", [""]),
        (["payerId"], "[1]", ["1"]),
        (["payerId"], "[true]", ["true"]),
        (["payerId", "beneficiaryId"], '{"beneficiaryId": "b", "payerId": "p"}', ["p", "b"]),
        ([], "", []),
    ],
)
def test_a_key_is_written_with_commas_or_as_a_json_list(fields, written, values):
    (group,) = first_rule_set([grouping("r", fields)]).groups
    schema = load_event_schema(resource("schemas/transaction.yaml"))
    assert encode_key(group, written, schema) == key_of_values(group, values, schema)


def test_an_alert_of_features_shows_between_what_its_numbers_lie():
    terms = [
        {"name": "recent", "value": "210.00", "exact": True},
        {"name": "usual", "value": "23.500000", "exact": False, "lower": "19.250000", "upper": "1041.250000"},
        {"name": "least", "value": None, "exact": False, "lower": "1.00", "upper": "2.00", "may_be_null": True},
        {"name": "first", "value": True, "exact": False, "lower": False, "upper": True},
    ]
    row = dict.fromkeys(COLUMNS, "") | {"event_time": 0, "key": {}, "value": None, "tags": None, "held_back": None}
    console = Console(width=100)
    with console.capture() as captured:
        console.print(alert_table([row | {"terms": terms, "condition": "Recent (210.00) is above 1"}], "alerts", 8))
    values = [line.split("│")[-2].strip() for line in captured.get().splitlines() if line.startswith("│")]
    assert values[:4] == ["recent 210", "usual 23.50", "19.25 to 1,041.25", "least no value"]
    assert values[4:7] == ["1 to 2, or none", "first yes", "no to yes"]


@pytest.mark.parametrize(
    "command",
    [
        ["init", "s3://bucket/folder"],
        ["generate", "--out", "s3://bucket/day.jsonl"],
        ["evaluate", "--events", "day.jsonl", "--rules", "rules.yaml", "--out", "hdfs://host/folder"],
        ["state", "export", "job.yaml", "--to", "s3a://bucket/export"],
        ["features", "rules.yaml", "--events", "day.jsonl", "--out", "s3://bucket/features"],
        ["demo", "--out", "s3://bucket/demo"],
        ["demo-kafka", "--out", "s3://bucket/demo"],
        ["kafka", "start", "--dir", "s3://bucket/broker"],
        ["rules", "import", "s3://bucket/messages.txt"],
    ],
)
def test_an_address_makes_no_folder_of_that_name(buckets, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    ran = buckets(*command)
    assert ran.code == 1
    assert ran.err == f"error: {command[-1]}: is not a path of a file system, which alone is taken here\n"
    assert not any(tmp_path.iterdir())
