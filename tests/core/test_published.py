"""What is published of the aggregates is what they say of themselves."""

import json

from buckets.resources import resource
from tests import published


def test_the_schema_of_rules_has_the_functions():
    text = published.SCHEMA.read_text(encoding="utf-8")
    assert text == published.rule_change_schema(), "run `python -m tests.published`"
    assert json.loads(text) == json.loads(resource("schemas/rule-change-v1.json").read_text(encoding="utf-8"))
