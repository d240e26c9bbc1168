"""Scoring from a topic in Protobuf: a real broker, a schema registry, and the vendor's own serializer."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Message
from confluent_kafka.schema_registry import RegisteredSchema, Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import message_factory

from buckets.events.decoded import WriterSchema
from buckets.events.protobuf.proto_schema import message_named, read_schema
from buckets.outputs.columns import ALERTS, DEAD_LETTERS, EVALUATIONS, LATE_EVENTS
from tests.kafka.broker import TestBroker
from tests.kafka.kafka_job import Row, comparable
from tests.kafka.registered_job import RegisteredJob, check_all_is_known
from tests.kafka.schema_registry import schema_registry
from tests.kafka.test_scoring import Running, run_to_end
from tests.spark.payments import payments

pytestmark = pytest.mark.spark
FIELDS = """
  string id = 1;
  google.protobuf.Timestamp t = 2;
  optional string channel = 3;
  string {payer} = 4;
  Kind kind = 5;
  string amount = 6;
  enum Kind {{ UNKNOWN = 0; CARD = 1; CASH = 2; }}
"""
HEAD = 'syntax = "proto3"; package bank; import "google/protobuf/timestamp.proto";'


def schema_of(payer: str = "payer", added: str = "") -> str:
    """The schema of a payment, with another name for the payer, and further fields."""
    return f"{HEAD} message Payment {{ {FIELDS.format(payer=payer)} {added} }}"


PLAIN = schema_of()
ADDED = schema_of(added="string country = 7; repeated string tags = 8;")
RENAMED = schema_of("payer_id", "string country = 7; repeated string tags = 8;")


class TextClient(SchemaRegistryClient):
    """The vendor's client, which registers the `.proto` file and not its descriptor, as this registry wants it."""

    def __init__(self, registry: str) -> None:
        super().__init__({"url": registry})
        self.text = ""

    def register_schema_full_response(self, subject_name: str, schema: Schema, **more: Any) -> RegisteredSchema:
        """Register the text in place of a descriptor."""
        return super().register_schema_full_response(subject_name, Schema(self.text, "PROTOBUF"), **more)


class ProtobufJob(RegisteredJob):
    """A job whose payments are in Protobuf, as the vendor's serializer writes them."""

    client: TextClient

    def __init__(self, broker: TestBroker, root: Path, registry: str, **changes: Any) -> None:
        super().__init__(broker, root, registry, "protobuf", **changes)

    def client_of(self, registry: str) -> TextClient:
        return TextClient(registry)

    def send(self, events: Iterable[Row], schema: str = PLAIN, **more: Any) -> None:
        """Put payments into the topic by a schema, which is registered if it is new."""
        chosen = list(events)
        self.broker.produce(self.topic, self.values(chosen, schema, **more), [event["payer"] for event in chosen])

    def values(self, events: Iterable[Row], schema: str = PLAIN, **more: Any) -> list[bytes]:
        """Payments as messages."""
        kind = message_factory.GetMessageClass(message_named(read_schema(WriterSchema("PROTOBUF", schema)), None))
        self.client.text = schema
        write = ProtobufSerializer(kind, self.client)
        context = SerializationContext(self.topic, MessageField.VALUE)
        return [write(filled(kind(), event | more), context) for event in events]

    def written(self, message: Message) -> Row:
        """A payment as the vendor's deserializer reads it, by the newest schema."""
        kind = message_factory.GetMessageClass(message_named(read_schema(WriterSchema("PROTOBUF", ADDED)), None))
        read = ProtobufDeserializer(kind)(message.value(), SerializationContext(self.topic, MessageField.VALUE))
        assert read is not None
        return {
            "id": read.id,
            "t": read.t.ToMilliseconds(),
            "channel": read.channel if read.HasField("channel") else None,
            "payer": read.payer,
            "kind": kind.Kind.Name(read.kind),
            "amount": read.amount,
        }


