"""Several topics as one source, on a real broker."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
import yaml

from buckets.archive.history import History
from buckets.config.job import load_job
from buckets.history.replay.replay import replay_history
from buckets.outputs.columns import ALERTS, EVALUATIONS
from buckets.spark.prepared_job import prepare
from tests.kafka.audit_job import AuditJob
from tests.kafka.kafka_job import Row, comparable
from tests.kafka.test_scoring import run_to_end
from tests.spark.payments import payments

pytestmark = pytest.mark.spark
RULES = ("payer-sum", "every-payment", "card-count")
"""Those whose keys are payers."""


class TopicsJob(AuditJob):
    """A job whose payments are in two topics, those of a payer in one."""

    def __init__(self, *given: Any, **changes: Any) -> None:
        super().__init__(*given, archive={"path": "archive"}, **changes)
        settings = yaml.safe_load(self.conf.read_text())
        del settings["source"]["topic"]
        self.other = self.broker.create(f"{self.topic}-other", changes.get("partitions", 1))
        settings["source"]["topics"] = [self.other, self.topic]
        self.conf.write_text(yaml.safe_dump(settings))
        self.job = load_job(self.conf)

    def send(self, events: Iterable[Row]) -> None:
        """Put payments into the topics."""
        plain, self.topic = self.topic, self.other
        chosen = list(events)
        super().send(event for event in chosen if event["payer"] == "ann")
        self.topic = plain
        super().send(event for event in chosen if event["payer"] != "ann")


def of_payers(job: AuditJob, output: str) -> list[Row]:
    return comparable(row for row in job.messages(output) if row["rule_id"] in RULES)


def test_several_topics_are_scored_archived_and_replayed_as_one(spark, broker, buckets, tmp_path):
    given = {"trigger": {"available_now": True}, "partitions": 2}
    job, plain = TopicsJob(broker, tmp_path / "two", **given), AuditJob(broker, tmp_path / "one", **given)
    events = payments(100)
    for chunk in (events[:60], events[60:]):
        job.send(chunk)
        plain.send(chunk)
        run_to_end(spark, job)
        run_to_end(spark, plain)
    for name in (ALERTS, EVALUATIONS):
        assert of_payers(job, name) == of_payers(plain, name), name
    sources = {row["source"].partition("[")[0] for row in job.messages(ALERTS)}
    assert sources == {job.topic, job.other}
    job.audit(spark)
    history = History.open(load_job(job.conf))
    table = pa.concat_tables(history.archive.tables())
    assert sorted(table["id"].to_pylist()) == sorted(event["id"] for event in events)
    replayed = replay_history(history)
    assert (replayed.differences, bool(replayed.compared[ALERTS])) == ([], True)
    assert buckets("check", job.conf).code == 0


def test_a_topic_of_several_that_was_created_again_is_read_from_its_beginning(spark, broker, tmp_path):
    job = TopicsJob(broker, tmp_path, trigger={"available_now": True})
    job.send(payments(40))
    run_to_end(spark, job)
    broker.delete(job.other)
    broker.create(job.other)
    said: list[str] = []
    prepare(load_job(job.conf), said.append).lock.release()
    job.send([event | {"id": f"again-{event['id']}", "t": event["t"] + 10_000} for event in payments(40)])
    (report,) = run_to_end(spark, job)
    assert report.account.events_in == 40
    assert [line.partition(" was")[0] for line in said] == [f"topic {job.other}"]
    sources = {row["source"] for row in job.messages(ALERTS)}
    assert sources == {f"{job.topic}[0]", f"{job.other}[0]", f"{job.other}#2[0]"}
