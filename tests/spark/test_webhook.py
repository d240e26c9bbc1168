"""A job whose alerts go to a webhook: none is lost, whatever the receiver does and when the job is killed."""

import random

import pytest

from buckets.outputs.recorded_outputs import read_rows
from buckets.printable import counted
from tests.spark.command import RunningCommand
from tests.spark.job_folder import JobFolder, written_batches
from tests.spark.payments import payments
from tests.webhook_server import DROP, HANG, webhook_server

pytestmark = pytest.mark.spark
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
FILES = 8


def alert_ids(job: JobFolder) -> list[str]:
    """The ids of the alerts in the table."""
    return [row["alert_id"] for row in read_rows(job.tables, "alerts", ["alert_id"])]


def written_events(job: JobFolder) -> int:
    """How many events are in its batches; after a kill while one was planned, Spark takes two files into the next."""
    rows = read_rows(job.tables, "batches", ["batch_id", "events_in"])  # one for each grouping
    return sum({row["batch_id"]: row["events_in"] for row in rows}.values())


def test_a_job_that_is_killed_delivers_every_alert_to_a_receiver_that_fails(tmp_path):
    dice = random.Random(7)
    with webhook_server() as webhook:
        output = {"path": "tables", "webhook": {"url": webhook.url, "secret": SECRET, "timeout": "300ms"}}
        job = JobFolder(tmp_path / "job", trigger={"interval": "0ms"}, output=output)
        webhook.behave = lambda request: dice.choice([*[200] * 12, 503, HANG, DROP])
        events = payments(120)
        size = len(events) // FILES
        job.add_events(events[: 4 * size], files=4)
        with RunningCommand("run", job.conf, log=tmp_path / "first.log") as command:
            command.wait_until(lambda: len(webhook.taken) > 3)
            command.kill_all()
        job.add_events(events[4 * size :], files=4, first=4)
        with RunningCommand("run", job.conf, log=tmp_path / "last.log") as command:
            command.wait_until(lambda: written_events(job) == len(events))
            command.wait_until(lambda: set(webhook.ids) == set(alert_ids(job)))
            assert command.interrupt() == 0
    columns = ["batch_id", "alert_id", "rule_id", "event_id"]
    rows = {row["alert_id"]: row for row in read_rows(job.tables, "alerts", columns)}
    batches = [rows[alert_id].pop("batch_id") for alert_id in dict.fromkeys(webhook.ids)]
    assert batches == sorted(batches)
    for request in webhook.taken:
        assert rows[request.alert["alert_id"]].items() <= request.alert.items()


def test_batches_go_on_while_the_receiver_is_away_and_the_next_start_delivers(spark, tmp_path):
    said: list[str] = []
    with webhook_server() as webhook:
        tables = {"path": "tables"}
        output = {**tables, "webhook": {"url": webhook.url, "timeout": "300ms", "connections": 4}}
        job = JobFolder(tmp_path / "job", output=output)
        job.add_events(payments(60), files=3)
        webhook.behave = lambda request: 503
        job.run(spark, said.append)
        assert "/alerts answers 503; alerts wait in the checkpoint, and batches go on" in said[0]
        assert len(written_batches(job.tables / "batches")) == 3
        assert webhook.taken == []
        ids = alert_ids(job)
        said.clear()
        job.configure(output=tables)
        job.run(spark, said.append)
        waiting = f"{counted(len(ids), 'alert')} still to be sent wait in the checkpoint"
        assert said == [f"{waiting}; set `output.webhook` to send them"]
        webhook.behave = lambda request: 200
        job.configure(output=output)
        job.run(spark, said.append)
        assert sorted(webhook.ids) == sorted(ids) != []
