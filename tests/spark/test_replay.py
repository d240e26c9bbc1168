"""`buckets replay` of a real job: equal after a restart with other rules, and each row that was changed is named."""

import json
import sys
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from deltalake import DeltaTable

import buckets
from buckets.cli.commands import exit_code
from tests.spark.job_folder import JobFolder
from tests.spark.payments import RULES, payments

pytestmark = pytest.mark.spark


@dataclass(frozen=True)
class Ran:
    """A command that has run in this process."""

    code: int
    out: str
    err: str


def test_a_job_that_was_restarted_with_other_rules_is_replayed(spark, tmp_path, monkeypatch, capsys):
    def command(*options: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["buckets", "replay", str(job.conf), *options])
        code = exit_code()
        return Ran(code, *capsys.readouterr())

    events = payments(120)
    job = JobFolder(tmp_path, archive={"path": "archive"})
    job.add_events(events[:60], files=2)
    job.run(spark)
    job.write_rules([RULES[0] | {"cooldown": "200ms", "limit": {"operator": ">", "value": "30"}}, *RULES[1:]])
    job.add_events(events[60:], files=2, first=2)
    job.run(spark)
    capsys.readouterr()

    for cuts in ("recorded", "joined"):
        ran = command("--evaluations", "--cuts", cuts, "--json")
        found = json.loads(ran.out)
        assert (ran.code, found["equal"], found["rows"]) == (0, True, [])
        assert found["arrivals"] == len(events)
        assert found["compared"] == {name: len(job.rows(name)) for name in found["compared"]}
        assert min(found["compared"].values()) > 0

    replayed = buckets.replay(job.conf, end=datetime(1970, 1, 1, tzinfo=UTC))
    assert replayed.is_equal
    assert replayed.compared["alerts"] == sum(row["event_time"].year < 1970 for row in job.rows("alerts")) > 0
    changed = job.rows("alerts")[0]
    DeltaTable(job.tables / "alerts").update({"certain": "false"}, predicate=f"alert_id = '{changed['alert_id']}'")
    ran = command()
    assert ran.code == 1
    assert f"alerts: alert {changed['alert_id']} of rule {changed['rule_id']}" in ran.out
    assert "certain: recorded False, came out True" in ran.out
    assert ran.err.splitlines()[-1] == "error: 1 row is not as it is recorded"


def test_a_job_that_went_on_without_its_archive_is_replayed_as_far_as_that_goes_and_that_is_said(
    spark, tmp_path, buckets, as_worded
):
    job, events = JobFolder(tmp_path, archive={"path": "archive"}), payments(120)
    job.add_events(events[:60], files=2)
    job.run(spark)
    assert json.loads(buckets("replay", job.conf, "--json").out)["not_archived_until"] is None
    job.configure_also(archive=None)
    job.add_events(events[60:], files=2, first=2)
    job.run(spark)
    job.configure_also(archive={"path": "archive"})

    ran = buckets("replay", job.conf)
    assert ran.code == 0
    assert as_worded("\n".join(ran.out.splitlines()[-3:]))
    found = json.loads(buckets("replay", job.conf, "--json").out)
    assert (found["equal"], found["arrivals"], found["last_batch"], found["not_archived_until"]) == (True, 60, 1, 3)
    archived = [row for row in job.rows("alerts") if row["batch_id"] <= 1]
    assert 0 < found["compared"]["alerts"] == len(archived) < len(job.rows("alerts"))
    later = next(row for row in job.rows("alerts") if row["batch_id"] == 3)
    assert as_worded(buckets("explain", job.conf, "--event", later["event_id"], "--rule", later["rule_id"]).err)
