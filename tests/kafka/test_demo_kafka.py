"""`buckets demo-kafka` as people start it: to its end, interrupted, and with a job that dies."""

import os
import re
import signal

import pytest

from buckets.monitor.live import read_live
from buckets.outputs.recorded_outputs import read_rows
from tests.kafka.demo_process import Demo, Ran
from tests.spark.command import run_command


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Demo, Ran]:
    """A demo that has run to its end."""
    with Demo(tmp_path_factory.mktemp("finished"), "--rate", "100", "--seconds", "15") as demo:
        return demo, demo.wait()


def test_it_runs_to_its_end_and_leaves_no_process_behind(finished):
    _, ran = finished
    assert ran.code == 0, ran.out
    assert "Traceback" not in ran.out


def test_all_payments_are_sent_evaluated_and_accounted_for(finished):
    demo, ran = finished
    live = read_live(demo.out / "checkpoint")
    sent = int(re.search(r"^([\d,]+) payments sent and evaluated", ran.out, re.MULTILINE)[1].replace(",", ""))
    assert live is not None
    assert live.data["totals"]["events"] == sent >= 1500
    for counts in live.data["groups"].values():
        outcomes = {name: count for name, count in counts.items() if name not in ("events_in", "alerts")}
        assert counts["events_in"] == sum(outcomes.values()) == sent
    assert len(read_rows(demo.out / "tables", "transactions", ["offset"])) == sent


def test_planted_fraud_is_caught_and_every_alert_is_in_the_tables(finished):
    demo, ran = finished
    for pattern in ("structuring", "card-testing", "mule-fan-in", "five-in-five"):
        assert re.search(rf"{pattern} +\S+ +5 +5 +5 ", ran.out), ran.out
    alerts = read_rows(demo.out / "tables", "alerts", ["alert_id", "ruleset_version"])
    assert (
        len({alert["alert_id"] for alert in alerts})
        == len(alerts)
        == read_live(demo.out / "checkpoint").data["totals"]["alerts"]
    )


def test_the_rule_changes_while_payments_come_and_evaluates_from_then_on(finished):
    demo, ran = finished
    assert "the limit goes from 200,000 to 20,000" in ran.out
    assert re.search(r"rules version 2: evaluates every payment from [\d,]+ ms on after the change was sent", ran.out)
    alerts = read_rows(demo.out / "tables", "alerts", ["rule_id", "rule_version", "limit", "ruleset_version"])
    changed = [alert for alert in alerts if alert["rule_id"] == "payer-to-beneficiary-24h"]
    assert {(alert["ruleset_version"], alert["rule_version"], int(alert["limit"])) for alert in changed} >= {
        (2, 2, 20000)
    }
    assert all(alert["ruleset_version"] == alert["rule_version"] for alert in changed)


def test_delays_are_told(finished):
    delays = r"p50 [\d,]+ ms, p99 [\d,]+ ms, p99.9 [\d,]+ ms, max [\d,]+ ms"
    assert re.search(rf"delay of all payments of the last minute.*: {delays}", finished[1].out)
    assert re.search(rf"delay of [\d,]+ alerts, from Kafka to the decision: {delays}", finished[1].out)


def test_its_alerts_and_its_status_can_be_read_afterwards(finished):
    demo, _ = finished
    shown = run_command("alerts", demo.out / "tables")
    assert (shown.returncode, shown.stderr) == (0, "")
    shown = run_command("watch", demo.out / "conf.yaml", "--once")
    assert shown.returncode == 0
    assert "is not running, it was stopped" in shown.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_all_that_was_started(tmp_path, number):
    with Demo(tmp_path) as demo:
        demo.wait_until(lambda: len(demo.processes("buckets.cli.child")) == 3)
        os.kill(demo.process.pid, number)
        ran = demo.wait()
    assert ran.code == 130
    assert "stopping what was started" in ran.out
    assert "Traceback" not in ran.out


def test_a_job_that_dies_ends_the_demo_in_one_line(tmp_path):
    with Demo(tmp_path) as demo:
        demo.wait_until(lambda: demo.processes("buckets.cli.child run"))
        os.kill(demo.processes("buckets.cli.child run")[0], signal.SIGKILL)
        ran = demo.wait()
    assert ran.code == 1
    assert ran.out.splitlines()[-1].startswith("error: `buckets run ")
    assert "has ended with -9" in ran.out
    assert "Traceback" not in ran.out


def test_a_folder_with_something_else_is_left_alone(tmp_path):
    (tmp_path / "mine").write_text("x")
    ran = run_command("demo-kafka", "--out", tmp_path)
    assert (ran.returncode, ran.stderr.count("\n")) == (1, 1)
    assert "name another folder with --out" in ran.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.nightly
def test_payments_are_answered_in_the_call_with_the_alerts_of_the_job(tmp_path):
    with Demo(tmp_path, "--serve", "--rate", "50", "--seconds", "12") as demo:
        ran = demo.wait()
    assert ran.code == 0, ran.out
    assert re.search(r"^[\d,]+ calls: half were answered within", ran.out, re.MULTILINE), ran.out
    assert re.search(r" alerts; 0 of these alerts are not the job's$", ran.out, re.MULTILINE), ran.out
