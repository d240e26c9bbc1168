"""Every bad input is one clear line, as the fault of a tool or of the command."""

import subprocess

import pytest

from tests.console.job_folder import EVIL_KEY
from tests.mcp.assistant import command
from tests.mcp.test_answers import RULE

CALLS = {
    "an unknown alert": ("explain_alert", {"alert_id": "zzz"}),
    "an ambiguous alert": ("explain_alert", {"alert_id": "a"}),
    "no alert": ("explain_alert", {}),
    "an empty alert": ("explain_alert", {"alert_id": ""}),
    "a mistyped argument": ("explain_alert", {"alertid": "zzz"}),
    "an alert of SQL": ("explain_alert", {"alert_id": "' or 1=1 --"}),
    "a hostile alert": ("explain_alert", {"alert_id": EVIL_KEY + "\n\x00"}),
    "an alert that is a number": ("explain_alert", {"alert_id": 5}),
    "an unknown event": ("why_not", {"event_id": "nope", "rule_id": "large"}),
    "an unknown rule": ("why_not", {"event_id": "e0", "rule_id": "nope"}),
    "a bad moment": ("why_not", {"event_id": "e0", "rule_id": "large", "at": "yesterday"}),
    "a moment at which it did not happen": ("why_not", {"event_id": "e0", "rule_id": "large", "at": "2020-01-01"}),
    "no key": ("key_timeline", {"key": {}}),
    "a key of an unknown field": ("key_timeline", {"key": {"nobody": "p1"}}),
    "a key of a list": ("key_timeline", {"key": {"payer": ["p1"]}}),
    "a key that is a text": ("key_timeline", {"key": "payer=p1"}),
    "a key of another kind": ("key_timeline", {"key": {"account": "a number"}}),
    "a key that is no yes or no": ("key_timeline", {"key": {"vip": "maybe"}}),
    "no rows": ("key_timeline", {"key": {"payer": "p1"}, "limit": 0}),
    "too many rows": ("alerts", {"limit": 201}),
    "a limit of text": ("alerts", {"limit": "many"}),
    "an unknown kind": ("alerts", {"kind": "old"}),
    "a bad time": ("alerts", {"from_time": "soon"}),
    "a place that is none": ("alerts", {"before": "nowhere"}),
    "a rule that is not there": ("rules", {"rule_id": "nope"}),
    "the history of an unknown rule": ("rule_history", {"rule_id": "nope"}),
    "a bad time of quality": ("quality", {"to_time": "2026-13-01"}),
    "a negative offset": ("quality", {"offset": -1}),
    "no rule to try": ("backtest_draft", {}),
    "two rules to try": ("backtest_draft", {"rule": RULE, "rule_id": "large"}),
    "a damaged rule to try": ("backtest_draft", {"rule": "rules: ["}),
    "an unknown rule to try": ("backtest_draft", {"rule_id": "nope"}),
    "a damaged sweep": ("backtest_draft", {"rule": RULE, "sweeps": ["limit=a..b"]}),
    "a range without events": ("backtest_draft", {"rule": RULE, "from_time": "2030-01-01"}),
    "a range that ends before it begins": (
        "backtest_draft", {"rule": RULE, "from_time": "2026-01-03", "to_time": "2026-01-02"}
    ),
    "no time to try": ("backtest_draft", {"rule": RULE, "seconds_at_most": 0}),
    "an unknown tool": ("release", {}),
    "a tool of hostile people": ("\u202e\n", {}),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_bad_input_is_one_line(assistant, as_worded, name):
    tool, arguments = CALLS[name]
    assert as_worded(assistant.fault(tool, **arguments))


@pytest.mark.parametrize("gone", ["checkpoint", "tables", "archive", "rules.yaml"])
def test_what_is_gone_is_one_line_of_each_tool_that_needs_it(copied, connect, as_worded, tmp_path, gone):
    one = connect(copied)
    (alert,) = one.answer("alerts", limit=1)["alerts"]
    (copied.parent / gone).rename(tmp_path / "gone")
    calls = {
        "job_health": {},
        "alerts": {},
        "explain_alert": {"alert_id": alert["alert_id"]},
        "why_not": {"event_id": "e0", "rule_id": "large"},
        "key_timeline": {"key": {"payer": "p1"}},
        "rules": {},
        "rule_history": {},
        "quality": {},
        "backtest_draft": {"rule": RULE},
    }
    for tool, arguments in calls.items():
        result = one.call(tool, **arguments)
        said = result.content[0].text
        assert said.isprintable()
        if result.is_error:
            assert as_worded(f"{tool}: {said}".replace(alert["alert_id"], "ALERT"))
    assert "Traceback" not in one.log.read_text()


def test_a_job_without_an_archive_says_what_to_add(copied, connect, as_worded):
    copied.write_text(copied.read_text().replace('"archive": {"path": "archive"}, ', ""))
    one = connect(copied)
    assert as_worded(one.fault("explain_alert", alert_id="zzz"))
    assert as_worded(one.fault("backtest_draft", rule=RULE))


def test_a_damaged_table_is_one_line(copied, connect, as_worded):
    (copied.parent / "tables" / "alerts" / "_delta_log" / f"{0:020}.json").write_text("{")
    assert as_worded(connect(copied).fault("alerts"))


@pytest.mark.parametrize("arguments", [["nothing.yaml"], ["CONF", "--what"], ["CONF", "--author", "\u202e"], []])
def test_a_command_that_cannot_start_is_one_line_and_prints_nothing(recorded, as_worded, tmp_path, arguments):
    named = [recorded if each == "CONF" else each for each in arguments]
    ran = subprocess.run(command(*named), capture_output=True, text=True, check=False, cwd=tmp_path, timeout=60)
    assert ran.returncode in (1, 2)
    assert ran.stdout == ""
    assert ran.stderr.count("\n") == 1
    assert as_worded(ran.stderr)
