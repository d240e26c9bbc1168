"""How the rules of a walk come into force: as a file, or as messages of a topic."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import yaml

from tests.kafka.broker import TestBroker
from tests.walk.catalogue import Written

TOPIC = "rules"


class RulesOf(Protocol):
    """Where a job reads its rules."""

    @property
    def settings(self) -> Any:
        """`rules` of the configuration."""

    def write(self, rules: Sequence[Written]) -> None:
        """Have these rules in force, and no others."""


class RuleFile:
    """A file."""

    settings = "rules.yaml"

    def __init__(self, root: Path) -> None:
        self._file = root / self.settings

    def write(self, rules: Sequence[Written]) -> None:
        put(self._file, yaml.safe_dump({"rules": list(rules)}))


class RuleTopic:
    """A compacted topic."""

    def __init__(self, broker: TestBroker) -> None:
        self.settings = {"topic": TOPIC}
        self._broker = broker
        self._there: dict[str, Written] = {}

    def write(self, rules: Sequence[Written]) -> None:
        wanted = {rule["rule_id"]: rule for rule in rules}
        changed = [rule for rule_id, rule in wanted.items() if self._there.get(rule_id) != rule]
        messages = {rule["rule_id"]: json.dumps(rule) for rule in changed}
        gone = dict.fromkeys(self._there.keys() - wanted.keys())
        self._send(messages | gone)
        self._there = wanted

    def clear(self, rule_id: str) -> None:
        """Have the group of a rule start again."""
        self._send({f"!clear_state {rule_id}": json.dumps({"change": "clear_state", "rule_id": rule_id})})

    def _send(self, messages: dict[str, str | None]) -> None:
        if messages:
            self._broker.produce(TOPIC, list(messages.values()), list(messages))


def put(file: Path, text: str) -> None:
    """Write a file, whole at once."""
    partial = file.with_name(f".{file.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(file)
