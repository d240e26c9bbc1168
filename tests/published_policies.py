"""Writes the policies of the registry into the published schemas: `python -m tests.published_policies`."""

import json
import re
from pathlib import Path
from textwrap import indent

from pydantic import create_model

from buckets.outputs.contract import schema_path
from buckets.rules.policies import HELD_BY, POLICIES
from buckets.rules.rule import Rule

CHANGES, HELD = schema_path("rule-change-v1"), schema_path("held-alert-v1")


def published() -> dict[Path, str]:
    """What the schemas say: fields of policies that they lack come in, all else stays as it is written."""
    changes, held = (path.read_text(encoding="utf-8") for path in (CHANGES, HELD))
    known = json.loads(changes)["$defs"]["rule"]["properties"]
    for field in (policy.field for policy in POLICIES if policy.field not in known):
        changes = changes.replace('        "silence": {', f'{_field(field)},\n        "silence": {{', 1)
    words = json.dumps(HELD_BY)
    held = re.sub(r'("held_by": \{.*?"enum": )\[.*?\]', lambda match: match[1] + words, held, count=1, flags=re.DOTALL)
    return {CHANGES: changes, HELD: held}


def _field(name: str) -> str:
    """A field of rules as pydantic describes it."""
    info = Rule.model_fields[name]
    described = create_model("Described", **{name: (info.annotation, info)}).model_json_schema()["properties"][name]
    described.pop("title", None)
    return indent(f'"{name}": {json.dumps(described, indent=2)}', " " * 8)


if __name__ == "__main__":
    for path, text in published().items():
        path.write_text(text, encoding="utf-8")
