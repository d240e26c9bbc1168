"""The commands that release rules: promote, diff, rollback, compare, and what `rules list` says of a release."""

import json
from pathlib import Path

import pytest
import yaml

from buckets.checkpoint.driver_state import Checkpoint
from buckets.config.job import load_job
from buckets.feeds.rules.rule_book import RuleBook
from buckets.feeds.schema_book import open_rules
from buckets.rule_files.differences import rules_that_differ
from buckets.rules.completeness import Stretch
from buckets.rules.rule_set import RuleSet
from tests.cli_unit.ran import one_line
from tests.cli_unit.test_rules import RULES, Origin, file, make, origin, table, told
from tests.core.test_comparison import rows, write_delta

__all__ = ["file", "make", "origin", "table"]
DAY_MS = 86_400_000
COMMANDS = ("promote", "diff", "rollback", "compare", "list")


def batch(origin: Origin, batch_id: int, latest_ms: int = 5 * DAY_MS) -> RuleSet:
    """A batch of the job, as far as rules are concerned, after a start."""
    job = load_job(origin.conf)
    book = RuleBook(Checkpoint(job.checkpoint), open_rules(job), job.event_schema, job.settings.engine)
    book.start()
    rule_set = book.for_batch(batch_id)
    book.done(batch_id, rule_set, (Stretch(0, latest_ms),))
    book.stop()
    return rule_set


def set_state(origin: Origin, buckets, rule_id: str, state: str) -> None:
    """Give a rule a state through a file that is applied."""
    (rule,) = (each for each in origin.read().values() if each.rule_id == rule_id)
    text = rule.model_copy(update={"state": state}).model_dump(mode="json", by_alias=True)
    origin.new.write_text(yaml.safe_dump({"rules": [text]}))
    told(buckets("rules", "apply", origin.new, "--conf", origin.conf))


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_has_examples_that_begin_with_the_command(buckets, command):
    examples = told(buckets("rules", command, "--help")).partition("Examples:\n")[2]
    assert examples.strip().startswith(f"buckets rules {command}")


# promote


def test_a_rule_is_promoted_step_by_step_to_all_keys(buckets, origin, as_worded):
    set_state(origin, buckets, "many", "DRAFT")
    before = origin.read()

    def step(*options: str) -> str:
        return told(buckets("rules", "promote", "many", "--conf", origin.conf, *options)).splitlines()[0]

    written = f"from the next batch on; written to {origin.kind} {origin.rules}"
    assert step() == f"many: DRAFT until now, SHADOW {written}"
    assert step("--rollout", "10%") == f"many: SHADOW until now, ACTIVE with rollout 10% {written}"
    assert step("--rollout", "25%") == f"many: ACTIVE with rollout 10% until now, ACTIVE with rollout 25% {written}"
    assert step() == f"many: ACTIVE with rollout 25% until now, ACTIVE {written}"
    (difference,) = rules_that_differ(before.values(), origin.read().values())
    assert (difference.rule_id, list(map(str, difference.fields))) == ("many", ["state: DRAFT → ACTIVE"])
    said = one_line(buckets("rules", "promote", "many", "--conf", origin.conf), 1)
    assert as_worded(said)


def test_only_the_lines_of_the_state_and_the_rollout_change_in_a_file(buckets, file):
    told(buckets("rules", "promote", "many", "--conf", file.conf, "--rollout", "10%"))
    active = RULES.replace("SHADOW", "ACTIVE")
    assert file.rules.read_text() == f"{active}    rollout: 10%\n"
    told(buckets("rules", "promote", "many", "--conf", file.conf))
    assert file.rules.read_text() == f"{active}    rollout: 100%\n"


def test_a_state_further_on_can_be_named(buckets, file):
    set_state(file, buckets, "many", "DRAFT")
    out = told(buckets("rules", "promote", "many", "--conf", file.conf, "--to", "active", "--author", "ann"))
    assert out.startswith("many: DRAFT until now, ACTIVE from")
    assert "ann" in told(buckets("rules", "list", "--conf", file.conf))


