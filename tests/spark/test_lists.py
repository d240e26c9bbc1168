"""A job with a list in a file that changes while it runs, and that is started again."""

import json
import time
from pathlib import Path

import pytest

from buckets.checkpoint.driver_state import Checkpoint
from buckets.monitor.pace import BatchReport
from tests.spark.job_folder import JobFolder

pytestmark = pytest.mark.spark
RULES = [
    {
        "rule_id": "not-listed",
        "group_by": ["payer"],
        "where": "kind NOT IN LIST allowed",
        "aggregate": {"function": "count"},
        "window": {"length": "1h"},
        "limit": {"operator": ">=", "value": "1"},
    },
    {
        "rule_id": "casino",
        "group_by": ["payer"],
        "features": {
            "payments": {"function": "count", "window": "1h"},
            "of_kind": {"function": "count", "window": "1h", "group_by": ["kind"]},
        },
        "when": "payments >= 1 AND of_kind >= 1 AND lookup(kinds, kind, 'category') = 'casino'",
    },
    {
        "rule_id": "paired",
        "group_by": ["payer"],
        "features": {"payments": {"function": "count", "window": "1h"}},
        "when": "payments >= 1 AND (payer, kind) IN LIST pairs",
    },
]


def payment(number: int, kind: str) -> str:
    return json.dumps({"id": f"e{number}", "t": 1_000 * number, "payer": "p1", "kind": kind, "amount": "1.00"})


def job_in(root: Path) -> JobFolder:
    lists = {"allowed": {"kind": "file", "path": "allowed.csv"}, "kinds": {"kind": "file", "path": "kinds.yaml"}}
    lists["pairs"] = {"kind": "file", "path": "pairs.csv", "key": ["payer", "kind"]}
    job = JobFolder(root, lists=lists)
    job.write_rules(RULES)
    (root / "allowed.csv").write_text("key,until\nCARD,\nCASH,1970-01-01T00:00:04Z\n")
    (root / "pairs.csv").write_text("payer,kind,until\np1,WIRE,1970-01-01T00:00:07Z\np2,CARD,\n")
    (root / "kinds.yaml").write_text("- {key: CARD, category: casino}\n")
    return job


def write_list(job: JobFolder, text: str) -> None:
    hidden = job.root / ".allowed.csv"
    hidden.write_text(text)
    hidden.replace(job.root / "allowed.csv")


def wait_for_version(job: JobFolder, number: int) -> None:
    """Wait until the running job has made a version of the list."""
    ends_s = time.monotonic() + 60
    while Checkpoint(job.checkpoint).lists.latest("allowed").number < number:
        assert time.monotonic() < ends_s, "the job has not read the changed list"
        time.sleep(0.05)


def fired(report: BatchReport) -> list[tuple[str, str]]:
    rows = [row for table in report.alerts for row in table.to_pylist()]
    return sorted((row["rule_id"], row["event_id"]) for row in rows)


def test_a_list_changes_while_the_job_runs_and_a_batch_that_is_run_again_sees_what_it_saw(spark, tmp_path):
    job = job_in(tmp_path)
    job.add_file(1, [payment(1, "CARD"), payment(2, "CASH"), payment(3, "WIRE"), payment(4, "CASH")])
    reports: list[BatchReport] = []

    def on_batch(report: BatchReport) -> None:
        reports.append(report)
        if len(reports) == 2:
            query.stop()
            return
        write_list(job, "key\nWIRE\n")
        wait_for_version(job, 2)
        job.add_file(2, [payment(5, "CARD"), payment(6, "WIRE")])

    query = job.query(spark, on_batch)
    query.run(100)
    first, second = map(fired, reports)
    assert first == [("casino", "e1"), ("not-listed", "e3"), ("not-listed", "e4"), ("paired", "e3")]
    assert second == [("casino", "e5"), ("not-listed", "e5"), ("paired", "e6")]

    commits = job.checkpoint / "spark" / "commits"
    for name in ("1", ".1.crc"):
        (commits / name).unlink(missing_ok=True)
    write_list(job, "key\nCARD\n")
    job.add_file(3, [payment(7, "CARD"), payment(8, "WIRE")])
    again = job.run(spark)
    assert [(report.account.batch_id, fired(report)) for report in again] == [
        (1, second),
        (2, [("casino", "e7"), ("not-listed", "e8")]),
    ]
    written = sorted(row["event_id"] for row in job.rows("alerts") if row["rule_id"] == "not-listed")
    assert written == ["e3", "e4", "e5", "e8"]
