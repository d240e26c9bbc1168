"""Scoring from a topic whose payments lie in keys, headers and timestamps too, on a real broker."""

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import yaml
from confluent_kafka import Message, Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from buckets.archive.history import History
from buckets.checkpoint.batch_records import BatchRecords
from buckets.config.job import load_job
from buckets.events.arrivals import DELETED, TOMBSTONE
from buckets.history.replay.replay import replay_history
from buckets.kafka.faults import client_settings
from buckets.outputs.columns import ALERTS, DEAD_LETTERS, EVALUATIONS, LATE_EVENTS
from tests.kafka.audit_job import AuditJob
from tests.kafka.broker import WITHIN_S, TestBroker
from tests.kafka.kafka_job import Row, comparable
from tests.kafka.schema_registry import schema_registry
from tests.kafka.test_crash import LOOK_EVERY_S, all_scored
from tests.kafka.test_scoring import Running, run_to_end
from tests.spark.command import RunningCommand
from tests.spark.payments import SCHEMA, payments

pytestmark = pytest.mark.spark
BEGIN_MS = round(time.time() - 86_400) * 1000
"""The times of payments begin here: Kafka has none before 1970."""


class HeadersJob(AuditJob):
    """A job whose payments have the payer as key, the kind in a header, and the time of the message as theirs."""

    def __init__(self, *given: Any, **changes: Any) -> None:
        super().__init__(*given, archive={"path": "archive"}, **changes)
        origins = {"payer": "key", "kind": "headers.x-kind"}
        schema = SCHEMA | {"event_time": {"broker": "create_time", "field": "t"}, "origins": origins}
        (self.root / "schema.yaml").write_text(yaml.safe_dump(schema))
        self.job = load_job(self.conf)

    def send(self, events: Iterable[Row]) -> None:
        """Put payments into the topic; every header is given twice."""
        producer = Producer({**client_settings(self.broker.kafka), "max.in.flight.requests.per.connection": 1})
        for event in events:
            value = json.dumps({"id": event["id"], "amount": event["amount"]})
            headers = [("x-kind", b"\xff"), ("trace", b"\xfe"), ("x-kind", event["kind"])]
            producer.produce(self.topic, value, event["payer"], timestamp=BEGIN_MS + event["t"], headers=headers)
        assert producer.flush(WITHIN_S) == 0

    def written(self, message: Message) -> Row:
        """A payment as it was sent."""
        kind = dict(message.headers())["x-kind"].decode()
        beside = {"payer": message.key().decode(), "kind": kind, "t": message.timestamp()[1]}
        return json.loads(message.value()) | beside


def test_payments_are_scored_archived_explained_and_replayed_by_key_headers_and_the_time_of_the_broker(
    spark, broker, buckets, tmp_path
):
    job = HeadersJob(broker, tmp_path, trigger={"available_now": True})
    events = payments(80)
    job.send(events[:50])
    run_to_end(spark, job)
    job.send(events[50:])
    run_to_end(spark, job)
    expected = job.replay({})
    for name in (ALERTS, EVALUATIONS, LATE_EVENTS, DEAD_LETTERS):
        assert comparable(job.messages(name)) == comparable(expected[name]), name
    job.audit(spark)
    assert {row["timestamp_type"] for row in job.rows("transactions")} == {0}
    history = History.open(load_job(job.conf))
    table = pa.concat_tables(history.archive.tables())
    written = [job.written(message) for message in broker.read(job.topic)]
    assert sorted(table["kind"].to_pylist()) == sorted(row["kind"] for row in written)
    assert table["_fault"].null_count == len(events)
    replayed = replay_history(history)
    assert (replayed.differences, bool(replayed.compared[ALERTS])) == ([], True)
    alert = next(each for each in job.messages(ALERTS) if each["rule_id"] == "payer-sum")
    ran = buckets("explain", job.conf, alert["alert_id"], "--json")
    assert ran.code == 0, ran.err


