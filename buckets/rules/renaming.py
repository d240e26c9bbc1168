"""Rules under the current names of fields: an event schema gives their earlier names in `aliases`.

Timelines do not contain names of fields. The identity of a group and its keys use the first names of its fields, so
both remain valid after a renaming, and so do columns.
"""

import json
from collections.abc import Mapping
from typing import Any

from buckets.errors import BucketsError
from buckets.events.derived_fields import renamed_sql
from buckets.events.schema import EventSchema
from buckets.rules.condition import SqlScore
from buckets.rules.feature import ALERT_FIELDS
from buckets.rules.filter import renamed_written
from buckets.rules.group import Group
from buckets.rules.role import fields_of, renamed_field
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet
from buckets.rules.steps import renamed_step

Names = Mapping[str, str]  # The new name of each field that is renamed


def renamed_rules(before: RuleSet, names: Names) -> RuleSet:
    """Return a rule set of the same version under new names; versions of rules and timelines of groups stay."""
    named = {name for rule in before.rules for name in _names_of(rule, names) if name in _fields_of(rule)}
    used = {name: new for name, new in names.items() if name in named}
    if not used:
        return before
    first_names = dict(before.first_names)
    for name, new in used.items():
        first_names[new] = first_names.pop(name, name)
    written = json.loads(before.to_json())
    for group in (*before.groups, *before.alert_groups):
        tracks = _renamed_tracks(group, used)
        written["columns"][group.group_id] = [
            tracks.get(name, used.get(name, f"version {before.version}: {name}" if "(" in name else name))
            for name in group.measures
        ]
        of_group = written["complete_since_ms"][group.group_id]
        written["complete_since_ms"][group.group_id] = {
            tracks.get(track, track): since for track, since in of_group.items()
        }
    rules = [renamed_rule(rule, used).model_dump(by_alias=True, mode="json") for rule in before.rules]
    first_names = {name: first for name, first in first_names.items() if name != first}
    return RuleSet.from_record(written | {"rules": rules, "first_names": first_names})


def check_names(rule_set: RuleSet, schema: EventSchema) -> None:
    """Refuse a new field whose name groups use as the first name of another one, or a renaming during a fill."""
    if rule_set.fills and renamed_rules(rule_set, schema.new_names) is not rule_set:
        message = (
            "the history of rules is being filled in under the names that fields have so far; go on with the event "
            "schema as it was until `buckets rules list` says that it is done"
        )
        raise BucketsError(message)
    for name, first in rule_set.first_names.items():
        if first in schema.field_names and name in schema.field_names:
            message = (
                f"event schema {schema.name!r}: {first} was the name of field {name} before, by which the checkpoint "
                f"still knows its groups; give the field {first} another name"
            )
            raise BucketsError(message)


def renamed_rule(rule: Rule, names: Names) -> Rule:
    """Return a rule with renamed fields; fields of alerts keep their names."""
    mine = _names_of(rule, names)
    if mine.keys().isdisjoint(_fields_of(rule)):
        return rule
    written = rule.model_dump(by_alias=True, mode="json")
    _rename_grouping(written, mine)
    if "aggregate" in written:
        measure = written["aggregate"]["measure"]
        written["aggregate"]["measure"] = mine.get(measure, measure)
    for feature in written.get("features", {}).values():
        _rename_grouping(feature, mine)
        if "of" in feature:
            holder = feature["of"] if isinstance(feature["of"], dict) else feature
            if "of" in holder:
                holder["of"] = mine.get(holder["of"], holder["of"])
        _rename_steps(feature, mine)
    without = {name: new for name, new in mine.items() if name not in rule.features}
    if "when" in written:
        written["when"] = renamed_sql(rule.when.text, without)
    if isinstance(rule.score, SqlScore):
        written["score"] = renamed_sql(rule.score.text, without)
    if "then" in written:
        written["then"]["key"] = mine.get(written["then"]["key"], written["then"]["key"])
    for snooze in written.get("snoozes", ()):
        if snooze.get("key") is not None:
            snooze["key"] = {mine.get(name, name): value for name, value in snooze["key"].items()}
    return Rule.model_validate(written)


def _names_of(rule: Rule, names: Names) -> Names:
    return {name: new for name, new in names.items() if rule.on == "events" or name not in ALERT_FIELDS}


def _fields_of(rule: Rule) -> frozenset[str]:
    features = rule.features.values()
    of = {feature.of for feature in features if feature.of is not None}
    puts = () if rule.then is None else (rule.then.key,)
    return rule.filter_fields.union(
        rule.group_by, of, puts, *(fields_of(feature.group_by or ()) for feature in features)
    )


def _rename_grouping(written: dict[str, Any], names: Names) -> None:
    if written.get("group_by") is not None:
        written["group_by"] = [renamed_field(field, names) for field in written["group_by"]]
    if written.get("where") is not None:
        written["where"] = renamed_written(written["where"], names)


def _rename_steps(written: dict[str, Any], names: Names) -> None:
    field = written.get("step_field")
    if "steps" in written:
        written["steps"] = [renamed_step(step, field, names) for step in written["steps"]]
    if "without" in written:
        written["without"] = renamed_step(written["without"], field, names)
    if field is not None:
        written["step_field"] = names.get(field, field)


def _renamed_tracks(group: Group, names: Names) -> dict[str, str]:
    found: dict[str, str] = {}
    for rule in group.rules:
        mine, renamed = _names_of(rule, names), renamed_rule(rule, names)
        fields = [renamed_field(field, mine) for field in group.fields]
        for part, new in zip(rule.parts(group.fields), renamed.parts(fields), strict=True):
            found |= {track.name: other.name for track, other in zip(part.tracks, new.tracks, strict=True)}
    return found
