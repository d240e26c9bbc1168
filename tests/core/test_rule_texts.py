"""Any rule file is rules that can be planned and evaluated, or one line that says why not."""

import json
import os
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from jsonschema import Draft202012Validator

import buckets
from buckets.rule_files.differences import difference
from buckets.rule_files.rule_tests import rule_file_schema
from buckets.rule_files.yaml_editor import rules_text
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet, first_rule_set
from buckets.yaml_dialect import read_yaml
from tests.core.rule_texts import ENGINES, SCHEMA, row_tables, rule_texts
from tests.laws import examples

FUZZED = int(os.environ.get("BUCKETS_FUZZ_RULES", examples(2000)))
KNOWN = Draft202012Validator(rule_file_schema(SCHEMA))
LONGEST_ERROR = 800


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("rules") / "rules.yaml"


@pytest.fixture(scope="module")
def met():
    """How often something was met, printed at the end."""
    counted: Counter[str] = Counter()
    yield counted
    print(dict(counted))  # noqa: T201 - says what was really tried


@settings(max_examples=FUZZED)
@given(text=rule_texts(), events=row_tables(), engine=ENGINES)
def test_any_rule_file_is_rules_that_can_be_evaluated_or_one_line_that_says_why_not(file, met, text, events, engine):
    """`BUCKETS_FUZZ_RULES` says how many files."""
    met["files"] += 1
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    rules = loaded(file)
    if rules is None:
        met["refused"] += 1
        return
    check_written(file, rules)
    try:
        evaluator = buckets.Evaluator(rules, SCHEMA, buckets.EngineSettings.model_validate(engine))
    except buckets.BucketsError as error:
        check_error(error)
        met["refused by the engine"] += 1
        return
    met["evaluated"] += 1
    for _ in range(2):
        results = evaluator.recorded(events)
        check_alerts(results)
        met["evaluations"] += results.evaluations.num_rows
        met["alerts"] += results.alerts.num_rows


def loaded(file: Path) -> tuple[Rule, ...] | None:
    """The rules of a file; None if it is refused."""
    try:
        return buckets.load_rules(file, SCHEMA)
    except buckets.BucketsError as error:
        check_error(error)
        return None


def check_error(error: buckets.BucketsError) -> None:
    assert error.message.isprintable()
    assert len(error.message) < LONGEST_ERROR


def check_written(file: Path, rules: tuple[Rule, ...]) -> None:
    """See that rules can be said, written and read again."""
    file.write_text(rules_text(rules), encoding="utf-8")
    assert buckets.load_rules(file, SCHEMA) == rules
    there = [rule for rule in rules if rule.state != "DELETE"]  # a rule that goes may have any name
    if there:
        KNOWN.validate(read_yaml(rules_text(there))[0])
    rule_set = first_rule_set(rules)
    assert RuleSet.from_json(rule_set.to_json()) == rule_set
    for rule in rules:
        assert rule.sentence().isprintable()
        assert difference(rules[0], rule).isprintable()


def check_alerts(results: buckets.Results) -> None:
    alerts: pa.Table = pa.concat_tables([results.alerts, results.shadow_alerts])
    for row in alerts.select(["condition", "terms", "rule"]).to_pylist():
        assert row["rule"].isprintable()
        if row["terms"] is not None:
            assert row["condition"].isprintable()
            assert json.loads(row["terms"])
