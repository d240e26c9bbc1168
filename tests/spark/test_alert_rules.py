"""Rules over alerts on the real engine: as in one process, whenever the job stops or is killed."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import buckets as library
from buckets.config.engine import EngineSettings
from buckets.errors import BucketsError
from buckets.feeds.rules.rule_book import RuleBook
from buckets.spark.sinks import DeltaSink
from tests.spark.command import RunningCommand
from tests.spark.job_folder import JobFolder
from tests.spark.payments import RULES, payments
from tests.spark.test_kill import freeze_when, is_half_written

pytestmark = pytest.mark.spark
EVENTS = payments(100)
SCORED: list[dict[str, Any]] = [rule | {"score": 10 * (number + 3)} for number, rule in enumerate(RULES)]
OVER_ALERTS: list[dict[str, Any]] = [
    {
        "rule_id": "two-rules",
        "on": "alerts",
        "group_by": ["payer"],
        "features": {
            "rules": {"function": "count_distinct", "of": "alert_rule", "window": "2s"},
            "alerts": {"function": "count", "window": "1s", "group_by": ["kind"]},
        },
        "when": "rules >= 2 AND alerts >= 3",
    },
    {
        "rule_id": "score",
        "on": "alerts",
        "group_by": ["payer"],
        "aggregate": {"function": "sum", "measure": "alert_score"},
        "window": {"length": "1s"},
        "limit": {"operator": ">", "value": "120"},
    },
]
ALL_RULES = [*OVER_ALERTS, *SCORED]


def new_job(root: Path, source: Path | None = None) -> JobFolder:
    """A job over four files, or over those of another one."""
    path = str(source) if source is not None else "source"
    job = JobFolder(root, source={"kind": "json", "path": path, "max_files_per_trigger": 1})
    job.write_rules(ALL_RULES)
    return job


@pytest.fixture(scope="module")
def undisturbed(spark, tmp_path_factory) -> JobFolder:
    job = new_job(tmp_path_factory.mktemp("undisturbed"))
    job.add_events(EVENTS, files=4)
    job.run(spark)
    return job


def test_the_alerts_are_those_of_one_process(undisturbed):
    schema = library.load_event_schema(undisturbed.root / "schema.yaml")
    rules = library.load_rules(undisturbed.root / "rules.yaml", schema)
    engine = EngineSettings.model_validate({"allowed_lateness": "100ms"})
    results = library.Evaluator(rules, schema, engine).recorded(pa.Table.from_pylist(EVENTS))
    names = ("alert_id", "rule_id", "key", "event_id", "value", "terms", "event")
    expected = sorted([tuple(row[name] for name in names) for row in results.alerts.to_pylist()], key=repr)
    found = sorted([tuple(row[name] for name in names) for row in undisturbed.rows("alerts")], key=repr)
    assert found == expected
    assert {row["rule_id"] for row in undisturbed.rows("alerts")} == {"payer-sum", "all-average", "two-rules", "score"}
    accounts = undisturbed.rows("batches")
    counted = sum(row["events_in"] for row in accounts if row["group"] == "alerts by payer")
    assert counted == sum(row["rule_id"] in ("payer-sum", "all-average") for row in undisturbed.rows("alerts"))


def test_a_batch_that_is_run_again_begins_from_the_alerts_before_it(
    spark, undisturbed, tmp_path: Path, monkeypatch, as_worded
):
    """The job fails once before what the driver keeps of a batch is written, and once after that."""
    job = new_job(tmp_path, undisturbed.source)
    for owner, step, batch_id in ((DeltaSink, "append_accounts", 1), (RuleBook, "done", 2)):
        with monkeypatch.context() as patch:
            fails_in(patch, owner, step, batch_id)
            with pytest.raises(BucketsError, check=as_worded):
                job.run(spark)
    job.run(spark)
    assert job.all_rows() == undisturbed.all_rows()


def fails_in(patch: pytest.MonkeyPatch, owner: type, step: str, batch_id: int) -> None:
    """Have the job fail at a step of a batch."""
    does = getattr(owner, step)

    def failing(self, batch, *others):
        if getattr(batch, "batch_id", batch) == batch_id:
            message = "OSError: the disk is full"
            raise OSError(message)
        does(self, batch, *others)

    patch.setattr(owner, step, failing)


@pytest.mark.nightly
def test_killed_in_a_batch_and_restarted_every_table_is_that_of_an_undisturbed_run(
    buckets, undisturbed, tmp_path: Path
):
    job = new_job(tmp_path, undisturbed.source)
    with RunningCommand("run", job.conf, log=tmp_path / "first.log") as command:
        freeze_when(command, job, is_half_written)
        command.kill_all()
    last = buckets("run", job.conf)
    assert last.code == 0, last.err
    assert job.all_rows() == undisturbed.all_rows()


def test_a_damaged_file_of_the_driver_is_named_in_one_line(spark, undisturbed, tmp_path: Path, as_worded):
    job = new_job(tmp_path)
    job.add_events(EVENTS[:50], files=2)
    job.run(spark)
    first = min((job.checkpoint / "buckets" / "driver").iterdir())
    first.write_bytes(first.read_bytes()[:-1])
    job.add_events(EVENTS[50:], files=2, first=2)
    with pytest.raises(BucketsError, check=as_worded):
        job.run(spark)
