"""A schema registry: what is asked of it, what goes wrong with it in one line, and how a configuration names it."""

import json

import pytest
import yaml
from pydantic import ValidationError

from buckets.checkpoint.writer_schemas import WriterSchema
from buckets.config.job import load_job
from buckets.config.kafka import KafkaSettings, RegistrySettings
from buckets.errors import BucketsError
from buckets.events.schema import Measure, load_event_schema
from buckets.exit_codes import FAILED, MISUSED
from buckets.kafka.faults import Outage
from buckets.kafka.registry import Registry, RegistryAway
from buckets.spark.kafka_faults import explain_spark
from tests.registry import small_registry

SCHEMA = '{"type": "record", "name": "payment", "fields": []}'


@pytest.fixture
def served():
    with small_registry() as registry:
        yield registry


def registry_of(served, **settings) -> Registry:
    return Registry(RegistrySettings(url=served.url, **settings), pauses_s=())


def test_a_schema_is_known_by_its_number_with_those_that_it_refers_to_first(served):
    land = served.register("land", '"string"')
    city = served.register("city", '"long"', references=[{"name": "land", "subject": "land", "version": 1}])
    refers = [{"name": name, "subject": name, "version": 1} for name in ("city", "land")]
    number = served.register("payments-value", SCHEMA, references=refers)
    assert (land, city, number) == (1, 2, 3)
    assert registry_of(served).schema(3) == WriterSchema("AVRO", SCHEMA, ('"string"', '"long"'))
    newest = registry_of(served).newest("payments-value")
    assert newest is not None
    assert (newest.version, newest.number, newest.schema.kind) == (1, 3, "AVRO")


def test_what_a_registry_does_not_know_is_none(served):
    served.register("other", "syntax", kind="PROTOBUF")
    assert registry_of(served).schema(1) == WriterSchema("PROTOBUF", "syntax")
    assert registry_of(served).schema(7) is None
    assert registry_of(served).newest("payments-value") is None


def test_a_login_is_sent_and_never_shown(served, monkeypatch):
    monkeypatch.setenv("SECRET", "pa:ss")
    registry = registry_of(served, username="ann", password="${SECRET}")
    registry.schema(1)
    ((_, headers),) = served.asked
    assert headers["Authorization"] == "Basic YW5uOnBhOnNz"
    assert "pa:ss" not in repr(registry)
    kafka = KafkaSettings(bootstrap_servers="one:9092", registry=registry.settings)
    assert kafka.secrets == ["pa:ss"]


@pytest.mark.parametrize(
    "answer",
    [
        (404, b"<html>"),
        (404, {"error_code": 404}),
        (200, b"<html>"),
        (200, []),
        (200, {"schema": 1}),
        (200, {"schema": SCHEMA, "references": [{}]}),
        (401, {}),
        (403, {}),
        (400, {}),
    ],
)
def test_an_answer_that_no_registry_gives_is_one_line(served, answer, as_worded):
    served.spoil = lambda path: answer
    with pytest.raises(BucketsError, check=as_worded) as error:
        registry_of(served).schema(1)
    assert not isinstance(error.value, RegistryAway)


@pytest.mark.parametrize("code", [429, 500, 503])
def test_a_registry_that_is_busy_is_asked_again_and_then_away(served, code, as_worded):
    served.spoil = lambda path: (code, {}) if len(served.asked) < 3 else None
    assert Registry(RegistrySettings(url=served.url), pauses_s=(0, 0)).schema(1) is None
    served.asked.clear()
    with pytest.raises(RegistryAway, check=as_worded):
        Registry(RegistrySettings(url=served.url), pauses_s=(0,)).schema(1)


def test_a_registry_that_is_not_there_is_away_and_a_job_waits_for_it_as_for_a_broker(as_worded):
    with small_registry() as served:
        registry = registry_of(served)
    with pytest.raises(RegistryAway, check=as_worded) as error:
        registry.schema(1)
    text = f"Job aborted: Traceback\n  buckets.kafka.registry.RegistryAway: {error.value.message}\n\tat org.apache"
    explained = explain_spark(KafkaSettings(bootstrap_servers="one:9092"), text)
    assert isinstance(explained, Outage)
    assert explained.message == error.value.message


@pytest.mark.parametrize(
    "settings",
    [
        {"url": "registry:8081"},
        {"url": "http://ann:secret@registry:8081"},
        {"url": "http://registry", "username": "ann"},
        {"url": "https://registry", "ca_file": "nowhere.pem"},
        {"url": "https://registry", "password": "${NOT_SET_ANYWHERE}", "username": "ann"},
    ],
)
def test_settings_that_cannot_be_say_why(settings, as_worded):
    with pytest.raises(ValidationError, check=as_worded):
        RegistrySettings.model_validate(settings)


# In a configuration


def written(folder, kafka=None, **source):
    (folder / "schema.yaml").write_text("event_id: id\nevent_time: at\n")
    rule = {"rule_id": "many", "group_by": [], "aggregate": {"function": "count"}, "window": {"length": "1h"}}
    rule["limit"] = {"operator": ">", "value": "1"}
    (folder / "rules.yaml").write_text(yaml.safe_dump({"rules": [rule]}))
    conf = {
        "kafka": {"bootstrap_servers": "one:9092"} | (kafka or {}),
        "source": {"kind": "kafka", "topic": "payments"} | source,
        "schema": "schema.yaml",
        "rules": "rules.yaml",
        "checkpoint": "checkpoint",
        "output": {"path": "tables"},
    }
    (folder / "conf.yaml").write_text(yaml.safe_dump(conf))
    return folder / "conf.yaml"


