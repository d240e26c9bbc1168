"""Scoring from a topic in Avro: a real broker, a schema registry, and the vendor's own serializer."""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Message
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from buckets.outputs.columns import ALERTS, DEAD_LETTERS, EVALUATIONS, LATE_EVENTS
from tests.kafka.broker import TestBroker
from tests.kafka.kafka_job import Row, comparable
from tests.kafka.registered_job import RegisteredJob, check_all_is_known, run_while_registry_is_away
from tests.kafka.schema_registry import schema_registry
from tests.kafka.test_scoring import Running, run_to_end
from tests.registry import small_registry
from tests.spark.payments import payments

pytestmark = pytest.mark.spark
FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "string"},
    {"name": "t", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "channel", "type": ["null", "string"], "default": None},
    {"name": "payer", "type": "string"},
    {"name": "kind", "type": {"type": "enum", "name": "kind", "symbols": ["CARD", "CASH"]}},
    {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
]
ADDED = [{"name": "country", "type": ["null", "string"], "default": None}, *FIELDS]


def schema_of(fields: list[dict[str, Any]]) -> str:
    return json.dumps({"type": "record", "name": "payment", "namespace": "bank", "fields": fields})


class AvroJob(RegisteredJob):
    """A job whose payments are in Avro, as the vendor's serializer writes them."""

    def __init__(self, broker: TestBroker, root: Path, registry: str, **changes: Any) -> None:
        super().__init__(broker, root, registry, "avro", **changes)
        self._read = AvroDeserializer(self.client)

    def send(self, events: Iterable[Row], fields: list[dict[str, Any]] = FIELDS) -> None:
        """Put payments into the topic by a schema, which is registered if it is new."""
        chosen = list(events)
        values = self.values(chosen, fields)
        self.broker.produce(self.topic, values, [event["payer"] for event in chosen])

    def values(self, events: Iterable[Row], fields: list[dict[str, Any]]) -> list[bytes]:
        """Payments as messages."""
        write = AvroSerializer(self.client, schema_of(fields))
        context = SerializationContext(self.topic, MessageField.VALUE)
        return [write(event | {"amount": Decimal(event["amount"])}, context) for event in events]

    def written(self, message: Message) -> Row:
        """A payment as the vendor's deserializer reads it."""
        read = self._read(message.value(), SerializationContext(self.topic, MessageField.VALUE))
        return read | {"t": round(read["t"].timestamp() * 1000), "amount": str(read["amount"])}


@pytest.fixture
def avro_job(broker) -> Iterator[Callable[..., AvroJob]]:
    """Makes jobs, whose clients are closed at the end."""
    with contextlib.ExitStack() as stack:
        yield lambda *given, **changes: stack.enter_context(AvroJob(broker, *given, **changes))


@pytest.fixture(scope="module")
def registry():
    with schema_registry() as url:
        yield url


def test_payments_in_avro_are_scored_as_the_vendor_reads_them_while_their_schema_changes(
    spark, avro_job, registry, tmp_path
):
    job = avro_job(tmp_path, registry, archive={"path": "archive"})
    events = payments(120)
    with Running(spark, job) as running:
        job.send(events[:60])
        running.wait_for(60)
        job.send([event | {"country": "DE"} for event in events[60:]], ADDED)
        running.wait_for(120)
    expected = job.replay({})
    for name in (ALERTS, EVALUATIONS, LATE_EVENTS, DEAD_LETTERS):
        assert comparable(job.messages(name)) == comparable(expected[name]), name
    assert job.messages(ALERTS)
    assert job.messages(DEAD_LETTERS) == []
    assert len(list((job.checkpoint / "buckets" / "schemas").glob("*.json"))) == 2


def test_a_broken_message_is_one_dead_letter_and_a_restart_and_a_replay_need_no_registry(
    spark, avro_job, registry, buckets, tmp_path
):
    job = avro_job(tmp_path, registry, archive={"path": "archive"}, trigger={"available_now": True})
    events = payments(50)
    job.send(events[:40])
    whole = job.values(events[40:41], FIELDS)[0]
    no_prefix = "does not begin with the prefix of a schema registry, five bytes of which the first is 0"
    broken = {
        b"\1" + whole[1:]: no_prefix,
        b"\0\x7f\xff\xff\xff" + whole[5:]: "schema 2147483647 is not in the registry",
        whole[:-1]: "broken Avro: ends in the middle of a value",
        whole + b"\0": "broken Avro: has more bytes than its schema says",
        b"{}": no_prefix,
        b"": no_prefix,
    }
    job.broker.produce(job.topic, [*broken], ["zoë"] * len(broken))
    run_to_end(spark, job)
    job.lose_registry()
    job.send(events[40:])
    (report,) = run_to_end(spark, job)
    assert report.account.events_in == 10
    check_all_is_known(spark, buckets, job, events, broken)


def test_a_registry_that_is_away_is_waited_for_and_nothing_is_lost(spark, avro_job, tmp_path):
    with small_registry() as registry:
        job = avro_job(tmp_path, registry.url, trigger={"available_now": True})
        job.send(payments(20))
        reports = run_while_registry_is_away(spark, job, registry)
    assert sum(report.account.events_in for report in reports) == 20


def test_values_by_a_schema_file_and_json_behind_a_prefix_are_read(spark, avro_job, tmp_path):
    events = payments(20)
    for name, settings in {"avro": {"schema_file": "payment.avsc"}, "json_sr": {}}.items():
        job = avro_job(tmp_path / name, "http://127.0.0.1:1", trigger={"available_now": True})
        (job.root / "payment.avsc").write_text(schema_of(FIELDS))
        conf = yaml.safe_load(job.conf.read_text())
        conf["source"] |= {"format": name} | settings
        job.conf.write_text(yaml.safe_dump(conf))
        with small_registry() as registry:
            values = (
                _values(registry.url, events) if name == "avro" else [json.dumps(event).encode() for event in events]
            )
        prefix = b"" if name == "avro" else b"\0\0\0\0\7"
        job.broker.produce(job.topic, [prefix + value for value in values], [event["payer"] for event in events])
        (report,) = run_to_end(spark, job)
        assert report.account.events_in == 20
        assert job.messages(DEAD_LETTERS) == []
        assert job.messages(ALERTS)


def _values(registry: str, events: list[Row]) -> list[bytes]:
    """Payments in Avro without a prefix."""
    context = SerializationContext("any", MessageField.VALUE)
    with SchemaRegistryClient({"url": registry}) as client:
        write = AvroSerializer(client, schema_of(FIELDS))
        return [write(event | {"amount": Decimal(event["amount"])}, context)[5:] for event in events]


def test_check_asks_the_registry_for_the_fields_that_are_needed(buckets, avro_job, tmp_path):
    def looked_at() -> Any:
        things = json.loads(buckets("check", job.conf, "--json").out)["things"]
        return next(each["note"] if each["ok"] else each["faults"][0] for each in things if each["thing"] == "registry")

    with small_registry() as registry:
        job = avro_job(tmp_path / "job", registry.url)
        assert looked_at() == f"answers; it has no subject {job.topic}-value yet"
        registry.register(f"{job.topic}-value", schema_of(FIELDS))
        assert looked_at() == f"{job.topic}-value is at version 1, schema 1: 6 fields"
        registry.register(f"{job.topic}-value", schema_of(FIELDS[:-1]))
        assert "no column 'amount', which rules need: taken as missing" in looked_at()
    assert looked_at().startswith(f"registry {registry.url}: does not answer (")
