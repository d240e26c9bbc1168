"""Lint: each code is found where it should be, and not just beside it."""

from decimal import Decimal
from typing import Any

import pytest

from buckets.events.schema import load_event_schema
from buckets.expressions.expression import Expression
from buckets.lint.lint import look
from buckets.lint.logic import Facts, may_hold, truths
from buckets.lint.subject import Subject
from buckets.resources import resource
from buckets.rule_files.yaml_rules import load_rule_files
from tests.core.lint_rules import FEATURES, NOW_MS, filtered, found, limited, looked_at, when

POSITIVE = {"amount": {">": 0}}
_OF_ALERTS = {"function": "count", "window": "1h", "on": "alerts"}
BEFORE = FEATURES["top"] | {"window": {"length": "1h", "exclude": "current"}}
CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("B101", limited("count", "<", 1), limited("count", "<", 2)),
    ("B101", limited("count", "=", "2.5"), limited("count", "=", 2)),
    ("B101", limited("sum", "<", 0, where=POSITIVE), limited("sum", "<", 0)),
    ("B101", limited("sum", "<", "0.01", where=POSITIVE), limited("sum", "<", "0.02", where=POSITIVE)),
    ("B101", limited("sum", ">", "1e20"), limited("sum", ">", "9e16")),
    ("B101", limited("max", ">", 5, where={"amount": {"<=": 5}}), limited("max", ">=", 5, where={"amount": {"<=": 5}})),
    ("B101", limited("avg", "<", 5, where="amount >= 5"), limited("avg", "<=", 5, where="amount >= 5")),
    ("B101", when("gap > 60"), when("gap >= 60")),
    ("B101", when("open_gap >= 60"), when("open_gap >= 59.999")),
    ("B101", when("flags > 2"), when("flags > 1")),
    ("B101", when("kinds > 2", where="kind IN ('a', 'b')"), when("kinds > 1", where="kind IN ('a', 'b')")),
    ("B101", when("spread < 0"), when("spread <= 0")),
    ("B101", when("events > 3 AND amount < 5", where="amount > 9"), when("events > 3 AND amount < 5")),
    ("B101", when("gap + 5 * events < 5"), when("gap + 5 * events <= 5")),
    ("B101", when("mean > 3 AND mean < 3"), when("mean > 3 AND mean < 3.1")),
    ("B101", when("events = 0 OR gap > 99"), when("other = 0 OR gap > 99")),
    ("B101", when("new AND NOT new"), when("new OR NOT new AND events > 3")),
    ("B102", limited("count", ">=", 1), limited("count", ">=", 2)),
    ("B102", when("events >= 1 OR total > 5"), when("other >= 1 OR total > 5")),
    ("B102", limited("sum", ">", 0, where=POSITIVE), limited("sum", ">", 0, where={"amount": {">=": 0}})),
    ("B102", when("coalesce(gap, 0) <= 60"), when("gap <= 60")),
    ("B102", when("events > 0 AND (n < 3 OR n >= 3)"), when("events > 0 AND (n < 3 OR n > 3)")),
    ("B102", when("new OR NOT new"), when("new OR NOT new AND total > 3")),
    ("B102", when("mean > 0", where=POSITIVE), when("before > 0", where=POSITIVE)),
    ("B103", when("events >= 1 AND total > 5"), when("events >= 2 AND total > 5")),
    ("B103", when("gap > 61 OR total > 5"), when("gap > 59 OR total > 5")),
    ("B103", when("total > -1 AND n = 3", where=POSITIVE), when("before > -1 AND n = 3", where=POSITIVE)),
    ("B104", filtered({"amount": {">": 10, "<": 5}}), filtered({"amount": {">": 5, "<": 10}})),
    ("B104", filtered({"amount": {">": "1", "<": "1.01"}}), filtered({"amount": {">": "1", "<": "1.02"}})),
    ("B104", filtered("kind = 'a' AND kind = 'b'"), filtered("kind = 'a' OR kind = 'b'")),
    (
        "B104",
        filtered("kind IN ('a', 'b') AND kind NOT IN ('a', 'b', 'c')"),
        filtered("kind IN ('a', 'b') AND kind != 'a'"),
    ),
    ("B104", filtered("lower(kind) = 'FR'"), filtered("lower(kind) = 'fr'")),
    ("B104", filtered("n = 1 AND (kind = 'a' OR fee > 1) AND n = 2"), filtered("n = 1 AND (kind = 'a' OR fee > 1)")),
    ("B104", filtered("n = 1 AND (n = 2 OR n > 5)"), filtered("n = 1 AND (n = 2 OR n < 5)")),
    ("B104", filtered("n > 9223372036854775807"), filtered("n >= 9223372036854775807")),
    ("B104", filtered("n = 1.5"), filtered("fee = 1.0")),
    ("B104", filtered("hour(time) > 23"), filtered("hour(time) > 22")),
    ("B104", filtered("length(kind) < 0"), filtered("length(kind) <= 0")),
    ("B104", filtered("flag AND NOT flag"), filtered("flag OR n > 1")),
    ("B104", filtered("kind IS NULL AND kind = 'a'"), filtered("kind IS NULL OR kind = 'a'")),
    ("B104", filtered("k IS NULL"), filtered("kind IS NULL")),
    ("B104", filtered("kind LIKE 'a%' AND kind NOT LIKE 'a%'"), filtered("kind LIKE 'a%' AND kind NOT LIKE 'ab%'")),
    (
        "B104",
        when("other > 2", features={"other": {**FEATURES["other"], "where": "n > 3 AND n < 4"}}),
        when("other > 2"),
    ),
    ("B105", filtered("kind != 'a' OR kind != 'b'"), filtered("kind != 'a' AND kind != 'b'")),
    ("B105", filtered("amount > 5 OR amount <= 5"), filtered("amount > 5 OR amount < 5")),
    ("B105", filtered("k IS NOT NULL"), filtered("kind IS NOT NULL")),
    ("B105", filtered("length(k) >= 0"), filtered("length(k) >= 1")),
    ("B101", when("amount > top"), when("amount >= top")),
    ("B101", when("amount > top"), when("amount > top", features={"top": BEFORE})),
    ("B101", when("amount < least"), when("amount <= least")),
    ("B101", when("before > top"), when("before >= top")),
    ("B101", when("events > day"), when("events >= day")),
    ("B101", when("events > 2 * day"), when("2 * events > day")),
    ("B101", when("events > day + 5"), when("events > day - 5")),
    ("B101", when("other > day"), when("events > other")),
    ("B101", when("kinds > events"), when("events > kinds")),
    ("B101", when("events > 5 AND day < 6"), when("events > 5 AND day < 7")),
    ("B101", when("keys > 1"), when("kinds > 1")),
    ("B101", when("new AND before > 0"), when("NOT new AND before > 0")),
    ("B101", when("events <= 1 AND gap < 5"), when("events <= 2 AND gap < 5")),
    ("B101", when("new AND events > 1"), when("new AND day > 1")),
    ("B101", when("total > day_total", where=POSITIVE), when("total > day_total")),
    ("B101", when("events > 3 AND n % 100 = 100"), when("events > 3 AND n % 100 = 99")),
    ("B101", when("events > 3 AND amount % 1 > 0.99"), when("events > 3 AND amount % 1 > 0.98")),
    ("B101", when("events > 3 AND 'n' = 'x'"), when("events > 3 AND kind = 'x'")),
    ("B103", when("events <= day AND total > 5"), when("events < day AND total > 5")),
    ("B107", when("events > 5 OR events > 3"), when("events > 5 OR events < 3")),
    ("B107", when("events > 5 AND events > 3"), when("events > 5 AND total > 3")),
    ("B107", when("events > 5 AND day > 3"), when("events > 3 AND day > 5")),
    ("B107", when("total > 3 AND (n > 5 OR n > 3)"), when("total > 3 AND (n > 5 OR n < 3)")),
    ("B107", filtered("n > 5 OR n > 3 AND kind = 'a' OR n > 4"), filtered("n > 5 OR n > 3 AND kind = 'a'")),
    # NULL, where kind is.
    ("B107", filtered("n > 5 AND n IS NOT NULL"), filtered("n > 5 AND kind IS NOT NULL")),
    ("B108", filtered("kind LIKE 'abc'"), filtered("kind LIKE 'abc%'")),
    ("B108", filtered("kind NOT LIKE 'a\\\\%'"), filtered("kind NOT LIKE 'a\\\\\\\\_'")),
    ("B108", when("events > 3 AND (kind LIKE '' OR n = 3)"), when("events > 3 AND (kind LIKE '_' OR n = 3)")),
    ("B203", when("events > 3 AND same > 4"), when("events > 3 AND day > 4")),
    ("B203", when("total > 3 AND all_total > 4"), when("total > 3 AND all_total > 4", where="n = 3")),
    ("B307", limited("count", ">", 1, window={"length": "1ms"}), limited("count", ">", 1, window={"length": "2ms"})),
    (
        "B309",
        when("x > 2", features={"x": {"function": "count", "window": {"session": "61m", "within": "1h"}}}),
        when("x > 2", features={"x": {"function": "count", "window": {"session": "1h", "within": "1h"}}}),
    ),
    *(
        ("B310", when("x > 2", features={"x": _OF_ALERTS | bad}), when("x > 2", features={"x": _OF_ALERTS | good}))
        for bad, good in (
            ({"where": "alert_rule = 'r1'"}, {"where": "alert_rule = 'r0'"}),
            ({"where": "n = 1 OR alert_rule IN ('r0', 'r1')"}, {"where": "kind IN ('r0', 'r1')"}),
            ({"where": {"alert_rule": ["r0", "r1"]}}, {"where": {"alert_rule": "r0"}}),
        )
    ),
    (
        "B310",
        limited("count", ">", 5, on="alerts", where="alert_rule <> 'r1'"),
        limited("count", ">", 5, on="alerts", where="alert_rule <> 'r0'"),
    ),
    ("B106", when("total > 5", features={"total": FEATURES["total"], "events": FEATURES["events"]}), when("total > 5")),
    (
        "B302",
        limited(
            "count", ">", 5, require_warm=True, effective={"from": "2030-01-01T00:00", "until": "2030-01-01T01:00"}
        ),
        limited(
            "count", ">", 5, require_warm=True, effective={"from": "2030-01-01T00:00", "until": "2030-01-01T01:01"}
        ),
    ),
    ("B303", limited("count", ">", 5, cooldown="61m"), limited("count", ">", 5, cooldown="1h")),
    (
        "B304",
        limited("count", ">", 5, effective={"until": "2027-01-15T08:00:00Z"}),
        limited("count", ">", 5, effective={"until": "2027-01-15T08:00:00.001Z"}),
    ),
    (
        "B305",
        limited("count", ">", 5, snoozes=[{"until": "2027-01-15T08:00:00Z", "reason": "x"}]),
        limited("count", ">", 5, snoozes=[{"until": "2027-01-15T08:00:00.001Z", "reason": "x"}]),
    ),
    ("B306", limited("count", ">", 5, rollout="100%"), limited("count", ">", 5, rollout="99.99%")),
    ("B401", limited("count", ">", 5, group_by=[]), limited("count", ">", 5)),
    ("B401", limited("count", ">", 5, group_by=["flag"]), limited("count", ">", 5, group_by=["flag", "k"])),
    (
        "B401",
        limited("count", ">", 5, group_by=["kind"], where={"kind": list("abcdefg")}),
        limited("count", ">", 5, group_by=["kind"], where={"kind": list("abcdefgh")}),
    ),
    (
        "B401",
        limited("count", ">", 5, group_by=["n"], where="n = 5"),
        limited("count", ">", 5, group_by=["n"], where="n > 5"),
    ),
    ("B901", limited("count", ">", 5, silence={"B999": "x"}), limited("count", ">", 5)),
    ("B901", limited("count", ">", 5, silence={"B901": "x"}), limited("count", ">", 5)),
    ("B902", limited("count", ">=", 1, silence={"B102": " "}), limited("count", ">=", 1, silence={"B102": "x"})),
    ("B903", limited("count", ">=", 2, silence={"B102": "x"}), limited("count", ">=", 1, silence={"B102": "x"})),
    ("B903", limited("count", ">=", 2, silence={"B102": "x"}), limited("count", ">=", 2, silence={"B501": "x"})),
]


