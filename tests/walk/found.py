"""What the tables of a job say of one batch, each row by what it is of."""

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from tests.walk.timelines import key_text

Row = dict[str, Any]


class Difference(AssertionError):
    """The tables do not say what they have to."""


@dataclass
class Found:
    """The rows of a batch, each by what it is of. What has been asked for is taken out."""

    evaluations: dict[tuple[str, str], Row]
    alerts: dict[tuple[str, str], tuple[str, Row]]
    sides: dict[tuple[str, str, int], dict[str, dict[str, Row]]]
    """By group, source and position, and by key, the row of each side output."""
    dead: set[tuple[str, int]]

    @classmethod
    def of(cls, tables: dict[str, list[Row]]) -> "Found":
        """Look at the rows of a batch, by output."""
        evaluations = {(row["event_id"], row["rule_id"]): row for row in tables["evaluations"]}
        if len(evaluations) != len(tables["evaluations"]):
            message = "evaluations: some rule has two rows for one event"
            raise Difference(message)
        alerts: dict[tuple[str, str], tuple[str, Row]] = {}
        for output in ("alerts", "shadow_alerts", "held_alerts"):
            for row in tables[output]:
                of = json.loads(row["event"]).get("alert_id", row["event_id"])
                alerts[of, row["rule_id"]] = output, row
        sides: dict[tuple[str, str, int], dict[str, dict[str, Row]]] = defaultdict(lambda: defaultdict(dict))
        for output in ("late_events", "duplicates", "collisions"):
            for row in tables[output]:
                key = key_text(json.loads(row["key"]))
                sides[row["group"], row["source"], row["position"]][key][output] = row
        dead = {(row["source"], row["position"]) for row in tables["dead_letters"]}
        return cls(evaluations, alerts, dict(sides), dead)
