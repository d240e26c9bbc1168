"""Every YAML example of the README is valid, and fits the event schema that stands above it."""

import re
import textwrap

import pytest
import yaml

import buckets
from buckets.config.settings import JobSettings
from buckets.resources import resource

README = (resource("conf").parent / "README.md").read_text(encoding="utf-8")
EXAMPLES = [textwrap.dedent(block) for block in re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)]
RULE = """rules:
  - rule_id: r
    group_by: [payerId]
    aggregate: {function: count}
    window: {length: 1h}
    limit: {operator: ">", value: 1}
"""
JOB = {
    "source": {"kind": "json", "path": "in"},
    "schema": "schema.yaml",
    "rules": "rules.yaml",
    "checkpoint": "checkpoint",
    "output": {"path": "tables"},
    "kafka": {"bootstrap_servers": "localhost:9092"},
}


def as_rule_files(example: str) -> list[str]:
    """The rule files that an example of rules is, or is a part of; none of an example of something else."""
    if re.search(r"^rules:$", example, re.MULTILINE):
        return [example]
    if example.startswith("- rule_id:"):
        return [f"rules:\n{example}"]
    if example.startswith("where:"):
        return [f"{RULE}    {line}\n" for line in example.splitlines()]
    return [f"{RULE}    {example}"] if example.startswith("silence:") else []


@pytest.fixture
def schema(tmp_path):
    (written,) = [example for example in EXAMPLES if "event_id:" in example]
    (tmp_path / "schema.yaml").write_text(written, encoding="utf-8")
    found = buckets.load_event_schema(tmp_path / "schema.yaml")
    assert found == buckets.load_event_schema(resource("schemas/transaction.yaml"))
    return found


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example[:20])
def test_each_example_is_valid(tmp_path, monkeypatch, schema, example):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KAFKA_PASSWORD", "secret")
    (tmp_path / "ca.pem").touch()
    files = as_rule_files(example)
    for text in files:
        (tmp_path / "rules.yaml").write_text(text, encoding="utf-8")
        assert buckets.load_rules(tmp_path / "rules.yaml", schema)
    if not files and "event_id:" not in example:
        JobSettings.model_validate(JOB | yaml.safe_load(example))


def test_examples_of_every_kind_are_found():
    of_rules = [example for example in EXAMPLES if as_rule_files(example)]
    assert len(of_rules) >= 8
    assert len(EXAMPLES) - len(of_rules) >= 5
