"""The commands that read and change the rules of a job, where they are in a file, a folder or a table."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from deltalake import DeltaTable

from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.record_files import BackfillRequests
from buckets.config.engine import EngineSettings
from buckets.config.job import load_job
from buckets.exit_codes import MISUSED
from buckets.feeds.rules.history import RuleHistory, rule_changes_path
from buckets.feeds.rules.rule_book import RuleBook
from buckets.resources import DEFAULT_SCHEMA, resource
from buckets.rule_files.differences import difference
from buckets.rule_files.yaml_rules import load_rules
from buckets.rules.rule import Rule
from tests.cli_unit.ran import Ran, one_line
from tests.fixed_rules import FixedRules

RULES = """\
rules:
  # agreed on in May
  - rule_id: big-sum
    group_by: [payerId]
    aggregate: {function: sum, measure: paymentAmount}
    window: {length: 24h}
    limit: {operator: ">", value: "200000"}

  - rule_id: many
    group_by: [cardId]
    state: SHADOW  # on trial
    aggregate: {function: count}
    window: {length: 90s}
    limit: {operator: ">=", value: 5}
"""
NEW = """\
rules:
  - rule_id: many
    group_by: [cardId]
    state: SHADOW
    aggregate: {function: count}
    window: {length: 90s}
    limit: {operator: ">=", value: 7}
  - rule_id: big-sum
    group_by: [payerId]
    aggregate: {function: sum, measure: paymentAmount}
    window: {length: 24h}
    limit: {operator: ">", value: "200000"}
  - rule_id: largest
    group_by: [payerId]
    aggregate: {function: max, measure: paymentAmount}
    window: {length: 1h}
    limit: {operator: ">", value: "9000"}