@pytest.mark.parametrize("wrong", [{"format": "avro"}, {"schema_file": "a.avsc"}, {"format": "xml"}])
def test_a_format_without_what_it_needs_is_refused(tmp_path, wrong, as_worded):
    with pytest.raises(BucketsError, check=as_worded):
        load_job(written(tmp_path, **wrong))


@pytest.mark.parametrize("text", [None, "{", '"string"', '{"type": "record"}'])
def test_a_schema_file_that_cannot_be_read_is_refused(tmp_path, text, as_worded):
    if text is not None:
        (tmp_path / "a.avsc").write_text(text)
    with pytest.raises(BucketsError, check=as_worded):
        load_job(written(tmp_path, format="avro", schema_file="a.avsc"))


def test_a_checkpoint_remembers_the_format(tmp_path):
    (tmp_path / "a.avsc").write_text(SCHEMA)
    job = load_job(written(tmp_path, format="avro", schema_file="a.avsc"))
    assert (job.settings.source.name, job.avro_schema) == ("kafka payments in avro", SCHEMA)
    assert load_job(written(tmp_path)).settings.source.name == "kafka payments"


def test_only_json_is_sent_to_a_topic_by_the_command(tmp_path, buckets, as_worded):
    (tmp_path / "a.avsc").write_text(SCHEMA)
    (tmp_path / "day.jsonl").write_text("{}\n")
    conf = written(tmp_path, format="avro", schema_file="a.avsc")
    ran = buckets("kafka", "send", tmp_path / "day.jsonl", "--conf", conf)
    assert ran.code == 1
    assert as_worded(ran.err)


# An event schema made of one in Avro


WIDE = {
    "type": "record",
    "name": "payment",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "payer", "type": ["null", "string"]},
        {"name": "kind", "type": {"type": "enum", "name": "kind", "symbols": ["CARD"]}},
        {"name": "vip", "type": "boolean"},
        {"name": "visits", "type": "int"},
        {"name": "born", "type": {"type": "int", "logicalType": "date"}},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "tiny", "type": {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 20}},
        {"name": "risk", "type": "double"},
        {"name": "mixed", "type": ["string", "long"]},
        {"name": "lines", "type": {"type": "array", "items": "string"}},
    ],
}


@pytest.mark.parametrize("by", ["subject", "file"])
def test_an_event_schema_is_made_of_a_subject_or_a_file(served, buckets, tmp_path, by, as_worded):
    served.register("payment-value", WIDE)
    (tmp_path / "payment.avsc").write_text(json.dumps(WIDE))
    (tmp_path / "job.yaml").write_text(
        yaml.safe_dump({"kafka": {"bootstrap_servers": "one:9092", "registry": {"url": served.url}}})
    )
    named = (
        ["payment-value", "--conf", tmp_path / "job.yaml"] if by == "subject" else ["--file", tmp_path / "payment.avsc"]
    )
    ran = buckets("schema", "import", *named, "--id", "id", "--time", "at")
    assert ran.code == 0, ran.err
    (tmp_path / "schema.yaml").write_text(ran.out)
    schema = load_event_schema(tmp_path / "schema.yaml")
    assert schema.name == "payment"
    assert schema.attributes == {
        "payer": "string", "kind": "string", "vip": "boolean", "visits": "long", "born": "string",
    }  # fmt: skip
    assert schema.measures == {"amount": Measure(scale=2)}
    assert as_worded("".join(line for line in ran.out.splitlines(keepends=True) if line.startswith("#")))


@pytest.mark.parametrize(
    "named",
    [
        ["--id", "id", "--time", "at"],
        ["payment-value", "--id", "id", "--time", "at"],
        ["nothing-value", "--conf", "job.yaml", "--id", "id", "--time", "at"],
        ["other-value", "--conf", "job.yaml", "--id", "id", "--time", "at"],
        ["payment-value", "--conf", "job.yaml", "--id", "id", "--time", "att"],
        ["payment-value", "--conf", "bare.yaml", "--id", "id", "--time", "at"],
        ["--file", "text.avsc", "--id", "id", "--time", "at"],
        ["--file", "broken.avsc", "--id", "id", "--time", "at"],
    ],
)
def test_what_no_event_schema_can_be_made_of_is_one_line(served, buckets, tmp_path, monkeypatch, named, as_worded):
    monkeypatch.chdir(tmp_path)
    served.register("payment-value", WIDE)
    served.register("other-value", "syntax", kind="PROTOBUF")
    kafka = {"bootstrap_servers": "one:9092"}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump({"kafka": kafka | {"registry": {"url": served.url}}}))
    (tmp_path / "bare.yaml").write_text(yaml.safe_dump({"kafka": kafka}))
    (tmp_path / "text.avsc").write_text('"string"')
    (tmp_path / "broken.avsc").write_text("{")
    ran = buckets("schema", "import", *named)
    assert ran.code == (MISUSED if "bare.yaml" in named else FAILED)
    assert as_worded(ran.err)
