"""A broker that goes away under load, again and again: scoring, its rules and its audit wait, and lose nothing.

As it stands, the broker is away twice for as long as its start takes, which is longer than messages wait for their
acknowledgement here. For real lengths, with the timeouts that a job has by default:

    pytest tests/kafka/test_outages.py --outages 60s,60s,5m --log-cli-level INFO
"""

import itertools
import json
import logging
import threading
import time
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from buckets.checkpoint.rule_versions import RuleVersions
from buckets.duration import format_duration, parse_duration_ms
from buckets.kafka.faults import client_settings
from buckets.kafka.sender import paced_produce
from buckets.outputs import columns
from tests.kafka.audit_job import AuditJob, assert_tables_hold_topics
from tests.kafka.kafka_job import EVERY, comparable
from tests.spark.command import RunningCommand, run_command
from tests.spark.payments import RULES, payments

pytestmark = pytest.mark.spark
LOG = logging.getLogger(__name__)
LOOK_EVERY_S = 0.5
RATE, BURST, SENT_OF_BURST = 20, 2_000, 500
AS_LONG_AS_A_START = [0, 0]


@pytest.fixture
def lengths_ms(request) -> list[int]:
    """How long the broker is away each time, before it is started again."""
    asked = request.config.getoption("--outages")
    return [parse_duration_ms(length) for length in asked.split(",")] if asked else AS_LONG_AS_A_START


@pytest.fixture
def job(own_broker, tmp_path, lengths_ms) -> AuditJob:
    """A job whose rules and audit are on the broker too."""
    broker, name = own_broker(), uuid.uuid4().hex[:8]
    rules = {"topic": f"rules-{name}", "rejected_topic": f"rejected-{name}", "export_topic": f"export-{name}"}
    timeout = {"delivery_timeout": "2s"} if lengths_ms == AS_LONG_AS_A_START else {}
    kafka = {"bootstrap_servers": broker.kafka.bootstrap_servers} | timeout
    made = AuditJob(broker, tmp_path, kafka=kafka, rules=rules, trigger={"interval": "0ms"})
    put_rules(made, [*RULES, EVERY])
    return made


def put_rules(job: AuditJob, rules: list[dict]) -> None:
    topic = job.job.settings.rules.topic
    job.broker.produce(topic, [json.dumps(rule) for rule in rules], [rule["rule_id"] for rule in rules])


class Load:
    """Payments at a steady rate, broker or not, from a thread; stopped at the end of the block."""

    def __init__(self, job: AuditJob, events: Iterator[dict]) -> None:
        self._stop = threading.Event()
        messages = ((event["payer"], json.dumps(event).encode()) for event in events)
        arguments = (job.broker.kafka, job.topic, messages, RATE, None, self._stop)
        self._thread = threading.Thread(target=lambda: setattr(self, "sent", paced_produce(*arguments)), daemon=True)
        self.sent = 0

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def size(job: AuditJob, topic: str) -> int:
    """How many messages a topic has."""
    consumer = Consumer({**client_settings(job.broker.kafka), "group.id": "sizes"})
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)[1]
    finally:
        consumer.close()


def kill_while_results_are_sent(command: RunningCommand, job: AuditJob, burst: list[dict]) -> None:
    """Kill the broker when some results of a large batch have arrived, and more are on their way."""
    partition = TopicPartition(job.topic_of(columns.EVALUATIONS), 0)
    consumer = Consumer({**client_settings(job.broker.kafka), "group.id": "sizes"})
    sent = size(job, partition.topic) + SENT_OF_BURST
    job.send(burst)
    command.wait_until(lambda: consumer.get_watermark_offsets(partition, timeout=60)[1] >= sent)
    job.broker.kill()
    consumer.close()


def stay_away(command: RunningCommand, length_ms: int) -> None:
    """Let time pass while the command runs; no single wait of it may be long."""
    ends_s = time.monotonic() + length_ms / 1000
    while (left_s := ends_s - time.monotonic()) > 0:
        part_s = time.monotonic() + min(left_s, 60)
        command.wait_until(lambda part_s=part_s: time.monotonic() >= part_s, LOOK_EVERY_S)


def newest_rules(job: AuditJob) -> int:
    latest = RuleVersions(job.checkpoint).latest_rule_set()
    return 0 if latest is None else latest.version


def all_is_evaluated(job: AuditJob) -> bool:
    """Whether the last payment has come out, which is in order and so fires."""
    last = job.broker.read(job.topic)[-1].offset()
    return any(json.loads(alert.value())["position"] == last for alert in job.broker.read(job.topic_of(columns.ALERTS)))


@pytest.mark.nightly
def test_a_broker_that_goes_away_under_load_again_and_again_costs_nothing(job, tmp_path, lengths_ms):
    events = iter(payments(RATE * (sum(lengths_ms) // 1000 + 1_200)))
    with RunningCommand("run", job.conf, "--audit", log=tmp_path / "log") as command:
        with Load(job, events) as load:
            command.wait_until(
                lambda: newest_rules(job) == 1 and size(job, job.topic_of(columns.ALERTS)) > 0, LOOK_EVERY_S
            )
            for number, length_ms in enumerate(lengths_ms, 1):
                away = command.stderr.count("trying again")
                kill_while_results_are_sent(command, job, list(itertools.islice(events, BURST)))
                stay_away(command, length_ms)
                command.wait_until(lambda away=away: command.stderr.count("trying again") > away, LOOK_EVERY_S)
                job.broker.start()
                put_rules(job, [{**RULES[0], "limit": {"operator": ">", "value": str(60 - number)}}])
                back_s = time.monotonic()
                command.wait_until(lambda number=number: newest_rules(job) == 1 + number, LOOK_EVERY_S)
                LOG.info("away for %s, new rules after %.0f s", format_duration(length_ms), time.monotonic() - back_s)
        last_ms = max(event["t"] for event in payments(1)) + 10**12
        job.send([{"id": "last", "t": last_ms, "payer": "ann", "kind": "CARD", "amount": "1.00"}])
        command.wait_until(lambda: all_is_evaluated(job), 4 * LOOK_EVERY_S)
        assert command.interrupt() == 0
        said = command.stderr
    # An interrupt does not wait for the audit to take what came last.
    done = run_command("audit", job.conf, "--once")
    assert done.returncode == 0, done.stderr
    LOG.info("%d payments; said: %s", load.sent, said)
    assert "writing messages" in said
    assert "is not followed: " in said
    assert "is followed again" in said
    assert "Traceback" not in said
    versions = job.evaluated_under()
    assert set(versions.values()) == set(range(1, len(lengths_ms) + 2))
    expected = job.replay(versions)
    for name in columns.TOPICS:
        assert comparable(job.messages(name)) == comparable(expected[name]), name
    assert_tables_hold_topics(job)
