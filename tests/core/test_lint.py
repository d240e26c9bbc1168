"""Lint: each code is found where it should be and not just beside it, and what lint calls certain is so."""

import csv
import io
import json
import re
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import buckets
from buckets.config.engine import EngineSettings
from buckets.events.event_file import file_arrivals, open_event_file
from buckets.events.schema import EventSchema, load_event_schema
from buckets.events.table_rows import table_arrivals
from buckets.expressions.expression import Expression
from buckets.expressions.normal_form import normalise
from buckets.lint.event_summary import EventSummary, summarise
from buckets.lint.lint import Report, codes, look
from buckets.lint.logic import Facts, always_holds, is_known, may_hold, never_false, truths
from buckets.lint.page import page
from buckets.lint.subject import Subject
from buckets.resources import resource
from buckets.rule_files.rule_lines import rule_lines
from buckets.rule_files.yaml_rules import load_rule_files, load_rules
from buckets.rules.rule import Rule
from tests.core import rule_texts
from tests.core.conditions import CONDITIONS, FIELDS, ROWS, TEXTS, value

CARD_PAYMENT = load_event_schema(resource("schemas/card-payment.yaml"))
NOW_MS = 1_800_000_000_000
SCHEMA = EventSchema.model_validate(
    {
        "event_id": "id",
        "event_time": "time",
        "attributes": {"k": "string", "kind": "string", "flag": "boolean", "n": "long"},
        "measures": {"amount": {"scale": 2}, "fee": {"scale": 0}},
    }
)


def looked_at(rules: list[dict[str, Any]], schema: EventSchema | None = SCHEMA, **known: Any) -> Report:
    read = tuple(Rule.model_validate({"rule_id": f"r{at}", **each}) for at, each in enumerate(rules))
    written = {rule.rule_id: frozenset(each) for rule, each in zip(read, rules, strict=True)}
    return look(Subject(read, NOW_MS, schema, written=written, **known))


def found(*rules: dict[str, Any], schema: EventSchema | None = SCHEMA, **known: Any) -> list[str]:
    return [finding.code.code for finding in looked_at(list(rules), schema, **known).findings]


def limited(function: str, operator: str, limit: Any, **more: Any) -> dict[str, Any]:
    """A rule of one aggregate; what it is of is called amount."""
    aggregate = {"function": function, **({} if function == "count" else {"measure": "amount"})}
    rule = {"group_by": ["k"], "aggregate": aggregate, "window": {"length": "1h"}}
    return rule | {"limit": {"operator": operator, "value": str(limit)}, **more}


def filtered(where: Any, **more: Any) -> dict[str, Any]:
    return limited("count", ">", 5, where=where, **more)


FEATURES: dict[str, dict[str, Any]] = {
    "events": {"function": "count", "window": "1h"},
    "total": {"function": "sum", "of": "amount", "window": "1h"},
    "other": {"function": "count", "window": "1h", "where": "kind = 'x'"},
    "gap": {"function": "time_since_previous", "window": "1m"},
    "open_gap": {"function": "time_since_first", "window": {"length": "1m", "left": "open"}},
    "flags": {"function": "count_distinct", "of": "flag", "window": "1h"},
    "kinds": {"function": "count_distinct", "of": "kind", "window": "1h"},
    "spread": {"function": "stddev", "of": "amount", "window": "1h"},
    "mean": {"function": "avg", "of": "amount", "window": "1h"},
    "before": {"function": "previous", "of": "amount", "window": "1h"},
    "new": {"function": "is_first", "window": "1h"},
}


def when(condition: str, **more: Any) -> dict[str, Any]:
    """A rule with the features that its condition names."""
    named = {name: feature for name, feature in FEATURES.items() if re.search(rf"\b{name}\b", condition)}
    return {"group_by": ["k"], "features": named, "when": condition, **more}


POSITIVE = {"amount": {">": 0}}
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
        # As a feature an average is rounded before it is compared.
        (False, [limited("avg", ">=", 5), when("mean >= 5")]),
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
    assert [(each.finding.code.code, each.reason) for each in report.silenced] == [("B102", "every one is wanted")]


