"""What the lint calls certain is so, whatever the events are; and no rule file stops it."""

import re
from collections import Counter
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import buckets
from buckets.config.engine import EngineSettings
from buckets.expressions.expression import Expression, normalise
from buckets.lint.lint import Report, look
from buckets.lint.logic import Facts, always_holds, may_hold, never_false, redundant
from buckets.lint.subject import Subject
from buckets.rule_files.yaml_rules import load_rule_file
from buckets.rules.rule import Rule
from tests.core import rule_texts
from tests.core.conditions import ARRAY_ROW, CONDITIONS, FIELDS, ROWS, TEXTS, value
from tests.core.lint_rules import ENGINES, NOW_MS, SCHEMA, event_tables, limited, lint_rules, of_features
from tests.laws import examples

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


DENSE = st.recursive(st.one_of(*[comparisons()] * 4, CONDITIONS), joined, max_leaves=8)
SMALL_ROWS = st.lists(
    st.fixed_dictionaries(
        ARRAY_ROW
        | {
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
    for part, beside in redundant(condition, facts):
        if {part, beside}.issubset(condition.operands):
            met["redundant"] += 1
            others = list(condition.operands)
            others.remove(part)
            rest = Expression(condition.operator, tuple(others))
            assert all((value(rest, row) is True) == (value(condition, row) is True) for row in rows)


def test_that_law_has_been_put_to_the_test(met):
    assert met["conditions"] == 0 or min(met[each] for each in ("never", "never false", "always", "redundant")) >= 3


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
    """See that a rule that is the same as another one fires where that does, and an implied one nowhere else.

    Args:
        met: counts what was tried.
        report: the findings.
        fired: by rule, at which events; without rules that could not be evaluated.
    """
    for finding in report.findings:
        if finding.code.code not in ("B201", "B202"):
            continue
        (other,) = re.findall(r"rule '(\w+)'", finding.message)
        if not {finding.rule_id, other} <= fired.keys():
            continue
        met[finding.code.code] += bool(fired[finding.rule_id])
        assert fired[finding.rule_id] <= fired[other]
        assert finding.code.code == "B202" or fired[finding.rule_id] == fired[other]


@settings(max_examples=examples(400))
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


@settings(max_examples=examples(1200))
@given(text=rule_texts.rule_texts(), has_schema=st.booleans(), engine=rule_texts.ENGINES)
def test_no_valid_rule_file_stops_the_lint(tmp_path_factory, met, text, has_schema, engine):
    path = tmp_path_factory.getbasetemp() / "lint-rules.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    schema = rule_texts.SCHEMA if has_schema else None
    try:
        file = load_rule_file(path, schema)
    except buckets.BucketsError:
        return
    met["files"] += 1
    live = tuple(rule for rule in file.rules if rule.state != "DELETE")
    engine_settings = EngineSettings.model_validate(engine) if has_schema else None
    for finding in look(Subject(live, NOW_MS, schema, engine_settings)).findings:
        met["findings"] += 1
        assert finding.message.isprintable()
        assert len(finding.message) < 1500
        assert 1 <= file.rule_line(finding.rule_id, finding.path) <= text.count("\n") + text.count("\r") + 1
