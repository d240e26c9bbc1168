"""Rules, filters and rule sets in which fields of the event have other names.

What a timeline holds does not name its fields. Its group does: the identity of a group is a hash of its fields and its
filter, and its columns are named after tracks. So a rule set with other names says which group each group becomes, and
each column stays where it is.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from buckets.expressions.expression import Expression
from buckets.rules.feature import ALERT_FIELDS
from buckets.rules.filter import Filter, parse_filter, write_filter
from buckets.rules.group import Group, group_id
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet

Names = Mapping[str, str]  # The new name of each field that is renamed


@dataclass(frozen=True)
class RenamedRules:
    """A rule set in which fields have other names."""

    rule_set: RuleSet  # the rule set
    groups: dict[str, Group]  # by the identity of each group before, the group that it is now


def renamed_rules(before: RuleSet, names: Names, version: int) -> RenamedRules:
    """Return a rule set in which fields have other names; rules keep their versions, and groups their timelines."""
    rules = [renamed_rule(rule, names) for rule in before.rules]
    written = json.loads(before.to_json())
    groups = (*before.groups, *before.alert_groups)
    identities = {group.group_id: _identity(group, names) for group in groups}
    columns = {identity: tracks for identity, tracks in written["columns"].items() if identity not in identities}
    complete, generations = {}, {}
    for group in groups:
        identity, tracks = identities[group.group_id], _renamed_tracks(group, names)
        columns[identity] = [
            tracks.get(name, names.get(name, f"version {before.version}: {name}" if "(" in name else name))
            for name in group.measures
        ]
        of_group = written["complete_since_ms"][group.group_id]
        complete[identity] = {tracks.get(track, track): since for track, since in of_group.items()}
        generations[identity] = group.generation
    text = {
        "version": version,
        "rules": [rule.model_dump(by_alias=True, mode="json") for rule in rules],
        "columns": columns,
        "complete_since_ms": complete,
        "generations": generations,
    }
    if before.fills_begun:  # Timelines that were filled stay where they are.
        timelines = {identities[group.group_id]: group.timelines for group in groups if group.timelines}
        text |= {"timelines": timelines, "fills_begun": before.fills_begun}
    rule_set = RuleSet.from_json(json.dumps(text))
    found = {group.group_id: group for group in (*rule_set.groups, *rule_set.alert_groups)}
    return RenamedRules(rule_set, {before_id: found[identity] for before_id, identity in identities.items()})


def renamed_rule(rule: Rule, names: Names) -> Rule:
    """Return a rule in which fields have other names; fields of alerts keep theirs."""
    mine = _names_of(rule, names)
    written = rule.model_dump(by_alias=True, mode="json")
    _rename_grouping(written, mine)
    if "aggregate" in written:
        measure = written["aggregate"]["measure"]
        written["aggregate"]["measure"] = mine.get(measure, measure)
    for feature in written.get("features", {}).values():
        _rename_grouping(feature, mine)
        if "of" in feature:
            feature["of"] = mine.get(feature["of"], feature["of"])
    if "when" in written:
        without = {name: new for name, new in mine.items() if name not in rule.features}
        written["when"] = renamed_sql(rule.when.text, without)
    for snooze in written.get("snoozes", ()):
        if snooze.get("key") is not None:
            snooze["key"] = {mine.get(name, name): value for name, value in snooze["key"].items()}
    return Rule.model_validate(written)


def renamed_filter(where: Filter, names: Names) -> Filter:
    """Return a filter in which fields have other names."""
    return parse_filter(_renamed_written(write_filter(where), names))


def renamed_sql(text: str, names: Names) -> str:
    """Return a condition in SQL in which fields have other names, and everything else stands as it was written."""
    from buckets.expressions.expression import quoted_name
    from buckets.expressions.parser import parse_expression

    found = sorted({field.at: str(field.value) for field in _fields(parse_expression(text))}.items(), reverse=True)
    for at, name in found:
        if name in names:
            length = len(name) + name.count("`") + 2 if text[at] == "`" else len(name)
            text = text[:at] + quoted_name(names[name]) + text[at + length :]
    return text


def _fields(expression: Expression) -> list[Expression]:
    """Return the fields in an expression."""
    if expression.operator == "field":
        return [expression]
    return [field for operand in expression.operands for field in _fields(operand)]


def _names_of(rule: Rule, names: Names) -> Names:
    return {name: new for name, new in names.items() if rule.on == "events" or name not in ALERT_FIELDS}


def _rename_grouping(written: dict[str, Any], names: Names) -> None:
    """Rename the fields in `group_by` and `where` of a rule or a feature."""
    if written.get("group_by") is not None:
        written["group_by"] = [names.get(field, field) for field in written["group_by"]]
    if written.get("where") is not None:
        written["where"] = _renamed_written(written["where"], names)


def _renamed_written(where: dict[str, Any] | str, names: Names) -> dict[str, Any] | str:
    if isinstance(where, str):
        return renamed_sql(where, names)
    return {names.get(field, field): test for field, test in where.items()}


def _identity(group: Group, names: Names) -> str:
    mine = {name: new for name, new in names.items() if group.on == "events" or name not in ALERT_FIELDS}
    return group_id([mine.get(field, field) for field in group.fields], renamed_filter(group.where, mine), group.on)


def _renamed_tracks(group: Group, names: Names) -> dict[str, str]:
    """Return the new names of the tracks that the rules of a group read."""
    found: dict[str, str] = {}
    for rule in group.rules:
        mine, renamed = _names_of(rule, names), renamed_rule(rule, names)
        fields = [mine.get(field, field) for field in group.fields]
        for part, new in zip(rule.parts(group.fields), renamed.parts(fields), strict=True):
            found |= {track.name: other.name for track, other in zip(part.tracks, new.tracks, strict=True)}
    return found
