"""What each tool answers is what the command line says."""

import json

import pytest

from buckets.checkpoint.rule_versions import RuleVersions
from buckets.mcp.tools import MOST_ROWS
from buckets.monitor.live import LiveStatus
from tests.console.job_folder import EVIL_KEY, EVIL_RULE

RULE = """
rules:
  - rule_id: mine
    group_by: [payer]
    aggregate: {function: sum, measure: amount}
    window: {length: 1h}
    limit: {operator: ">", value: "90"}
"""
TOOLS = {
    "job_health", "alerts", "explain_alert", "why_not", "key_timeline", "rules", "rule_history", "quality",
    "backtest_draft", "propose_draft",
}  # fmt: skip


def printed(ran):
    assert ran.code == 0
    return json.loads(ran.out)


def inside(small, large):
    """Whether all that an answer has is in what the command printed, where that has it too."""
    if isinstance(small, dict) and isinstance(large, dict):
        assert small.keys() & large.keys() or not small
        return all(inside(small[name], large[name]) for name in small.keys() & large.keys())
    if isinstance(small, list) and isinstance(large, list):
        return len(small) == len(large) and all(map(inside, small, large))
    return small == large


@pytest.fixture(scope="module")
def large_alert(assistant):
    return assistant.answer("alerts", rule_id="large", limit=1)["alerts"][0]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_a_client_of_either_generation_finds_the_tools(recorded, connect, mode):
    one = connect(recorded, mode=mode)
    tools = one.tools()
    assert tools.keys() == TOOLS
    assert {name for name, tool in tools.items() if not tool.annotations.read_only_hint} == {"propose_draft"}
    assert all(tool.output_schema["type"] == "object" for tool in tools.values())
    assert one.answer("job_health")["recorded"]["batches"] == 3


def test_lists_are_bounded_and_say_so(assistant):
    for name, tool in assistant.tools().items():
        limit = tool.input_schema["properties"].get("limit")
        if limit is not None:
            assert limit["maximum"] == MOST_ROWS, name
        assert tool.input_schema["additionalProperties"] is False
        assert all(field.get("description") for field in tool.input_schema["properties"].values()), name

    for name in ("job_health", "alerts", "rules", "rule_history", "quality"):
        answer = assistant.answer(name, limit=1)
        assert isinstance(answer["has_more"], bool), name
        assert max(len(value) for part, value in answer.items() if isinstance(value, list) and part != "backfills") <= 1


def test_text_and_data_are_the_same_and_all_of_the_text_is_seen(assistant):
    result = assistant.call("alerts", limit=5)
    (content,) = result.content
    assert content.text.isprintable()
    assert json.loads(content.text) == result.structured_content
    assert EVIL_KEY in {alert["key"]["payer"] for alert in result.structured_content["alerts"]}


@pytest.mark.parametrize(
    ("kind", "option"), [("in force", ()), ("on trial", ("--shadow",)), ("held back", ("--held",))]
)
def test_alerts_are_those_of_the_command(assistant, buckets, recorded, kind, option):
    said = printed(buckets("alerts", recorded.parent / "tables", "--json", *option))
    alerts, before = [], ""
    while True:
        page = assistant.answer("alerts", kind=kind, limit=MOST_ROWS, before=before)
        alerts += page["alerts"]
        before = page["next_before"]
        assert page["has_more"] == bool(before)
        if not before:
            break

    def by_id(row):
        return row["alert_id"]

    assert len(alerts) == len(said)
    for mine, theirs in zip(sorted(alerts, key=by_id), sorted(said, key=by_id), strict=True):
        names = {"alert_id", "event_time", "event_id", "rule_id", "rule", "key"}
        assert {name: mine[name] for name in names} == {name: theirs[name] for name in names}


def test_alerts_are_filtered(assistant):
    alerts = assistant.answer("alerts", kind="all", key={"payer": EVIL_KEY}, rule_id=EVIL_RULE)["alerts"]
    assert alerts
    assert {(alert["rule_id"], alert["key"]["payer"]) for alert in alerts} == {(EVIL_RULE, EVIL_KEY)}
    found = assistant.answer("alerts", from_time="2026-01-02", to_time="2026-01-02T06:00Z", verdict="none")
    assert {alert["event_time"][:10] for alert in found["alerts"]} == {"2026-01-02"}
    assert assistant.answer("alerts", verdict="fraud")["alerts"] == []