@pytest.mark.parametrize(("code", "has_it", "has_not"), CASES)
def test_a_code_is_found_where_it_is_and_not_just_beside_it(code, has_it, has_not):
    assert code in found(has_it)
    assert code not in found(has_not)


@pytest.mark.parametrize(
    ("same", "others"),
    [
        (True, [limited("count", ">=", 5), limited("count", ">=", "5.0")]),
        (True, [limited("count", ">=", 5), when("events >= 5")]),
        (True, [when("events >= 5 AND total > 2"), when("total > 2 AND 5 <= events", state="ACTIVE")]),
        (True, [filtered("n = 1 AND kind = 'a'"), filtered({"kind": "a", "n": "01"})]),
        (False, [limited("count", ">=", 5), limited("count", ">=", 5, where={"kind": "a"})]),
        (False, [limited("count", ">=", 5), limited("count", ">=", 5, window={"length": "2h"})]),
        (False, [limited("count", ">=", 5), limited("count", ">=", 5, group_by=["n"])]),
        (False, [limited("count", ">=", 5), limited("count", ">=", 5, severity="high")]),
        (False, [limited("count", ">=", 5), limited("count", ">=", 5, state="PAUSE")]),
        (False, [limited("count", ">=", 5, rollout="10%"), limited("count", ">=", 5, rollout="10%")]),
        (False, [limited("count", ">=", 5), limited("count", ">=", 5, state="SHADOW")]),
        (True, [limited("avg", ">=", 5), when("mean >= 5")]),
        # As a feature with a filter an average is rounded before it is compared.
        (False, [limited("avg", ">=", 5, where={"kind": "a"}), when("mean >= 5", where={"kind": "a"})]),
    ],
)
def test_two_rules_are_the_same_if_nothing_that_matters_differs(same, others):
    assert ("B201" in found(*others)) == same