def test_what_a_certain_finding_says_is_not_said_again_of_the_events():
    impossible, empty = filtered("n > 3 AND n < 4"), filtered("n > 3 OR n <= 3")
    rules = [Rule.model_validate({"rule_id": f"r{at}", **each}) for at, each in enumerate([impossible, empty])]
    passed = {rules[0].where: 0, rules[1].where: 500}
    events = EventSummary(500, 0, passed, {}, {}, {"r0": 0, "r1": 400})
    assert found(impossible, empty, events=events) == ["B104", "B105", "B504"]


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
        assert not is_known(condition)


# --- pages ------------------------------------------------------------------------------------------------------


def fenced(text: str) -> list[tuple[str, str]]:
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def row_of(at: int) -> dict[str, Any]:
    """One of the events on which the pages that need many are tried."""
    return {
        "transactionId": f"t{at}", "eventTime": NOW_MS + 1000 * at, "payerId": f"p{at % 20}", "beneficiaryId": "b",
        "cardId": f"c{at % 20}", "paymentType": ("CRD", "TRF")[at % 2], "status": "APPROVED",
        "country": ("FR", "DE", "IT")[at % 3], "paymentAmount": "10.00",
    }  # fmt: skip


def events_of(code: str, blocks: list[tuple[str, str]]) -> pa.Table | None:
    written = next((text for kind, text in blocks if kind == "csv"), None)
    if written is not None:
        rows: list[dict[str, Any]] = [
            {name: each or None for name, each in row.items()} for row in csv.DictReader(io.StringIO(written))
        ]
    elif "events" in codes()[code].needs:
        rows = [row_of(at) for at in range(200)]
    else:
        return None
    return pa.table({name: pa.array([row[name] for row in rows]) for name in rows[0]})


@pytest.mark.parametrize("code", sorted(codes()))
def test_the_example_on_a_page_has_the_finding_and_the_mended_one_has_not(code, tmp_path):
    text = page(code)
    assert text.startswith(f"# {code}: {codes()[code].title}\n\nLevel: {codes()[code].level}.\n")
    blocks = fenced(text)
    files = [written for kind, written in blocks if kind == "yaml" and "rules" in yaml.safe_load(written)]
    settings_of = [yaml.safe_load(written) for kind, written in blocks if kind == "yaml" and written not in files]
    engine = EngineSettings.model_validate(settings_of[0]["engine"]) if settings_of else None
    events = events_of(code, blocks)
    codes_of = []
    for written in files:
        path = tmp_path / "rules.yaml"
        path.write_text(written)
        rules, lines = load_rules(path, CARD_PAYMENT), rule_lines(path)
        summary = None
        if events is not None:
            arrivals = table_arrivals(events, CARD_PAYMENT, frozenset())
            summary = summarise(arrivals, rules, CARD_PAYMENT, EngineSettings())
        subject = Subject(
            rules, NOW_MS, CARD_PAYMENT, engine, summary, {name: each.written for name, each in lines.items()}
        )
        codes_of.append({finding.code.code for finding in look(subject).findings})
    with_it, mended = codes_of
    assert code in with_it
    assert code not in mended
    assert not {each for each in mended if codes()[each].level == "error"}
    silence = next((written for kind, written in blocks if kind == ""), None)
    assert (silence is None) == ("silence" in codes()[code].needs)
    assert silence is None or yaml.safe_load(silence)["silence"].keys() == {code}


def test_every_page_is_of_a_code():
    pages = {path.stem for path in Path(buckets.__file__).parent.glob("lint/pages/*.md")}
    assert pages == set(codes())


# --- the project's own rules ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "schema"), [("conf/rules", "card-payment"), ("conf/demo-rules.yaml", "transaction"), ("conf/rules", None)]
)
def test_the_rules_that_come_with_the_project_are_clean(rules, schema):
    known = None if schema is None else load_event_schema(resource(f"schemas/{schema}.yaml"))
    assert look(Subject(load_rule_files(resource(rules), known), NOW_MS, known)).findings == ()


