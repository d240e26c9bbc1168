"""Tests beside rules: what passes, what fails and how it is said, and what is refused."""

import json
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from buckets.cli.result_file import junit_report
from buckets.config.engine import EngineSettings
from buckets.errors import BucketsError
from buckets.events import conversion
from buckets.events.schema import EventSchema, load_event_schema
from buckets.resources import DEFAULT_SCHEMA, DEMO_RULES, resource
from buckets.rule_files.rule_tests import (
    Expected,
    ExpectedAlert,
    ExpectedHeld,
    ExpectedValue,
    RuleTest,
    rule_file_schema,
)
from buckets.rule_files.yaml_editor import RuleText
from buckets.rule_files.yaml_rules import RuleFile, load_rule_file, load_rules, read_rule_files
from buckets.rule_tests.given_events import START_MS, given_events
from buckets.rule_tests.tester import RuleTester, RuleTestOutcome, untested
from buckets.yaml_dialect import read_yaml
from tests.docs.blocks import section

CARDS = load_event_schema(resource("schemas/card-payment.yaml"))
PAYMENTS = load_event_schema(DEFAULT_SCHEMA)
RULES = """\
rules:
  - rule_id: payer-24h
    group_by: [payerId]
    aggregate: {function: sum, measure: paymentAmount}
    window: {length: 24h}
    limit: {operator: ">", value: "100"}
  - rule_id: twice
    group_by: [payerId]
    features:
      payments: {function: count, window: 1h}
      usual: {function: previous, of: paymentAmount, window: 1h}
      fresh: {function: is_first, window: 1h}
    when: payments >= 2
"""
EVERYTHING = f"""\
{RULES}
tests:
  - name: everything that may be expected
    defaults: {{payerId: p1}}
    given:
      - {{transactionId: first, paymentAmount: 60, at: 1h}}
      - {{paymentAmount: 40.01, at: 2h}}
      - {{transactionId: first, paymentAmount: 60, at: 1h}}
      - {{paymentAmount: 1, at: 1h + 30m}}
      - {{paymentAmount: much, at: 3h}}
      - {{paymentAmount: 5, at: 2h}}
      - {{payerId: null, paymentAmount: 5, at: 2h}}
    expect:
      alerts:
        - event: 2
          rule: payer-24h
          value: 100.01
          lower: 100.01
          upper: 100.01
          count: 2
          exact: true
          warm: true
          certain: true
          key: {{payerId: p1}}
          condition: The sum of paymentAmount over the last 24h (100.01) is above 100
        - event: 2
          rule: twice
          features: {{payments: 2, usual: 60.00, fresh: false}}
          condition: payments (2) is at least 2
      values:
        - {{event: first, rule: payer-24h, value: 60, lower: 60, upper: 60, count: 1, exact: true, warm: true,
           fired: false}}
        - {{event: 1, rule: twice, features: {{payments: 1, usual: null, fresh: true}}, fired: false}}
      late_events: [4]
      duplicates: [first]
      dead_letters: [5]
      collisions_not_kept: [6]
      no_key: [7]
"""
QUIET = """\
rules:
  - rule_id: quiet
    group_by: [payerId]
    where: payerId IN LIST watched AND lookup(watched, payerId, 'class') = 'a'
    aggregate: {function: count}
    window: {length: 24h}
    limit: {operator: ">=", value: 1}
    cooldown: 1h
    severity: high
    score: 5
tests:
  - name: one alert an hour of a payer on the list
    lists: {watched: [{key: p1, class: a}, {key: p2, class: b}, p3]}
    defaults: {payerId: p1, paymentAmount: 1}
    given:
      - {at: 0s}
      - {at: 59m}
      - {at: 1h}
      - {payerId: p2, at: 1h}
      - {payerId: p3, at: 1h}
    expect:
      alerts:
        - {event: 1, severity: high, score: 5, held_back: 0}
        - {event: 3, held_back: 1}
      held_alerts:
        - {event: 2, held_by: cooldown, held_back: 0, count: 2}
"""
ENGINE = EngineSettings(collision="keep_first")


