"""Verdicts on the alerts of a real job, and on an event of its archive that raised none."""

import json

import pytest

import buckets as package
from tests.cli_unit.ran import one_line
from tests.spark.job_folder import JobFolder, read_table
from tests.spark.payments import payments

pytestmark = pytest.mark.spark


def test_what_did_not_fire_is_known_from_the_archive(buckets, spark, tmp_path, as_worded):
    job = JobFolder(tmp_path, archive={"path": "archive"})
    rows = payments(60)
    job.add_events(rows, files=2)
    job.run(spark)
    alerts = {row["event_id"]: row for name in ("alerts", "shadow_alerts") for row in read_table(job.tables / name)}
    missed = next(row for row in rows if row["id"] not in alerts)
    caught = next(iter(alerts.values()))

    def say(*words: str) -> None:
        assert buckets("verdict", *words, "--by", "ann", "--conf", job.conf).code == 0

    say(caught["alert_id"], "fraud")
    say("fraud", "--event", missed["id"])
    unknown = buckets("verdict", "fraud", "--event", "none", "--conf", job.conf)
    assert as_worded(one_line(unknown, 1))

    (of_event,) = [row for row in package.read_verdicts(tmp_path / "tables-verdicts") if row["alert_id"] is None]
    assert of_event["event_time"] == missed["t"]
    report = json.loads(buckets("rules", "quality", job.conf, "--json").out)
    assert (report["frauds"], report["frauds_without_time"], report["frauds_without_amount"]) == (2, 0, 0)
    found = {each["rule_id"]: each for each in report["rules"]}
    assert found.keys() == {"payer-sum", "card-count", "all-average"}
    of_rule = found[caught["rule_id"]]
    assert (of_rule["fraud"], of_rule["caught"], of_rule["missed"]) == (1, 1, 1)
    amounts = {row["id"]: row["amount"] for row in rows}
    assert float(of_rule["amount_caught"]) == float(amounts[caught["event_id"]])
    assert float(of_rule["amount_missed"]) == float(missed["amount"])
    assert of_rule["keys_with_fraud"] >= 1