@pytest.mark.parametrize(
    "options",
    [
        ["many", "--to", "PAUSE"],
        ["many", "--to", "DRAFT"],
        ["many", "--rollout", "0%"],
        ["many", "--require-warm"],
        ["x"],
    ],
)
def test_a_step_that_cannot_be_is_one_line_and_changes_nothing(buckets, file, options, as_worded):
    assert as_worded(one_line(buckets("rules", "promote", *options, "--conf", file.conf), 1))
    assert file.rules.read_text() == RULES


def test_promote_says_whether_the_rule_is_complete_and_what_its_trial_found(buckets, file, as_worded):
    big_sum = RULES[: RULES.index("\n  - rule_id: many")]
    file.rules.write_text(big_sum)
    batch(file, 0, 5 * DAY_MS)
    file.rules.write_text(RULES.replace("90s", "12d").replace("SHADOW", "DRAFT"))
    batch(file, 1, 6 * DAY_MS)
    out = told(buckets("rules", "promote", "many", "--conf", file.conf))
    assert "what it means: it is evaluated for every event, and its alerts go to shadow_alerts only" in out
    assert "its windows: complete from 1970-01-19 00:01 (in event time), 12 d to go" in out
    batch(file, 2, 7 * DAY_MS)
    said = one_line(buckets("rules", "promote", "many", "--conf", file.conf, "--require-warm"), 1)
    assert as_worded(said)
    batch(file, 3, 19 * DAY_MS)
    write_delta(file.root / "tables", "shadow_alerts", rows("many", {"e3": "p1", "e6": "p1"}))
    out = told(buckets("rules", "promote", "many", "--conf", file.conf, "--require-warm"))
    assert "its windows: complete since 1970-01-19 00:01" in out
    assert "its trial: 2 alerts of 1 key, for events of 1970-01-01 00:00:00 to 1970-01-02 00:00:00 UTC" in out


# list


def test_list_says_since_when_each_rule_is_complete(buckets, origin, monkeypatch):
    batch(origin, 0, DAY_MS)
    told(buckets("rules", "apply", origin.new, "--conf", origin.conf))
    out = told(buckets("rules", "list", "--conf", origin.conf))
    assert "Not in force yet as it is here: the job has version 1." in out
    assert "Not in force yet." in out
    batch(origin, 1, DAY_MS + 1)
    listed = {
        each["rule_id"]: each for each in json.loads(told(buckets("rules", "list", "--conf", origin.conf, "--json")))
    }
    assert {rule_id: each["completeness"] for rule_id, each in listed.items()} == dict.fromkeys(
        ("big-sum", "many", "largest"), "complete"
    )
    assert listed["largest"]["latest_event_time"] == "1970-01-02T00:00:00.001Z"
    monkeypatch.setenv("COLUMNS", "80")
    out = told(buckets("rules", "list", "--conf", origin.conf))
    assert "The largest paymentAmount of events of the same payerId" in out
    assert "Complete." in out
    assert max(map(len, out.splitlines())) <= 80