def written(folder: Path, text: str) -> Path:
    file = folder / "rules.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def outcomes(file: RuleFile, schema: EventSchema = PAYMENTS, engine: EngineSettings = ENGINE) -> list[RuleTestOutcome]:
    tester = RuleTester(file, schema, engine)
    return [tester.run(index) for index in range(len(file.tests))]


def run(
    folder: Path, text: str, schema: EventSchema = PAYMENTS, engine: EngineSettings = ENGINE
) -> list[RuleTestOutcome]:
    return outcomes(load_rule_file(written(folder, text), schema), schema, engine)


def failures(folder: Path, text: str) -> list[str]:
    (outcome,) = run(folder, text)
    return [f"{each.line}: {each.text}" for each in outcome.failures]


def refused(folder: Path, text: str) -> str:
    with pytest.raises(BucketsError) as error:
        run(folder, text)
    prefix = f"rule file {folder / 'rules.yaml'}:"
    assert error.value.message.startswith(prefix)
    return error.value.message.removeprefix(prefix)


OF_BINS = """\
rules:
  - rule_id: a-card-range
    group_by: [bin]
    aggregate: {function: sum, measure: paymentAmount}
    window: {length: 1h}
    limit: {operator: ">", value: 100}
tests:
  - name: cards of one range
    defaults: {paymentAmount: 60}
    given:
      - {cardId: "41234567", at: 0s}
      - {cardId: "41234599", at: 1m}
      - {cardId: "51234599", at: 2m}
    expect:
      alerts: [{event: 2, key: {bin: "412345"}}]
"""


def test_derived_fields_are_computed_in_tests_and_not_given(tmp_path):
    schema = EventSchema.model_validate(PAYMENTS.model_dump() | {"derive": {"bin": "substring(cardId, 1, 6)"}})
    (outcome,) = run(tmp_path, OF_BINS, schema)
    assert not outcome.failures
    with pytest.raises(BucketsError) as caught:
        run(tmp_path, OF_BINS.replace('cardId: "51234599"', "bin: x"), schema)
    assert caught.value.message.endswith("bin: is derived from other fields; leave it out, and give those")


@pytest.mark.parametrize(
    ("path", "schema"),
    [
        (resource("conf/rules"), CARDS),
        *((resource(f"conf/rules/{family}"), CARDS) for family in ("accounts", "alerts", "amounts", "cards")),
        (resource("conf/rules/logins"), load_event_schema(resource("schemas/login.yaml"))),
        (resource("conf/rules/indicators"), load_event_schema(resource("schemas/account-activity.yaml"))),
        (resource("conf/typologies"), CARDS),
        (DEMO_RULES, PAYMENTS),
    ],
)
def test_the_rules_that_come_with_the_project_pass_their_tests_and_none_lacks_one(path, schema):
    for file in read_rule_files(path, schema):
        assert untested(file) == []
        assert {each.status for each in outcomes(file, schema, EngineSettings())} == {"passed"}, file.path


def test_each_rule_of_conf_has_a_test_where_it_fires_and_one_where_it_just_does_not():
    for file in read_rule_files(resource("conf/rules"), CARDS):
        fires = [bool(test.expect.alerts) for test in file.tests]
        assert True in fires
        assert False in fires, file.path


def test_everything_that_may_be_expected_passes(tmp_path):
    (outcome,) = run(tmp_path, EVERYTHING)
    assert outcome == RuleTestOutcome(outcome.name, str(tmp_path / "rules.yaml"), 16, ("payer-24h", "twice"), ())


