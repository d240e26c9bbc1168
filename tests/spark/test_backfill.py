"""Backfill in real jobs: killed while history is filled in, a rule is in the end as one from the start."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from buckets.backfill.fill_chunks import fills_folder, read_fills
from buckets.checkpoint.driver_state import Checkpoint
from buckets.history.replay.replay import replay
from tests.spark.command import RunningCommand, run_command
from tests.spark.job_folder import JobFolder, Row, written_batches
from tests.spark.payments import RULES, payments

pytestmark = pytest.mark.spark

ASKED = {
    "rule_id": "asked",
    "group_by": ["kind"],
    "aggregate": {"function": "sum", "measure": "amount"},
    "window": {"length": "5m"},
    "limit": {"operator": ">", "value": "500"},
    "cooldown": "3s",
}
NARROW = {"log": "2KiB", "cache": "2KiB"}


class Fed:
    """A job that is given a file of events after the other, each a batch."""

    def __init__(self, job: JobFolder) -> None:
        self.job = job
        self._files = self._add_files()

    def _add_files(self) -> Iterator[int]:
        events = payments(1200, seed=7)
        for number in range(120):
            self.job.add_events(events[number * 10 : number * 10 + 10], files=1, first=number)
            yield number

    def until(self, condition: Callable[[], bool], command: RunningCommand) -> int:
        """Give it files until a condition holds, or has held; returns the number of the last one."""
        while True:
            number = next(self._files)
            command.wait_until(lambda number=number: number in written_batches(self.job.tables / "batches"))
            if condition():
                return number


def backfilled_from(job: JobFolder) -> int | None:
    """The first batch for which the history was complete."""
    versions = Checkpoint(job.checkpoint).versions.history()
    found = [each.first_batch for each in versions if any(change.change == "backfilled" for change in each.changes)]
    return found[0] if found else None


def from_batch(job: JobFolder, first: int, last: int) -> dict[str, list[Row]]:
    """The rows of batches in each table, without the version of the rules."""
    return {
        name: [
            {key: value for key, value in row.items() if key != "ruleset_version"}
            for row in rows
            if first <= row["batch_id"] <= last
        ]
        for name, rows in job.all_rows().items()
    }


@pytest.mark.nightly
def test_killed_while_history_is_filled_in_a_rule_becomes_as_one_that_was_there_from_the_start(
    buckets, spark, tmp_path: Path
):
    job = JobFolder(tmp_path / "job", archive={"path": "archive"}, trigger={"interval": "50ms"}, state=NARROW)
    fed, asked = Fed(job), tmp_path / "asked.yaml"
    asked.write_text(yaml.safe_dump({"rules": [ASKED]}))
    with RunningCommand("run", job.conf, log=tmp_path / "first.log") as command:
        fed.until(lambda: len(written_batches(job.tables / "batches")) >= 5, command)
        applied = buckets("rules", "apply", asked, "--conf", job.conf, "--backfill")
        assert applied.code == 0, applied.err
        fed.until(lambda: any(fill.waiting for fill in read_fills(job.checkpoint)), command)
        listed = buckets("rules", "list", "--conf", job.conf)
        command.kill_all()
    assert "history of" in listed.out
    with RunningCommand("run", job.conf, log=tmp_path / "second.log") as command:
        fed.until(
            lambda: any(fill.chunk for fill in read_fills(job.checkpoint)) or backfilled_from(job) is not None, command
        )
        command.kill_all()
    with RunningCommand("run", job.conf, log=tmp_path / "third.log") as command:
        fed.until(lambda: backfilled_from(job) is not None, command)
        last = fed.until(lambda: not list(fills_folder(job.checkpoint).glob("[0-9]*")), command)
        assert command.interrupt() == 0

    whole = JobFolder(tmp_path / "whole", source={"kind": "json", "path": str(job.source), "max_files_per_trigger": 1})
    whole.write_rules([*RULES, ASKED])
    whole.run(spark)
    first = backfilled_from(job)
    assert from_batch(job, first, last) == from_batch(whole, first, last)
    mine = [row for row in from_batch(job, 0, last)["evaluations"] if row["rule_id"] == "asked"]
    assert {row["warm"] for row in mine if row["batch_id"] < first} == {False}
    assert {row["warm"] for row in mine if row["batch_id"] >= first} == {True}
    assert read_fills(job.checkpoint) == []
    replayed = replay(job.conf, evaluations=True)
    assert replayed.is_equal, replayed.differences
    assert replayed.compared["evaluations"] == len(job.rows("evaluations"))
    job.configure_also(spark={"spark.executor.memory": "1g"})
    asked_again = ("replay", job.conf, "--evaluations", "--json")
    by_workers = run_command(*asked_again, "--master", "local-cluster[2,1,1024]")
    assert by_workers.returncode == 0, by_workers.stderr
    assert json.loads(by_workers.stdout) == json.loads(buckets(*asked_again).out)
    assert "backfilled" in buckets("rules", "history", "asked", "--conf", job.conf).out
