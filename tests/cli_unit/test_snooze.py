"""The command `buckets snooze`: what it writes where the rules are, and what it refuses."""

from datetime import UTC, datetime, timedelta

import pytest

from buckets.events.schema import load_event_schema
from buckets.resources import DEFAULT_SCHEMA
from buckets.rule_files.yaml_rules import load_rules
from tests.cli_unit.ran import one_line
from tests.cli_unit.test_rules import RULES, Origin

NOTE = ("--reason", "moves house", "--author", "ann")


@pytest.fixture(params=["file", "folder", "table"])
def origin(request, tmp_path, buckets) -> Origin:
    found = Origin(tmp_path, request.param)
    if request.param == "table":
        (tmp_path / "old.yaml").write_text(RULES)
        assert buckets("rules", "apply", tmp_path / "old.yaml", "--conf", found.conf, "--author", "bob").code == 0
    return found


@pytest.fixture
def file(tmp_path) -> Origin:
    return Origin(tmp_path, "file")


def test_a_key_of_a_rule_is_snoozed_where_the_rules_are(origin, buckets):
    before = datetime.now(UTC).replace(microsecond=0)
    ran = buckets(
        "snooze", "--rule", "big-sum", "--key", "payerId=p-17", "--until", "24h", *NOTE, "--conf", origin.conf
    )
    assert ran.code == 0, ran.err
    assert ran.out.startswith('big-sum: alerts of payerId "p-17" are held back until ')
    assert str(origin.rules) in ran.out or origin.rules.name in ran.out
    rules = origin.read()
    (found,) = rules["big-sum"].snoozes
    assert (found.key, found.start, found.reason, found.author) == ({"payerId": "p-17"}, None, "moves house", "ann")
    assert timedelta(0) <= found.until - before - timedelta(hours=24) < timedelta(minutes=5)
    assert rules["many"].snoozes == ()
    assert buckets("rules", "list", "--conf", origin.conf).code == 0


def test_a_rule_is_snoozed_for_all_keys_between_two_times(file, buckets):
    times = ("--from", "2027-01-01", "--until", "2027-01-02T06:00+02:00")
    assert buckets("snooze", "--rule", "many", *times, *NOTE, "--conf", file.conf).code == 0
    (found,) = file.read()["many"].snoozes
    assert found.key is None
    assert found.start == datetime(2027, 1, 1, tzinfo=UTC)
    assert found.until == datetime(2027, 1, 2, 4, tzinfo=UTC)


def test_a_key_without_a_rule_is_snoozed_in_every_rule_that_groups_by_it(file, buckets):
    assert buckets("rules", "apply", file.new, "--conf", file.conf).code == 0
    key = '{"payerId": "p,17"}'
    ran = buckets("snooze", "--key", key, "--until", "2030-01-01", *NOTE, "--conf", file.conf)
    assert ran.out.startswith('big-sum, largest: alerts of payerId "p,17" are held back until 2030-01-01 00:00:00')
    snoozed = {rule_id: [each.key for each in rule.snoozes] for rule_id, rule in file.read().items()}
    assert snoozed == {"big-sum": [{"payerId": "p,17"}], "many": [], "largest": [{"payerId": "p,17"}]}


def test_snoozes_are_listed_with_who_why_and_whether_they_are_over(file, buckets):
    assert "no snoozes in file " in buckets("snooze", "--list", "--conf", file.conf).out
    for rule, until in (("big-sum", "2020-01-01"), ("many", "2999-01-01")):
        assert buckets("snooze", "--rule", rule, "--until", until, *NOTE, "--conf", file.conf).code == 0
    later = ("--from", "2998-01-01", "--until", "2999-01-01")
    buckets("snooze", "--rule", "big-sum", "--key", "payerId=p", *later, *NOTE, "--conf", file.conf)
    listed = buckets("snooze", "--list", "--conf", file.conf).out.splitlines()
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in listed if line.startswith("│")]
    assert sorted(rows) == [
        ["big-sum", "all keys", "", "2020-01-01 00:00:00", "over", "ann", "moves house"],
        ["big-sum", 'payerId "p"', "2998-01-01 00:00:00", "2999-01-01 00:00:00", "to come", "ann", "moves house"],
        ["many", "all keys", "", "2999-01-01 00:00:00", "in force", "ann", "moves house"],
    ]
    of_key = buckets("snooze", "--list", "--key", "payerId=p", "--conf", file.conf).out
    assert "big-sum" in of_key
    assert "many" not in of_key
    assert "to come" in of_key