def test_everything_names_every_field_of_an_expectation(tmp_path):
    every, quiet = (load_rule_file(written(tmp_path, text)).tests[0].expect for text in (EVERYTHING, QUIET))
    assert set(Expected.model_fields) == every.model_fields_set | quiet.model_fields_set
    for model, entries in (
        (ExpectedAlert, (*every.alerts, *quiet.alerts)),
        (ExpectedValue, every.values),
        (ExpectedHeld, (*every.alerts, *quiet.alerts, *quiet.held_alerts)),
    ):
        assert set(model.model_fields) == set().union(*(each.model_fields_set for each in entries))


def test_what_policies_hold_back_and_what_stands_in_lists_may_be_expected(tmp_path):
    (outcome,) = run(tmp_path, QUIET)
    assert outcome.status == "passed", outcome


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("        - {event: 2, held_by: cooldown, held_back: 0, count: 2}", "        []"),
        ("held_by: cooldown", "held_by: snooze"),
        ("class: a}", "class: b}"),
    ],
)
def test_a_wrong_expectation_of_policies_and_lists_fails(tmp_path, old, new, as_worded):
    (outcome,) = run(tmp_path, QUIET.replace(old, new))
    assert outcome.status == "failed"
    assert as_worded("\n".join(failure.text for failure in outcome.failures))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{watched:", "{other:"),
        ("key: p2", "key: p1"),
        ("{key: p2, class: b}", "{class: b}"),
    ],
)
def test_a_list_that_is_none_is_refused_in_one_line(tmp_path, old, new, as_worded):
    with pytest.raises(BucketsError, check=as_worded) as error:
        run(tmp_path, QUIET.replace(old, new))
    assert "rules.yaml:1" in error.value.message
    assert "\n" not in error.value.message


def otherwise(value: Any) -> Any:
    """Something else than was expected."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, Decimal | int):
        return value + 1
    if isinstance(value, str):
        return value + "."
    return Decimal(7) if value is None else {name: otherwise(each) for name, each in value.items()}


def mutations(expected: Expected) -> Iterator[tuple[str, Expected]]:
    """The same expectation with one thing changed."""
    for name in ("alerts", "held_alerts", "values"):
        entries = getattr(expected, name) or ()
        for at, entry in enumerate(entries):
            for field in sorted(entry.model_fields_set - {"event", "rule"}):
                changes = [{field: otherwise(getattr(entry, field))}]
                if field == "features":
                    said = entry.features
                    others = {
                        name: otherwise(value) if isinstance(value, bool) else f"{value or 7}1"
                        for name, value in said.items()
                    }
                    changes = [{field: said | {name: other}} for name, other in others.items()]
                for change in changes:
                    mutated = entry.model_copy(update=change)
                    changed = expected.model_copy(update={name: (*entries[:at], mutated, *entries[at + 1 :])})
                    yield f"{name}[{at}].{field}", changed
    for at in range(len(expected.alerts or ())):
        assert expected.alerts is not None
        fewer = (*expected.alerts[:at], *expected.alerts[at + 1 :])
        yield f"no alerts[{at}]", expected.model_copy(update={"alerts": fewer})
    if expected.alerts == ():
        more = ExpectedAlert.model_validate({"event": 1})
        yield "one alert", expected.model_copy(update={"alerts": (more,)})
    for name in ("late_events", "duplicates", "dead_letters", "collisions_not_kept", "no_key"):
        if getattr(expected, name):
            yield f"no {name}", expected.model_copy(update={name: ()})
        yield f"one more of {name}", expected.model_copy(update={name: (*getattr(expected, name), "2")})


def mutants(file: RuleFile) -> Iterator[tuple[int, str, RuleFile]]:
    for index, test in enumerate(file.tests):
        for what, expected in mutations(test.expect):
            mutated = test.model_copy(update={"expect": expected})
            yield index, what, replace(file, tests=(*file.tests[:index], mutated, *file.tests[index + 1 :]))


@pytest.mark.parametrize("quiet", [True, False])
def test_every_expectation_that_is_changed_fails(tmp_path, quiet):
    file = load_rule_file(written(tmp_path, QUIET if quiet else EVERYTHING))
    seen = 0
    for index, what, mutant in mutants(file):
        outcome = RuleTester(mutant, PAYMENTS, ENGINE).run(index)
        assert outcome.status == "failed", what
        assert all(each.line >= 13 and "\n" not in each.text for each in outcome.failures)
        if "." in what:
            (failure,) = outcome.failures
            assert "expected " in failure.text
            assert ", came " in failure.text
        seen += 1
    assert seen > (10 if quiet else 30)


@pytest.mark.parametrize("file", read_rule_files(resource("conf/rules"), CARDS), ids=lambda file: file.path.stem)
def test_every_expectation_of_the_rules_of_conf_that_is_changed_fails(file):
    for index, what, mutant in mutants(file):
        if "one more of" not in what:
            assert RuleTester(mutant, CARDS, ENGINE).run(index).status == "failed", (file.tests[index].name, what)


SIMPLE = f"""\
{RULES}
tests:
  - name: one
    rules: [payer-24h]
    defaults: {{payerId: p1}}
    given:
      - {{paymentAmount: 60, at: 0s}}
      - {{paymentAmount: 40, at: 24h}}
    expect: EXPECT
