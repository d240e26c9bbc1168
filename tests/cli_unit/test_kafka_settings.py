"""How Kafka is reached: one set of settings for both clients, secrets from the environment, and what cannot be."""

import pytest
import yaml
from confluent_kafka import KafkaError
from pydantic import ValidationError

from buckets.config.job import load_job
from buckets.config.kafka import KafkaSettings
from buckets.errors import BucketsError
from buckets.kafka.faults import Outage, explain
from buckets.spark.kafka_faults import explain_spark

LOGIN = {"protocol": "SASL_SSL", "mechanism": "SCRAM-SHA-512", "username": "ann", "password": "${SECRET}"}
KAFKA = KafkaSettings(bootstrap_servers="one:9092")


def settings(**security) -> KafkaSettings:
    return KafkaSettings.model_validate({"bootstrap_servers": "one:9092,two:9092", "security": security})


def test_a_login_reaches_both_clients_and_is_never_shown(monkeypatch, tmp_path):
    monkeypatch.setenv("SECRET", 'pa"ss\\word')
    (tmp_path / "ca.pem").write_text("certificate")
    kafka = settings(**LOGIN, ca_file=str(tmp_path / "ca.pem"))
    assert kafka.librdkafka() == {
        "bootstrap.servers": "one:9092,two:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "ann",
        "sasl.password": 'pa"ss\\word',
        "ssl.ca.location": str(tmp_path / "ca.pem"),
    }
    java = kafka.java()
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    assert java["sasl.jaas.config"] == f'{module} required username="ann" password="pa\\"ss\\\\word";'
    assert java["ssl.truststore.type"] == "PEM"
    assert 'pa"ss' not in repr(kafka)


def test_without_security_only_the_address_counts():
    plain = {"bootstrap.servers": "one:9092", "security.protocol": "PLAINTEXT"}
    assert KAFKA.librdkafka() == KAFKA.java() == plain


@pytest.mark.parametrize(
    ("security", "said"),
    [
        ({"protocol": "SASL_SSL"}, "protocol SASL_SSL needs mechanism, username, password"),
        ({"username": "ann"}, "protocol PLAINTEXT has no login"),
        ({"protocol": "SSL", "ca_file": "nowhere.pem"}, "nowhere.pem: no such file"),
        ({**LOGIN, "password": "${NOT_SET_ANYWHERE}"}, "environment variable NOT_SET_ANYWHERE is not set"),
    ],
)
def test_security_that_cannot_be_says_why(security, said):
    with pytest.raises(ValidationError, match=said.replace("$", r"\$")):
        settings(**security)


@pytest.mark.parametrize("servers", ["localhost", ":9092", "host:port", "host:70000", "a:1,,b:2"])
def test_addresses_are_hosts_and_ports(servers):
    with pytest.raises(ValidationError, match="is no host:port, as in localhost:9092"):
        KafkaSettings(bootstrap_servers=servers)


def test_a_delivery_timeout_that_no_message_can_keep_is_refused():
    with pytest.raises(ValidationError, match=r"delivery_timeout\n.*1s is shorter than the limit of 2s"):
        KafkaSettings(bootstrap_servers="one:9092", delivery_timeout="1s")


def job_of(tmp_path, **changes):
    conf = {
        "kafka": {"bootstrap_servers": "localhost:9092"},
        "source": {"kind": "kafka", "topic": "payments"},
        "schema": "schema.yaml",
        "rules": {"topic": "rules"},
        "checkpoint": "checkpoint",
        "output": {"kind": "kafka"},
    } | changes
    (tmp_path / "schema.yaml").write_text("event_id: id\nevent_time: t\n")
    (tmp_path / "conf.yaml").write_text(yaml.safe_dump({name: part for name, part in conf.items() if part is not None}))
    return load_job(tmp_path / "conf.yaml")


