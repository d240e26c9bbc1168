"""`kill -9` in the middle of a batch: after a restart the tables are those of a run that nothing disturbed."""

from pathlib import Path

import pytest

from buckets.errors import BucketsError
from buckets.spark.sinks import DeltaSink
from tests.spark.command import RunningCommand
from tests.spark.job_folder import JobFolder, Row, written_batches
from tests.spark.payments import SCHEMA, payments

pytestmark = pytest.mark.spark


NARROW = {"log": "2KiB", "cache": "2KiB"}
"""So little of the state lies in logs and in memory that each batch moves some of it to the store, and reads it."""


def committed_batches(job: JobFolder) -> set[int]:
    """The batches that Spark will not run again."""
    return {int(path.name) for path in (job.checkpoint / "spark" / "commits").glob("[0-9]*")}


def is_half_written(job: JobFolder) -> bool:
    """Whether some batch is in one of its tables and not in another."""
    return bool((written_batches(job.tables / "alerts") ^ written_batches(job.tables / "batches")) - {0})


def is_written_but_not_committed(job: JobFolder) -> bool:
    """Whether some batch has everything in the tables, and Spark does not know yet that it is done."""
    written = written_batches(job.tables / "alerts") & written_batches(job.tables / "batches")
    return bool(written - committed_batches(job) - {0})


def freeze_when(command: RunningCommand, job: JobFolder, condition) -> None:
    """Freeze the run in a moment in which a condition holds: looked at again once nothing moves any more."""
    while True:
        command.wait_until(lambda: condition(job))
        command.freeze()
        if condition(job):
            return
        command.thaw()


def run_and_kill_twice(job: JobFolder, logs: Path) -> None:
    """Start a job and kill it in a batch that is half written; again, in one that is written and not committed."""
    with RunningCommand("run", job.conf, log=logs / "first.log") as command:
        freeze_when(command, job, is_half_written)
        command.kill_driver()
    first = written_batches(job.tables / "batches")
    with RunningCommand("run", job.conf, log=logs / "second.log") as command:
        freeze_when(
            command,
            job,
            lambda job: is_written_but_not_committed(job) and written_batches(job.tables / "batches") > first,
        )
        command.kill_all()


