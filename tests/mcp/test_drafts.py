"""A draft may be proposed, with checks and the name of whose assistant it is, and nothing more can be done."""

import json
from concurrent.futures import ThreadPoolExecutor
from getpass import getuser

import pytest

from buckets.config.job import load_job
from buckets.rule_files.flink_rules import read_change_notes
from buckets.rule_files.yaml_rules import load_rules
from tests.mcp.assistant import connected
from tests.mcp.test_answers import RULE, TOOLS


def rules_of(conf):
    return {rule.rule_id: rule for rule in load_rules(conf.parent / "rules.yaml", load_job(conf).event_schema)}


def test_a_draft_is_saved_with_who_has_proposed_it_and_why(copied, connect, buckets):
    before = rules_of(copied)
    one = connect(copied, "--author", "ann", name="helper")
    answer = one.answer("propose_draft", rule=RULE.replace("mine", "new-one"), reason="many small payments")
    assert answer["author"] == "ann via helper"
    assert answer["is_changed"]
    assert answer["checked"]["findings"] == []
    after = rules_of(copied)
    assert after.pop("new-one").state == "DRAFT"
    assert after == before
    note = read_change_notes([copied.parent / "rules.yaml"])["new-one"]
    assert (note.author, note.reason) == ("ann via helper", "many small payments")
    listed = buckets("rules", "list", "--conf", copied).out
    assert "ann via helper" in listed
    (row,) = one.answer("rules", rule_id="new-one")["rules"]
    assert (row["state"], row["author"]) == ("DRAFT", "ann via helper")
    assert buckets(*answer["next_step"].split("`")[1].split()[1:]).code == 0
    assert rules_of(copied)["new-one"].state == "SHADOW"


@pytest.mark.parametrize("state", ["ACTIVE", "SHADOW", "PAUSE", "DELETE"])
def test_whatever_state_is_written_a_draft_is_saved(copied, connect, state):
    one = connect(copied)
    written = RULE.replace("rule_id: mine", f"rule_id: mine\n    state: {state}")
    assert one.answer("propose_draft", rule=written, reason="why")["is_changed"]
    assert rules_of(copied)["mine"].state == "DRAFT"


def test_the_same_assistant_improves_its_draft_and_no_other_one_does(copied, connect, as_worded):
    one, other = connect(copied, "--author", "ann"), connect(copied, "--author", "ben")
    assert one.answer("propose_draft", rule=RULE, reason="why")["is_changed"]
    assert not one.answer("propose_draft", rule=RULE, reason="why")["is_changed"]
    assert as_worded(other.fault("propose_draft", rule=RULE.replace("90", "95"), reason="why"))
    assert as_worded(
        one.fault("propose_draft", rule=RULE.replace("mine", "draft"), reason="why").replace(getuser(), "OWNER")
    )
    answer = one.answer("propose_draft", rule=RULE.replace("90", "95"), reason="why")
    assert "90" in answer["difference"]
    assert "95" in answer["difference"]


def test_in_a_folder_of_rules_a_new_draft_has_a_file_of_its_own(copied, connect):
    folder = copied.parent / "rules"
    folder.mkdir()
    (copied.parent / "rules.yaml").rename(folder / "rules.yaml")
    copied.write_text(json.dumps(json.loads(copied.read_text()) | {"rules": "rules"}))
    before = (folder / "rules.yaml").read_bytes()
    one = connect(copied)
    assert one.answer("propose_draft", rule=RULE, reason="why")["place"] == f"folder {folder}"
    assert (folder / "rules.yaml").read_bytes() == before
    assert "mine" in (folder / "assistant.yaml").read_text()
    assert {row["rule_id"] for row in one.answer("rules")["rules"]} >= {"mine", "large"}


TESTS = """
tests:
  - name: never
    rules: [mine]
    given: [{payer: p1, amount: 100, at: 0s}]
    expect: {alerts: []}
"""
BAD_DRAFTS = {
    "a rule in force": (RULE.replace("mine", "large"), "why"),
    "a rule on trial": (RULE.replace("mine", "trial"), "why"),
    "broken YAML": ("rules: [", "why"),
    "no rules": ("rules: []", "why"),
    "two rules": (RULE + RULE.replace("rules:\n", "").replace("mine", "other"), "why"),
    "an unknown field": (RULE.replace("payer", "nobody"), "why"),
    "a damaged window": (RULE.replace("1h", "an hour"), "why"),
    "an unknown key": (RULE.replace("window:", "windows:"), "why"),
    "a useless rule": (RULE + "    where: amount > 5 AND amount < 3\n", "why"),
    "a test that fails": (
        RULE + TESTS,
        "why",
    ),
    "a test without a time": (RULE + TESTS.replace(", at: 0s", ""), "why"),
    "no reason": (RULE, " "),
    "a long reason": (RULE, "x" * 2001),
    "a reason that cannot be seen": (RULE, "\u202egood"),
    "a hostile name": (RULE.replace("mine", '"\\u202e<b>\\n\\0"'), "why"),
    "a text of another language": ("#!/bin/sh\nrm -rf /\n", "why"),
}


@pytest.fixture(scope="module")
def drafting(recorded, tmp_path_factory):
    with connected(recorded, tmp_path_factory.mktemp("drafting") / "log.txt") as one:
        yield one


@pytest.mark.parametrize("name", BAD_DRAFTS)
def test_a_bad_draft_is_one_line_and_nothing_is_saved(drafting, recorded, as_worded, name):
    rule, reason = BAD_DRAFTS[name]
    text = (recorded.parent / "rules.yaml").read_bytes()
    assert as_worded(drafting.fault("propose_draft", rule=rule, reason=reason))
    assert (recorded.parent / "rules.yaml").read_bytes() == text


def test_who_may_only_read_has_no_tool_that_writes(copied, connect, as_worded):
    one = connect(copied, "--read-only")
    assert one.tools().keys() == TOOLS - {"propose_draft"}
    assert as_worded(one.fault("propose_draft", rule=RULE, reason="why"))


def test_a_hostile_name_of_a_client_is_seen(copied, connect):
    one = connect(copied, "--author", "ann", name="\u202eben\n" + "x" * 1000)
    author = one.answer("propose_draft", rule=RULE, reason="why")["author"]
    assert author.startswith("ann via \\u202eben\\n")
    assert len(author) < 80


def test_two_assistants_at_once_lose_no_draft(copied, connect):
    ones = [connect(copied, "--author", name) for name in ("ann", "ben")]

    def propose(number):
        text = RULE.replace("mine", f"draft-{number}")
        return ones[number % 2].answer("propose_draft", rule=text, reason=f"reason {number}")

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(propose, range(12)))
    assert all(answer["is_changed"] for answer in answers)
    saved = rules_of(copied)
    assert {f"draft-{number}" for number in range(12)} <= saved.keys()