def test_list_says_when_a_new_group_will_be_complete(buckets, file):
    batch(file, 0, DAY_MS)
    file.rules.write_text(RULES.replace("[cardId]", "[payerId, cardId]").replace("90s", "2d"))
    batch(file, 1, DAY_MS + DAY_MS // 2)
    listed = json.loads(told(buckets("rules", "list", "--conf", file.conf, "--json")))
    (many,) = (each for each in listed if each["rule_id"] == "many")
    assert many["completeness"] == "complete from 1970-01-04 00:01 (in event time), 2 d to go"
    assert many["complete_from"] == "1970-01-04T00:00:00.001Z"
    assert many["warm"] == [{"from": "1970-01-04T00:00:00.001Z", "until": None}]
    assert many["complete_since"] is None


def test_list_and_show_tell_the_policy(buckets, file):
    file.rules.write_text(f"{RULES}    cooldown: 2h\n    severity: high\n")
    said = "Severity high. At most one alert per cardId in 2h."
    assert said in told(buckets("rules", "list", "--conf", file.conf))
    assert said in told(buckets("rules", "show", file.rules))


def test_a_draft_is_listed_and_has_no_group(buckets, file):
    file.rules.write_text(RULES.replace("SHADOW", "DRAFT"))
    assert "2 rules in 1 group are valid" in told(buckets("rules", "check", file.rules))
    assert len(batch(file, 0).groups) == 1
    out = told(buckets("rules", "list", "--conf", file.conf))
    assert "DRAFT" in out
    assert "Not in force, keeps nothing." in out


# diff


def test_diff_shows_rules_and_state_of_two_versions(buckets, origin, as_worded):
    batch(origin, 0)
    told(buckets("rules", "apply", origin.new, "--conf", origin.conf))
    told(buckets("rules", "delete", "big-sum", "--conf", origin.conf))
    batch(origin, 1)
    found = json.loads(told(buckets("rules", "diff", "1", "2", "--conf", origin.conf, "--json")))
    changes = {each["rule_id"]: (each["change"], each["fields"]) for each in found["rules"]}
    assert changes == {
        "big-sum": ("gone", []),
        "largest": ("new", []),
        "many": ("changed", [{"name": "limit", "before": ">= 5", "after": ">= 7"}]),
    }
    assert [(each["name"], each["effect"]) for each in found["groups"]] == [("payerId", "shrinks")]
    out = told(buckets("rules", "diff", "1", "--conf", origin.conf))
    assert "limit: >= 5 → >= 7" in out
    assert "reaches back 1h, not 24h: older events are evicted" in out
    assert as_worded(told(buckets("rules", "diff", "2", "2", "--conf", origin.conf)))


def test_diff_takes_files_too(buckets, file):
    told(buckets("rules", "apply", file.new, "--conf", file.conf, "--dry-run"))
    assert "limit: >= 5 → >= 7" in told(buckets("rules", "diff", file.rules, file.new))
    assert "the rules are the same" in told(buckets("rules", "diff", file.rules, file.rules))
    batch(file, 0)
    out = told(buckets("rules", "diff", "1", file.new, "--conf", file.conf))
    assert "largest" in out
    assert "what is kept of events stays as it is" in out
    assert "the rules are the same" in told(buckets("rules", "diff", file.rules, "--conf", file.conf))


@pytest.mark.parametrize(
    "arguments",
    [
        ["1"],
        ["1", "9", "--conf", "CONF"],
        ["none.yaml", "1", "--conf", "CONF"],
    ],
)
def test_what_cannot_be_compared_is_one_line(buckets, file, arguments, as_worded):
    batch(file, 0)
    arguments = [file.conf if each == "CONF" else each for each in arguments]
    assert as_worded(one_line(buckets("rules", "diff", *arguments), 1))


# rollback


def test_after_a_rollback_the_rules_are_those_of_the_version_and_numbers_go_on(buckets, origin, as_worded):
    then = batch(origin, 0)
    told(buckets("rules", "apply", origin.new, "--conf", origin.conf))
    batch(origin, 1)
    told(buckets("rules", "delete", "big-sum", "--conf", origin.conf))
    told(buckets("rules", "shadow", "largest", "--conf", origin.conf))
    before = {rule.rule_id: rule.version for rule in batch(origin, 2).rules}
    dry = told(buckets("rules", "rollback", "1", "--conf", origin.conf, "--dry-run"))
    assert "dry run: 3 rules would change; nothing has been written" in dry
    out = told(buckets("rules", "rollback", "1", "--conf", origin.conf, "--author", "ann"))
    assert f"3 rules are changed in {origin.kind} {origin.rules}" in out
    now = batch(origin, 3)
    assert now.version == 4
    assert rules_that_differ(then.rules, now.rules) == []
    assert {rule.rule_id: rule.version for rule in now.rules} == {"many": before["many"] + 1, "big-sum": 2}
    assert as_worded(told(buckets("rules", "rollback", "1", "--conf", origin.conf)))
    assert "ann\nrollback to version 1" in "\n".join(
        f"{change.author}\n{change.reason}"
        for version in Checkpoint(load_job(origin.conf).checkpoint).versions.history(after=3)
        for change in version.changes
    )


def test_a_rollback_leaves_the_comments_of_a_file(buckets, file):
    batch(file, 0)
    told(buckets("rules", "promote", "many", "--conf", file.conf, "--rollout", "10%"))
    batch(file, 1)
    told(buckets("rules", "rollback", "1", "--conf", file.conf))
    assert file.rules.read_text() == f"{RULES}    rollout: 100%\n"


@pytest.mark.parametrize(
    "version",
    ["x", "2"],
)
def test_a_version_that_is_not_there_is_one_line(buckets, file, version, as_worded):
    assert as_worded(one_line(buckets("rules", "rollback", "1", "--conf", file.conf), 1))
    batch(file, 0)
    assert as_worded(one_line(buckets("rules", "rollback", version, "--conf", file.conf), 1))


# compare


@pytest.fixture
def compared(file) -> Path:
    tables = file.root / "tables"
    write_delta(tables, "alerts", rows("big-sum", {"e0": "p1", "e1": "p1", "e7": "p2"}))
    write_delta(tables, "shadow_alerts", rows("many", {"e1": "c1", "e8": "c1"}, "card"))
    return file.conf


def test_compare_tells_what_each_rule_caught(buckets, compared):
    found = json.loads(
        told(buckets("rules", "compare", "big-sum", "many", "--conf", compared, "--measure", "amount", "--json"))
    )
    assert {name: found[name]["events"] for name in ("only_a", "only_b", "both")} == {
        "only_a": 2, "only_b": 1, "both": 1,
    }  # fmt: skip
    assert found["only_a"]["amount"] == "5.75"
    assert found["only_a"]["keys"] is None
    assert [each["event_id"] for each in found["only_a"]["samples"]] == ["e7", "e0"]
    assert (found["overlap"], found["share_of_b"]) == (0.25, 0.5)
    assert sum(day["both"] for day in found["days"]) == 1
    out = told(buckets("rules", "compare", "big-sum", "many", "--output", compared.parent / "tables"))
    assert "both caught 25.0 % of all: 33.3 % of what big-sum caught, 50.0 % of what many caught" in out
    assert "other keys" in out
    out = told(buckets("rules", "compare", "big-sum", "many", "--conf", compared, "--to", "1970-01-01"))
    assert "both caught 50.0 % of all" in out


def test_compare_without_alerts_names_those_that_have_some(buckets, compared, as_worded):
    said = told(buckets("rules", "compare", "big-sum", "many", "--conf", compared, "--from", "2100-01-01"))
    assert as_worded(said)


@pytest.mark.parametrize("origin", ["--conf", "--output"])
def test_a_rule_that_there_is_not_is_no_rule_that_caught_nothing(buckets, compared, origin, as_worded):
    where = compared if origin == "--conf" else compared.parent / "tables"
    assert as_worded(one_line(buckets("rules", "compare", "big-sum", "nope", origin, where), 1))


@pytest.mark.parametrize(
    "arguments",
    [
        ["a", "a", "--conf", "CONF"],
        ["a", "b"],
        ["a", "b", "--conf", "CONF", "--from", "May"],
        ["a", "b", "--conf", "CONF", "--from", "2026-02-01", "--to", "2026-02-01"],
        ["a", "b", "--conf", "CONF"],
    ],
)
def test_what_cannot_be_compared_of_alerts_is_one_line(buckets, file, arguments, as_worded):
    arguments = [file.conf if each == "CONF" else each for each in arguments]
    assert as_worded(one_line(buckets("rules", "compare", *arguments), 1))