def test_a_snooze_is_ended_and_one_that_has_not_begun_goes(origin, buckets, as_worded):
    rule = ("--rule", "big-sum", "--conf", origin.conf)
    buckets("snooze", "--until", "2999-01-01", *rule, *NOTE)
    buckets("snooze", "--from", "2998-01-01", "--until", "2999-01-01", *rule, *NOTE)
    buckets("snooze", "--key", "payerId=p", "--until", "2999-01-01", *rule, *NOTE)
    ran = buckets("snooze", "--end", *rule, "--reason", "has moved", "--author", "eve")
    assert ran.code == 0, ran.err
    assert ran.out.startswith("big-sum: snoozes of all keys end at 20")
    ended, other = origin.read()["big-sum"].snoozes
    assert ended.until <= datetime.now(UTC)
    assert (ended.key, ended.author) == (None, "ann")
    assert other.until == datetime(2999, 1, 1, tzinfo=UTC)
    assert as_worded(one_line(buckets("snooze", "--end", *rule, *NOTE), 1))


WRONG = [
    ("--until", "24h"),
    ("--rule", "many"),
    ("--rule", "many", "--until", "soon"),
    ("--rule", "many", "--until", "9999-12-31T23:59:59-05:00"),
    ("--rule", "many", "--key", "cardId=1", "--key", "cardId=2", "--until", "1h"),
    ("--list", "--end"),
    ("--rule", "x", "--until", "1h"),
    ("--rule", "many", "--until", "1h", "--reason", ""),
    ("--rule", "many", "--until", "2998-01-01", "--from", "2999-01-01"),
    ("--rule", "many", "--key", "payerId=p", "--until", "1h"),
    ("--key", "cardId=1,payerId=2", "--until", "1h"),
    ("--rule", "many", "--key", "cardId", "--until", "1h"),
    ("--rule", "many", "--key", '{"cardId": 1.5}', "--until", "1h"),
    ("--rule", "many", "--key", '{"cardId"', "--until", "1h"),
    ("--rule", "many", "--key", '{"cardId": 5}', "--until", "1h"),
]


@pytest.mark.parametrize("options", WRONG)
def test_what_cannot_be_done_is_said_in_one_line_and_changes_nothing(file, buckets, options, as_worded):
    before = file.rules.read_text()
    assert as_worded(one_line(buckets("snooze", *NOTE, *options, "--conf", file.conf), 1))
    assert file.rules.read_text() == before


def test_the_snoozes_of_a_file_are_rules_that_a_job_reads(file, buckets):
    buckets("snooze", "--rule", "big-sum", "--key", "payerId=017", "--until", "2030-01-01", *NOTE, "--conf", file.conf)
    rules = load_rules(file.rules, load_event_schema(DEFAULT_SCHEMA))
    assert [each.key for rule in rules for each in rule.snoozes] == [{"payerId": "017"}]
    assert "# agreed on in May" in file.rules.read_text()


def test_one_snooze_after_another_keeps_the_file_as_it_is_written(file, buckets):
    for key in ("a", "b", "c"):
        times = ("--from", "2027-01-01", "--until", "2027-01-02")
        assert buckets("snooze", "--key", f"payerId={key}", *times, *NOTE, "--conf", file.conf).code == 0
    text = file.rules.read_text()
    assert text.count("\n  - rule_id: ") == 2
    lines = [line.strip() for line in text.splitlines() if "moves house" in line and line.strip().startswith("- ")]
    assert len(lines) == 3
    assert "# agreed on in May" in text