def filled(message: Any, event: Row) -> Any:
    """A payment as a message."""
    for name, value in event.items():
        number = next((field.number for field in message.DESCRIPTOR.fields if field.name == name), None)
        field = message.DESCRIPTOR.fields_by_number.get(4 if name == "payer" else number)
        if name == "t":
            message.t.FromMilliseconds(value)
        elif field is not None and field.enum_type is not None:
            setattr(message, field.name, field.enum_type.values_by_name[value].number)
        elif field is not None and value is not None:
            setattr(message, field.name, value)
    return message


@pytest.fixture
def protobuf_job(broker) -> Iterator[Callable[..., ProtobufJob]]:
    """Makes jobs, whose clients are closed at the end."""
    with contextlib.ExitStack() as stack:
        yield lambda *given, **changes: stack.enter_context(ProtobufJob(broker, *given, **changes))


@pytest.fixture(scope="module")
def registry():
    with schema_registry() as url:
        yield url


def test_payments_in_protobuf_are_scored_as_the_vendor_reads_them_while_their_schema_changes(
    spark, protobuf_job, registry, tmp_path
):
    job = protobuf_job(tmp_path, registry, archive={"path": "archive"})
    events = payments(120)
    # The registry knows the schema when the job starts, so a field that is renamed is known by its number.
    job.values(events[:1])
    with Running(spark, job) as running:
        job.send(events[:40])
        running.wait_for(40)
        job.send(events[40:80], ADDED, country="DE")
        running.wait_for(80)
        job.send(events[80:], RENAMED)
        running.wait_for(120)
    expected = job.replay({})
    for name in (ALERTS, EVALUATIONS, LATE_EVENTS, DEAD_LETTERS):
        assert comparable(job.messages(name)) == comparable(expected[name]), name
    assert job.messages(ALERTS)
    assert job.messages(DEAD_LETTERS) == []
    assert len(list((job.checkpoint / "buckets" / "schemas").glob("*.json"))) == 3


def test_a_broken_message_is_one_dead_letter_and_a_restart_and_a_replay_need_no_registry(
    spark, protobuf_job, registry, buckets, tmp_path
):
    job = protobuf_job(tmp_path, registry, archive={"path": "archive"}, trigger={"available_now": True})
    events = payments(50)
    job.values(events[:1])
    job.send(events[:40])
    whole = job.values(events[40:41])[0]
    no_prefix = "does not begin with the prefix of a schema registry, five bytes of which the first is 0"
    broken = {
        b"\1" + whole[1:]: no_prefix,
        b"\0\x7f\xff\xff\xff" + whole[5:]: "schema 2147483647 is not in the registry",
        whole[:-1]: "broken Protobuf: is not a message of type bank.Payment",
        whole + b"\0": "broken Protobuf: is not a message of type bank.Payment",
        whole[:5] + b"\1": "has no indexes of a message behind its prefix",
        b"": no_prefix,
    }
    job.broker.produce(job.topic, [*broken], ["zoë"] * len(broken))
    run_to_end(spark, job)
    job.send(events[40:45], RENAMED)
    run_to_end(spark, job)
    job.lose_registry()
    job.send(events[45:], RENAMED)
    (report,) = run_to_end(spark, job)
    assert report.account.events_in == 5
    check_all_is_known(spark, buckets, job, events, broken)


def test_values_by_a_schema_file_are_read(spark, protobuf_job, registry, tmp_path):
    events = payments(20)
    job = protobuf_job(tmp_path, registry, trigger={"available_now": True})
    (job.root / "payment.proto").write_text(PLAIN + "message Other {}")
    conf = yaml.safe_load(job.conf.read_text())
    conf["source"] |= {"schema_file": "payment.proto", "message": "bank.Payment"}
    del conf["kafka"]["registry"]
    job.conf.write_text(yaml.safe_dump(conf))
    values = [value[6:] for value in job.values(events)]
    job.broker.produce(job.topic, values, [event["payer"] for event in events])
    (report,) = run_to_end(spark, job)
    assert report.account.events_in == 20
    assert job.messages(DEAD_LETTERS) == []
    assert job.messages(ALERTS)