def test_a_job_on_kafka_has_a_topic_for_each_output_and_no_rules_yet(tmp_path):
    job = job_of(tmp_path, output={"kind": "kafka", "topics": {"alerts": "fraud"}})
    assert job.rules == ()
    assert job.settings.output.topics_in_use() == {
        "alerts": "fraud",
        "shadow_alerts": "shadow_alerts",
        "held_alerts": "held_alerts",
        "late_events": "late_events",
        "collisions": "collisions",
        "duplicates": "duplicates",
        "dead_letters": "dead_letters",
    }


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kafka": None}, "source.kind needs Kafka: add `kafka: {bootstrap_servers: HOST:PORT}`"),
        ({"source": {"kind": "kafka"}}, "a source of kind kafka needs `topic`"),
        ({"source": {"kind": "kafka", "topic": "a b"}}, "source.topic"),
        ({"source": {"kind": "kafka", "topic": "x", "path": "y"}}, "path: a source of kind kafka has no such field"),
        ({"source": {"kind": "json", "path": ".", "topic": "x"}}, "topic: a source of kind json has no such field"),
        ({"source": {"kind": "parquet", "path": ".", "out_of_order": "take"}}, "out_of_order: goes with `arrival`"),
        ({"source": {"kind": "delta", "path": ".", "arrival": "n", "subfolders": True}}, "subfolders: a Delta table"),
        ({"source": {"kind": "json", "path": ".", "subfolders": True}}, "checkpoint lies in source.path, where Spark"),
        ({"source": {"kind": "json", "path": "."}}, "checkpoint lies in source.path, where Spark would take its files"),
        ({"source": {"kind": "csv", "path": "a[1]"}}, "a[1] holds [, so Spark would take it for a pattern"),
        ({"source": {"kind": "json", "path": "a\\"}}, "a\\ holds \\, so Spark would take it for a pattern"),
        ({"source": {"kind": "kafka", "topic": "x", "out_of_order": "take"}}, "kafka has no such field"),
        ({"output": {"kind": "kafka", "path": "x"}}, "outputs in Kafka have `topics`, and no `path`"),
        ({"output": {"kind": "kafka", "compact": True}}, "outputs in Kafka have no tables, so no `compact`"),
        ({"output": {"path": "x", "keep_versions": "5m"}}, "keep_versions: 5m is less than 10m"),
        (
            {"output": {"path": "x", "compact": False, "keep_versions": "1h"}},
            "keep_versions: goes with `compact: true`",
        ),
        ({"output": {"kind": "kafka", "topics": {"alarms": "x"}}}, "topics.alarms: no such output; there are alerts,"),
        ({"output": {"kind": "kafka", "topics": {"alerts": "payments"}}}, "each needs a topic of its own"),
        ({"rules": {"topic": "rules", "path": "rules.yaml"}}, "give one of `path`, `table` and `topic`"),
        ({"rules": {"table": "rules", "export_topic": "x"}}, "rejected_topic and export_topic go with `topic`"),
        (
            {"lists": {name: {"kind": "file", "path": "x.csv"} for name in ("staff", "blocked", "Staff")}},
            "lists: Staff and staff differ in upper and lower case alone; rename one of them",
        ),
        ({"audit": {"path": "a", "checkpoint": "c", "keep_versions": "5m"}}, "keep_versions: 5m is less than 10m"),
        ({"partitions": 99}, "partitions: 99 is more than engine.shards, 16"),
        (
            {"output": {"path": "x"}, "audit": {"path": "a", "checkpoint": "c"}},
            "audit: keeps topics as tables, and needs `kind: kafka` for source and output",
        ),
    ],
)
def test_a_job_that_cannot_be_says_why_in_one_line(tmp_path, changes, said):
    with pytest.raises(BucketsError) as caught:
        job_of(tmp_path, **changes)
    assert said in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("org.apache.kafka.common.errors.SaslAuthenticationException: denied", "the login is refused"),
        ("TopicAuthorizationException: Not authorized to access topics", "is not allowed for this user"),
        ("Partitions Set(payments-0) are gone... payments-0 are gone. Some data may have been missed", "deleted"),
        ("Partition payments-0's offset was changed from 9 to 2, some data may have been missed.", "no longer in"),
        ("org.apache.kafka.common.errors.TimeoutException: Timed out", "no broker answers"),
        ("java.lang.OutOfMemoryError", None),
    ],
)
def test_what_spark_says_of_kafka_is_one_line(text, said):
    explained = explain_spark(KAFKA, text)
    assert explained is None if said is None else said in explained.message


@pytest.mark.parametrize(
    ("code", "passes", "said"),
    [
        (KafkaError._MSG_TIMED_OUT, True, "no broker answers (sending: "),
        (KafkaError._TRANSPORT, True, "no broker answers (sending: "),
        (KafkaError._PURGE_QUEUE, True, "sending failed"),
        (KafkaError.NOT_ENOUGH_REPLICAS, True, "sending failed"),
        (KafkaError.NOT_LEADER_FOR_PARTITION, True, "sending failed"),
        (KafkaError.REQUEST_TIMED_OUT, True, "sending failed"),
        (KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, True, "sending failed"),
        (KafkaError._FATAL, True, "sending failed"),
        (KafkaError.MSG_SIZE_TOO_LARGE, False, "sending failed"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, False, "sending is not allowed for this user"),
        (KafkaError._AUTHENTICATION, False, "the login is refused"),
        (KafkaError._UNKNOWN_TOPIC, False, "the topic is not there; `buckets kafka topics CONF` creates"),
    ],
)
def test_what_librdkafka_says_is_one_line_and_waited_out_where_it_may_pass(code, passes, said):
    explained = explain(KafkaError(code), KAFKA, "sending")
    assert said in explained.message
    assert "\n" not in explained.message
    assert isinstance(explained, Outage) is passes
