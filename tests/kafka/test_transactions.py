"""Producers that write in transactions: what they abort is read by nobody, unless the configuration wants it."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer

from buckets.archive.history import History
from buckets.audit.tables import TRANSACTIONS
from buckets.checkpoint.driver_state import Checkpoint
from buckets.config.job import load_job
from buckets.feeds.lists import ListBook
from buckets.feeds.topics import ListTopic
from buckets.history.replay.replay import replay_history
from buckets.kafka.faults import client_settings
from buckets.outputs.columns import ALERTS
from buckets.spark.prepared_job import Listener, prepare
from tests.kafka.audit_job import AuditJob
from tests.kafka.broker import WITHIN_S, TestBroker
from tests.kafka.kafka_job import KafkaJob
from tests.kafka.test_scoring import Running, run_to_end
from tests.kafka.topic_reader import TopicReader

pytestmark = pytest.mark.spark
Message = tuple[str, str]
"""A key and a value."""


class Transactions:
    """A producer that writes in transactions."""

    def __init__(self, broker: TestBroker, name: str) -> None:
        self._producer = Producer({**client_settings(broker.kafka), "transactional.id": name})
        self._producer.init_transactions(WITHIN_S)

    def begin(self, topic: str, messages: Sequence[Message]) -> None:
        """Begin a transaction, and write messages in it."""
        self._producer.begin_transaction()
        for key, value in messages:
            self._producer.produce(topic, value, key)
        assert self._producer.flush(WITHIN_S) == 0

    def commit(self) -> None:
        self._producer.commit_transaction(WITHIN_S)

    def abort(self) -> None:
        self._producer.abort_transaction(WITHIN_S)


def events(first: int, count: int) -> list[dict[str, Any]]:
    return [
        {"id": f"e{number}", "t": 1_000 + number, "payer": "ann", "kind": "CARD", "amount": "20.00"}
        for number in range(first, first + count)
    ]


def messages(chosen: Sequence[dict[str, Any]]) -> list[Message]:
    return [(event["payer"], json.dumps(event)) for event in chosen]


def fill(broker: TestBroker, topic: str) -> Iterator[int]:
    """Write committed and aborted payments by turns; yields the number of each one that counts."""
    writer = Transactions(broker, topic)
    first = 0
    for count, commits in [(5, True), (40, False), (3, True), (1, False), (7, True), (2, False)]:
        writer.begin(topic, messages(events(first, count)))
        (writer.commit if commits else writer.abort)()
        yield from range(first, first + count) if commits else ()
        first += count


def scored(job: KafkaJob) -> list[int]:
    """The numbers of the payments that were evaluated, by the rule that fires at each."""
    alerts = [alert for alert in job.messages(ALERTS) if alert["rule_id"] == "every-payment"]
    return sorted(int(alert["event_id"][1:]) for alert in alerts)


@pytest.mark.parametrize("most", [1, 4, 200_000])
def test_what_was_aborted_is_not_scored_and_its_offsets_stop_nothing(spark, broker, tmp_path, most):
    job = KafkaJob(broker, tmp_path)
    settings = yaml.safe_load(job.conf.read_text())
    settings["source"]["max_offsets_per_trigger"] = most
    job.conf.write_text(yaml.safe_dump(settings))
    counted = list(fill(broker, job.topic)) if most > 1 else few(broker, job.topic)
    reports = run_to_end(spark, job)
    assert sum(report.account.events_in for report in reports) == len(counted)
    assert sum(report.account.malformed for report in reports) == 0
    assert scored(job) == counted
    sums = {alert["event_id"]: alert["value"] for alert in job.messages(ALERTS) if alert["rule_id"] == "payer-sum"}
    assert sums[f"e{counted[-1]}"] == f"{20 * len(counted)}.00", "nothing that was aborted is in a sum"


def few(broker: TestBroker, topic: str) -> list[int]:
    """As `fill`, with a few payments: a batch for each offset takes its time."""
    writer = Transactions(broker, topic)
    writer.begin(topic, messages(events(0, 3)))
    writer.commit()
    writer.begin(topic, messages(events(3, 2)))
    writer.abort()
    writer.begin(topic, messages(events(5, 1)))
    writer.commit()
    return [0, 1, 2, 5]


def test_read_uncommitted_takes_all(spark, broker, tmp_path):
    kafka = {"bootstrap_servers": broker.kafka.bootstrap_servers, "isolation": "read_uncommitted"}
    job = KafkaJob(broker, tmp_path, kafka=kafka)
    few(broker, job.topic)
    (report,) = run_to_end(spark, job)
    assert report.account.events_in == 6
    assert scored(job) == [0, 1, 2, 3, 4, 5]


def test_an_open_transaction_holds_back_what_comes_after_it_until_it_ends(spark, broker, tmp_path):
    job = KafkaJob(broker, tmp_path)
    writer = Transactions(broker, job.topic)
    job.send(events(0, 3))
    writer.begin(job.topic, messages(events(3, 2)))
    job.send(events(5, 4))
    with Running(spark, job) as running:
        running.wait_for(3)
        assert running._query.news().lag in (0, None), "what nobody may read yet is nothing to catch up with"
        writer.commit()
        running.wait_for(9)
    assert scored(job) == list(range(9))


def test_the_audit_and_the_archive_hold_what_was_committed_and_a_replay_is_the_same(spark, broker, tmp_path):
    job = AuditJob(broker, tmp_path, trigger={"available_now": True}, archive={"path": "archive"})
    settings = yaml.safe_load(job.conf.read_text())
    settings["source"]["max_offsets_per_trigger"] = 20
    job.conf.write_text(yaml.safe_dump(settings))
    counted = list(fill(broker, job.topic))
    run_to_end(spark, job)
    # Nothing but offsets of aborted messages: a batch of no events.
    writer = Transactions(broker, f"{job.topic}-again")
    writer.begin(job.topic, messages(events(100, 3)))
    writer.abort()
    prepare(load_job(job.conf)).query(spark, Listener()).run(None)
    job.send(events(200, 2))
    run_to_end(spark, job)
    job.audit(spark)
    kept = [int(json.loads(row["value"])["id"][1:]) for row in job.rows(TRANSACTIONS)]
    assert kept == [*counted, 200, 201]
    history = History.open(load_job(job.conf))
    assert history.archive.end() == len(kept)
    for cuts in ("recorded", "joined"):
        replayed = replay_history(history, cuts=cuts)
        assert replayed.differences == []
        assert replayed.compared[ALERTS] == len(job.rows(ALERTS))


def test_lists_and_readers_see_what_was_committed(broker, tmp_path):
    topic = broker.create(f"list-of-{tmp_path.name}", 1, {"cleanup.policy": "compact"})
    writer = Transactions(broker, topic)
    writer.begin(topic, [("a", "{}"), ("b", "{}")])
    writer.commit()
    writer.begin(topic, [("a", "broken"), ("c", "{}")])
    writer.abort()
    said: list[str] = []
    lists = ListBook(Checkpoint(tmp_path / "checkpoint"), {"l": ListTopic(broker.kafka, topic)}, said.append)
    lists.start_reading()
    index = Checkpoint(tmp_path / "checkpoint").lists.index("l", 1)
    assert [index.get(key) is not None for key in "abc"] == [True, True, False]
    assert said == []
    lists.stop()
    with TopicReader(broker.kafka, [topic], from_end=False) as reader:
        assert [message.key() for message in reader.poll(WITHIN_S)] == [b"a", b"b"]
    loose = broker.kafka.model_copy(update={"isolation": "read_uncommitted"})
    with TopicReader(loose, [topic], from_end=False) as reader:
        assert [message.key() for message in reader.poll(WITHIN_S)] == [b"a", b"b", b"a", b"c"]
