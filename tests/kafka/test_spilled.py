"""Results that are too many for the driver go to topics from executors: the same messages, those of a key in order."""

import json
from collections import defaultdict
from typing import Any

import pytest

from buckets.errors import BucketsError, Outage
from buckets.outputs.columns import TOPICS
from buckets.spark import sinks
from tests.kafka.kafka_job import EVERY, KafkaJob
from tests.kafka.test_scoring import run_to_end
from tests.spark.payments import RULES, payments
from tests.spark.test_spilled import ABOVE, SPANNING

pytestmark = pytest.mark.spark


def sent(job: KafkaJob, output: str) -> dict[tuple[int, bytes], list[Any]]:
    """By partition and key, what the messages of an output say, in their order."""
    found = defaultdict(list)
    for message in job.broker.read(job.job.settings.output.topic(output)):
        said = {name: value for name, value in json.loads(message.value()).items() if name != "decided_at"}
        found[message.partition(), message.key()].append((dict(message.headers()), said))
    return found


def test_a_job_of_which_everything_spills_sends_the_messages_of_any_job(spark, broker, tmp_path, monkeypatch):
    plain = KafkaJob(broker, tmp_path / "plain", partitions=3, evaluations=True, tasks=2)
    source = {"kind": "kafka", "topic": plain.topic}
    kafka = {"bootstrap_servers": broker.kafka.bootstrap_servers, "outage_patience": "1s"}
    spilling = KafkaJob(broker, tmp_path / "spilling", 3, evaluations=True, tasks=2, source=source, kafka=kafka)
    for job in (plain, spilling):
        job.write_rules([*RULES, EVERY, SPANNING, SPANNING | {"rule_id": "quiet", "cooldown": "300ms"}, ABOVE])
    plain.send([*payments(120), {"payer": "ann", "id": "no payment"}])
    run_to_end(spark, plain)

    monkeypatch.setattr("buckets.spark.query.DRIVER_BYTES", 0)
    nowhere = {"bootstrap_servers": "127.0.0.1:1", "delivery_timeout": 2_000}
    away = spilling.job.settings.kafka.model_copy(update=nowhere)
    send_spilled = sinks.send_spilled
    monkeypatch.setattr(
        sinks, "send_spilled", lambda sending, kafka, output, batch: send_spilled(sending, away, output, batch)
    )
    with pytest.raises(BucketsError, match="no broker answers") as fault:
        run_to_end(spark, spilling)
    assert isinstance(fault.value, Outage)

    monkeypatch.setattr(sinks, "send_spilled", send_spilled)
    run_to_end(spark, spilling)
    for output in TOPICS:
        assert sent(spilling, output) == sent(plain, output)
    assert len(sent(plain, "alerts")) > 3
    assert sum(map(len, sent(plain, "evaluations").values())) > 300
    assert not list((spilling.checkpoint / "buckets" / "spilled").glob("*"))