"""


class Origin:
    """A configuration, and the origin of its rules."""

    def __init__(self, root: Path, kind: str) -> None:
        self.root = root
        self.kind = kind
        self.conf = root / "conf.yaml"
        self.rules = root / {"file": "rules.yaml", "folder": "rules", "table": "table"}[kind]
        self.new = root / "new.yaml"
        self.new.write_text(NEW)
        (root / "source").mkdir()
        settings: dict[str, Any] = {
            "source": {"kind": "json", "path": "source"},
            "schema": str(DEFAULT_SCHEMA),
            "rules": {"table": "table"} if kind == "table" else self.rules.name,
            "checkpoint": "checkpoint",
            "output": {"path": "tables"},
        }
        self.conf.write_text(yaml.safe_dump(settings))
        if kind == "folder":
            self.rules.mkdir()
            (self.rules / "a.yaml").write_text(RULES)
        if kind == "file":
            self.rules.write_text(RULES)

    def read(self) -> dict[str, Rule]:
        """The rules that are in force by what stands there."""
        if self.kind == "table":
            rows = DeltaTable(self.rules).to_pyarrow_table().to_pylist()
            rules = [Rule.model_validate_json(row["rule"]) for row in rows]
        else:
            files = [self.rules] if self.kind == "file" else sorted(self.rules.glob("*.yaml"))
            rules = [rule for file in files for rule in load_rules(file)]
        return {rule.rule_id: rule for rule in rules if rule.state != "DELETE"}


@pytest.fixture
def make(tmp_path, buckets) -> Callable[[str], Origin]:
    def make(kind: str) -> Origin:
        origin = Origin(tmp_path, kind)
        if kind == "table":
            old = tmp_path / "old.yaml"
            old.write_text(RULES)
            assert buckets("rules", "apply", old, "--conf", origin.conf, "--author", "ann").code == 0
        return origin

    return make


@pytest.fixture(params=["file", "folder", "table"])
def origin(request, make) -> Origin:
    return make(request.param)


@pytest.fixture
def file(make) -> Origin:
    return make("file")


@pytest.fixture
def table(make) -> Origin:
    return make("table")


def told(ran: Ran) -> str:
    assert (ran.code, ran.err) == (0, "")
    return ran.out


def test_the_schema_of_a_rule_file_knows_the_fields(buckets):
    known = json.loads(told(buckets("rules", "schema", "--schema", DEFAULT_SCHEMA)))
    assert "payerId" in known["$defs"]["rule"]["properties"]["group_by"]["items"]["enum"]
    unknown = json.loads(told(buckets("rules", "schema")))
    assert "enum" not in unknown["$defs"]["rule"]["properties"]["group_by"]["items"]


COMMANDS = ("list", "apply", "pause", "resume", "shadow", "delete", "history", "export", "clear-state")
COMMANDS += ("clear-all-state", "delete-all")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_has_examples_that_begin_with_it(buckets, command):
    examples = told(buckets("rules", command, "--help")).partition("Examples:\n")[2]
    assert examples.strip().startswith(f"buckets rules {command}")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_without_a_configuration_is_one_line(buckets, command, tmp_path, as_worded):
    rule = {"apply": ["f"], "pause": ["r"], "resume": ["r"], "shadow": ["r"], "delete": ["r"], "clear-state": ["r"]}
    arguments = rule.get(command, [])
    assert "--conf" in one_line(buckets("rules", command, *arguments), 2)
    none = tmp_path / "none.yaml"
    said = one_line(buckets("rules", command, *arguments, "--conf", none), MISUSED)
    assert as_worded(said)


# States


@pytest.mark.parametrize(("command", "state"), [("pause", "PAUSE"), ("resume", "ACTIVE"), ("shadow", "SHADOW")])
def test_a_rule_gets_a_state_and_the_others_stay_as_they_are(buckets, origin, command, state):
    before = origin.read()
    for rule_id in before:
        ran = buckets("rules", command, rule_id, "--conf", origin.conf)
        if before[rule_id].state == state:
            assert f"{rule_id} is {state} already in {origin.kind} {origin.rules}" in told(ran)
        else:
            said = f"{rule_id}: {before[rule_id].state} until now, {state} from the next batch on; written to"
            assert said in told(ran)
    after = origin.read()
    assert {rule.state for rule in after.values()} == {state}
    for rule_id, rule in after.items():
        assert difference(before[rule_id], rule) in ("", f"state: {before[rule_id].state} → {state}")


def test_a_rule_is_deleted_and_comes_again(buckets, origin, as_worded):
    told(buckets("rules", "delete", "many", "--conf", origin.conf))
    assert set(origin.read()) == {"big-sum"}
    told(buckets("rules", "delete", "big-sum", "--conf", origin.conf))
    assert origin.read() == {}
    assert as_worded(told(buckets("rules", "list", "--conf", origin.conf)))
    told(buckets("rules", "apply", origin.new, "--conf", origin.conf))
    assert set(origin.read()) == {"many", "big-sum", "largest"}


def test_only_the_line_of_the_state_changes_in_a_file(buckets, file):
    told(buckets("rules", "resume", "many", "--conf", file.conf))
    assert file.rules.read_text() == RULES.replace("SHADOW", "ACTIVE")
    told(buckets("rules", "pause", "big-sum", "--conf", file.conf))
    expected = RULES.replace("SHADOW", "ACTIVE").replace("big-sum\n", "big-sum\n    state: PAUSE\n")
    assert file.rules.read_text() == expected


@pytest.mark.parametrize("command", ["pause", "resume", "shadow", "delete"])
def test_a_rule_that_is_not_there_is_one_line_with_those_that_are(buckets, origin, command, as_worded):
    said = one_line(buckets("rules", command, "x", "--conf", origin.conf), 1)
    assert as_worded(said)


def test_a_table_keeps_who_and_why_also_of_a_deletion(buckets, table):
    told(buckets("rules", "delete", "many", "--conf", table.conf, "--author", "bob", "--reason", "old"))
    rows = {row["rule_id"]: row for row in DeltaTable(table.rules).to_pyarrow_table().to_pylist()}
    assert (rows["many"]["author"], rows["many"]["reason"]) == ("bob", "old")
    assert (rows["big-sum"]["author"], rows["big-sum"]["reason"]) == ("ann", "")
    assert "bob" not in told(buckets("rules", "list", "--conf", table.conf))


def test_a_change_is_made_by_the_one_who_is_logged_in(buckets, table, monkeypatch):
    monkeypatch.setattr("getpass.getuser", lambda: "carol")
    told(buckets("rules", "pause", "many", "--conf", table.conf))
    assert "carol" in told(buckets("rules", "list", "--conf", table.conf))


def test_a_file_too_keeps_who_changed_a_rule_and_why(buckets, file):
    told(buckets("rules", "pause", "many", "--conf", file.conf, "--author", "dora", "--reason", "noise"))
    listed = told(buckets("rules", "list", "--conf", file.conf))
    assert ("dora" in listed, "noise" in listed) == (True, True)


@pytest.mark.parametrize("option", ["--author", "--reason"])
def test_a_text_that_is_too_long_is_one_line(buckets, table, option, as_worded):
    said = one_line(buckets("rules", "pause", "many", "--conf", table.conf, option, "x" * 2001), 1)
    assert as_worded(said)


# apply


def test_apply_shows_what_changes_and_changes_it(buckets, origin):
    out = told(buckets("rules", "apply", origin.new, "--conf", origin.conf))
    cells = [[cell.strip() for cell in line.split("│")] for line in out.splitlines() if "│" in line]
    rows = {rule_id: [change, what] for _, rule_id, change, what, _ in cells}
    assert rows["big-sum"] == ["unchanged", ""]
    assert rows["many"] == ["changed", "limit: >= 5 → >= 7"]
    assert rows["largest"][0] == "new"
    assert rows["largest"][1].startswith("The largest paymentAmount of events of the same payerId")
    assert f"2 of 3 rules are changed in {origin.kind} {origin.rules}" in out
    wanted = {rule.rule_id: rule for rule in load_rules(origin.new)}
    assert {rule_id: rule.limit for rule_id, rule in origin.read().items()} == {
        rule_id: rule.limit for rule_id, rule in wanted.items()
    }


def test_apply_with_backfill_asks_the_job_for_the_history_of_the_rules_of_the_file(buckets, origin, as_worded):
    refused = one_line(buckets("rules", "apply", origin.new, "--conf", origin.conf, "--backfill"), 1)
    assert as_worded(refused)
    settings = yaml.safe_load(origin.conf.read_text())
    origin.conf.write_text(yaml.safe_dump(settings | {"archive": {"path": "archive"}}))
    refused = one_line(buckets("rules", "apply", origin.new, "--conf", origin.conf, "--backfill"), 1)
    assert as_worded(refused)
    job = load_job(origin.conf)
    book = RuleBook(Checkpoint(job.checkpoint), FixedRules([]), job.event_schema, EngineSettings())
    book.for_batch(0)
    out = told(buckets("rules", "apply", origin.new, "--conf", origin.conf, "--backfill", "--reason", "new"))
    assert "asked to fill in the history of big-sum, largest, many" in out
    asked = BackfillRequests(job.checkpoint).read()
    assert [(each.rule.rule_id, each.reason) for each in asked] == [
        ("big-sum", "new"),
        ("largest", "new"),
        ("many", "new"),
    ]
    listed = json.loads(told(buckets("rules", "list", "--conf", origin.conf, "--json")))
    assert [len(each["backfill"]) for each in listed] == [1, 1, 1]


def test_apply_twice_is_apply_once(buckets, origin):
    told(buckets("rules", "apply", origin.new, "--conf", origin.conf))
    before = origin.read()
    assert "0 of 3 rules are changed" in told(buckets("rules", "apply", origin.new, "--conf", origin.conf))
    assert origin.read() == before


def test_a_rule_with_features_is_applied_once_however_its_filters_are_written(buckets, file):
    features = WITH_FEATURES["features"] | {"few": {"function": "count", "window": "1m", "where": "cardId = 'a'"}}
    rule = WITH_FEATURES | {"where": "paymentType = 'CRD'", "features": features}
    file.new.write_text(yaml.safe_dump({"rules": [rule]}))
    assert "1 of 1 rules are changed" in told(buckets("rules", "apply", file.new, "--conf", file.conf))
    assert "0 of 1 rules are changed" in told(buckets("rules", "apply", file.new, "--conf", file.conf))
    file.new.write_text(
        yaml.safe_dump({"rules": [rule | {"when": "recent > 7 * usual", "where": {"paymentType": "CRD"}}]})
    )
    out = told(buckets("rules", "apply", file.new, "--conf", file.conf))
    assert "when: recent > 5 * usual → recent > 7 * usual" in out
    assert "where" not in out


COMMENTED = """\
rules:
  # Looked at in May.
  - rule_id: spike
    group_by: [payerId]       # default of its features
    features:
      # what is new
      recent: {function: sum, of: paymentAmount, window: 1h}     # an hour
      usual:                  # what is not
        function: avg
        of: paymentAmount
        window: 30d
    # five times
    when: recent > 5 * usual  # no less
  - rule_id: other            # untouched
    group_by: []
    aggregate: {function: count}
    window: {length: 1h}
    limit: {operator: ">", value: 9}