def test_a_message_of_another_timestamp_or_with_a_broken_header_is_one_dead_letter_in_a_replay_too(
    spark, broker, tmp_path
):
    job = HeadersJob(broker, tmp_path, trigger={"available_now": True})
    job.send(payments(20))
    broker.produce(job.topic, ['{"id": "x1", "amount": 1}'], [b"\xff"])
    broker.configure(job.topic, {"message.timestamp.type": "LogAppendTime"})
    job.send([payments(1)[0] | {"id": "x2"}])
    run_to_end(spark, job)
    reasons = [letter["reason"] for letter in job.messages(DEAD_LETTERS)]
    assert reasons == ["payer: is not valid UTF-8", "t: was stamped by the broker, as log_append_time"]
    job.audit(spark)
    history = History.open(load_job(job.conf))
    assert [reason for reason in pa.concat_tables(history.archive.tables())["_fault"].to_pylist() if reason] == reasons
    assert replay_history(history).differences == []


@pytest.mark.nightly
def test_a_job_that_is_killed_reads_keys_headers_and_times_again_as_they_were(broker, tmp_path):
    job = HeadersJob(broker, tmp_path, trigger={"interval": "0ms"})
    events = payments(120)
    for number, chunk in enumerate((events[:40], events[40:80])):
        with RunningCommand("run", job.conf, log=tmp_path / f"{number}.log") as command:
            alerts = len(job.messages(ALERTS))
            job.send(chunk[:20])
            command.wait_until(lambda alerts=alerts: len(job.messages(ALERTS)) > alerts, LOOK_EVERY_S)
            job.send(chunk[20:])
            command.kill_all()
    job.send(events[80:])
    with RunningCommand("run", job.conf, log=tmp_path / "last.log") as command:
        command.wait_until(lambda: all_scored(job, len(events)), LOOK_EVERY_S)
        command.interrupt()
    assert comparable(job.messages(ALERTS)) == comparable(job.replay({})[ALERTS])


class TracedJob(AuditJob):
    """A job whose payments have the kind in a header too, which no field is taken from at first."""

    def send(self, events: Iterable[Row]) -> None:
        """Put payments into the topic."""
        producer = Producer(client_settings(self.broker.kafka))
        for event in events:
            producer.produce(self.topic, json.dumps(event), headers=[("x-kind", event["kind"])])
        assert producer.flush(WITHIN_S) == 0


def test_a_header_becomes_a_field_while_the_job_runs(spark, broker, tmp_path):
    """Spark has not brought headers along until then."""
    job = TracedJob(broker, tmp_path, trigger={"interval": "0ms"}, archive={"path": "archive"})
    events, wider = payments(60), SCHEMA | {"origins": {"traced": "headers.x-kind"}}
    wider["attributes"] = SCHEMA["attributes"] | {"traced": "string"}
    with Running(spark, job) as running:
        sent = running.send_one_by_one(events, 0, lambda: bool(running.reports))
        (job.root / "schema.yaml").write_text(yaml.safe_dump(wider))
        records = BatchRecords(job.checkpoint)
        sent = running.send_one_by_one(events, sent, lambda: len(records.all_terms()) > 1)
        running.send_one_by_one(events[: sent + 3], sent, lambda: running.events == sent + 3)
    first = max(records.all_terms())
    job.audit(spark)
    history = History.open(load_job(job.conf))
    rows = pa.concat_tables(history.archive.tables()).to_pylist()
    assert len(rows) == sent + 3
    assert [row["traced"] for row in rows] == [row["kind"] if row["_batch_id"] >= first else None for row in rows]
    assert replay_history(history).differences == []


KEY_SCHEMA = {"type": "record", "name": "Key", "fields": [{"name": "payer", "type": "string"}]}


