"""YAML on pages: rules, event schemas, parts of configurations and lists, each loaded as the program loads it."""

import re
import textwrap
from pathlib import Path

import yaml

import buckets
from buckets.config.settings import JobSettings
from buckets.errors import BucketsError
from buckets.resources import DEFAULT_SCHEMA
from tests.docs.commands import ExampleError

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


def check_yaml(example: str, folder: Path, schema: Path = DEFAULT_SCHEMA) -> None:
    """Check that an example is valid.

    Args:
        example: what stands on the page.
        folder: a folder to write into, with the files that an example names.
        schema: the event schema of its rules.

    Raises:
        ExampleError: it is not.
    """
    example = textwrap.dedent(example)
    path = folder / "example.yaml"
    try:
        if files := as_rule_files(example):
            for text in files:
                path.write_text(text, encoding="utf-8")
                buckets.load_rules(path, buckets.load_event_schema(schema))
            return
        path.write_text(example, encoding="utf-8")
        if re.search(r"^event_id:", example, re.MULTILINE):
            buckets.load_event_schema(path)
        elif example.startswith("- "):
            buckets.load_list(path)
        else:
            JobSettings.model_validate(JOB | yaml.safe_load(example))
    except (BucketsError, ValueError, yaml.YAMLError) as error:
        message = f"{error}\nin\n{example}"
        raise ExampleError(message) from error
