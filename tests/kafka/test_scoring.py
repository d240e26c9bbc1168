"""Scoring from a topic into topics, on a real broker: what comes out is what the core makes of the same messages."""

import json
import threading
import time
from collections.abc import Callable

import pytest

from buckets.config.job import load_job
from buckets.monitor.pace import BatchReport
from buckets.monitor.query_news import QueryNews
from buckets.outputs.columns import TOPICS
from buckets.spark.prepared_job import Listener, prepare
from tests.kafka.kafka_job import EVERY, KafkaJob, comparable
from tests.spark.payments import RULES, payments

pytestmark = pytest.mark.spark
SIDES = TOPICS


def run_to_end(spark, job: KafkaJob) -> list[BatchReport]:
    """Score what is in the topic."""
    reports: list[BatchReport] = []
    prepare(load_job(job.conf)).query(spark, Listener(reports.append)).run(None)
    return reports


class Running:
    """The job's query in a thread, until the end of the block."""

    def __init__(self, spark, job: KafkaJob, new_topic: Callable[[str], None] | None = None) -> None:
        self.reports: list[BatchReport] = []
        self.refused: list = []
        self.said: list[str] = []
        self._job = job
        listener = Listener(self.reports.append, self.refused.extend, say=self.said.append)
        self._query = prepare(load_job(job.conf), new_topic).query(spark, listener)
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        self._query.serve(0)

    def news(self) -> QueryNews:
        return self._query.news()

    @property
    def events(self) -> int:
        return sum(report.account.events_in for report in self.reports)

    def wait_for(self, events: int, within_s: float = 60) -> None:
        ends_s = time.monotonic() + within_s
        while self.events < events:
            assert time.monotonic() < ends_s, f"{self.events} of {events} events are scored"
            time.sleep(0.05)

    def send_one_by_one(self, events: list[dict], sent: int, condition: Callable[[], bool]) -> int:
        """Send a payment a batch, after the `sent` first, until a condition holds; returns how many are sent then."""
        for count, event in enumerate(events[sent:], sent + 1):
            self._job.send([event])
            self.wait_for(count)
            if condition():
                return count
        message = f"it did not come to that with {len(events)} payments"
        raise AssertionError(message)

    def __enter__(self) -> "Running":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._query.stop()
        self._thread.join(60)
        assert not self._thread.is_alive()


@pytest.mark.parametrize("partitions", [1, 3])
def test_what_comes_out_is_what_the_core_makes_of_the_same_messages(spark, broker, tmp_path, partitions):
    job = KafkaJob(broker, tmp_path, partitions, evaluations=True, tasks=1 if partitions == 1 else 2)
    job.send(payments(150))
    reports = run_to_end(spark, job)
    expected = job.replay({})
    assert sum(report.account.events_in for report in reports) == 150
    for name in SIDES:
        assert comparable(job.messages(name)) == comparable(expected[name]), name
    assert all(job.messages(name) for name in ("alerts", "shadow_alerts", "late_events", "collisions", "duplicates"))


def test_alerts_carry_everything_about_rule_event_window_and_times(spark, broker, tmp_path):
    job = KafkaJob(broker, tmp_path)
    before_ms = time.time_ns() // 1_000_000
    job.send([{"id": "p1", "t": 1_000, "payer": "ann", "kind": "CARD", "amount": "70.00"}])
    run_to_end(spark, job)
    (alert,) = [alert for alert in job.messages("alerts") if alert["rule_id"] == "payer-sum"]
    after_ms = time.time_ns() // 1_000_000
    assert before_ms <= alert.pop("ingested_at") <= alert.pop("decided_at") <= after_ms
    assert len(alert.pop("alert_id")) == 32
    term = {"name": "value", "function": "sum", "of": "amount", "window": "1s"}
    assert alert == {
        "version": 2,
        "rule_id": "payer-sum",
        "rule_version": 1,
        "ruleset_version": 1,
        "rule": "The sum of amount of events of the same payer over the last 1s is above 60",
        "key": {"payer": "ann"},
        "group_by": ["payer"],
        "event_id": "p1",
        "event_time": 1_000,
        "value": "70.00",
        "lower": "70.00",
        "upper": "70.00",
        "exact": True,
        "certain": True,
        "warm": True,
        "count": 1,
        "count_lower": 1,
        "count_upper": 1,
        "operator": ">",
        "limit": "60",
        "window_start": 0,
        "window_end": 1_000,
        "event": {"id": "p1", "t": 1_000, "payer": "ann", "kind": "CARD", "amount": "70.00"},
        "terms": [term | {"value": "70.00", "exact": True, "count": 1, "warm": True}],
        "condition": "The sum of amount over the last 1s (70) is above 60",
        "severity": None,
        "tags": [],
        "score": 0,
        "held_back": 0,
        "source": f"{job.topic}[0]",
        "position": 0,
    }