"""


def test_apply_keeps_the_comments_of_a_rule_with_features(buckets, file):
    file.rules.write_text(COMMENTED)
    features = WITH_FEATURES["features"] | {
        "recent": {"function": "sum", "of": "paymentAmount", "window": "2h", "where": "length(cardId) > 3"},
        "z": {"function": "count", "window": "1m"},
        "a": {"function": "is_first", "window": "1m", "group_by": ["cardId"]},
    }
    rule = WITH_FEATURES | {"features": features, "when": "recent > 6 * usual AND a"}
    file.new.write_text(yaml.safe_dump({"rules": [rule]}, sort_keys=False))
    assert "1 of 1 rules are changed" in told(buckets("rules", "apply", file.new, "--conf", file.conf))
    wanted = COMMENTED.replace("window: 1h}     #", "window: 2h, where: length(cardId) > 3}     #")
    wanted = wanted.replace("5 * usual  #", "6 * usual AND a  #").replace(
        "        window: 30d\n",
        "        window: 30d\n      z: {function: count, window: 1m}\n"
        "      a: {function: is_first, window: 1m, group_by: [cardId]}\n",
    )
    assert file.rules.read_text() == wanted


def test_a_rule_that_loses_a_feature_is_written_whole_and_the_others_stay(buckets, file):
    file.rules.write_text(COMMENTED)
    rule = WITH_FEATURES | {"features": {"recent": WITH_FEATURES["features"]["recent"]}, "when": "recent > 6"}
    file.new.write_text(yaml.safe_dump({"rules": [rule]}))
    told(buckets("rules", "apply", file.new, "--conf", file.conf))
    assert load_rules(file.rules)[0] == Rule.model_validate(rule)
    text = file.rules.read_text()
    assert text.startswith("rules:\n  # Looked at in May.\n  - rule_id: spike\n")
    assert text.endswith(COMMENTED[COMMENTED.index("  - rule_id: other") :])


def test_check_counts_the_groups_of_features_too_and_takes_a_folder(buckets, as_worded):
    schema, rules = resource("schemas/card-payment.yaml"), resource("conf/rules")
    one = rules / "hour-against-month.yaml"
    assert as_worded(told(buckets("rules", "check", one, "--schema", schema)))
    of_folder = buckets("rules", "check", rules, "--schema", schema, "--strict")
    assert of_folder.code == 0
    assert as_worded(of_folder.out)
    assert "countries is above 3" in buckets("rules", "show", rules).out


def test_a_dry_run_changes_nothing(buckets, origin):
    before = origin.read()
    out = told(buckets("rules", "apply", origin.new, "--conf", origin.conf, "--dry-run"))
    assert "dry run: 2 of 3 rules would change; nothing has been written" in out
    assert origin.read() == before


def test_apply_keeps_the_rest_of_a_file(buckets, file):
    told(buckets("rules", "apply", file.new, "--conf", file.conf))
    text = file.rules.read_text()
    assert text.startswith(RULES[: RULES.index("  - rule_id: many")])
    assert "value: '7'" in text


def test_new_rules_have_a_file_of_their_own_in_a_folder(buckets, make, as_worded):
    folder = make("folder")
    told(buckets("rules", "apply", folder.new, "--conf", folder.conf))
    assert [rule.rule_id for rule in load_rules(folder.rules / "new.yaml")] == ["largest"]
    other = folder.new.rename(folder.root / "new.txt")
    other.write_text(NEW.replace("largest", "newest"))
    said = one_line(buckets("rules", "apply", other, "--conf", folder.conf)._replace(out=""), 1)
    assert as_worded(said)


def test_a_rule_that_is_applied_as_deleted_goes(buckets, origin):
    origin.new.write_text(NEW.replace("state: SHADOW", "state: DELETE"))
    assert "deleted" in told(buckets("rules", "apply", origin.new, "--conf", origin.conf))
    assert set(origin.read()) == {"big-sum", "largest"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("90s", "soon"),
        ("max, measure: paymentAmount", "max, measure: total"),
        ("rule_id: largest", "rule_id: many"),
    ],
)
def test_nothing_is_written_unless_all_is_valid(buckets, origin, old, new, as_worded):
    before = origin.read()
    origin.new.write_text(NEW.replace(old, new))
    assert as_worded(one_line(buckets("rules", "apply", origin.new, "--conf", origin.conf), 1))
    assert origin.read() == before


def test_a_version_that_cannot_be_is_one_line(buckets, origin, as_worded):
    origin.new.write_text(NEW.replace("rule_id: largest", "rule_id: largest\n    version: 2147483648"))
    said = one_line(buckets("rules", "apply", origin.new, "--conf", origin.conf), 1)
    assert as_worded(said)


def test_apply_makes_the_table_where_there_is_none(buckets, tmp_path):
    origin = Origin(tmp_path, "table")
    told(buckets("rules", "apply", origin.new, "--conf", origin.conf))
    assert len(origin.read()) == 3


def test_something_else_in_the_place_of_the_table_is_one_line(buckets, tmp_path, as_worded):
    origin = Origin(tmp_path, "table")
    origin.rules.mkdir()
    said = one_line(buckets("rules", "apply", origin.new, "--conf", origin.conf), 1)
    assert as_worded(said)


# list, export


def test_list_shows_each_rule_in_english(buckets, origin):
    out = told(buckets("rules", "list", "--conf", origin.conf))
    assert f"2 rules of {origin.kind}" in out
    for words in ("big-sum", "SHADOW", "The sum of", "is above 200,000"):
        assert words in out


def test_an_export_can_be_applied_elsewhere(buckets, origin, tmp_path):
    out = tmp_path / "out" / "rules.yaml"
    told(buckets("rules", "apply", origin.new, "--conf", origin.conf))
    assert f"3 rules of {origin.kind}" in told(buckets("rules", "export", "--conf", origin.conf, "--out", out))
    assert {rule.rule_id: rule for rule in load_rules(out)} == origin.read()
    assert told(buckets("rules", "export", "--conf", origin.conf)) == out.read_text()
    assert "0 of 3 rules are changed" in told(buckets("rules", "apply", out, "--conf", origin.conf))


def test_export_replaces_no_file(buckets, file, as_worded):
    said = one_line(buckets("rules", "export", "--conf", file.conf, "--out", file.rules), 1)
    assert as_worded(said)
    assert file.rules.read_text() == RULES


# Messages to the running job


@pytest.mark.parametrize("command", [["clear-state", "many"], ["clear-all-state"], ["delete-all"]])
def test_messages_to_the_job_need_a_topic(buckets, origin, command, as_worded):
    said = one_line(buckets("rules", *command, "--conf", origin.conf), 1)
    assert as_worded(said)


# history


def run_job(origin: Origin, rules: list[Rule], batch_id: int, with_table: bool) -> None:
    """A batch of the job, as far as rules are concerned."""
    job = load_job(origin.conf)
    checkpoint = Checkpoint(job.checkpoint)
    history = RuleHistory(checkpoint.versions, rule_changes_path(job), "me") if with_table else None
    book = RuleBook(
        checkpoint, FixedRules(rules), job.event_schema, EngineSettings(allowed_lateness="0ms"), history=history
    )
    book.start()
    book.done(batch_id, book.for_batch(batch_id), ())
    book.stop()


@pytest.mark.parametrize("with_table", [True, False], ids=["table", "checkpoint"])
def test_history_shows_what_changed_newest_first(buckets, file, with_table, as_worded):
    assert as_worded(told(buckets("rules", "history", "--conf", file.conf)))
    run_job(file, list(load_rules(file.rules)), 0, with_table)
    run_job(file, list(load_rules(file.new)), 1, with_table)
    assert rule_changes_path(load_job(file.conf)).exists() is with_table
    out = told(buckets("rules", "history", "--conf", file.conf))
    assert "4 of 4 changes, newest first" in out
    assert out.index("largest") < out.index(">= 5 → >= 7") < out.index("The number of events")
    assert "1 of 2 changes of rule many" in told(buckets("rules", "history", "many", "--conf", file.conf, "--limit", 1))
    assert as_worded(told(buckets("rules", "history", "x", "--conf", file.conf)))


def test_history_has_what_is_not_in_the_table_yet(buckets, file):
    run_job(file, list(load_rules(file.rules)), 0, with_table=True)
    run_job(file, list(load_rules(file.new)), 1, with_table=False)
    assert "4 of 4 changes" in told(buckets("rules", "history", "--conf", file.conf))


# Words


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"version": 7}, ""),
        ({"state": "PAUSE"}, "state: ACTIVE → PAUSE"),
        ({"group_by": []}, "group_by: payerId → all events"),
        ({"window": {"length": "1h", "left": "open"}}, "window: 24h → 1h open"),
        ({"where": {"paymentType": "CRD"}}, 'where: none → {"paymentType": "CRD"}'),
        ({"aggregate": {"function": "count"}}, "aggregate: sum paymentAmount → count"),
        ({"description": "x", "limit": {"operator": "<", "value": 1}}, "description: none → x; limit: > 200000 → < 1"),
    ],
)
def test_a_difference_names_the_fields(changes, said):
    written = yaml.safe_load(RULES)["rules"][0]
    before, after = Rule.model_validate(written), Rule.model_validate(written | changes)
    assert difference(before, after) == said


WITH_FEATURES = {
    "rule_id": "spike",
    "group_by": ["payerId"],
    "features": {
        "recent": {"function": "sum", "of": "paymentAmount", "window": "1h"},
        "usual": {"function": "avg", "of": "paymentAmount", "window": "30d"},
    },
    "when": "recent > 5 * usual",
}


def test_a_difference_names_each_feature():
    features = WITH_FEATURES["features"] | {"recent": {"function": "count", "window": "1h", "where": "cardId = 'a'"}}
    before = Rule.model_validate(WITH_FEATURES)
    after = Rule.model_validate(WITH_FEATURES | {"features": features, "when": "recent > 5"})
    assert difference(before, after) == (
        "features.recent: {function: sum, of: paymentAmount, window: 1h} → "
        "{function: count, window: 1h, where: cardId = 'a'}; when: recent > 5 * usual → recent > 5"
    )


def test_a_difference_of_two_forms_names_the_fields_of_both():
    before, after = Rule.model_validate(yaml.safe_load(RULES)["rules"][0]), Rule.model_validate(WITH_FEATURES)
    said = difference(before, after)
    assert "window: 24h → none; " in said
    assert "features.usual: none → {function: avg, of: paymentAmount, window: 30d}; " in said
    assert said.endswith("when: none → recent > 5 * usual")