"""


@pytest.mark.parametrize(
    "expect",
    [
        "{alerts: [{event: 2}]}",
        "{values: [{event: 1, value: 61, count: 1, fired: true}]}",
        "{alerts: [], late_events: [2]}",
    ],
)
def test_a_failure_says_what_was_expected_and_what_came(tmp_path, expect, as_worded):
    (said,) = failures(tmp_path, SIMPLE.replace("EXPECT", expect))
    assert as_worded(said)


def test_an_unexpected_alert_is_named_with_its_value(tmp_path, as_worded):
    text = SIMPLE.replace("EXPECT", "{alerts: []}").replace("40, at", "40.01, at")
    (said,) = failures(tmp_path, text)
    assert as_worded(said)


def test_a_rule_with_features_says_their_values_and_its_condition(tmp_path, as_worded):
    text = SIMPLE.replace("[payer-24h]", "[twice]").replace("EXPECT", "{alerts: [{event: 2}]}")
    (said,) = failures(tmp_path, text)
    assert as_worded(said)


@pytest.mark.parametrize(
    "event",
    [
        "{paymentAmount: much, at: 25h}",
        "{payerId: null, paymentAmount: 1, at: 25h}",
        "{paymentAmount: 1, at: 23h}",
        "{transactionId: e2, paymentAmount: 40, at: 24h}",
        "{paymentAmount: 40, at: 24h}",
    ],
)
def test_an_event_that_is_not_evaluated_fails_a_test_that_does_not_expect_it(tmp_path, event, as_worded):
    text = SIMPLE.replace("EXPECT", "{alerts: []}").replace(
        "{paymentAmount: 40", "{transactionId: e2, paymentAmount: 40"
    )
    text = text.replace("    expect", f"      - {event}\n    expect")
    (said,) = failures(tmp_path, text)
    assert as_worded(said)


def test_an_expectation_of_an_event_that_the_rule_does_not_apply_to_says_so(tmp_path, as_worded):
    text = SIMPLE.replace("EXPECT", "{values: [{event: 1, fired: false}]}")
    text = text.replace("    aggregate", "    where: {paymentAmount: {'<': '50'}}\n    aggregate")
    (said,) = failures(tmp_path, text)
    assert as_worded(said)


BAD = [
    ("expect: EXPECT", "expect: {}"),
    ("expect: EXPECT", "expect: {alarms: []}"),
    ("    expect: EXPECT\n", ""),
    ("EXPECT", "{alerts: [{rule: payer-24h}]}"),
    ("EXPECT", "{alerts: [{event: 3}]}"),
    ("EXPECT", "{late_events: [" + "1" * 5000 + "]}"),
    ("EXPECT", "{alerts: [{event: 1, count: " + "1" * 5000 + "}]}"),
    ("EXPECT", "{late_events: [0]}"),
    ("EXPECT", "{alerts: [{event: 1}, {event: 1}]}"),
    ("EXPECT", "{alerts: [{event: 1, rule: other}]}"),
    ("EXPECT", "{alerts: [{event: 1, rule: twice}]}"),
    ("EXPECT", "{alerts: [{event: 1, value: much}]}"),
    ("EXPECT", "{alerts: [{event: 1, fired: true}]}"),
    ("EXPECT", "{alerts: [{event: 1, features: {a: 1}}]}"),
    ("rules: [payer-24h]", "rules: [other]"),
    ("    rules: [payer-24h]\n", ""),
    ("    given:\n", "    given: none\n    given2:\n"),
    ("    given:\n", "    given: {folder: a}\n    given2:\n"),
    ("    given:\n", "    given: {file: none.jsonl}\n    rows:\n"),
    ("{paymentAmount: 60, at: 0s}", "{paymentAmount: [60], at: 0s}"),
    ("{paymentAmount: 60, at: 0s}", "{amount: 60, at: 0s}"),
    ("{paymentAmount: 60, at: 0s}", "{paymentAmount: true, at: 0s}"),
    ("{paymentAmount: 60, at: 0s}", "{paymentAmount: 60}"),
    ("{paymentAmount: 60, at: 0s}", "{paymentAmount: 60, at: noon}"),
    ("{paymentAmount: 60, at: 0s}", "{at: 0s, eventTime: 1}"),
    ("{paymentAmount: 60, at: 0s}", "{at: 3650d, eventTime: 1}"),
    ("at: 0s}", "at: 0s, repeat: {times: 0}}"),
    ("at: 0s}", "eventTime: 1, repeat: {times: 2, every: 1s}}"),
    ("{payerId: p1}", "{payer: p1}"),
    ("    given:\n", "    start: noon\n    given:\n"),
    ("    given:\n", "    start: 2199-12-31T23:00:00Z\n    given:\n"),
    ("- name: one", "- name: ''"),
    ("  - name: one", "  - {name: one}\n  - name: one"),
    ("tests:\n", "tests: none\ntest:\n"),
    ("tests:\n", "tests: none\nrules2:\n"),
]


@pytest.mark.parametrize(("old", "new"), BAD)
def test_what_cannot_be_a_test_is_refused_with_its_line(tmp_path, old, new, as_worded):
    assert old in SIMPLE
    text = SIMPLE.replace(old, new, 1).replace("EXPECT", "{alerts: [{event: 1}]}")
    assert as_worded(refused(tmp_path, text))


def test_tests_that_are_no_list_or_share_a_name_are_refused(tmp_path, as_worded):
    text = SIMPLE.replace("EXPECT", "{alerts: []}")
    again = text.partition("tests:\n")[2]
    assert as_worded(refused(tmp_path, text + again))
    assert as_worded(refused(tmp_path, f"{RULES}tests: none\n"))


def test_a_file_of_events_that_cannot_be_read_is_named_with_the_line_of_the_test(tmp_path, as_worded):
    text = f"{RULES}tests:\n  - name: one\n    given: {{file: FILE}}\n    expect: {{alerts: []}}\n"
    (tmp_path / "bad.jsonl").write_text('{"transactionId": "a", "eventTime": "1"}\n{"transactionId": "a"}\n')
    assert as_worded(refused(tmp_path, text.replace("FILE", "no.jsonl")))
    assert as_worded(refused(tmp_path, text.replace("FILE", "bad.jsonl")))


def test_events_of_a_file_are_those_that_are_written_in_the_test(tmp_path):
    rows = [
        {"transactionId": "a", "eventTime": str(START_MS), "payerId": "p1", "paymentAmount": "60.00"},
        {"transactionId": "b", "eventTime": str(START_MS + 86_400_000), "payerId": "p1", "paymentAmount": "40.01"},
    ]
    (tmp_path / "day.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = [",".join(rows[0]), *(",".join(row.values()) for row in rows)]
    (tmp_path / "day.csv").write_text("\n".join(lines) + "\n")
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "day.parquet")
    forms = [f"{{file: day.{kind}}}" for kind in ("jsonl", "csv", "parquet")]
    forms.append("[{transactionId: a, paymentAmount: 60, at: 0s}, {transactionId: b, paymentAmount: 40.01, at: 24h}]")
    for index, form in enumerate(forms):
        one = f"  - name: test {index}\n    rules: [payer-24h]\n    defaults: {{payerId: p1}}\n    given: {form}\n"
        passes = f"{RULES}tests:\n{one}    expect: {{alerts: [{{event: b, value: 100.01}}]}}\n"
        assert run(tmp_path, passes)[0].failures == ()
        assert len(run(tmp_path, passes.replace("100.01", "100.02"))[0].failures) == 1


@given(st.lists(st.tuples(st.sampled_from("+-"), st.integers(0, 90), st.sampled_from(["ms", "s", "m", "h", "d"]))))
def test_a_time_is_the_sum_of_its_steps_from_the_start(steps):
    sizes = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
    offset = 1 + sum((1 if sign == "+" else -1) * number * sizes[unit] for sign, number, unit in steps)
    text = " ".join(["1ms", *(f"{sign} {number}{unit}" for sign, number, unit in steps)])
    for unit, written_as in (("ms", "{}"), ("s", "{}e-3"), ("iso8601", None)):
        schema = PAYMENTS.model_copy(update={"event_time": PAYMENTS.event_time.model_copy(update={"unit": unit})})
        for start, start_ms in (("2026-02-01T12:00:00.250Z", 1_769_947_200_250), (None, START_MS)):
            test = RuleTest.model_validate(
                {"name": "one", "start": start, "given": [{"at": text}, {"eventTime": text}], "expect": {"alerts": []}}
            )
            table = given_events(test, schema, Path(), lambda location, reason: BucketsError(reason)).table
            times, faults = conversion.times_ms(table["eventTime"].combine_chunks(), schema.event_time)
            assert (times.tolist(), faults) == ([start_ms + offset] * 2, {})
        if written_as is not None:
            raw = test.model_copy(update={"start": written_as.format(5000)})
            table = given_events(raw, schema, Path(), lambda location, reason: BucketsError(reason)).table
            times, _ = conversion.times_ms(table["eventTime"].combine_chunks(), schema.event_time)
            assert times.tolist() == [5000 + offset] * 2


def test_a_field_of_the_events_that_is_called_at_is_that_field(tmp_path):
    schema = EventSchema.model_validate(
        {
            "event_id": "id",
            "event_time": "at",
            "attributes": {"payerId": "string"},
            "measures": {"paymentAmount": {"scale": 2}},
        }
    )
    given = "[{at: 1000, paymentAmount: 60}, {at: 2000, paymentAmount: 40.01}]"
    text = f"{RULES}tests:\n  - name: one\n    rules: [payer-24h]\n    defaults: {{payerId: p}}\n    given: {given}\n"
    assert run(tmp_path, text + "    expect: {alerts: [{event: 2}]}\n", schema)[0].failures == ()
    later = text.replace("at: 2000", "at: 24h + 1ms").replace("at: 1000", "at: 0s")
    assert run(tmp_path, later + "    expect: {alerts: []}\n", schema)[0].failures == ()


@pytest.mark.parametrize(
    "operated",
    [
        "state: DRAFT",
        "state: SHADOW",
        "state: PAUSE",
        "rollout: 1%",
        "snoozes: [{until: 2030-01-01T00:00:00Z, reason: no}]",
    ],
)
def test_how_a_rule_is_operated_plays_no_part_in_its_tests(tmp_path, operated):
    text = SIMPLE.replace("EXPECT", "{alerts: [{event: 2}]}").replace("40, at", "41, at")
    text = text.replace("  - rule_id: payer-24h\n", f"  - rule_id: payer-24h\n    {operated}\n")
    assert run(tmp_path, text)[0].status == "passed"


def test_tests_of_a_deleted_rule_are_skipped_and_it_needs_none(tmp_path):
    text = SIMPLE.replace("EXPECT", "{alerts: [{event: 2}]}")
    text = text.replace("  - rule_id: payer-24h\n", "  - rule_id: payer-24h\n    state: DELETE\n")
    file = load_rule_file(written(tmp_path, text))
    assert [each.status for each in outcomes(file)] == ["skipped"]
    assert untested(file) == ["twice"]


def test_the_settings_of_a_job_apply_and_precisions_of_groups_of_other_rules_are_left_out(tmp_path):
    precision = {"tail": "1h", "resolution": "1h", "groups": [{"group_by": ["cardId"], "tail": "all"}]}
    engine = EngineSettings.model_validate({"precision": precision})
    text = SIMPLE.replace("at: 0s}", "at: 1m}\n      - {paymentAmount: 1, at: 2m}").replace(
        "at: 24h}", "at: 24h + 90s}"
    )
    text = text.replace("EXPECT", "{values: [{event: 3, value: 101, lower: 40, upper: 101, exact: false}]}")
    assert [each.text for each in run(tmp_path, text, engine=engine)[0].failures] == []
    assert len(run(tmp_path, text)[0].failures) == 1


def test_the_json_schema_of_a_rule_file_knows_tests(tmp_path):
    check = Draft202012Validator(rule_file_schema(PAYMENTS))
    check.check_schema(check.schema)
    assert list(check.iter_errors(read_yaml(EVERYTHING)[0])) == []
    assert list(check.iter_errors(read_yaml(DEMO_RULES.read_text())[0])) == []
    simple = SIMPLE.replace("EXPECT", "{alerts: []}")
    for old, new in (
        ("alerts: []", "alarms: []"),
        ("{paymentAmount: 60", "{amount: 60"),
        ("- name: one", "- title: one"),
    ):
        assert list(check.iter_errors(read_yaml(simple.replace(old, new))[0]))


def test_changes_of_rules_leave_tests_as_they_are(tmp_path):
    tests = EVERYTHING.partition("tests:")[2]
    first, second = load_rules(written(tmp_path, EVERYTHING))
    changed = RuleText(EVERYTHING)
    changed.set_state("payer-24h", "PAUSE")
    changed.put(first.model_copy(update={"rule_id": "third"}))
    changed.put(second.model_copy(update={"description": "new"}), second)
    assert changed.text.partition("tests:")[2] == tests
    assert [rule.rule_id for rule in load_rules(written(tmp_path, changed.text))] == ["payer-24h", "twice", "third"]
    changed.delete("third")
    changed.delete("twice")
    deleted = load_rules(written(tmp_path, changed.text))
    assert [(rule.rule_id, rule.state) for rule in deleted] == [("payer-24h", "PAUSE"), ("twice", "DELETE")]
    assert changed.text.partition("tests:")[2] == tests


def test_the_junit_report_says_what_the_outcomes_say(tmp_path):
    passed = run(tmp_path, EVERYTHING)
    failed = run(
        tmp_path, SIMPLE.replace("EXPECT", "{alerts: [{event: 1}, {event: 2}]}").replace("- name: one", "- name: a<b")
    )
    skipped = [replace(failed[0], name="\u202e&", rules=(), failures=())]
    root = ElementTree.fromstring(junit_report([*passed, *failed, *skipped], 1.5))
    assert root.attrib == {"name": "buckets rules test", "time": "1.500"} | (
        counts := {"tests": "3", "failures": "1", "skipped": "1", "errors": "0"}
    )
    (suite,) = root
    assert suite.attrib == {"name": str(tmp_path / "rules.yaml"), "time": "1.500"} | counts
    assert [case.get("name") for case in suite] == ["everything that may be expected", "a<b", r"\u202e&"]
    assert [[child.tag for child in case] for case in suite] == [[], ["failure"], ["skipped"]]
    (failure,) = suite[1]
    assert failure.text is not None
    lines = failure.text.split("\n")
    assert lines == [f"{tmp_path / 'rules.yaml'}:{each.line}: {each.text}" for each in failed[0].failures]
    assert len(lines) == 2
    assert failure.get("message") == lines[0]
    assert suite[1].get("line") == "16"


def test_the_example_in_the_guide_passes_and_fails_as_it_is_said_there(tmp_path):
    page = section("guides/test-rules.md", "# Test rules")
    example = page.partition('```yaml title="tested-rules.yaml"\n')[2].partition("```")[0]
    assert [each.status for each in run(tmp_path, example)] == ["passed", "passed"]
    failed, _ = run(tmp_path, example.replace("50000.01", "50000", 1))
    said = page.partition("```text\nfailed: ")[2].partition("```")[0].split()
    shown = [f"my-rules.yaml:{each.line}: {each.text}" for each in failed.failures]
    assert said == f"{failed.name} {' '.join(shown)}".split()


OVER_ALERTS = """\
rules:
  - rule_id: first
    group_by: [payerId]
    aggregate: {function: count}
    window: {length: 1h}
    limit: {operator: ">=", value: "1"}
  - rule_id: second
    group_by: [payerId]
    aggregate: {function: count}
    window: {length: 1h}
    limit: {operator: ">=", value: "2"}
  - rule_id: both
    on: alerts
    group_by: [payerId]
    features: {rules: {function: count_distinct, of: alert_rule, window: 1h}}
    when: rules >= 2
