"""How Kafka is reached: one set of settings for both clients, secrets from the environment, and what cannot be."""

import pytest
import yaml
from confluent_kafka import KafkaError
from pydantic import ValidationError

from buckets.audit.folder import topics_of
from buckets.audit.tables import TRANSACTIONS
from buckets.config.job import load_job, results_folder
from buckets.config.kafka import KafkaSettings
from buckets.errors import BucketsError, Outage
from buckets.kafka.faults import explain
from buckets.outputs.columns import VERDICTS
from buckets.spark.faults import explain_spark
from buckets.verdicts.verdict_table import verdict_table
from tests.own_certificate import own_certificate

LOGIN = {"protocol": "SASL_SSL", "mechanism": "SCRAM-SHA-512", "username": "ann", "password": "${SECRET}"}
KAFKA = KafkaSettings(bootstrap_servers="one:9092")


def settings(**security) -> KafkaSettings:
    return KafkaSettings.model_validate({"bootstrap_servers": "one:9092,two:9092", "security": security})


def test_a_login_reaches_both_clients_and_is_never_shown(monkeypatch, tmp_path):
    monkeypatch.setenv("SECRET", 'pa"ss\\word')
    own_certificate(tmp_path)
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
    "security",
    [
        {"protocol": "SASL_SSL"},
        {"username": "ann"},
        {"protocol": "SSL", "ca_file": "nowhere.pem"},
        {**LOGIN, "password": "${NOT_SET_ANYWHERE}"},
        {**LOGIN, "password": ""},
        {**LOGIN, "password": "of a file\n"},
        {**LOGIN, "username": " "},
        {"protocol": "SSL", "ca_file": "text.pem"},
        {"protocol": "SSL", "ca_file": ""},
        {"protocol": "SSL", "certificate_file": "ca.pem", "key_file": "text.pem"},
        {"protocol": "SSL", "certificate_file": "ca.pem", "key_file": "other/server.pem"},
    ],
)
def test_security_that_cannot_be_says_why(security, as_worded, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    own_certificate(tmp_path / "other")
    own_certificate(tmp_path)
    (tmp_path / "text.pem").write_text("certificate")
    with pytest.raises(ValidationError, check=as_worded):
        settings(**security)


@pytest.mark.parametrize("servers", ["localhost", ":9092", "host:port", "host:70000", "a:1,,b:2"])
def test_addresses_are_hosts_and_ports(servers, as_worded):
    with pytest.raises(ValidationError, check=as_worded):
        KafkaSettings(bootstrap_servers=servers)


def test_a_delivery_timeout_that_no_message_can_keep_is_refused(as_worded):
    with pytest.raises(ValidationError, check=as_worded):
        KafkaSettings(bootstrap_servers="one:9092", delivery_timeout="1s")


def test_a_delivery_timeout_that_the_client_cannot_count_is_refused(as_worded):
    with pytest.raises(ValidationError, check=as_worded):
        KafkaSettings(bootstrap_servers="one:9092", delivery_timeout="40d")


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


def test_a_job_to_tables_keeps_its_messages_and_verdicts_alone(tmp_path):
    audit, verdicts = {"path": "kept", "checkpoint": "c"}, {"topic": "said"}
    job = job_of(tmp_path, output={"path": "tables"}, audit=audit, verdicts=verdicts)
    assert topics_of(job) == {"payments": TRANSACTIONS, "said": VERDICTS}
    assert verdict_table(job) == tmp_path / "kept" / VERDICTS
    assert results_folder(job) == tmp_path / "tables"


@pytest.mark.parametrize(
    "changes",
    [
        {"kafka": None},
        {"source": {"kind": "kafka"}},
        {"source": {"kind": "kafka", "topic": "a b"}},
        {"source": {"kind": "kafka", "topic": "x", "path": "y"}},
        {"source": {"kind": "json", "path": ".", "topic": "x"}},
        {"source": {"kind": "parquet", "path": ".", "out_of_order": "take"}},
        {"source": {"kind": "delta", "path": ".", "arrival": "n", "subfolders": True}},
        {"source": {"kind": "json", "path": ".", "subfolders": True}},
        {"source": {"kind": "json", "path": "."}},
        {"source": {"kind": "csv", "path": "a[1]"}},
        {"source": {"kind": "json", "path": "a\\"}},
        {"source": {"kind": "kafka", "topic": "x", "out_of_order": "take"}},
        {"output": {"kind": "kafka", "path": "x"}},
        {"output": {"kind": "kafka", "compact": True}},
        {"output": {"path": "x", "keep_versions": "5m"}},
        {"output": {"path": "x", "compact": False, "keep_versions": "1h"}},
        {"output": {"kind": "kafka", "topics": {"alarms": "x"}}},
        {"output": {"kind": "kafka", "topics": {"alerts": "payments"}}},
        {"rules": {"topic": "rules", "path": "rules.yaml"}},
        {"rules": {"table": "rules", "export_topic": "x"}},
        {"lists": {name: {"kind": "file", "path": "x.csv"} for name in ("staff", "blocked", "Staff")}},
        {"audit": {"path": "a", "checkpoint": "c", "keep_versions": "5m"}},
        {"partitions": 99},
        {"source": {"kind": "json", "path": "."}, "audit": {"path": "a", "checkpoint": "c"}},
        {"source": {"kind": "kafka", "topic": "x", "topics": ["y"]}},
        {"source": {"kind": "kafka", "topic": "x", "topic_pattern": "y.*"}},
        {"source": {"kind": "kafka", "topics": ["x", {"name": "x", "judge": False}]}},
        {"source": {"kind": "kafka", "topics": [{"name": "x", "judge": False}]}},
        {"source": {"kind": "kafka", "topics": ["x", {"name": "y", "judged": False}]}},
        {"source": {"kind": "kafka", "topic_pattern": "y.*("}},
        {"source": {"kind": "kafka", "topic_pattern": r"\p{Lower}+"}},
        {"source": {"kind": "kafka", "topic_pattern": "al.*"}},
        {"source": {"kind": "kafka", "topic_pattern": ".*rules"}},
        {"source": {"kind": "json", "path": ".", "topic_pattern": "y.*"}},
    ],
)
def test_a_job_that_cannot_be_says_why_in_one_line(tmp_path, changes, as_worded):
    with pytest.raises(BucketsError, check=as_worded) as caught:
        job_of(tmp_path, **changes)
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("text", "is_of_kafka"),
    [
        ("org.apache.kafka.common.errors.SaslAuthenticationException: denied", True),
        ("TopicAuthorizationException: Not authorized to access topics", True),
        ("Partitions Set(payments-0) are gone... payments-0 are gone. Some data may have been missed", True),
        ("Partition payments-0's offset was changed from 9 to 2, some data may have been missed.", True),
        ("org.apache.kafka.common.errors.TimeoutException: Timed out", True),
        ("java.lang.OutOfMemoryError", False),
    ],
)
def test_what_spark_says_of_kafka_is_one_line(text, is_of_kafka, as_worded):
    explained = explain_spark(KAFKA, text)
    assert (explained is not None) == is_of_kafka
    assert explained is None or as_worded(explained)


@pytest.mark.parametrize(
    ("code", "passes"),
    [
        (KafkaError._MSG_TIMED_OUT, True),
        (KafkaError._TRANSPORT, True),
        (KafkaError._PURGE_QUEUE, True),
        (KafkaError.NOT_ENOUGH_REPLICAS, True),
        (KafkaError.NOT_LEADER_FOR_PARTITION, True),
        (KafkaError.REQUEST_TIMED_OUT, True),
        (KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, True),
        (KafkaError._FATAL, True),
        (KafkaError.MSG_SIZE_TOO_LARGE, False),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, False),
        (KafkaError._AUTHENTICATION, False),
        (KafkaError._UNKNOWN_TOPIC, False),
    ],
)
def test_what_librdkafka_says_is_one_line_and_waited_out_where_it_may_pass(code, passes, as_worded):
    explained = explain(KafkaError(code), KAFKA, "sending")
    assert as_worded(explained.message)
    assert "\n" not in explained.message
    assert isinstance(explained, Outage) is passes
