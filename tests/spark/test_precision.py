"""Buckets after a tail, on the real engine: bounds hold, and batches, restarts and changed settings break nothing."""

from pathlib import Path
from typing import Any

import pytest

from buckets.config.job import load_job
from buckets.spark.prepared_job import prepare
from tests.core.checkpoints import written_in
from tests.spark.command import PHASES
from tests.spark.job_folder import JobFolder, Row
from tests.spark.payments import payments

pytestmark = pytest.mark.spark

LATENESS_MS = 100
COARSE: dict[str, Any] = {
    "tail": "100ms",
    "resolution": "50ms",
    "tiers": [{"after": "400ms", "resolution": "200ms"}],
    "groups": [{"group_by": ["payer"], "where": {"kind": "CARD"}, "tail": "all"}],
}
SAID = (
    "precision has changed (all groups: every event raw until now, "
    "raw for 100ms, then 50ms buckets, after 400ms 200ms from now on; "
    "payer where kind is CARD: as all groups until now, every event raw from now on); "
    "existing buckets stay as coarse as they are, and bounds allow for it"
)
ORIGIN = ("batch_id", "source", "position")


def events() -> list[Row]:
    """Payments without repeats, which are counted once only while they are raw, none later than it is allowed."""
    found: dict[str, Row] = {}
    clock_ms = -1_000
    for event in payments(160):
        clock_ms = max(clock_ms, event["t"])
        if event["t"] >= clock_ms - LATENESS_MS:
            found.setdefault(event["id"], event)
    return list(found.values())


EVENTS = events()
HALF = len(EVENTS) // 2


def engine(precision: dict[str, Any] | None) -> dict[str, Any]:
    return {"shards": 4, "allowed_lateness": f"{LATENESS_MS}ms", "precision": precision or {}}


def job_in(root: Path, precision: dict[str, Any] | None) -> JobFolder:
    return JobFolder(root, engine=engine(precision))


@pytest.fixture(scope="module")
def exact(spark, tmp_path_factory) -> JobFolder:
    """The job with every event raw; nobody may change it."""
    job = job_in(tmp_path_factory.mktemp("exact"), None)
    job.add_events(EVENTS, files=2)
    job.run(spark)
    return job


@pytest.fixture(scope="module")
def coarse(spark, tmp_path_factory) -> JobFolder:
    """The job with buckets, over the same files; nobody may change it."""
    job = job_in(tmp_path_factory.mktemp("coarse"), COARSE)
    job.add_events(EVENTS, files=2)
    job.run(spark)
    return job


def by_rule_and_event(rows: list[Row]) -> dict[tuple[str, str], Row]:
    found = {(row["rule_id"], row["event_id"]): row for row in rows}
    assert len(found) == len(rows)
    return found


def check_bounds(job: JobFolder, exact: JobFolder) -> list[Row]:
    """Check every evaluation against the exact run; returns those that are not exact."""
    found = by_rule_and_event(job.rows("evaluations"))
    expected = by_rule_and_event(exact.rows("evaluations"))
    assert found.keys() == expected.keys()
    for key, row in found.items():
        true = expected[key]
        assert true["exact"]
        assert row["lower"] <= true["value"] <= row["upper"]
        assert row["lower"] <= row["value"] <= row["upper"]
        assert row["lower"] == row["upper"] or not row["exact"]
        assert row["count_lower"] <= true["count"] <= row["count_upper"]
        if row["exact"]:
            assert (row["value"], row["fired"]) == (true["value"], true["fired"])
    return [row for row in found.values() if not row["exact"]]


def without_origin(job: JobFolder) -> dict[str, list[Row]]:
    """All rows but the accounts of batches, without where each came from."""
    return {
        name: sorted(({key: value for key, value in row.items() if key not in ORIGIN} for row in rows), key=repr)
        for name, rows in job.all_rows().items()
        if name != "batches"
    }


def test_the_exact_value_lies_between_the_bounds(exact, coarse):
    inexact = check_bounds(coarse, exact)
    assert {row["rule_id"] for row in inexact} == {"payer-sum", "all-average"}
    assert len(inexact) < len(coarse.rows("evaluations"))


def test_a_group_may_differ_from_the_job(exact, coarse):
    mine, expected = (
        [row for row in job.rows("evaluations") if row["rule_id"] == "card-count"] for job in (coarse, exact)
    )
    assert mine == expected
    assert all(row["exact"] for row in mine)
    assert coarse.rows("shadow_alerts")
    assert all(row["exact"] and row["certain"] for row in coarse.rows("shadow_alerts"))


def test_an_alert_that_is_certain_is_one_of_the_exact_run(exact, coarse):
    true = {row["alert_id"] for row in exact.rows("alerts")}
    alerts = coarse.rows("alerts")
    certain = {row["alert_id"] for row in alerts if row["certain"]}
    assert certain <= true
    assert any(row["certain"] and not row["exact"] for row in alerts)
    assert any(not row["certain"] for row in alerts)
    for row in alerts:
        assert row["lower"] <= row["value"] <= row["upper"]
        assert row["certain"] or not row["exact"]


def test_an_alert_that_is_missed_was_within_the_bounds(exact, coarse):
    found = by_rule_and_event(coarse.rows("evaluations"))
    fired = {row["alert_id"] for row in coarse.rows("alerts")}
    for alert in exact.rows("alerts"):
        if alert["alert_id"] not in fired:
            assert not found[alert["rule_id"], alert["event_id"]]["exact"]


def test_other_batches_and_a_restart_change_nothing(spark, coarse, tmp_path):
    job = job_in(tmp_path, COARSE)
    job.add_events(EVENTS[:50], files=3)
    job.run(spark)
    job.add_events(EVENTS[50:], files=2, first=3)
    job.run(spark)
    found, expected = without_origin(job), without_origin(coarse)
    assert found.keys() == expected.keys()
    for name in expected:
        assert found[name] == expected[name], name


def test_a_changed_precision_is_said_once_and_the_bounds_take_it_into_account(buckets, spark, exact, tmp_path):
    job = job_in(tmp_path, None)
    job.add_events(EVENTS[:HALF], files=1)
    job.run(spark)
    job.configure(engine=engine(COARSE))
    job.add_events(EVENTS[HALF:], files=1, first=1)
    first = buckets("run", job.conf)
    assert first.code == 0, first.err
    said, *batches, done = (line for line in first.err.splitlines() if not line.startswith(PHASES))
    assert said == SAID
    assert all(line.startswith("batch ") for line in batches)
    assert done.startswith(f"{len(EVENTS) - HALF} events, ")
    assert check_bounds(job, exact)
    assert prepare(load_job(job.conf)).carried_over is None


def test_what_was_folded_stays_within_bounds_when_events_are_kept_raw_again(spark, exact, tmp_path):
    job = job_in(tmp_path, COARSE)
    job.add_events(EVENTS[:HALF], files=1)
    job.run(spark)
    job.configure(engine=engine(None))
    job.add_events(EVENTS[HALF:], files=1, first=1)
    job.run(spark)
    inexact = check_bounds(job, exact)
    second = {row["event_id"] for row in inexact if row["batch_id"] == 1}
    assert second
    longest_ms, turn_ms = 1_000, max(event["t"] for event in EVENTS[:HALF])
    times_ms = {event["id"]: event["t"] for event in EVENTS}
    assert all(times_ms[event_id] - longest_ms <= turn_ms for event_id in second)
    assert written_in(job.checkpoint / "buckets" / "job.json")["precision"] == {"all groups": "every event raw"}