def dies_before_the_accounts_of(batch_id: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the job fail in a batch whose results are in their tables already, and its accounts are not."""
    append = DeltaSink.append_accounts

    def failing(sink, account):
        if account.batch_id == batch_id:
            message = "OSError: the disk is full"
            raise OSError(message)
        append(sink, account)

    monkeypatch.setattr(DeltaSink, "append_accounts", failing)


def of_batch(rows: dict[str, list[Row]], batch_id: int) -> dict[str, list[Row]]:
    """The rows of one batch in each table that holds some."""
    mine = {name: [row for row in each if row["batch_id"] == batch_id] for name, each in rows.items()}
    return {name: each for name, each in mine.items() if each}


OTHER_SETTINGS = {"late": "evaluate", "collision": "keep_first", "precision": {"tail": "100ms", "resolution": "1s"}}
LATEST = "1970-01-01T00:00:04Z"
"""It falls into the last batch."""


def test_a_batch_that_was_half_written_is_run_again_as_it_began_whatever_the_configuration_says_by_then(
    spark, finished: JobFolder, tmp_path: Path, monkeypatch
):
    """Every setting that decides results is another one, and fields are declared in another order."""
    source = {"kind": "json", "path": str(finished.source), "max_files_per_trigger": 1}
    job = JobFolder(tmp_path, source=source, output={"path": "tables"})
    with monkeypatch.context() as patch:
        dies_before_the_accounts_of(1, patch)
        with pytest.raises(BucketsError, match="the disk is full"):
            job.run(spark)
    assert is_half_written(job)

    job.write_schema(
        SCHEMA
        | {
            "event_time": SCHEMA["event_time"] | {"latest": LATEST},
            "attributes": {"country": "string", **dict(reversed(SCHEMA["attributes"].items()))},
        }
    )
    job.configure(
        source=source,
        output={"path": "tables", "evaluations": True},
        engine={"shards": 4, "allowed_lateness": "100ms", **OTHER_SETTINGS},
    )
    reports = job.run(spark)

    assert [report.account.batch_id for report in reports] == [1, 2, 3]
    found, undisturbed = job.all_rows(), finished.all_rows()
    del undisturbed["evaluations"]
    for batch_id in (0, 1):
        assert of_batch(found, batch_id) == of_batch(undisturbed, batch_id)
    assert {"late_events", "collisions", "alerts"} <= of_batch(undisturbed, 1).keys()
    then = of_batch(found, 2)
    assert {row["event_id"] for row in then["evaluations"]} & {row["event_id"] for row in then["late_events"]}
    assert not all(row["exact"] for row in then["evaluations"])
    assert [row["kept"] for row in then["collisions"]] == [False] * len(then["collisions"])
    assert {"0 to 1970-01-01" in row["reason"] for row in of_batch(found, 3)["dead_letters"]}


@pytest.mark.nightly
def test_killed_twice_in_a_batch_and_restarted_every_table_is_that_of_an_undisturbed_run(
    buckets, spark, finished: JobFolder, tmp_path: Path
):
    source = {"kind": "json", "path": str(finished.source), "max_files_per_trigger": 1}
    job = JobFolder(tmp_path, source=source, state=NARROW)

    run_and_kill_twice(job, tmp_path)
    assert committed_batches(job) < committed_batches(finished)
    job.write_schema(SCHEMA | {"event_time": SCHEMA["event_time"] | {"latest": "2030-01-01T00:00:00Z"}})
    last = buckets("run", job.conf)

    assert last.code == 0, last.err
    assert last.err.startswith(
        "event_time.latest has changed (2200-01-01T00:00:00+00:00 until now, 2030-01-01T00:00:00+00:00 from now on); "
        "events that have been taken already stay\n"
    )
    assert job.all_rows() == finished.all_rows()
    assert all(
        finished.rows(name)
        for name in ("alerts", "shadow_alerts", "late_events", "collisions", "duplicates", "evaluations")
    )
    assert committed_batches(job) == committed_batches(finished)


REMEMBERING = [
    {
        "rule_id": "twice",
        "group_by": ["payer"],
        "where": "payer NOT IN LIST staff",
        "aggregate": {"function": "count"},
        "window": {"length": "1s"},
        "limit": {"operator": ">=", "value": "2"},
        "reset_on_alert": True,
        "cooldown": "200ms",
        "score": 60,
    },
    {
        "rule_id": "of-two-groups",
        "group_by": ["payer"],
        "features": {
            "mine": {"function": "count", "window": "1s"},
            "of_kind": {"function": "count", "window": "1s", "group_by": ["kind"]},
        },
        "when": "mine >= 2 AND of_kind >= 2",
        "cooldown": "400ms",
        "score": 50,
    },
    {
        "rule_id": "score",
        "on": "alerts",
        "group_by": ["payer"],
        "aggregate": {"function": "sum", "measure": "alert_score"},
        "window": {"length": "2s"},
        "limit": {"operator": ">", "value": "200"},
        "cooldown": "500ms",
    },
]
"""Rules that remember more than their timelines: in the shards, on the driver, and of alerts."""


def remembering(root: Path, source: Path | None = None) -> JobFolder:
    """A job over these rules and a list, with ten files to read: its own, or those of another job."""
    root.mkdir()
    (root / "staff.csv").write_text("key,until\nbob,1970-01-01T00:00:01Z\n", encoding="utf-8")
    taken = {"kind": "json", "path": str(source or root / "source"), "max_files_per_trigger": 1}
    job = JobFolder(root, source=taken, state=NARROW, lists={"staff": {"kind": "file", "path": "staff.csv"}})
    job.write_rules(REMEMBERING)
    if source is None:
        job.add_events(payments(200, seed=11), files=10)
    return job


@pytest.mark.nightly
def test_what_policies_lists_and_alerts_remember_is_that_of_an_undisturbed_run_after_kills(
    buckets, spark, tmp_path: Path
):
    undisturbed = remembering(tmp_path / "undisturbed")
    undisturbed.run(spark)
    job = remembering(tmp_path / "killed", undisturbed.source)
    run_and_kill_twice(job, tmp_path)
    last = buckets("run", job.conf)

    assert last.code == 0, last.err
    assert job.all_rows() == undisturbed.all_rows()
    alerted = {row["rule_id"] for row in undisturbed.rows("alerts")}
    held = {row["rule_id"] for row in undisturbed.rows("held_alerts")}
    assert alerted == {"twice", "of-two-groups", "score"}
    assert held >= {"twice", "of-two-groups"}
