"""Results in topics in Avro and Protobuf: a real broker, a schema registry, and the vendor's own deserializers."""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Message
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import message_factory

from buckets.archive.history import History
from buckets.audit.tables import UNREADABLE
from buckets.config.job import load_job
from buckets.errors import BucketsError
from buckets.events.decoded import WriterSchema
from buckets.events.protobuf.proto_schema import message_named, read_schema
from buckets.history.replay.replay import replay_history
from buckets.outputs.columns import ALERTS, TOPICS
from buckets.outputs.messages import ID, schema_text
from buckets.spark.prepared_job import Listener, prepare
from tests.core.binary_results import comparable, of_avro, of_protobuf
from tests.kafka import kafka_job
from tests.kafka.broker import TestBroker
from tests.kafka.kafka_job import Row
from tests.kafka.registered_job import RegisteredJob, run_while_registry_is_away
from tests.kafka.schema_registry import schema_registry
from tests.kafka.test_scoring import run_to_end
from tests.registry import small_registry
from tests.spark.payments import payments

pytestmark = pytest.mark.spark
FORMATS = ["avro", "protobuf"]


class BinaryJob(RegisteredJob):
    """A job whose results are in Avro or Protobuf, read by the vendor's deserializers."""

    part = "output"

    def __init__(self, broker: TestBroker, root: Path, registry: str, written_in: str) -> None:
        more = {"trigger": {"available_now": True}, "archive": {"path": "archive"}}
        super().__init__(broker, root, registry, written_in, **more)
        self.written_in = written_in

    def sent(self, output: str) -> list[Message]:
        """The messages in the topic of an output."""
        return self.broker.read(self.job.settings.output.topic(output))

    def said(self, output: str) -> list[Row]:
        """What the messages of an output say."""
        return [self.read(output, message) for message in self.sent(output)]

    def read(self, output: str, message: Message) -> Row:
        """What a message says, as the vendor's deserializer reads it."""
        context = SerializationContext(message.topic(), MessageField.VALUE)
        if self.written_in == "avro":
            return of_avro(AvroDeserializer(self.client)(message.value(), context))
        file = read_schema(WriterSchema("PROTOBUF", schema_text(output, "protobuf")))
        kind = message_factory.GetMessageClass(message_named(file, None))
        return of_protobuf(ProtobufDeserializer(kind)(message.value(), context))


@pytest.fixture
def binary_job(broker) -> Iterator[Callable[..., BinaryJob]]:
    """Makes jobs, whose clients are closed at the end."""
    with contextlib.ExitStack() as stack:
        yield lambda *given: stack.enter_context(BinaryJob(broker, *given))


@pytest.fixture(scope="module")
def registry():
    with schema_registry() as url:
        yield url


@pytest.mark.parametrize("written_in", FORMATS)
def test_results_say_what_those_in_json_say_under_the_same_ids_and_keys(
    spark, binary_job, registry, buckets, tmp_path, written_in
):
    job = binary_job(tmp_path, registry, written_in)
    events = payments(130)
    job.send(events[:120])
    run_to_end(spark, job)
    expected, is_protobuf = job.replay({}), written_in == "protobuf"
    for output in TOPICS:
        rows = kafka_job.comparable(comparable(row, is_protobuf) for row in job.said(output))
        assert rows == kafka_job.comparable(comparable(row, is_protobuf) for row in expected[output]), output
        assert job.client.get_latest_version(f"{job.job.settings.output.topic(output)}-value").version == 1
    alerts = [(message, job.read(ALERTS, message)) for message in job.sent(ALERTS)]
    assert alerts
    for message, alert in alerts:
        assert dict(message.headers() or [])[ID].decode() == alert["alert_id"]
        assert json.loads(message.key()) == alert["key"]
    _check_audit(spark, job, buckets, alerts[-1][1])
    # A second start finds its schemas registered.
    job.broker.produce(job.topic, ["{"], ["zoë"])
    job.send(events[120:])
    run_to_end(spark, job)
    (letter,) = job.said("dead_letters")
    assert letter["raw"] == "{"
    assert len(job.said(ALERTS)) > len(alerts)


def _check_audit(spark: Any, job: BinaryJob, buckets: Any, alert: Row) -> None:
    """See that tables of the topics are those that a replay makes, and that commands find an alert in them."""
    job.audit(spark)
    assert job.rows(UNREADABLE) == []
    assert {row["alert_id"] for row in job.rows(ALERTS)} == {each["alert_id"] for each in job.said(ALERTS)}
    replayed = replay_history(History.open(load_job(job.conf)))
    assert replayed.differences == []
    assert replayed.compared[ALERTS] > 0
    ran = buckets("explain", job.conf, alert["alert_id"], "--json")
    assert ran.code == 0, ran.err


@pytest.mark.parametrize("written_in", FORMATS)
def test_a_registry_that_is_away_is_waited_for_and_no_result_is_lost(spark, binary_job, tmp_path, written_in):
    with small_registry() as registry:
        job = binary_job(tmp_path, registry.url, written_in)
        job.send(payments(20))
        run_while_registry_is_away(spark, job, registry)
        assert job.said(ALERTS)


