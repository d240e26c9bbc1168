"""The JSON schema of a rule file, with which editors complete and check it while it is written."""

import json
from typing import Any

from pydantic import TypeAdapter

from buckets.events.schema import EventSchema
from buckets.resources import resource
from buckets.rule_files.rule_tests import RuleTest
from buckets.rules.alert_schema import ALERT_FIELDS, alert_schema

_CHANGES = resource("schemas/rule-change-v1.json")


def rule_file_schema(event_schema: EventSchema | None) -> dict[str, Any]:
    """Return a JSON schema (2020-12) with the rules of the published changes, and the tests of the models.

    Args:
        event_schema: if given, a rule may group by its attributes, aggregate its fields and filter on them alone, or on
            those of alerts on its events; and no feature has the name of one.
    """
    published = json.loads(_CHANGES.read_text(encoding="utf-8"))["$defs"]
    rule, feature = published["rule"]["properties"], published["feature"]["properties"]
    if event_schema is not None:
        counted = event_schema if _has_alert_fields(event_schema) else alert_schema(event_schema)
        fields = [*counted.attributes, *counted.measures]
        for grouping in (rule["group_by"], feature["group_by"]):
            grouping["items"]["enum"] = list(counted.attributes)
        _mapping(published["filter"])["propertyNames"] = {"enum": fields}
        rule["aggregate"]["properties"]["measure"] = {"enum": [*counted.measures, None]}
        feature["of"] = {**feature["of"], "enum": [*fields, None]}
        rule["features"]["propertyNames"]["not"] = {"enum": list(event_schema.field_names)}
    tests = TypeAdapter(list[RuleTest]).json_schema(ref_template="#/$defs/{model}")
    written = tests.pop("$defs")
    if event_schema is not None:
        written["RuleTest"]["properties"]["defaults"]["propertyNames"] = {"enum": list(event_schema.field_names)}
        written["GivenEvent"]["propertyNames"] = {"enum": [*event_schema.field_names, "at", "repeat"]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Rules" if event_schema is None else f"Rules over events of {event_schema.name}",
        "description": "A rule file of buckets.",
        "type": "object",
        "required": ["rules"],
        "additionalProperties": False,
        "properties": {
            "rules": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/rule"}},
            "tests": {"description": "Given events, and what is expected to come out.", **tests},
        },
        "$defs": {name: published[name] for name in ("rule", "feature", "filter", "window", "state")} | written,
    }


def _has_alert_fields(schema: EventSchema) -> bool:
    """Return whether events have a field that only alerts may have, so that there are no rules over alerts."""
    return not set(ALERT_FIELDS).isdisjoint(schema.field_names)


def _mapping(where: dict[str, Any]) -> dict[str, Any]:
    """Return the form of a filter that is a mapping, not SQL."""
    mapping: dict[str, Any] = next(form for form in where["anyOf"] if form["type"] == "object")
    return mapping