# --- what is certain --------------------------------------------------------------------------------------------

SMALL = st.sampled_from([Decimal(-1), Decimal(0), Decimal(1), Decimal("1.5"), Decimal(2)])


def comparisons():
    """Comparisons of few things with few values, which often exclude each other."""

    def of_numbers(name: str, operator: str, number: Decimal) -> Expression:
        return Expression(operator, (Expression("field", value=name), Expression("number", value=number)))

    def of_texts(operator: str, change: str, text: str) -> Expression:
        kind = Expression("field", value="kind")
        return Expression(operator, (Expression(change, (kind,)) if change else kind, Expression("text", value=text)))

    operators = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
    return st.one_of(
        st.builds(of_numbers, st.sampled_from(["account", "amount"]), operators, SMALL),
        st.builds(of_texts, st.sampled_from(["=", "!="]), st.sampled_from(["", "", "lower", "trim"]), TEXTS),
        st.just(Expression("field", value="vip")),
        st.sampled_from(["account", "kind", "vip"]).map(
            lambda name: Expression("is_null", (Expression("field", value=name),))
        ),
    )


def joined(inner):
    several = st.lists(inner, min_size=2, max_size=4).map(tuple)
    return st.one_of(
        *(several.map(lambda parts, name=name: Expression(name, parts)) for name in ("and", "and", "or")),
        inner.map(lambda part: Expression("not", (part,))),
    )


DENSE = st.recursive(st.one_of(comparisons(), comparisons(), CONDITIONS), joined, max_leaves=8)
SMALL_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "kind": st.none() | TEXTS,
            "country code": st.none() | TEXTS,
            "account": st.none() | SMALL.filter(lambda number: number % 1 == 0),
            "amount": st.none() | SMALL,
            "vip": st.none() | st.booleans(),
            "at": st.integers(0, 10**12),
        }
    ),
    min_size=5,
    max_size=15,
)


@pytest.fixture(scope="module")
def met():
    """How often something was met; a law that was never put to the test is none."""
    counted: Counter[str] = Counter()
    yield counted
    print(dict(counted))  # noqa: T201 - says what was really tried


@pytest.mark.slow
@settings(max_examples=1500)
@given(DENSE, st.one_of(ROWS, SMALL_ROWS))
def test_a_filter_that_is_impossible_passes_nothing_and_one_that_is_not_a_filter_passes_all(met, expression, rows):
    condition, facts = normalise(expression), Facts(FIELDS)
    truths = {value(expression, row) for row in rows}
    met["conditions"] += 1
    if not may_hold(condition, facts):
        met["never"] += 1
        assert True not in truths
    if never_false(condition, facts):
        met["never false"] += 1
        assert False not in truths
    if always_holds(condition, facts):
        met["always"] += 1
        assert truths <= {True}


def test_that_law_has_been_put_to_the_test(met):
    assert met["conditions"] == 0 or min(met["never"], met["never false"], met["always"]) >= 5


AMOUNTS = ["-0.01", "0", "0.01", "0.02", "1", "60"]
WHERES: Any = st.sampled_from(
    [
        None, "amount > 0", "amount >= 0", {"amount": {">": 0, "<": "0.03"}}, "amount < 0", "kind = 'a'", "flag",
        "kind IN ('a', 'b')", "kind = 'a' AND amount > 0", "n = 1", "amount > 0 OR n = 1", "n > 0 AND n < 1",
    ]
)  # fmt: skip
OPERATORS: Any = st.sampled_from([">", ">=", "<", "<=", "=", "!="])
LENGTHS: Any = st.sampled_from(["1ms", "5ms", "20ms", "60s"])
FUNCTIONS = [*rule_texts.FUNCTIONS, "median", "mode", "percentile"]


