"""The event schema is followed: a field is added while the job runs, and a change that breaks it is refused."""

import json
import threading
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import buckets
from buckets.checkpoint.batch_records import BatchRecords
from buckets.monitor.live import read_live
from buckets.monitor.pace import BatchReport
from tests.spark.command import GIVE_UP_S, POLL_S, RunningCommand, one_line, run_command
from tests.spark.job_folder import JobFolder, Row, written_batches
from tests.spark.payments import RULES, SCHEMA, payments
from tests.spark.test_kill import freeze_when, is_half_written

pytestmark = pytest.mark.spark

WIDER = SCHEMA | {"version": 2, "attributes": {"device": "string", **SCHEMA["attributes"]}}
BROKEN = WIDER | {"version": 3, "measures": {"amount": {"scale": 3}}}
BY_DEVICE = {
    "rule_id": "by-device",
    "group_by": ["device"],
    "aggregate": {"function": "count"},
    "window": {"length": "10s"},
    "limit": {"operator": ">=", "value": "2"},
}


class FedJob:
    """A job that runs, and gets its events in files of five, one a batch."""

    def __init__(self, job: JobFolder, events: list[Row]) -> None:
        self.job, self.given, self.files = job, [], 0
        self._events: Iterator[Row] = iter(events)

    def feed(self) -> None:
        """Give it the next file."""
        events = [next(self._events) for _ in range(5)]
        self.given += events
        self.job.add_file(self.files, [json.dumps(event) for event in events])
        self.files += 1

    def feed_until_said(self, command: RunningCommand, text: str) -> str:
        """Give it one file after the other until it says something; the line."""
        while text not in command.stderr:
            self.feed()
            command.wait_until(lambda: len(written_batches(self.job.tables / "batches")) >= self.files)
        return next(line for line in command.stderr.splitlines() if text in line)


def test_a_field_that_is_added_while_the_job_runs_may_be_used_and_a_change_that_breaks_it_is_refused(spark, tmp_path):
    events = [event | {"device": f"d{number % 3}"} for number, event in enumerate(payments(1000))]
    job = JobFolder(tmp_path, trigger={"interval": "0ms"}, archive={"path": "archive"})
    fed = FedJob(job, events)
    with RunningCommand("run", job.conf, log=tmp_path / "first.log") as command:
        fed.feed()
        command.wait_until(lambda: written_batches(job.tables / "batches") == {0})
        job.write_rules([*RULES, BY_DEVICE])
        refused = fed.feed_until_said(command, "is not an attribute of")
        assert "'device' is not an attribute of event schema 'payment'" in refused
        job.write_schema(WIDER)
        taken = fed.feed_until_said(command, "the event schema has a field more, device as a string attribute")
        first = int(taken.removeprefix("from batch ").split()[0])
        fed.feed()
        command.wait_until(lambda: any(row["rule_id"] == "by-device" for row in job.rows("alerts")))
        job.write_schema(BROKEN)
        said = fed.feed_until_said(command, "the event schema stays as it is: ")
        command.wait_until(lambda: read_live(job.checkpoint).data["query"]["schema"]["fault"] is not None)
        live = read_live(job.checkpoint).data["query"]["schema"]
        for _ in range(20):
            fed.feed()
        freeze_when(command, job, is_half_written)
        command.kill_all()
    fault = said.partition("the event schema stays as it is: ")[2]
    assert "was made with amount as a measure of scale 2, not as a measure of scale 3; go back to that" in fault
    assert live == {"name": "payment", "version": 2, "fault": fault}
    assert one_line(run_command("run", job.conf)) == fault

    job.write_schema(WIDER)
    job.configure_also(trigger={"available_now": True})
    job.run(spark)
    terms = BatchRecords(job.checkpoint).all_terms()
    assert [(batch, each.event_schema.version) for batch, each in terms.items()] == [(0, 1), (first, 2)]
    alert = next(row for row in job.rows("alerts") if row["rule_id"] == "by-device")
    replayed = buckets.replay(job.conf)
    assert replayed.is_equal, replayed
    assert replayed.compared["alerts"] == len(job.rows("alerts"))
    explained = run_command("explain", job.conf, alert["alert_id"], "--json")
    assert explained.returncode == 0, explained.stderr
    assert json.loads(explained.stdout)["features"][0]["comparison"]["equal"]
    archived = DeltaTable(tmp_path / "archive" / "arrivals").to_pyarrow_table().sort_by("_arrival").to_pylist()
    assert len(archived) == len(fed.given)
    for row, event in zip(archived, fed.given, strict=True):
        assert row["device"] == (event["device"] if row["_batch_id"] >= first else None)


def rows_of_table(events: list[Row]) -> pa.Table:
    """Payments as rows of a table, in the order of their numbers."""
    return pa.Table.from_pylist([{"n": int(event["id"][1:])} | event for event in events])


def test_a_delta_table_that_gets_a_column_is_read_on_and_the_column_is_a_field_when_the_schema_has_it(spark, tmp_path):
    source, table = {"kind": "delta", "path": "table", "arrival": "n"}, tmp_path / "table"
    job = JobFolder(tmp_path, source=source, trigger={"interval": "0ms"}, archive={"path": "archive"})
    events = [{**payments(1)[0], "id": f"p{number}", "t": number * 10} for number in range(1000)]
    given: list[Row] = []
    reports: list[BatchReport] = []

    def give(**more: str) -> None:
        """Give it a row, and wait for its batch."""
        given.append(events[len(given)] | more)
        write_deltalake(table, rows_of_table(given[-1:]), mode="append", schema_mode="merge")
        wait_until(lambda: sum(report.account.events_in for report in reports) == len(given))

    write_deltalake(table, rows_of_table(events[:1]).slice(0, 0))
    query = job.query(spark, reports.append)
    thread = threading.Thread(target=query.serve, args=[0])
    thread.start()
    try:
        give()
        give(device="d1")
        job.write_schema(WIDER)
        records = BatchRecords(job.checkpoint)
        while len(records.all_terms()) == 1:
            give(device="d2")
        give(device="d3")
    finally:
        query.stop()
        thread.join()
    first = max(records.all_terms())
    replayed = buckets.replay(job.conf)
    assert replayed.is_equal, replayed
    archived = DeltaTable(tmp_path / "archive" / "arrivals").to_pyarrow_table().sort_by("_arrival").to_pylist()
    assert [row["device"] for row in archived] == [
        event.get("device") if row["_batch_id"] >= first else None for row, event in zip(archived, given, strict=True)
    ]


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for a condition."""
    given_up_s = time.monotonic() + GIVE_UP_S
    while not condition():
        assert time.monotonic() < given_up_s
        time.sleep(POLL_S)