class ChangesJob(AuditJob):
    """A job whose payments are rows of a database, as Debezium writes them, with keys in Avro."""

    def __init__(self, broker: TestBroker, root: Path, client: SchemaRegistryClient, url: str) -> None:
        kafka = {"bootstrap_servers": broker.kafka.bootstrap_servers, "registry": {"url": url}}
        super().__init__(broker, root, kafka=kafka, archive={"path": "archive"}, trigger={"available_now": True})
        self.configure(envelope="debezium", key_format="avro")
        schema = SCHEMA | {"origins": {"kind": "envelope.source.table", "payer": "key.payer"}}
        (self.root / "schema.yaml").write_text(yaml.safe_dump(schema))
        self._key = AvroSerializer(client, json.dumps(KEY_SCHEMA))

    def configure(self, registry: str | None = None, **source: Any) -> None:
        """Write other settings of the source, or another registry."""
        settings = yaml.safe_load(self.conf.read_text())
        settings["source"] |= source
        settings["kafka"]["registry"]["url"] = registry or settings["kafka"]["registry"]["url"]
        self.conf.write_text(yaml.safe_dump(settings))
        self.job = load_job(self.conf)

    def key_of(self, event: Row) -> bytes:
        """The key of a payment, as the vendor's serializer writes it."""
        key = self._key({"payer": event["payer"]}, SerializationContext(self.topic, MessageField.KEY))
        assert key is not None
        return key

    def send(self, events: Iterable[Row]) -> None:
        """Put payments into the topic, each as a change, which is followed by a deletion and a tombstone."""
        for number, event in enumerate(events):
            row = {name: value for name, value in event.items() if name not in ("kind", "payer")}
            change = {"before": None, "after": row, "source": {"table": event["kind"]}, "op": "cru"[number % 3]}
            deletion = change | {"before": row, "after": None, "op": "d"}
            whole = {"schema": {"fields": [{"field": "after"}]}, "payload": change} if number % 2 else change
            values = [json.dumps(whole), json.dumps(deletion), None]
            self.broker.produce(self.topic, values, [self.key_of(event)] * len(values))


def test_changes_of_a_database_with_keys_in_avro_are_scored_and_deletions_are_accounted_for_as_skipped(
    spark, broker, buckets, tmp_path
):
    plain, events = AuditJob(broker, tmp_path / "plain", trigger={"available_now": True}), payments(60)
    with schema_registry() as url, SchemaRegistryClient({"url": url}) as client:
        job = ChangesJob(broker, tmp_path / "changes", client, url)
        job.send(events[:40])
        plain.send(events)
        keys = [job.key_of(events[0])[:-1], b"", b"\0\x7f\xff\xff\xff"]
        change = {"op": "c", "source": {"table": "CARD"}, "after": {"id": "x", "t": 1, "amount": "1.00"}}
        broker.produce(job.topic, [json.dumps(change)] * len(keys), keys)
        (first,), _ = run_to_end(spark, job), run_to_end(spark, plain)
        job.send(events[40:])
    job.configure(registry="http://127.0.0.1:1")
    (second,) = run_to_end(spark, job)
    for name in (ALERTS, EVALUATIONS, LATE_EVENTS):
        assert comparable(job.messages(name)) == comparable(plain.messages(name)), name
    assert (first.account.events_in, first.account.malformed, second.account.events_in) == (123, 3, 60)
    assert first.account.facts.skipped == {"deleted": 40, "tombstone": 40}
    assert {account.skipped for account in first.account.groups} == {80}
    reasons = [letter["reason"] for letter in job.messages(DEAD_LETTERS)]
    assert [reason.partition(" at byte")[0].partition(",")[0] for reason in reasons] == [
        "key: broken Avro: ends in the middle of a value",
        "key: does not begin with the prefix of a schema registry",
        "key: schema 2147483647 is not in the registry",
    ]
    job.audit(spark)
    history = History.open(load_job(job.conf))
    table = pa.concat_tables(history.archive.tables())
    faults = table["_fault"].to_pylist()
    assert [faults.count(reason) for reason in (DELETED, TOMBSTONE, None, *reasons)] == [60, 60, 60, 1, 1, 1]
    assert table.filter(pc.is_null(table["_fault"]))["payer"].to_pylist() == [event["payer"] for event in events]
    assert replay_history(history).differences == []
    alert = next(each for each in job.messages(ALERTS) if each["rule_id"] == "payer-sum")
    ran = buckets("explain", job.conf, alert["alert_id"], "--json")
    assert ran.code == 0, ran.err
    ran = buckets("backtest", job.root / "rules.yaml", "--conf", job.conf)
    assert ran.code == 0, ran.err