@st.composite
def features(draw: st.DrawFn) -> dict[str, Any]:
    function = draw(st.sampled_from(FUNCTIONS))
    feature: dict[str, Any] = {"function": function}
    if function in ("same_count", "count_distinct"):
        feature["of"] = draw(st.sampled_from(["amount", "flag", "kind", "n"]))
    elif rule_texts.FUNCTIONS.get(function, ("",)):
        feature["of"] = draw(st.sampled_from(["amount", "amount", "n"]))
    if function == "percentile":
        feature["p"] = 50
    left = draw(st.sampled_from(["open", "closed"]))
    where = draw(WHERES)
    more = {} if where is None or draw(st.booleans()) else {"where": where}
    return {**feature, **more, "window": {"length": draw(LENGTHS), "left": left}}


@st.composite
def lint_rules(draw: st.DrawFn, number: int) -> dict[str, Any]:
    """Rules whose limits are near what their values can be."""
    rule: dict[str, Any] = {"rule_id": f"r{number}", "group_by": draw(st.sampled_from([["k"], ["k"], []]))}
    where = draw(WHERES)
    rule |= {} if where is None else {"where": where}
    if draw(st.integers(0, 2)) == 0:
        limit = {"operator": draw(OPERATORS), "value": draw(st.sampled_from(AMOUNTS))}
        function = draw(st.sampled_from(["count", "sum", "avg", "min", "max"]))
        aggregate = {"function": function, **({} if function == "count" else {"measure": "amount"})}
        return rule | {"aggregate": aggregate, "window": {"length": draw(LENGTHS)}, "limit": limit}
    rule["features"] = {f"f{at}": draw(features()) for at in range(draw(st.integers(1, 2)))}
    parts = []
    for name, feature in rule["features"].items():
        limit = draw(st.sampled_from([*AMOUNTS, "f0 + 0" if feature is rule["features"]["f0"] else "1", "amount"]))
        is_boolean = feature["function"] == "is_first"
        if is_boolean:
            limit = "TRUE"
        operator = draw(st.sampled_from(["=", "!="]) if is_boolean else OPERATORS)
        parts.append(f"{name} {operator} {limit}" if "f0 +" not in limit or not is_boolean else name)
    if rule["features"]["f0"]["function"] == "is_first":
        parts = [part.replace("f0 + 0", "1") for part in parts]
    if draw(st.booleans()):
        parts.append(draw(st.sampled_from(["amount > 0", "amount < 0", "kind = 'c'", "n = 2", "flag"])))
    return rule | {"when": draw(st.sampled_from([" AND ", " OR "])).join(parts)}


@st.composite
def event_tables(draw: st.DrawFn) -> pa.Table:
    rows, clock_ms = [], 1_700_000_000_000
    for at in range(draw(st.integers(1, 12))):
        clock_ms += draw(st.sampled_from([0, 1, 4, 5, 6, 20, 21, 59_999, 60_000]))
        rows.append(
            {
                "id": f"e{at}",
                "time": clock_ms + draw(st.sampled_from([0, 0, 0, -3])),
                "k": draw(st.sampled_from(["x", "x", "y"])),
                "kind": draw(st.sampled_from(["a", "a", "b", "c", None])),
                "flag": draw(st.booleans()),
                "n": draw(st.sampled_from([0, 1, 1, 2])),
                "amount": Decimal(draw(st.sampled_from(AMOUNTS))),
                "fee": Decimal(0),
            }
        )
    kinds = {"time": pa.int64(), "n": pa.int64(), "flag": pa.bool_()}
    kinds |= dict.fromkeys(("amount", "fee"), pa.decimal128(20, 2))
    return pa.table({name: pa.array([row[name] for row in rows], kinds.get(name, pa.string())) for name in rows[0]})


ENGINES: Any = st.sampled_from(
    [
        {},
        {"late": "evaluate"},
        {"allowed_lateness": "0ms", "precision": {"tail": "60s", "resolution": "1ms"}},
        {"allowed_lateness": "0ms", "precision": {"tail": "2ms", "resolution": "4ms", "edge": "exclude"}},
        {"allowed_lateness": "0ms", "precision": {"tail": "0ms", "resolution": "1h", "edge": "prorate"}},
        {"allowed_lateness": "0ms", "precision": {"tail": "0ms", "resolution": "30ms", "edge": "include"}},
    ]
)