def test_an_alert_is_explained_as_by_the_command(assistant, buckets, recorded, large_alert):
    said = printed(buckets("explain", recorded, large_alert["alert_id"], "--json"))
    answer = assistant.answer("explain_alert", alert_id=large_alert["alert_id"][:12])
    assert answer["outcome"] == "alert"
    assert inside(answer, said)
    assert not answer["is_faulty"]
    assert answer["tests"][0]["truth"] == "true"
    shortened = assistant.answer("explain_alert", alert_id=large_alert["alert_id"], most_events=1)["features"][0]
    assert len(shortened["entries"]) + shortened["left_out"] == len(answer["features"][0]["entries"])
    assert shortened["has_more"]


def test_why_there_is_no_alert_is_explained_as_by_the_command(assistant, buckets, recorded):
    said = printed(buckets("explain", recorded, "--event", "e0", "--rule", "large", "--json"))
    answer = assistant.answer("why_not", event_id="e0", rule_id="large", at="2026-01-01")
    assert inside(answer, said)
    assert answer["headline"] == "Rule large did not fire at event e0"
    assert answer["tests"][0]["distance"] == "79.50"


def test_a_key_over_time(assistant):
    answer = assistant.answer("key_timeline", key={"payer": "p1"}, limit=3)
    times = [event["time"] for event in answer["events"]]
    assert times == sorted(times, reverse=True)
    assert len(times) == 3
    assert answer["has_more"]
    assert {alert["key"]["payer"] for alert in answer["alerts"]} == {"p1"}
    assert {rule["rule_id"] for rule in answer["rules"]} == {"large", "often", "trial", EVIL_RULE}
    often = next(rule for rule in answer["rules"] if rule["rule_id"] == "often")
    again = assistant.answer("why_not", event_id=answer["events"][0]["event_id"], rule_id="often")
    assert often["outcome"] == again["outcome"]
    assert often["window_start"] == again["features"][0]["start"]
    assert not assistant.answer("key_timeline", key={"payer": "p1"}, limit=MOST_ROWS)["has_more"]
    assert assistant.answer("key_timeline", key={"payer": "nobody"})["events"] == []
    assert assistant.answer("key_timeline", key={"payer": EVIL_KEY})["key"] == {"payer": EVIL_KEY}


def test_rules_are_those_of_the_command(assistant, buckets, recorded):
    said = printed(buckets("rules", "list", "--conf", recorded, "--json"))
    assert inside(assistant.answer("rules", as_written=True)["rules"], said)
    first = assistant.answer("rules", limit=2)
    rest = assistant.answer("rules", limit=3, offset=2)
    assert (first["has_more"], rest["has_more"], first["count"]) == (True, False, len(said))
    assert [rule["rule_id"] for rule in first["rules"] + rest["rules"]] == [rule["rule_id"] for rule in said]
    (one,) = assistant.answer("rules", rule_id="trial")["rules"]
    assert one["stage"] == "SHADOW"
    assert one["rule"] is None


def test_the_history_of_a_rule_is_that_of_the_command(assistant, buckets, recorded):
    answer = assistant.answer("rule_history", rule_id="large")
    assert [change["ruleset_version"] for change in answer["changes"]] == [2, 1]
    ran = buckets("rules", "history", "large", "--conf", recorded)
    assert "2 of 2 changes of rule large" in ran.out
    assert answer["changes"][0]["difference"] in " ".join(ran.out.replace("│", " ").split())
    first = assistant.answer("rule_history", limit=1)
    second = assistant.answer("rule_history", limit=1, offset=1)
    assert first["has_more"]
    assert first["changes"] != second["changes"]
    assert assistant.answer("rule_history", limit=MOST_ROWS)["count"] == first["count"]


