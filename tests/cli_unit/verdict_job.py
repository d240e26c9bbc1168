"""A job with alerts in real Delta tables, written as a job would, and verdicts on them."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml
from deltalake import write_deltalake

SCHEMA = {
    "name": "payment",
    "version": 1,
    "event_id": "id",
    "event_time": {"field": "at", "unit": "ms"},
    "attributes": {"payer": "string", "vip": "boolean"},
    "measures": {"amount": {"scale": 2}},
}
HOUR_MS = 3_600_000
START_MS = 1_767_225_600_000
"""2026-01-01."""
COLUMNS = pa.schema(
    [
        ("alert_id", pa.string()),
        ("rule_id", pa.string()),
        ("event_id", pa.string()),
        ("event_time", pa.timestamp("us", "UTC")),
        ("key", pa.string()),
        ("event", pa.string()),
        ("decided_at", pa.timestamp("us", "UTC")),
    ]
)


def rule(rule_id: str, state: str = "ACTIVE", group_by: tuple[str, ...] = ("payer",)) -> dict[str, Any]:
    return {
        "rule_id": rule_id,
        "state": state,
        "group_by": list(group_by),
        "aggregate": {"function": "sum", "measure": "amount"},
        "window": {"length": "1h"},
        "limit": {"operator": ">", "value": "1"},
    }


def alert(alert_id: str, rule_id: str, event: str, hour: float, payer: str = "p1", amount: str = "10.00") -> dict:
    """An alert as its table has it; decided on a second after the event."""
    time_us = int(START_MS + hour * HOUR_MS) * 1000
    fields = {"id": event, "at": time_us // 1000, "payer": payer, "vip": True, "amount": amount}
    return {
        "alert_id": alert_id,
        "rule_id": rule_id,
        "event_id": event,
        "event_time": time_us,
        "key": json.dumps({"payer": payer}),
        "event": json.dumps(fields),
        "decided_at": time_us + 1_000_000,
    }


class VerdictJob:
    """A folder with a configuration, and tables in `tables/`."""

    def __init__(self, root: Path, **changes: Any) -> None:
        self.root, self.tables, self.verdicts = root, root / "tables", root / "tables-verdicts"
        (root / "source").mkdir(parents=True)
        (root / "schema.yaml").write_text(yaml.safe_dump(SCHEMA))
        rules = [rule("large"), rule("often"), rule("quiet"), rule("trial", "SHADOW"), rule("draft", "DRAFT")]
        (root / "rules.yaml").write_text(yaml.safe_dump({"rules": rules}))
        conf = {
            "source": {"kind": "json", "path": "source"},
            "schema": "schema.yaml",
            "rules": "rules.yaml",
            "checkpoint": "checkpoint",
            "output": {"path": "tables"},
        }
        self.conf = root / "conf.yaml"
        self.conf.write_text(yaml.safe_dump(conf | changes))

    def write(self, output: str, alerts: Iterable[dict]) -> None:
        """Add alerts to a table."""
        write_deltalake(self.tables / output, pa.Table.from_pylist(list(alerts), COLUMNS), mode="append")


def filled(root: Path, **changes: Any) -> VerdictJob:
    """A job with alerts of three rules in force, one of them on trial, and one that was held back."""
    job = VerdictJob(root, **changes)
    job.write(
        "alerts",
        [
            alert("a1", "large", "e1", 1),
            alert("a2", "large", "e2", 2, amount="20.50"),
            alert("a3", "large", "e3", 3, payer="p2"),
            alert("b1", "often", "e1", 1),
            # The event was evaluated again.
            alert("b1", "often", "e1", 1),
        ],
    )
    job.write("shadow_alerts", [alert("s2", "trial", "e2", 2, amount="20.50"), alert("s4", "trial", "e4", 4)])
    job.write("held_alerts", [alert("h5", "large", "e5", 5)])
    return job