@pytest.mark.slow
@settings(max_examples=400)
@given(data=st.data(), events=event_tables(), engine=ENGINES)
def test_a_rule_that_never_fires_does_not_and_one_that_always_fires_does(met, data, events, engine):
    settings_of = EngineSettings.model_validate(engine)
    drawn = [Rule.model_validate(data.draw(lint_rules(number))) for number in range(6)]
    report = look(Subject(tuple(drawn), NOW_MS, SCHEMA, settings_of))
    by_rule: dict[str, set[str]] = {rule.rule_id: set() for rule in drawn}
    for finding in report.findings:
        if finding.code.code != "B104" or finding.path == ("where",):
            by_rule[finding.rule_id].add(finding.code.code)
        if "is null" in finding.message:
            by_rule[finding.rule_id].discard("B102")
    kept = [rule for rule in drawn if "B301" not in by_rule[rule.rule_id]]
    if not kept:
        return
    results = buckets.evaluate(events, kept, SCHEMA, settings_of)
    fired: dict[str, set[int]] = {rule.rule_id: set() for rule in kept}
    for row in results.alerts.select(["rule_id", "position"]).to_pylist():
        fired[row["rule_id"]].add(row["position"])
    evaluated = Counter(results.evaluations["rule_id"].to_pylist())
    for rule in kept:
        said = by_rule[rule.rule_id]
        met["rules"] += 1
        if said & {"B101", "B104"}:
            met["rules that never fire"] += 1
            assert not fired[rule.rule_id], (rule, said)
        if "B102" in said:
            met["rules that always fire"] += evaluated[rule.rule_id] > 0
            assert len(fired[rule.rule_id]) == evaluated[rule.rule_id], (rule, said)
    check_copies(met, report, fired)


def check_copies(met, report: Report, fired: dict[str, set[int]]) -> None:
    """See that a rule that is the same as another one fires where that does, and an implied one nowhere else."""
    for finding in report.findings:
        if finding.code.code not in ("B201", "B202") or finding.rule_id not in fired:
            continue
        (other,) = re.findall(r"rule '(\w+)'", finding.message)
        met[finding.code.code] += bool(fired[finding.rule_id])
        assert fired[finding.rule_id] <= fired[other]
        assert finding.code.code == "B202" or fired[finding.rule_id] == fired[other]


@settings(max_examples=100)
@given(data=st.data(), events=event_tables())
def test_rules_that_are_the_same_or_implied_fire_together(met, data, events):
    """Rules of few forms, so that many are."""
    forms = st.builds(
        limited,
        st.sampled_from(["count", "sum"]),
        st.sampled_from([">", ">=", "<", "="]),
        st.sampled_from(["1", "2", "0.01"]),
        group_by=st.just(["k"]),
        where=st.sampled_from(["amount > 0", {"amount": {">": "0.00"}}, "kind = 'a'"]),
        window=st.just({"length": "60s"}),
    )
    conditions = ["n0 > 1", "n0 > 1 AND s0 > 0", "n0 >= 2", "n0 > 2 OR s0 = 1", "s0 >= 0.01 AND n0 > 1", "s0 > amount"]
    named = {
        "n0": {"function": "count", "window": "60s"},
        "s0": {"function": "sum", "of": "amount", "window": "60s"},
    }
    with_features = st.sampled_from(conditions).map(lambda each: of_features(each, named))
    drawn = data.draw(st.lists(st.one_of(forms, with_features), min_size=6, max_size=6))
    rules = [Rule.model_validate({"rule_id": f"r{at}", **each}) for at, each in enumerate(drawn)]
    results = buckets.evaluate(events, rules, SCHEMA)
    fired: dict[str, set[int]] = {rule.rule_id: set() for rule in rules}
    for row in results.alerts.select(["rule_id", "position"]).to_pylist():
        fired[row["rule_id"]].add(row["position"])
    check_copies(met, look(Subject(tuple(rules), NOW_MS, SCHEMA)), fired)


def of_features(condition: str, named: dict[str, Any]) -> dict[str, Any]:
    features = {name: feature for name, feature in named.items() if name in condition}
    return {"group_by": ["k"], "features": features, "when": condition}