def test_quality_is_that_of_the_command(copied, connect, buckets):
    one = connect(copied)
    alerts = one.answer("alerts", rule_id="often", limit=3)["alerts"]
    for alert, finding in zip(alerts, ("fraud", "fraud", "legitimate"), strict=True):
        buckets("verdict", alert["alert_id"], finding, "--conf", copied)
    said = printed(buckets("rules", "quality", copied, "--json"))
    answer = one.answer("quality")
    assert inside(answer, said)
    often = next(rule for rule in answer["rules"] if rule["rule_id"] == "often")
    assert (often["fraud"], often["legitimate"]) == (2, 1)
    assert often["precision"]["share"] == pytest.approx(2 / 3)
    theirs = next(rule for rule in said["rules"] if rule["rule_id"] == "often")
    assert often["time_to_detect"] == theirs["time_to_detect"]
    assert [row["verdict"] for row in one.answer("alerts", rule_id="often", verdict="fraud")["alerts"]] == ["fraud"] * 2


def test_a_backtest_is_that_of_the_command(assistant, buckets, recorded, tmp_path):
    (tmp_path / "mine.yaml").write_text(RULE)
    sweep = ("--sweep", "limit=80,90")
    said = printed(buckets("backtest", tmp_path / "mine.yaml", "--conf", recorded, "--active", *sweep, "--json", "-"))
    answer = assistant.answer("backtest_draft", rule=RULE, sweeps=["limit=80,90"], limit=1)
    (theirs,) = said["rules"]
    assert (answer["by_day_count"], answer["variants_count"]) == (len(said["by_day"]), 2)
    assert (answer["by_day"], answer["variants"]) == (said["by_day"][:1], said["variants"][:1])
    assert answer["has_more"]
    assert inside({name: part for name, part in answer.items() if name not in ("by_day", "variants")}, said)
    assert answer["checked"]["sentence"] == theirs["rule"]


def test_a_backtest_of_a_rule_of_the_job_raises_its_alerts_again(assistant):
    answer = assistant.answer("backtest_draft", rule_id="large")
    (rule,) = answer["rules"]
    assert rule["overlap"]["only_old"]["events"] == rule["overlap"]["only_new"]["events"] == 0
    assert rule["overlap"]["both"]["events"] == rule["events"] > 0


def test_the_health_of_a_job_that_tells_nothing_of_itself(assistant):
    answer = assistant.answer("job_health", limit=2)
    assert (answer["state"], answer["line"]) == ("no status", "no job runs now; 3 batches are recorded")
    assert [batch["batch_id"] for batch in answer["batches"]] == [2, 1]
    assert answer["has_more"]
    assert answer["recorded"]["events"] == 183
    assert (answer["rules_version"], answer["rules_in_force"], answer["now"]) == (2, 4, None)


def test_the_health_of_a_job_is_what_watch_says(copied, connect, buckets):
    one = connect(copied)
    rules = RuleVersions(copied.parent / "checkpoint").latest_rule_set()
    status = LiveStatus(
        copied.parent / "checkpoint", lambda: rules, rules_fault=lambda: "the topic is gone", every_s=0.1
    )
    answer = one.answer("job_health")
    said = buckets("watch", copied, "--once").out
    assert answer["state"] == "running"
    assert answer["faults"] == ["the rules may be out of date: the topic is gone"]
    assert said.startswith(f"{answer['line']}\n{answer['faults'][0]}\n")
    assert answer["now"]["batches"] == 0
    status.close("disk is full")
    failed = one.answer("job_health")
    assert failed["state"] == "stopped"
    assert failed["faults"] == [failed["line"]]
    assert buckets("watch", copied, "--once").out.startswith(failed["line"])


def test_the_health_of_a_job_that_has_never_run(copied, connect, buckets, tmp_path):
    for name in ("tables", "checkpoint", "archive"):
        (copied.parent / name).rename(tmp_path / name)
    answer = connect(copied).answer("job_health")
    assert buckets("watch", copied, "--once").err == f"error: {answer['line']}\n"
    assert (answer["recorded"], answer["rules_version"], answer["batches"]) == (None, None, [])
