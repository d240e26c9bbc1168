"""What is too large for the driver lies in files, and comes out as it does otherwise: rows, ids, alerts, counts."""

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable

from buckets.errors import BucketsError
from buckets.spark import sinks
from tests.spark.job_folder import JobFolder
from tests.spark.payments import RULES, payments

pytestmark = pytest.mark.spark
SPANNING = {
    "rule_id": "payer-of-kind",
    "group_by": ["payer"],
    "features": {
        "of_payer": {"function": "sum", "of": "amount", "window": "1s"},
        "of_kind": {"function": "count", "window": "1s", "group_by": ["kind"]},
    },
    "when": "of_payer > 10 AND of_kind > 1",
}
ALL = [*RULES, SPANNING, SPANNING | {"rule_id": "quiet", "cooldown": "300ms"}]
ABOVE = {
    "rule_id": "twice",
    "on": "alerts",
    "group_by": ["payer"],
    "aggregate": {"function": "count"},
    "window": {"length": "1s"},
    "limit": {"operator": ">=", "value": "2"},
}


def a_job(root: Path) -> JobFolder:
    job = JobFolder(root)
    job.write_rules([*ALL, ABOVE])
    for number in range(3):
        events = payments(90)[30 * number : 30 * number + 30]
        job.add_file(number, [*map(json.dumps, events), "no event"])
    return job


def test_a_job_of_which_everything_spills_has_the_tables_of_any_job(spark, tmp_path, monkeypatch):
    """With a spanning rule, its policies, rules over alerts, dead letters; then a kill between files and commit."""
    plain = a_job(tmp_path / "plain")
    source = {"kind": "json", "path": str(plain.source), "max_files_per_trigger": 1}
    spilling = JobFolder(tmp_path / "spilling", source=source)
    spilling.write_rules([*ALL, ABOVE])
    plain.run(spark)
    monkeypatch.setattr("buckets.spark.query.DRIVER_BYTES", 0)
    written: list[int] = []
    write_spilled = sinks.write_spilled

    def write(table, output, *more):
        files = write_spilled(table, output, *more)
        if output == "evaluations":
            written.append(len(files))
            if len(written) == 2:
                message = "a kill between files and commit"
                raise BucketsError(message)
        return files

    monkeypatch.setattr(sinks, "write_spilled", write)
    with pytest.raises(BucketsError, match="a kill between"):
        spilling.run(spark)
    left = spilling.checkpoint / "buckets" / "spilled"
    assert list(left.glob("*/*.payloads"))
    spilling.run(spark)
    assert spilling.all_rows() == plain.all_rows()
    assert {row["rule_id"] for row in plain.rows("alerts")} >= {"payer-of-kind", "quiet", "twice"}
    assert plain.rows("held_alerts")
    assert not list(left.glob("*"))
    table = DeltaTable(spilling.tables / "evaluations")
    assert len(table.file_uris()) > table.version()
    named = {Path(uri).name for uri in table.file_uris()}
    leftovers = {path.name for path in (spilling.tables / "evaluations").glob("*.parquet")} - named
    removed = table.vacuum(retention_hours=0, enforce_retention_duration=False, full=True)
    assert leftovers == {Path(name).name for name in removed if name.endswith(".parquet")} != set()
