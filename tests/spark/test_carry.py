"""`buckets state export` and `import` on real Spark and Delta: a job goes on under other settings, and back again."""

import json
import re
from pathlib import Path

import pytest

from buckets.checkpoint.lock import Lock
from buckets.config.job import load_job
from buckets.errors import BucketsError
from buckets.spark.state_carry import check_target, export_state, import_state, plan_of
from tests.spark.job_folder import JobFolder, Row
from tests.spark.payments import RULES, SCHEMA, payments

pytestmark = pytest.mark.spark

SPANNING = {
    "rule_id": "spanning",
    "group_by": ["payer"],
    "cooldown": "300ms",
    "features": {
        "mine": {"function": "sum", "of": "amount", "window": "1s", "where": "kind = 'CARD'"},
        "everybody": {"function": "count", "window": "500ms", "group_by": ["kind"]},
    },
    "when": "mine > 5 AND everybody >= 2 AND payer <> 'nobody'",
}
OVER_ALERTS = {
    "rule_id": "again",
    "on": "alerts",
    "group_by": ["payer"],
    "aggregate": {"function": "count"},
    "window": {"length": "5s"},
    "limit": {"operator": ">=", "value": "2"},
}
OLD = {"shards": 2, "allowed_lateness": "200ms"}
NEW = {"shards": 5, "allowed_lateness": "300ms"}
EVENTS = payments(180)
TEXT = json.dumps([*RULES, SPANNING, OVER_ALERTS])
NAME, OTHER = "payer", "payer_now"
ALERT_ID = re.compile("[0-9a-f]{32}")


def with_name(value, name: str = OTHER):
    """Rules, a schema or events in which the field has another name."""
    return json.loads(json.dumps(value).replace(f'"{NAME}"', f'"{name}"').replace(f"AND {NAME} ", f"AND {name} "))


def rename(job: JobFolder, name: str) -> None:
    """Call the field otherwise in rules and schema, which knows what it was called before."""
    job.write_rules(with_name(json.loads(TEXT), name))
    old = ({NAME, OTHER} - {name}).pop()
    more = SCHEMA | {"attributes": SCHEMA["attributes"] | {"more": "string"}}
    job.write_schema(with_name(more, name) | {"aliases": {name: [old]}})


def goes_on(spark, job: JobFolder, name: str, partitions: int, engine: dict) -> None:
    """Carry the job's state into a new checkpoint."""
    export = job.root / f"export-{name}"
    export_state(spark, job.checkpoint, export, lambda line: None)
    job.configure(checkpoint=name, engine=engine)
    job.checkpoint = job.root / name
    new, before = load_job(job.conf), spark.conf.get("spark.sql.shuffle.partitions")
    plan = plan_of(export, new)
    spark.conf.set("spark.sql.shuffle.partitions", partitions)
    try:
        import_state(spark, export, new, plan, lambda line: None)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
    with pytest.raises(BucketsError, match="is there already, and state is imported into a new one"):
        check_target(new, plan.manifest)


def partitions_of(checkpoint: Path) -> int:
    return len([*(checkpoint / "state" / "0").glob("[0-9]*")])


def plain(rows: list[Row]) -> list[str]:
    """Rows without what names the field or the folder, or counts versions of the rule set."""
    names = ("ruleset_version", "group_id", "alert_id", "decided_at", "ingested_at")
    kept = ({name: value for name, value in row.items() if name not in names} for row in rows)
    named = (row | ({"source": Path(row["source"]).name} if row.get("source") else {}) for row in kept)
    texts = (ALERT_ID.sub("", repr(row)).replace(OTHER, NAME).replace('"more": null, ', "") for row in named)
    return sorted(texts)


def test_a_job_goes_on_under_other_settings_and_back_again_as_if_nothing_had_happened(spark, tmp_path, as_worded):
    never = JobFolder(tmp_path / "never", engine=OLD)
    never.write_rules(json.loads(TEXT))
    never.add_events(EVENTS[:60], files=2)
    never.add_events(EVENTS[60:120], files=1, first=2)
    never.add_events(EVENTS[120:], files=1, first=3)
    never.run(spark)

    job = JobFolder(tmp_path / "job", engine=OLD)
    job.write_rules(json.loads(TEXT))
    job.add_events(EVENTS[:60], files=2)
    job.run(spark)
    first = job.checkpoint
    with Lock(first), pytest.raises(BucketsError, check=as_worded):
        export_state(spark, first, tmp_path / "running", lambda line: None)

    goes_on(spark, job, "second", 3, NEW)
    assert partitions_of(job.checkpoint) == 3
    rename(job, OTHER)
    job.add_events([*EVENTS[60:80], *with_name(EVENTS[80:120])], files=1, first=2)
    job.run(spark)
    rename(job, NAME)
    goes_on(spark, job, "third", 1, OLD)
    assert partitions_of(job.checkpoint) == 1
    job.add_events(EVENTS[120:], files=1, first=3)
    job.run(spark)

    expected, found = never.all_rows(), job.all_rows()
    assert found.keys() == expected.keys()
    for name, rows in expected.items():
        assert plain(found[name]) == plain(rows), name
    assert {row["rule_id"] for row in expected["alerts"]} == {"payer-sum", "all-average", "spanning", "again"}
    ids = ({row["alert_id"] for row in rows["alerts"] if row["rule_id"] == "all-average"} for rows in (expected, found))
    assert len({frozenset(each) for each in ids}) == 1

    job.configure(checkpoint="checkpoint", engine=OLD)
    job.write_schema(SCHEMA)
    with pytest.raises(BucketsError, check=as_worded):
        job.run(spark)
