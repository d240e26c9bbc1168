"""A job that has run: events of its archive, its rules in three versions, its tables; with texts of hostile people."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml
from deltalake import write_deltalake

from buckets.checkpoint.driver_state import Checkpoint
from buckets.checkpoint.identity import CheckpointIdentity
from buckets.checkpoint.record_files import OwnedFolder
from buckets.config.engine import EngineSettings
from buckets.outputs.columns import BATCH_COLUMNS, BATCHES
from tests.core.examples import SCHEMA, rule, written_rule
from tests.core.recorded_job import RecordedJob

START_MS = 1_767_225_600_000
"""2026-01-01."""
MINUTE_MS = 60_000
EVIL = "<script>document.title='evil'</script>"
EVIL_RULE = f'{EVIL} "o\'clock"'
EVIL_KEY = "\u202e" + EVIL + "'\"&" + "x" * 300
RULES: list[dict[str, Any]] = [
    {"rule_id": "large", "description": "A payer spends much in an hour", "severity": "high", "tags": ["money"]},
    {"rule_id": "often", "aggregate": {"function": "count"}, "limit": {"operator": ">=", "value": "2"}},
    {"rule_id": "trial", "state": "SHADOW", "limit": {"operator": ">", "value": "40"}},
    {"rule_id": "draft", "state": "DRAFT"},
    {"rule_id": EVIL_RULE, "description": EVIL, "limit": {"operator": ">", "value": "60"}},
]
TESTS = """
tests:
  - name: three payments in an hour
    rules: [often]
    given: [{payer: p1, at: 0s, repeat: {times: 3, every: 10m}}]
    expect: {alerts: [{event: 2}, {event: 3}]}
"""


def rows(batch: int, count: int = 60) -> list[dict[str, Any]]:
    """Events of three payers, one of them hostile, a minute apart; a bad row at the end of each batch."""
    payers = ("p1", "p2", EVIL_KEY)
    first = batch * count
    events = [
        {
            "id": f"e{n}",
            "at": START_MS + n * 20 * MINUTE_MS,
            "payer": payers[n % 3],
            "amount": f"{20 + n % 40}.50",
            "position": n,
        }
        for n in range(first, first + count)
    ]
    return [*events, {"id": f"e{first}", "at": "no time", "payer": "p1", "amount": "1", "position": first + count}]


def write_job(folder: Path, **changes: Any) -> Path:
    """Write a job into a folder, and return its configuration."""
    identity = Checkpoint(folder / "checkpoint").job.open(
        CheckpointIdentity(f"json {folder / 'gone'}", SCHEMA, EngineSettings())
    )
    job = RecordedJob(folder, SCHEMA)
    written = [written_rule(**each) for each in RULES]
    for batch in range(3):
        job.use([rule(**(each | ({"description": "as before"} if batch == 0 and each["rule_id"] == "large" else {})))
                 for each in RULES])  # fmt: skip
        job.batch(rows(batch))
    job.history()
    accounts = [row for account in job.pipeline.accounts for row in account.rows()]
    moments = pa.schema(
        [
            field.with_type(pa.timestamp("us", "UTC")) if field.name == "latest_event_time" else field
            for field in BATCH_COLUMNS
        ]
    )
    write_deltalake(folder / "tables" / BATCHES, pa.Table.from_pylist(accounts, moments), mode="overwrite")
    OwnedFolder(job.archive.folder, "archive.path").take(identity)
    (folder / "schema.yaml").write_text(yaml.safe_dump(SCHEMA.model_dump(mode="json", exclude_none=True)))
    (folder / "rules.yaml").write_text(yaml.safe_dump({"rules": written}, sort_keys=False) + TESTS)
    (folder / "payroll.csv").write_text("key,name\np1,ann\n")
    conf = {
        "source": {"kind": "json", "path": "gone"},
        "schema": "schema.yaml",
        "rules": "rules.yaml",
        "checkpoint": "checkpoint",
        "output": {"path": "tables"},
        "archive": {"path": "archive"},
        "lists": {"payroll": {"kind": "file", "path": "payroll.csv"}},
    }
    path = folder / "conf.yaml"
    path.write_text(json.dumps(conf | changes))
    return path
