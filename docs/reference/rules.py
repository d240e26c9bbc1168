"""The page of rules, from the published schema of a rule, which tests hold to the models."""

import json
from collections.abc import Iterator
from typing import Any

from buckets.resources import resource
from docs.reference.markdown import code, table

Schema = dict[str, Any]
_INTRO = """\
# Rules

What a rule may say. A rule file is YAML 1.2 with a list `rules`, and optionally `tests`. A rule has `aggregate`,
`window` and `limit`, or `when` with its `features`. [Write rules](../guides/write-rules.md) explains both forms with
examples; `buckets rules schema` prints the same as a JSON schema for editors.

"""
_FUNCTIONS = "one of the [aggregates](aggregates.md)"


def page() -> str:
    """Return the page."""
    published = json.loads(resource("schemas/rule-change-v1.json").read_text(encoding="utf-8"))["$defs"]
    rule, feature = published["rule"], published["feature"]
    inner = {name: field for name, field in rule["properties"].items() if "properties" in field}
    inner["snoozes"] = rule["properties"]["snoozes"]["items"]
    parts = [_INTRO, "## A rule { #rule }\n\n", _fields(rule, published)]
    parts += ["\n## A feature { #feature }\n\n", _fields(feature, published)]
    parts += ["\n## `window`\n\n", _fields(published["window"], published)]
    for name, field in inner.items():
        parts += [f"\n## `{name}`\n\n", _fields(field, published)]
    return "".join(parts)


def _fields(schema: Schema, published: Schema) -> str:
    required = schema.get("required", [])
    rows = [
        (code(name), _type(name, field, published), _default(name, field, required), _meaning(field, published))
        for name, field in schema["properties"].items()
    ]
    return table(("Field", "Type", "Default", "Meaning"), rows)


def _meaning(field: Schema, published: Schema) -> str:
    described: str = field.get("description") or _target(field, published).get("description", "")
    return " ".join([described, *_limits(field)])


def _target(field: Schema, published: Schema) -> Schema:
    name = field.get("$ref", "").rpartition("/")[2]
    target: Schema = published.get(name, {})
    return target


def _type(name: str, field: Schema, published: Schema) -> str:
    """Return a type in words."""
    if name == "function":
        return _FUNCTIONS
    if "$ref" in field:
        return _type(field["$ref"].rpartition("/")[2], _target(field, published), published)
    if name == "window":
        return "duration or mapping"
    if "anyOf" in field:
        words = (_type(name, form, published) for form in field["anyOf"] if form.get("type") != "null")
        return " or ".join(dict.fromkeys(words))
    if "enum" in field:
        return " or ".join(code(value) for value in field["enum"] if value is not None)
    written = field.get("type", "text")
    kinds = [kind for kind in ([written] if isinstance(written, str) else written) if kind != "null"]
    if "ms|s|m|h|d" in field.get("pattern", ""):
        return "duration"
    words_of = {"string": "text", "integer": "whole number", "boolean": "true or false", "object": "mapping"}
    return " or ".join(words_of.get(kind, {"array": "list", "number": "number"}.get(kind, kind)) for kind in kinds)


def _default(name: str, field: Schema, required: list[str]) -> str:
    if name in required:
        return "required"
    default = field.get("default")
    return "" if default in (None, "", [], {}) else code(json.dumps(default).strip('"'))


def _limits(field: Schema) -> Iterator[str]:
    texts = {"minimum": "At least {:,}.", "maximum": "At most {:,}.", "maxLength": "At most {:,} characters.",
             "maxItems": "At most {:,} entries.", "maxProperties": "At most {:,} entries."}  # fmt: skip
    yield from (text.format(field[name]) for name, text in texts.items() if name in field)