def test_a_subject_with_another_schema_is_one_line_before_the_job_starts(
    spark, binary_job, registry, buckets, tmp_path
):
    job = binary_job(tmp_path, registry, "avro")
    subject = f"{job.job.settings.output.topic(ALERTS)}-value"
    other = {"type": "record", "name": "Other", "fields": [{"name": "x", "type": "string"}]}
    job.client.register_schema(subject, Schema(json.dumps(other), "AVRO"))
    things = json.loads(buckets("check", job.conf, "--json").out)["things"]
    (fault,) = next(each["faults"] for each in things if each["thing"] == "registry")
    assert fault.startswith(
        f"registry {registry}: the schema of subject {subject} is not compatible with those that it"
    )
    with pytest.raises(BucketsError) as error:
        prepare(load_job(job.conf)).query(spark, Listener())
    assert error.value.message.startswith(fault.partition("(")[0])


PAYMENT = """
syntax = "proto3";
package bank;
import "google/protobuf/timestamp.proto";
message Payment {
  string id = 1;
  google.protobuf.Timestamp at = 2;
  Customer customer = 3;
  string amount = 4;
  Kind kind = 5;
  repeated string tags = 6;
  enum Kind { CARD = 0; CASH = 1; }
  message Customer { string id = 1; optional string country = 2; }
}
"""
RULE = """
rules:
- rule_id: customer-sum-1h
  group_by: [customer.id]
  where: "'new' IN tags[]"
  aggregate: {function: sum, measure: amount}
  window: {length: 1h}
  limit: {operator: ">", value: "100"}
"""


def test_a_newcomer_comes_from_a_registered_subject_to_an_alert_in_avro(spark, broker, registry, buckets, tmp_path):
    """Every step of the guide, as somebody new to it takes them, with the vendor's clients at both ends."""
    with SchemaRegistryClient({"url": registry}) as client:
        client.register_schema("walk-payments-value", Schema(PAYMENT, "PROTOBUF"))
        conf: dict[str, Any] = {
            "kafka": {"bootstrap_servers": broker.kafka.bootstrap_servers, "registry": {"url": registry}},
            "source": {"kind": "kafka", "topic": "walk-payments", "format": "protobuf"},
            "schema": "schema.yaml",
            "rules": "rules.yaml",
            "checkpoint": "checkpoint",
            "output": {"kind": "kafka", "format": "avro", "topics": {name: f"walk-{name}" for name in TOPICS}},
        }
        job = tmp_path / "job.yaml"
        job.write_text(yaml.safe_dump(conf))
        imported = buckets("schema", "import", "walk-payments-value", "--conf", job, "--id", "id", "--time", "at")
        assert imported.code == 0, imported.err
        # The amount is a text in the messages; as a measure it gets a scale.
        schema = yaml.safe_load(imported.out)
        assert schema["arrays"] == {"tags[]": "string"}
        del schema["attributes"]["amount"]
        schema["measures"]["amount"] = {"scale": 2}
        (tmp_path / "schema.yaml").write_text(yaml.safe_dump(schema))
        (tmp_path / "rules.yaml").write_text(RULE)
        made = buckets("kafka", "topics", job)
        assert made.code == 0, made.err
        checked = buckets("check", job)
        assert checked.code == 0, checked.out + checked.err

        _pay(client, broker, [("p1", 60), ("p2", 30), ("p3", 10), ("p4", "0.01")])
        prepare(load_job(job)).query(spark, Listener()).run(None)
        (message,) = broker.read("walk-alerts")
        alert = AvroDeserializer(client)(message.value(), SerializationContext("walk-alerts", MessageField.VALUE))
    assert alert is not None
    assert (alert["event_id"], alert["value"], alert["limit"]) == ("p4", "100.01", "100")
    assert alert["key"] == {"customer.id": "c1"}
    assert (alert["event"]["customer.country"], alert["event"]["tags[]"]) == ("DE", '["new"]')
    assert alert["event_time"].isoformat() == "2023-11-14T22:13:20.003000+00:00"
    assert dict(message.headers() or [])[ID].decode() == alert["alert_id"]


def _pay(client: SchemaRegistryClient, broker: TestBroker, amounts: list[tuple[str, Any]]) -> None:
    """Send payments of one customer as a producer does that finds its schema registered."""
    number = client.get_latest_version("walk-payments-value").schema_id
    assert number is not None
    kind = message_factory.GetMessageClass(message_named(read_schema(WriterSchema("PROTOBUF", PAYMENT)), "Payment"))
    values = []
    for at, (name, amount) in enumerate(amounts):
        payment: Any = kind(id=name, amount=str(amount), customer={"id": "c1", "country": "DE"}, tags=["new"])
        payment.at.FromMilliseconds(1_700_000_000_000 + at)
        values.append(b"\0" + number.to_bytes(4) + b"\0" + payment.SerializeToString())
    broker.produce("walk-payments", values, ["c1"] * len(values))