tests:
  - name: two rules within an hour
    defaults: {payerId: p1, paymentAmount: 1}
    given: [{at: 0s}, {at: 1m}]
    expect: EXPECT
"""


@pytest.mark.parametrize(
    "expect",
    [
        "{alerts: {both: [{event: 2}]}}",
        "{alerts: {both: [{event: 2, features: {rules: 2}}], second: [{event: 2, value: 2}]}}",
        "{alerts: [{event: 1, rule: first}, {event: 2, rule: first}, {event: 2, rule: second}, {event: 2, rule: both}]"
        "}",
        "{alerts: {both: [{event: 2}]}, held_alerts: {first: []}}",
    ],
)
def test_alerts_may_be_expected_of_single_rules(tmp_path, expect):
    assert failures(tmp_path, OVER_ALERTS.replace("EXPECT", expect)) == []


@pytest.mark.parametrize(
    ("expect", "said"),
    [
        ("{alerts: {both: []}}", "21: unexpected alert of both at event 2 (e2)"),
        ("{alerts: {both: [{event: 1}]}}", "21: expected an alert of both at event 1 (e1)"),
        ("{alerts: {first: [{event: 1}]}}", "21: unexpected alert of first at event 2 (e2)"),
        ("{alerts: {second: [{event: 2, value: 3}]}}", "21: alert of second at event 2 (e2): expected value 3, came 2"),
    ],
)
def test_alerts_of_a_single_rule_are_compared_whole(tmp_path, expect, said):
    found = failures(tmp_path, OVER_ALERTS.replace("EXPECT", expect))
    assert any(each.startswith(said) for each in found), found


@pytest.mark.parametrize(
    "expect",
    [
        "{alerts: {}}",
        "{alerts: {none: []}}",
        "{alerts: {both: [{event: 2, rule: first}]}}",
        "{alerts: {both: [{event: 2, colour: red}]}}",
    ],
)
def test_what_cannot_be_expected_of_single_rules_is_refused(tmp_path, expect, as_worded):
    assert as_worded(refused(tmp_path, OVER_ALERTS.replace("EXPECT", expect)))