@settings(max_examples=300)
@given(text=rule_texts.rule_texts(), has_schema=st.booleans(), engine=rule_texts.ENGINES)
def test_no_valid_rule_file_stops_the_lint(tmp_path_factory, met, text, has_schema, engine):
    path = tmp_path_factory.getbasetemp() / "lint-rules.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    schema = rule_texts.SCHEMA if has_schema else None
    try:
        rules = load_rules(path, schema)
    except buckets.BucketsError:
        return
    met["files"] += 1
    lines = rule_lines(path)
    live = tuple(rule for rule in rules if rule.state != "DELETE")
    engine_settings = EngineSettings.model_validate(engine) if has_schema else None
    for finding in look(Subject(live, NOW_MS, schema, engine_settings)).findings:
        met["findings"] += 1
        assert finding.message.isprintable()
        assert len(finding.message) < 1500
        assert 1 <= lines[finding.rule_id].line(finding.path) <= text.count("\n") + text.count("\r") + 1


# --- events -----------------------------------------------------------------------------------------------------

TRIED = [
    filtered("kind = 'a'", rule_id="as"),
    limited("count", ">=", 2, rule_id="pairs", state="DRAFT", cooldown="1h", effective={"until": "2000-01-01"}),
    when("total > 0.01 AND flag", rule_id="flagged", group_by=["kind"], state="PAUSE"),
]


@settings(max_examples=50)
@given(event_tables(), st.integers(1, 5))
def test_a_summary_counts_what_a_loop_counts_and_rules_fire_as_without_a_policy(events, batch_rows):
    rules = [Rule.model_validate(each) for each in TRIED]
    pieces = [events.slice(at, batch_rows) for at in range(0, len(events), batch_rows)]
    arrivals = (rows for piece in pieces for rows in table_arrivals(piece, SCHEMA, frozenset()))
    summary = summarise(arrivals, rules, SCHEMA, EngineSettings())
    rows = events.to_pylist()
    assert (summary.events, summary.broken) == (len(rows), 0)
    assert summary.passed[rules[0].where] == sum(row["kind"] == "a" for row in rows)
    assert summary.nulls["kind"] == sum(row["kind"] is None for row in rows)
    by_k = Counter(row["k"] for row in rows)
    assert (summary.keys["k",].keys, summary.keys["k",].largest) == (len(by_k), max(by_k.values()))
    plain = [rule.model_copy(update={"state": "ACTIVE", "cooldown": None, "effective": None}) for rule in rules]
    alerts = Counter(buckets.evaluate(events, plain, SCHEMA).alerts["rule_id"].to_pylist())
    assert summary.fired == {rule.rule_id: alerts[rule.rule_id] for rule in rules}


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_a_file_of_any_kind_says_the_same(tmp_path, kind):
    rows = [row_of(at) for at in range(50)]
    table = pa.Table.from_pylist(rows)
    path = tmp_path / f"events.{kind}"
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows) + "no event\n")
    elif kind == "csv":
        pacsv.write_csv(table, path)
    else:
        pq.write_table(table, path)
    rules = [
        Rule.model_validate(limited("count", ">=", 2, rule_id="r", group_by=["cardId"], where={"paymentType": "CRD"}))
    ]
    file = open_event_file(path, CARD_PAYMENT, frozenset())
    told: list[int] = []
    summary = summarise(file_arrivals(file, CARD_PAYMENT, 20), rules, CARD_PAYMENT, EngineSettings(), told.append)
    assert (summary.events, summary.broken, summary.fired) == (50, kind == "jsonl", {"r": 15})
    assert summary.passed == {rules[0].where: 25}
    assert told[-1] == 50 + (kind == "jsonl")


def test_rules_that_cannot_be_tried_are_left_out():
    rules = [Rule.model_validate({"rule_id": "alerts", "on": "alerts", **limited("count", ">", 5)})]
    summary = summarise([], rules, SCHEMA, EngineSettings())
    assert summary == EventSummary(0, 0, {}, {}, {}, {})
