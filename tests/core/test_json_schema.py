"""The JSON schema of a rule file agrees with what reads rule files."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from jsonschema import Draft202012Validator

from buckets.events.schema import load_event_schema
from buckets.resources import DEFAULT_SCHEMA, DEMO_RULES
from buckets.rule_files.rule_tests import rule_file_schema
from buckets.rule_files.yaml_editor import rules_text
from tests.core.examples import SCHEMA, written_rule
from tests.strategies import SCHEMA as STREAM_SCHEMA
from tests.strategies import rules

KNOWN, UNKNOWN = Draft202012Validator(rule_file_schema(SCHEMA)), Draft202012Validator(rule_file_schema(None))


def file_of(**changes: Any) -> dict[str, Any]:
    return {"rules": [written_rule(**changes)]}


@given(rules())
def test_rules_that_are_written_fit(many):
    written = yaml.safe_load(rules_text(many))
    UNKNOWN.validate(written)
    Draft202012Validator(rule_file_schema(STREAM_SCHEMA)).validate(written)


def test_the_rules_of_the_demo_fit():
    check = Draft202012Validator(rule_file_schema(load_event_schema(DEFAULT_SCHEMA)))
    check.validate(yaml.safe_load(DEMO_RULES.read_text()))


def test_a_rule_over_alerts_fits():
    KNOWN.validate(file_of(on="alerts", group_by=["alert_rule"], where={"alert_severity": "high"}))
    KNOWN.validate(file_of(on="alerts", aggregate={"function": "sum", "measure": "alert_score"}))


@pytest.mark.parametrize(("score", "fits"), [(40, True), ("40 + amount / 2", True), (-1, False), (1.5, False)])
def test_a_score_is_a_number_or_sql(score, fits):
    assert KNOWN.is_valid(file_of(score=score)) == fits


@pytest.mark.parametrize("where", [{"kind": "a"}, {"amount": {">": 5}}, "kind = 'a' OR amount > 5"])
def test_a_filter_in_either_form_fits(where):
    KNOWN.validate(file_of(where=where))


@pytest.mark.parametrize(
    "changes",
    [
        {"group_by": ["amount"]},
        {"group_by": ["nobody"]},
        {"where": {"nobody": 1}},
        {"aggregate": {"function": "sum", "measure": "payer"}},
        {"aggregate": {"function": "sum", "measure": None}},
    ],
)
def test_fields_that_the_event_schema_does_not_declare_do_not_fit(changes):
    assert not KNOWN.is_valid(file_of(**changes))


@pytest.mark.parametrize("changes", [{"window": None}, {"limit": {"operator": "=>", "value": 1}}, {"colour": "red"}])
def test_what_is_no_rule_does_not_fit(changes):
    assert not UNKNOWN.is_valid(file_of(**changes))


@pytest.mark.parametrize("written", [{}, {"rules": []}, {"rules": [written_rule()], "rule": 1}, []])
def test_what_is_no_rule_file_does_not_fit(written):
    assert not UNKNOWN.is_valid(written)


def test_a_feature_is_not_called_like_a_field_of_the_event():
    feature = {"function": "count", "window": "1h"}
    for name, fits in (("recent", True), ("amount", False), ("payer", False)):
        rule = {"rule_id": "r", "group_by": ["payer"], "features": {name: feature}, "when": "TRUE"}
        assert KNOWN.is_valid({"rules": [rule]}) is fits
        assert UNKNOWN.is_valid({"rules": [rule]})
