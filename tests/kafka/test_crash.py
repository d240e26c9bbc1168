"""Crashes: scoring and audit killed at random moments."""

import json
import random
import threading

import pytest

from buckets.checkpoint.batch_records import BatchRecords
from buckets.checkpoint.rule_versions import RuleVersions
from buckets.kafka.local_broker import free_port
from buckets.kafka.sender import paced_produce
from buckets.outputs import columns
from tests.kafka.audit_job import AuditJob, assert_tables_hold_topics
from tests.kafka.kafka_job import EVERY, KafkaJob, comparable
from tests.prometheus import get
from tests.spark.command import RunningCommand, run_command
from tests.spark.payments import RULES, payments

pytestmark = pytest.mark.spark
PAYMENTS_A_KILL = 60
LOOK_EVERY_S = 0.5


def feed(job: KafkaJob, events: list[dict], rate: float) -> threading.Thread:
    """Send payments at a rate, in a thread."""
    messages = [(event["payer"], json.dumps(event).encode()) for event in events]
    thread = threading.Thread(target=paced_produce, args=(job.broker.kafka, job.topic, messages, rate))
    thread.start()
    return thread


def all_scored(job: KafkaJob, events: int) -> bool:
    """Whether all payments of the topic have been evaluated, or are known to be out of order."""
    return len({(row["source"], row["position"]) for name in SIDES for row in job.messages(name)}) >= events


SIDES = ("alerts", "late_events", "duplicates", "dead_letters")


def test_scoring_and_audit_killed_again_and_again_lose_nothing_and_keep_every_message_once(broker, tmp_path, request):
    """Both in one process, killed at random moments under load: the JVM with the driver, or the driver alone."""
    kills = request.config.getoption("--kills")
    job = AuditJob(broker, tmp_path, trigger={"interval": "0ms"}, audit={"interval": "1ms"})
    events, dice = payments(PAYMENTS_A_KILL * kills), random.Random(3)
    for kill in range(kills):
        chunk = events[kill * PAYMENTS_A_KILL : (kill + 1) * PAYMENTS_A_KILL]
        with RunningCommand("run", job.conf, "--audit", log=tmp_path / f"{kill}.log") as command:
            alerts, audited = len(job.messages(columns.ALERTS)), job.batches_begun()
            job.send(chunk[:10])
            command.wait_until(lambda alerts=alerts: len(job.messages(columns.ALERTS)) > alerts, LOOK_EVERY_S)
            command.wait_until(lambda audited=audited: job.batches_begun() > audited, LOOK_EVERY_S)
            alerts, more = len(job.messages(columns.ALERTS)), dice.randrange(20)
            feeder = feed(job, chunk[10:], rate=40)
            command.wait_until(lambda least=alerts + more: len(job.messages(columns.ALERTS)) >= least)
            command.kill_all() if dice.random() < 0.7 else command.kill_driver()
            feeder.join()
    port = free_port()
    last = ("run", job.conf, "--audit", "--metrics-port", port)
    with RunningCommand(*last, log=tmp_path / "last.log") as command:
        command.wait_until(lambda: all_scored(job, len(events)), LOOK_EVERY_S)
        # The job before may have scored everything, so that this one has only begun.
        told = {"buckets_rules_followed 1.0", "buckets_audit_unreadable_total 0.0"}
        command.wait_until(lambda: told <= set(get(f"http://127.0.0.1:{port}/metrics")[1].splitlines()), LOOK_EVERY_S)
        assert command.interrupt() == 0
    done = run_command("audit", job.conf, "--once")

    assert done.returncode == 0, done.stderr
    expected = job.replay({})
    for name in columns.TOPICS:
        assert comparable(job.messages(name)) == comparable(expected[name]), name
    assert_tables_hold_topics(job)


@pytest.mark.nightly
def test_a_batch_that_is_run_again_uses_the_rules_it_had_while_newer_ones_are_there(broker, tmp_path):
    job, events = KafkaJob(broker, tmp_path, trigger={"interval": "0ms"}), payments(200)
    job.send(events[:20])
    with RunningCommand("run", job.conf, log=tmp_path / "first.log") as command:
        command.wait_until(lambda: bool(job.messages("alerts")), LOOK_EVERY_S)
        feeder = feed(job, events[20:160], rate=10)
        pinned = freeze_in_batch(command, job)
        command.kill_all()
    job.write_rules([{**RULES[0], "limit": {"operator": ">", "value": "10"}}, *RULES[1:], EVERY])
    with RunningCommand("run", job.conf, log=tmp_path / "second.log") as command:
        feeder.join()
        command.wait_until(lambda: all_scored(job, 160), LOOK_EVERY_S)
        job.send(events[160:])
        command.wait_until(lambda: all_scored(job, len(events)), LOOK_EVERY_S)
        command.interrupt()
    first, second = RuleVersions(job.checkpoint).history()
    assert (first.version, second.version) == (1, 2)
    assert second.first_batch is not None
    assert second.first_batch > pinned
    versions = job.evaluated_under()
    assert set(versions.values()) == {1, 2}
    assert comparable(job.messages("alerts")) == comparable(job.replay(versions)["alerts"])


def freeze_in_batch(command: RunningCommand, job: KafkaJob) -> int:
    """Freeze the run inside a batch; returns its number. Looked at again once nothing moves any more."""
    while True:
        command.wait_until(lambda: running_batch(job) is not None)
        command.freeze()
        batch = running_batch(job)
        if batch is not None:
            return batch
        command.thaw()


def running_batch(job: KafkaJob) -> int | None:
    """The batch that has its rules and is not done."""
    begun = sorted(int(path.stem) for path in (job.checkpoint / "buckets" / "batches").glob("0*.json"))
    if not begun:
        return None
    record = BatchRecords(job.checkpoint).record(begun[-1])
    return begun[-1] if record is not None and not record.done else None