@pytest.mark.parametrize(
    ("implied", "strict", "weak"),
    [
        (True, limited("count", ">=", 9), limited("count", ">=", 5)),
        (True, limited("count", "=", 9), limited("count", ">=", 5)),
        (True, when("events > 5 AND total > 9"), when("total > 9")),
        (True, when("events > 5 AND total > 9"), when("total > 2 AND events > 5")),
        (False, limited("count", ">=", 9), limited("count", "<", 5)),
        (False, limited("count", ">=", 9, cooldown="1m"), limited("count", ">=", 5, cooldown="1m")),
        (False, limited("count", ">=", 9, reset_on_alert=True), limited("count", ">=", 5, reset_on_alert=True)),
        (False, limited("count", ">=", 9, severity="high"), limited("count", ">=", 5)),
        (False, when("events > 5"), when("events > 3 AND (total > 9 OR total <= 9)", where="n = 1")),
        # NULL, where there is no payment before this one.
        (False, when("events > 5"), when("events > 3 AND (gap > 9 OR gap <= 9)")),
    ],
)
def test_a_rule_is_implied_by_one_that_fires_wherever_it_does(implied, strict, weak):
    assert ("B202" in found(strict, weak)) == implied
    assert "B201" not in found(strict, weak)


def test_a_finding_is_silenced_with_its_reason():
    report = looked_at([limited("count", ">=", 1, silence={"B102": "every one is wanted"})])
    assert report.findings == ()
    assert [(finding.code.code, reason) for finding, reason in report.silenced] == [("B102", "every one is wanted")]


