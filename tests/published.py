"""What is published of the aggregates: the schema of rules, the page of functions; and the dashboard for Grafana.

`python -m tests.published` writes them.
"""

import json
import re
from pathlib import Path
from typing import Any

from buckets.aggregates.registry import AGGREGATES, SHORT_FUNCTIONS
from docs.reference import functions
from tests.published_dashboard import dashboard

ROOT = Path(__file__).parents[1]
SCHEMA = ROOT / "schemas" / "rule-change-v1.json"
FUNCTIONS = ROOT / "docs" / "pages" / "reference" / "functions.md"
DASHBOARD = ROOT / "buckets" / "metrics" / "dashboard.json"


def rule_change_schema() -> str:
    """The schema of changes of rules with the functions that there are."""
    published: dict[str, Any] = json.loads(SCHEMA.read_text(encoding="utf-8"))
    feature = published["$defs"]["feature"]
    of_no_field = [name for name, aggregate in AGGREGATES.items() if not aggregate.takes]
    feature["properties"]["function"]["enum"] = list(AGGREGATES)
    feature["properties"]["of"]["description"] = (
        f"The field that it is of; {', '.join(of_no_field[:-1])} and {of_no_field[-1]} need none. "
        "As an object: what each period of the window comes to."
    )
    feature["if"]["properties"]["function"]["enum"] = of_no_field
    of_half_life, of_time, of_p, of_steps = feature["allOf"]
    of_half_life["if"]["properties"]["function"] = {
        "description": "Functions with a half-life.",
        "enum": [name for name, one in AGGREGATES.items() if one.parameter == "half_life"],
    }
    of_time["if"]["properties"]["function"]["enum"] = [
        name for name, one in AGGREGATES.items() if one.parameter == "within"
    ]
    of_p["if"]["properties"]["function"] = {
        "description": "Functions with a percentile.",
        "enum": [name for name, one in AGGREGATES.items() if one.parameter == "p"],
    }
    of_steps["if"]["properties"]["function"] = {
        "description": "Functions with steps.",
        "enum": [name for name, one in AGGREGATES.items() if one.needs_steps],
    }
    short = published["$defs"]["rule"]["properties"]["aggregate"]
    short["properties"]["function"]["enum"] = list(SHORT_FUNCTIONS)
    short["if"]["properties"]["function"] = {
        "description": "Functions of no measure.",
        "enum": [name for name in SHORT_FUNCTIONS if name in of_no_field],
    }
    return _text(published)


def _text(schema: dict[str, Any]) -> str:
    """A schema as JSON, each list of plain values on one line."""
    spread = json.dumps(schema, indent=2, ensure_ascii=False)
    return re.sub(r"\[\n[^\[\]{}]*\n *\]", lambda of: "[" + " ".join(of[0][1:-1].split()) + "]", spread) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(rule_change_schema(), encoding="utf-8")
    FUNCTIONS.write_text(functions.page(), encoding="utf-8")
    DASHBOARD.write_text(dashboard(), encoding="utf-8")
