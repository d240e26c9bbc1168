"""What is published of the aggregates, the table in the README and the schema of rules; and the dashboard for Grafana.

`python -m tests.published` writes all of it.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from buckets.aggregates.aggregate import ANY_FIELD, NUMBERS, Aggregate
from buckets.aggregates.registry import AGGREGATES, SHORT_FUNCTIONS
from tests.published_dashboard import dashboard

ROOT = Path(__file__).parents[1]
README, SCHEMA = ROOT / "README.md", ROOT / "schemas" / "rule-change-v1.json"
DASHBOARD = ROOT / "buckets" / "metrics" / "dashboard.json"
_TABLE = re.compile(r"(?<=\| function \| what it is \| `of` \| NULL \|\n\|---\|---\|---\|---\|\n)(?:\|.*\n)+")
_SHORT_FORM = re.compile(r"(?<=    aggregate: {function: sum, measure: paymentAmount}         # ).*")
_FIELDS = {(): "", NUMBERS: "number", ANY_FIELD: "any field"}


def readme() -> str:
    """The README with its table of functions, and those of the short form in its example."""
    rows = "".join(_row(name, aggregate) for name, aggregate in AGGREGATES.items())
    text, tables = _TABLE.subn(lambda _: rows, README.read_text(encoding="utf-8"))
    text, comments = _SHORT_FORM.subn(" | ".join(SHORT_FUNCTIONS), text)
    assert (tables, comments) == (1, 1)
    return text


def _row(name: str, aggregate: Aggregate) -> str:
    """A row of the table: the first line of the aggregate's module says what it is."""
    module = sys.modules[f"buckets.aggregates.{name}"]
    first_line = (module.__doc__ or "").partition("\n")[0].removesuffix(".")
    star = " *" if aggregate.needs_raw_events else ""
    meaning = first_line[0].lower() + first_line[1:]
    field = f" {_FIELDS[aggregate.takes]}".rstrip()
    return f"| `{name}`{star} | {meaning} |{field} | {aggregate.null_when} |\n"


def rule_change_schema() -> str:
    """The schema of changes of rules with the functions that there are."""
    published: dict[str, Any] = json.loads(SCHEMA.read_text(encoding="utf-8"))
    feature = published["$defs"]["feature"]
    of_no_field = [name for name, aggregate in AGGREGATES.items() if not aggregate.takes]
    feature["properties"]["function"]["enum"] = list(AGGREGATES)
    feature["properties"]["of"]["description"] = (
        f"The field that it is of; {', '.join(of_no_field[:-1])} and {of_no_field[-1]} need none."
    )
    feature["if"]["properties"]["function"]["enum"] = of_no_field
    (of_p,) = feature["allOf"]
    of_p["if"]["properties"]["function"] = {
        "description": "Functions with a percentile.",
        "enum": [name for name, one in AGGREGATES.items() if one.needs_p],
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
    README.write_text(readme(), encoding="utf-8")
    SCHEMA.write_text(rule_change_schema(), encoding="utf-8")
    DASHBOARD.write_text(dashboard(), encoding="utf-8")