def test_alerts_are_not_taken_for_events():
    rule = filtered("n = 1.5", group_by=["k"], on="alerts")
    assert found(rule) == []


def test_what_is_not_known_can_be_anything():
    """As functions that come later may be."""
    unknown = Expression("lookup", (Expression("field", value="k"),))
    for condition in (
        unknown,
        Expression("not", (unknown,)),
        Expression(">", (unknown, Expression("number", value=Decimal(5)))),
        Expression("=", (unknown, Expression("text", value="a"))),
        Expression("=", (unknown, Expression("field", value="kind"))),
        Expression("=", (Expression("+", (unknown, unknown)), unknown)),
        Expression("is_null", (unknown,)),
        Expression("and", (unknown, Expression("not", (Expression("is_null", (unknown,)),)))),
    ):
        facts = Facts({"k": "text", "kind": "text"})
        assert may_hold(condition, facts)
        assert truths(condition, facts) >= {True, False}


@pytest.mark.parametrize(
    "when_true", ["events > -TRUE", "events > abs(FALSE)", "events > geo_speed_kmh(TRUE, 0, 0, 1, 1)"]
)
def test_what_only_a_schema_can_refuse_does_not_stop_it(when_true):
    assert found(when(when_true), schema=None) == []


@pytest.mark.parametrize(
    ("rules", "schema"),
    [
        *(("conf/rules", schema) for schema in ("card-payment", None)),
        ("conf/typologies", "card-payment"),
        ("conf/demo-rules.yaml", "transaction"),
    ],
)
def test_the_rules_that_come_with_the_project_are_clean(rules, schema):
    known = None if schema is None else load_event_schema(resource(f"schemas/{schema}.yaml"))
    assert look(Subject(load_rule_files(resource(rules), known), NOW_MS, known)).findings == ()
