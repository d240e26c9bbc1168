"""Topics that a pattern finds as one source, beside one that only fills timelines, on a real broker."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
import yaml

from buckets.archive.history import History
from buckets.audit.tables import TRANSACTIONS
from buckets.config.job import load_job
from buckets.errors import BucketsError
from buckets.history.replay.replay import replay_history
from buckets.outputs.columns import ALERTS, EVALUATIONS, HELD_ALERTS, SHADOW_ALERTS
from buckets.spark.audit import AuditListener, AuditQuery, prepare_audit
from buckets.spark.prepared_job import Listener, prepare
from tests.kafka.audit_job import AuditJob
from tests.kafka.kafka_job import Row
from tests.kafka.test_scoring import Running, run_to_end

pytestmark = pytest.mark.spark
RULES = [
    {
        "rule_id": "spent",
        "group_by": ["payer"],
        "aggregate": {"function": "sum", "measure": "amount"},
        "window": {"length": "1h"},
        "limit": {"operator": ">", "value": "25"},
        "cooldown": "10m",
    }
]


class PatternJob(AuditJob):
    """A job that reads `NAME-cards`, `NAME-web` and the like, and `history-NAME` without judging it."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given, archive={"path": "archive"}, trigger={"available_now": True})
        self.write_rules(RULES)
        self.history = self.broker.create(f"history-{self.topic}")
        self.broker.delete(self.topic)
        settings = yaml.safe_load(self.conf.read_text())
        settings["source"] = {
            "kind": "kafka",
            "topic_pattern": f"{self.topic}-(cards|web|.*[.]eu)",
            "topics": [{"name": self.history, "judge": False}],
        }
        self.conf.write_text(yaml.safe_dump(settings))
        self.job = load_job(self.conf)

    def put_payments(self, topic: str, *payments: Row) -> None:
        """Put payments of one payer into a topic."""
        self.broker.produce(topic, [json.dumps(payment) for payment in payments], ["ann"] * len(payments))

    def results(self) -> list[tuple[str, str, str]]:
        """The rows of all results: output, event and value."""
        outputs = (ALERTS, SHADOW_ALERTS, HELD_ALERTS, EVALUATIONS)
        return [(name, row["event_id"], row["value"]) for name in outputs for row in self.messages(name)]


class Unwritten:
    """A sink that fails."""

    on_driver = True

    def write(self, batch: Any) -> None:
        message = f"batch {batch.account.batch_id}: it does not get further"
        raise BucketsError(message)


def delete_under(spark, job: PatternJob, topic: str, go_on: Callable[[], None]) -> None:
    """Run the job, delete a topic of it meanwhile, and raise what it ends with."""
    query = prepare(load_job(job.conf)).query(spark, Listener())
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(query.serve, 0)
        job.broker.delete(topic)
        go_on()
        ended.result(120)


def payment(name: str, second: int) -> Row:
    return {"id": name, "t": second * 1_000, "payer": "ann", "kind": "CARD", "amount": "10.00"}


def test_topics_that_match_are_one_source_and_history_fills_timelines_alone(spark, broker, buckets, tmp_path):
    job = PatternJob(broker, tmp_path)
    with pytest.raises(BucketsError, match=r"there is no topic that source\.topic_pattern"):
        prepare(load_job(job.conf))
    cards, web = f"{job.topic}-cards", f"{job.topic}-web"
    broker.create(cards)
    job.put_payments(job.history, payment("h1", 1), payment("h2", 2), payment("h3", 3), payment("h3", 3))
    (report,) = run_to_end(spark, job)
    (account,) = report.account.groups
    assert (account.unjudged, account.duplicates, account.evaluated, account.alerts) == (3, 1, 0, 0)
    assert job.results() == []

    live = Running(spark, job)
    with live:
        job.put_payments(cards, payment("c1", 4))
        live.wait_for(1)
        broker.create(f"{job.topic}-other")
        job.put_payments(f"{job.topic}-other", payment("x1", 5))
        broker.create(web)
        job.put_payments(web, payment("w1", 6), payment("h2", 2), payment("w2", 700))
        live.wait_for(4)
        assert live.news().topics_appeared == 1
    assert [line.partition(" from batch")[0] for line in live.said] == [
        f"topic {web} has appeared, and is read from its beginning"
    ]
    alerts = [(ALERTS, "c1", "40.00"), (ALERTS, "w2", "60.00"), (HELD_ALERTS, "w1", "50.00")]
    evaluated = [(EVALUATIONS, *event) for event in (("c1", "40.00"), ("w1", "50.00"), ("w2", "60.00"))]
    assert sorted(job.results()) == sorted(alerts + evaluated), "h1 to h3 start no cool-down, and h2 is a repeat"

    job.audit(spark)
    assert {row["topic"] for row in job.rows(TRANSACTIONS)} == {job.history, cards, web}
    history = History.open(load_job(job.conf))
    table = pa.concat_tables(history.archive.tables())
    judged = dict(zip(table["id"].to_pylist(), table["_judged"].to_pylist(), strict=True))
    assert [judged[name] for name in ("h1", "h3", "c1", "w1", "w2")] == [False, False, True, True, True]
    for cuts in ("recorded", "joined"):
        replayed = replay_history(history, cuts=cuts)
        assert (replayed.differences, replayed.compared[ALERTS]) == ([], 2)
    ran = buckets("explain", job.conf, "--event", "h3", "--rule", "spent")
    assert f"its topic {job.history} is `judge: false`" in ran.out

    gone = rf"topic {web}, which source\.topic_pattern has found, is not there any more"
    with pytest.raises(BucketsError, match=gone):
        delete_under(spark, job, web, lambda: job.put_payments(cards, payment("c2", 800)))
    with pytest.raises(BucketsError, match=gone):
        prepare(load_job(job.conf))
    lines: list[str] = []
    prepare(load_job(job.conf), lines.append).lock.release()
    assert lines[-1].startswith(f"topic {web} is gone, and is not read any more from batch")
    (report,) = run_to_end(spark, job)
    assert report.account.events_in == 1
    broker.create(web)
    job.put_payments(web, payment("w3", 1_500), payment("w4", 1_600))
    reports = run_to_end(spark, job)
    assert sum(report.account.events_in for report in reports) == 2, "all of the topic that came again"
    positions = [row["source"] for row in job.messages(EVALUATIONS) if row["event_id"] in ("w1", "w4")]
    assert positions == [f"{web}[0]", f"{web}#2[0]"]

    job.put_payments(job.history, payment("h4", 1_700))
    with pytest.raises(BucketsError, match="it does not get further"):
        prepare(load_job(job.conf)).query(spark, Listener(), Unwritten()).run(None)
    settings = yaml.safe_load(job.conf.read_text())
    settings["source"]["topics"] = [job.history]
    job.conf.write_text(yaml.safe_dump(settings))
    prepared = prepare(load_job(job.conf))
    prepared.lock.release()
    assert prepared.carried_over == f"topic {job.history} is judged from now on"
    job.put_payments(job.history, payment("h5", 1_800))
    accounts = [report.account.groups[0] for report in run_to_end(spark, job)]
    found = [(account.unjudged, account.evaluated) for account in accounts]
    assert found == [(1, 0), (0, 1)], "a batch that is run again has the flags that it had"

    AuditQuery(spark, prepare_audit(load_job(job.conf), lines.append), AuditListener()).run(once=True)
    history = History.open(load_job(job.conf))
    replayed = replay_history(history)
    assert (replayed.differences, history.archive.end()) == ([], 4 + 1 + 3 + 1 + 2 + 2)
