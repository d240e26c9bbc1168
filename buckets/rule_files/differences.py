"""Differences between rules, field by field in their written form, and between two versions of all rules."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from buckets.json_text import write_json
from buckets.printable import one_line
from buckets.rule_files.yaml_editor import written_rule
from buckets.rules.rule import POLICY_FIELDS, Rule
from buckets.yaml_dialect import write_yaml

_DEFAULTS: dict[str, Any] = {"state": "ACTIVE", "rollout": "100%", "on": "events"} | {
    name: False for name in POLICY_FIELDS if Rule.model_fields[name].default is False
}
"""Defaults of fields that are not written; all others have none."""


@dataclass(frozen=True)
class FieldDifference:
    """A field that differs between two rules."""

    name: str  # of the field; `features.recent` of a feature
    before: str  # what it said, on one line
    after: str  # what it says

    def __str__(self) -> str:
        return f"{self.name}: {self.before} → {self.after}"


@dataclass(frozen=True)
class RuleDifference:
    """A new, deleted or changed rule."""

    before: Rule | None  # the rule as it was; None if it is new
    after: Rule | None  # the rule as it is; None if it is gone
    fields: tuple[FieldDifference, ...] = ()  # what differs of a changed one

    @property
    def rule_id(self) -> str:
        """The rule's id."""
        rule = self.after or self.before
        assert rule is not None
        return rule.rule_id

    @property
    def change(self) -> str:
        """The kind of change: `new`, `gone` or `changed`."""
        return "new" if self.before is None else "gone" if self.after is None else "changed"


def rules_that_differ(before: Iterable[Rule], after: Iterable[Rule]) -> list[RuleDifference]:
    """Return the new, deleted or changed rules, by id; a different version alone is not a change."""
    old, new = ({rule.rule_id: rule for rule in rules} for rules in (before, after))
    differences = []
    for rule_id in sorted({**old, **new}):
        one, other = old.get(rule_id), new.get(rule_id)
        fields = () if one is None or other is None else tuple(fields_that_differ(one, other))
        if one is None or other is None or fields:
            differences.append(RuleDifference(one, other, fields))
    return differences


def fields_that_differ(before: Rule, after: Rule) -> Iterator[FieldDifference]:
    """Yield the fields that differ between two rules, except id and version."""
    old, new = written_rule(before), written_rule(after)
    for name in Rule.model_fields:
        if name == "features":
            before_all, after_all = old.get(name, {}), new.get(name, {})
            for feature in {**before_all, **after_all}:
                one, other = before_all.get(feature), after_all.get(feature)
                if one != other:
                    yield FieldDifference(f"features.{feature}", _feature(one), _feature(other))
        elif name not in ("rule_id", "version") and old.get(name) != new.get(name):
            yield FieldDifference(name, _short(name, old), _short(name, new))


def _feature(written: dict[str, Any] | None) -> str:
    return "none" if written is None else one_line(write_yaml(written, flow=True))


def _short(name: str, written: dict[str, Any]) -> str:
    value: Any = written.get(name, _DEFAULTS.get(name))
    if isinstance(value, dict) and name in ("aggregate", "window", "limit"):
        return " ".join(str(part) for part in value.values())
    if name == "group_by":
        return ", ".join(value) or "all events"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not value:
        return "none"
    return one_line(value if isinstance(value, str) else write_json(value))


def difference(before: Rule | None, after: Rule | None) -> str:
    """Describe the difference between two versions of a rule; the whole rule if it is new or deleted."""
    if before is None or after is None:
        there = after or before
        return "" if there is None else there.sentence()
    return "; ".join(map(str, fields_that_differ(before, after)))