def test_broken_messages_are_dead_letters_with_their_position_and_the_others_are_scored(spark, broker, tmp_path):
    job = KafkaJob(broker, tmp_path)
    good = json.dumps({"id": "p1", "t": 1, "payer": "ann", "kind": "CARD", "amount": "70.00"})
    broken = ["{", "", None, "[1]", b"\xff\xfe", f"{good} {good}", '{"id": "p2"}', good.replace("70.00", "1.234")]
    broker.produce(job.topic, [*broken, good], ["k"] * (len(broken) + 1))
    (report,) = run_to_end(spark, job)
    dead_letters = sorted(job.messages("dead_letters"), key=lambda dead_letter: dead_letter["position"])
    assert [dead_letter["position"] for dead_letter in dead_letters] == list(range(len(broken)))
    assert {dead_letter["source"] for dead_letter in dead_letters} == {f"{job.topic}[0]"}
    assert [dead_letter["reason"].split(":")[0] for dead_letter in dead_letters] == [
        "broken JSON", "broken JSON", "broken JSON", "is a list, and must be an object", "is not valid UTF-8",
        "broken JSON", "t", "amount",
    ]  # fmt: skip
    assert dead_letters[0]["raw"] == "{"
    assert (report.account.events_in, report.account.malformed) == (len(broken) + 1, len(broken))
    assert {alert["event_id"] for alert in job.messages("alerts")} == {"p1"}


def test_what_came_while_the_job_was_down_is_scored_afterwards_in_order(spark, broker, tmp_path):
    job, events = KafkaJob(broker, tmp_path), payments(120)
    for start in range(0, 120, 40):
        job.send(events[start : start + 40])
        run_to_end(spark, job)
    assert comparable(job.messages("alerts")) == comparable(job.replay({})["alerts"])


def test_a_topic_that_gains_partitions_loses_nothing(spark, broker, tmp_path):
    job, events = KafkaJob(broker, tmp_path), payments(90)
    with Running(spark, job) as running:
        job.send(events[:30])
        running.wait_for(30)
        broker.grow(job.topic, 3)
        job.broker.produce(job.topic, [json.dumps(each) for each in events[30:]], [each["id"] for each in events[30:]])
        running.wait_for(90)
    accounts = [report.account for report in running.reports]
    assert sum(account.events_in for account in accounts) == 90
    assert len({message.partition() for message in broker.read(job.topic)}) == 3


def test_a_rule_that_comes_while_the_job_runs_is_right_at_once_and_nothing_is_lost(spark, broker, tmp_path):
    job, events = KafkaJob(broker, tmp_path), payments(200)
    narrower = {**RULES[0], "limit": {"operator": ">", "value": "10"}}
    younger = {**RULES[0], "rule_id": "payer-max", "aggregate": {"function": "max", "measure": "amount"}}
    with Running(spark, job) as running:
        job.send(events[:80])
        running.wait_for(80)
        job.write_rules([narrower, *RULES[1:], EVERY, younger])
        sent = running.send_one_by_one(events, 80, lambda: running.reports[-1].account.ruleset_version == 2)
        job.send(events[sent:])
        running.wait_for(200)
    versions = job.evaluated_under()
    assert set(versions.values()) == {1, 2}
    alerts = job.messages("alerts")
    assert comparable(alerts) == comparable(job.replay(versions)["alerts"])
    assert {alert["rule_version"] for alert in alerts if alert["rule_id"] == "payer-sum"} == {1, 2}
    assert all(alert["warm"] for alert in alerts if alert["rule_id"] == "payer-max")


def test_a_broken_rule_file_changes_nothing_while_the_job_runs(spark, broker, tmp_path, as_worded):
    job, events = KafkaJob(broker, tmp_path), payments(60)
    with Running(spark, job) as running:
        job.send(events[:30])
        running.wait_for(30)
        job.write_rules([{**RULES[0], "window": {"length": "soon"}}])
        sent = running.send_one_by_one(events, 30, lambda: bool(running.refused))
        job.send(events[sent:])
        running.wait_for(60)
    assert set(job.evaluated_under().values()) == {1}
    (refusal,) = running.refused
    assert as_worded(refusal.reason)
