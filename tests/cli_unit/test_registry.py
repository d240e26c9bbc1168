"""A schema registry: what is asked of it, what goes wrong with it in one line, and how a configuration names it."""

import json
import sys

import pytest
import yaml
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from pydantic import ValidationError

from buckets.config.environment import secrets_of
from buckets.config.job import load_job
from buckets.config.kafka import KafkaSettings, RegistrySettings
from buckets.errors import BucketsError, Outage
from buckets.events.decoded import PinnedProtobuf, WriterSchema
from buckets.events.protobuf.proto_schema import compiled_text, message_named, read_schema
from buckets.events.schema import Measure, load_event_schema
from buckets.exit_codes import FAILED, MISUSED
from buckets.kafka.registry import Registry, RegistryAway
from buckets.kafka.topics import pinned_fields
from buckets.preflight.connections import check_registry
from buckets.spark.faults import explain_spark
from tests.core.protobuf_events import descriptors_of
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


def test_a_schema_of_protobuf_is_known_with_the_names_by_which_others_are_imported(served):
    served.register("land", "land", kind="PROTOBUF")
    refers = [{"name": "bank/land.proto", "subject": "land", "version": 1}]
    number = served.register("payments-value", "payment", kind="PROTOBUF", references=refers)
    assert registry_of(served).schema(number) == WriterSchema("PROTOBUF", "payment", ("land",), ("bank/land.proto",))


def test_a_schema_is_registered_once_and_has_its_number(served):
    registry = registry_of(served)
    numbers = [
        registry.register("alerts-value", kind, text) for kind, text in [("AVRO", SCHEMA), ("PROTOBUF", "x")] * 2
    ]
    assert numbers == [1, 2, 1, 2]
    registry.check_compatible("alerts-value", "AVRO", SCHEMA)
    assert [schema.get("schemaType") for schema in served.schemas.values()] == [None, "PROTOBUF"]


@pytest.mark.parametrize(
    "answer",
    [
        (409, {"error_code": 409, "message": "incompatible: reader field missing\ndetails"}),
        (409, b"<html>"),
        (422, {"error_code": 42201, "message": "invalid schema"}),
        (404, {}),
        (200, {"id": "seven"}),
    ],
)
def test_a_schema_that_cannot_be_registered_is_one_line(served, answer, as_worded):
    served.spoil = lambda path: answer
    with pytest.raises(BucketsError, check=as_worded) as error:
        registry_of(served).register("alerts-value", "AVRO", SCHEMA)
    assert not isinstance(error.value, RegistryAway)


@pytest.mark.parametrize(
    "answer",
    [
        (200, {"is_compatible": False, "messages": ["a field is missing", "and more"]}),
        (200, {"is_compatible": False}),
        (422, {"message": "invalid schema"}),
    ],
)
def test_a_schema_that_does_not_go_with_its_subject_is_one_line(served, answer, as_worded):
    served.spoil = lambda path: answer
    with pytest.raises(BucketsError, check=as_worded):
        registry_of(served).check_compatible("alerts-value", "AVRO", SCHEMA)


def test_a_subject_that_is_not_there_takes_any_schema(served):
    served.spoil = lambda path: (404, {"error_code": 40401})
    registry_of(served).check_compatible("alerts-value", "AVRO", SCHEMA)


def test_a_login_is_sent_and_never_shown(served, monkeypatch):
    monkeypatch.setenv("SECRET", "pa:ss")
    registry = registry_of(served, username="ann", password="${SECRET}")
    registry.schema(1)
    ((_, headers),) = served.asked
    assert headers["Authorization"] == "Basic YW5uOnBhOnNz"
    assert "pa:ss" not in repr(registry)
    kafka = KafkaSettings(bootstrap_servers="one:9092", registry=registry.settings)
    assert list(secrets_of(kafka)) == ["pa:ss"]


@pytest.mark.parametrize(
    "answer",
    [
        (404, b"<html>"),
        (404, {"error_code": 404}),
        (200, b"<html>"),
        (200, []),
        (200, {"schema": 1}),
        (200, {"schema": SCHEMA[:-3]}),
        (200, {"schema": "[" * 100_000}),
        (200, {"schema": SCHEMA, "references": [{}]}),
        (200, {"schema": SCHEMA, "references": 7}),
        (200, {"schema": SCHEMA, "references": [{"name": "a", "subject": "a", "version": 1}]}),
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


@pytest.mark.parametrize(
    ("references", "at_fault"),
    [
        ([("land", 1), ("gone", 2)], "/subjects/gone/versions/2 gives nothing, though a schema refers to it"),
        ([("land", 1), ("nonsense", 1)], "/subjects/nonsense/versions/1 gives no schema"),
        (
            [("land", 1), ("city", 1), ("gone", 2)],
            "/subjects/gone/versions/2 gives nothing, though a schema refers to it",
        ),
        ([("land", 1), None], "/schemas/ids/9 gives references without subject and version"),
        ([("city", 1), ("refers to nothing", 1), None], "/schemas/ids/9 gives references without subject and version"),
    ],
)
def test_a_fault_of_one_reference_names_its_own_address(served, references, at_fault):
    def named(pairs):
        return [pair and {"name": pair[0], "subject": pair[0], "version": pair[1]} for pair in pairs]

    answers = {
        "/schemas/ids/9": {"schema": SCHEMA, "references": named(references)},
        "/subjects/land/versions/1": {"schema": '"string"'},
        "/subjects/city/versions/1": {"schema": '"long"', "references": named([("land", 1)])},
        "/subjects/refers%20to%20nothing/versions/1": {"schema": '"int"'},
        "/subjects/nonsense/versions/1": {"schema": 7},
        "/subjects/gone/versions/2": None,
    }
    served.spoil = lambda path: (200, answers[path]) if answers[path] else (404, {"error_code": 40401})
    with pytest.raises(BucketsError) as error:
        registry_of(served).schema(9)
    assert f" {at_fault}, as no schema registry does" in str(error.value)


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
        {"url": "http://registry:99999"},
        {"url": "http://registry/ä"},
        {"url": "http://[::1"},
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


@pytest.mark.parametrize(
    "wrong",
    [
        {"format": "avro"},
        {"schema_file": "a.avsc"},
        {"format": "xml"},
        {"format": "protobuf"},
        {"format": "avro", "schema_file": "a.avsc", "message": "Payment"},
        {"format": "protobuf", "message": "Payment"},
    ],
)
def test_a_format_without_what_it_needs_is_refused(tmp_path, wrong, as_worded):
    with pytest.raises(BucketsError, check=as_worded):
        load_job(written(tmp_path, **wrong))


@pytest.mark.parametrize("text", [None, "{", '"string"', '{"type": "record"}'])
def test_a_schema_file_that_cannot_be_read_is_refused(tmp_path, text, as_worded):
    if text is not None:
        (tmp_path / "a.avsc").write_text(text)
    with pytest.raises(BucketsError, check=as_worded):
        load_job(written(tmp_path, format="avro", schema_file="a.avsc"))


PROTO = 'syntax = "proto3"; package bank; message Payment { string id = 1; int64 at = 2; } message Other {}'


@pytest.mark.parametrize(
    "text", [None, "message {", "message A {} message B {}", "import 'b.proto'; message A { optional B b = 1; }"]
)
def test_a_schema_file_of_protobuf_that_cannot_be_read_is_refused(tmp_path, text, as_worded):
    if text is not None:
        (tmp_path / "a.proto").write_text(text)
    with pytest.raises(BucketsError, check=as_worded):
        load_job(written(tmp_path, format="protobuf", schema_file="a.proto"))


@pytest.mark.parametrize("name", ["Payment", "bank.Payment", "Paiment"])
def test_a_message_of_a_schema_file_is_named_with_or_without_its_package(tmp_path, name, as_worded):
    (tmp_path / "a.proto").write_text(PROTO)
    conf = written(tmp_path, format="protobuf", schema_file="a.proto", message=name)
    if name == "Paiment":
        with pytest.raises(BucketsError, check=as_worded):
            load_job(conf)
        return
    assert load_job(conf).protobuf == PinnedProtobuf(text=compiled_text(PROTO), message=name)


@pytest.mark.parametrize(("written_in", "module"), [("avro", "fastavro"), ("protobuf", "grpc_tools")])
def test_a_format_whose_package_is_missing_is_one_line_that_says_what_installs_it(
    tmp_path, written_in, module, monkeypatch, as_worded
):
    monkeypatch.setitem(sys.modules, module, None)
    for name in ("format", "key_format"):
        with pytest.raises(BucketsError, check=as_worded):
            load_job(written(tmp_path, {"registry": {"url": "http://localhost:1"}}, **{name: written_in}))


def test_a_schema_of_protobuf_comes_with_what_it_imports(served):
    served.register("land", 'syntax = "proto3"; package bank; message Land { string code = 1; }', "PROTOBUF")
    text = 'syntax = "proto3"; package bank; import "land.proto"; message Payment { Land land = 1; Money amount = 2; }'
    text = text.replace("Money", "google.type.Money").replace("import", 'import "google/type/money.proto"; import')
    reference = {"name": "land.proto", "subject": "land", "version": 1}
    number = served.register("payments-value", text, "PROTOBUF", [reference])
    found = registry_of(served).schema(number)
    assert found is not None
    message = message_named(read_schema(WriterSchema("PROTOBUF", found.text, found.references, found.names)), None)
    assert [field.message_type.full_name for field in message.fields] == ["bank.Land", "google.type.Money"]


def test_a_schema_file_under_another_name_is_a_set_of_descriptors(tmp_path):
    (file,) = descriptors_of(WriterSchema("PROTOBUF", PROTO))
    (tmp_path / "a.desc").write_bytes(FileDescriptorSet(file=[file]).SerializeToString())
    job = load_job(written(tmp_path, format="protobuf", schema_file="a.desc", message="Payment"))
    assert job.protobuf is not None
    assert job.protobuf.text is not None
    file = read_schema(WriterSchema("PROTOBUF", job.protobuf.text))
    assert set(file.message_types_by_name) == {"Payment", "Other"}


@pytest.mark.parametrize(
    ("output", "kafka"),
    [
        ({"path": "tables", "format": "avro"}, {}),
        ({"kind": "kafka", "format": "avro", "message_version": 1}, {}),
        ({"kind": "kafka", "format": "protobuf"}, {}),
    ],
)
def test_a_format_of_results_without_what_it_needs_is_refused(tmp_path, output, kafka, as_worded):
    conf = written(tmp_path, kafka)
    settings = yaml.safe_load(conf.read_text())
    conf.write_text(yaml.safe_dump(settings | {"output": output}))
    with pytest.raises(BucketsError, check=as_worded):
        load_job(conf)


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
        {"name": "items", "type": ["null", {"type": "array", "items": {"type": "record", "name": "item", "fields": [
            {"name": "sku", "type": ["null", "string"]},
            {"name": "price", "type": "double"},
            {"name": "parts", "type": {"type": "array", "items": "string"}},
        ]}}]},
        {"name": "labels", "type": {"type": "map", "values": "string"}},
        {"name": "customer", "type": ["null", {"type": "record", "name": "customer", "fields": [
            {"name": "address", "type": {"type": "record", "name": "address", "fields": [
                {"name": "country", "type": "string"},
                {"name": "fee", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3}},
            ]}},
            {"name": "parent", "type": ["null", "customer"]},
            {"name": "empty", "type": {"type": "record", "name": "empty", "fields": []}},
        ]}]},
    ],
}  # fmt: skip


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
        "customer.address.country": "string",
    }  # fmt: skip
    assert schema.measures == {"amount": Measure(scale=2), "customer.address.fee": Measure(scale=3)}
    assert schema.arrays == {"lines[]": "string", "items[].sku": "string"}
    assert as_worded("".join(line for line in ran.out.splitlines(keepends=True) if line.startswith("#")))


@pytest.mark.parametrize(
    "named",
    [
        ["--id", "id", "--time", "at"],
        ["payment-value", "--id", "id", "--time", "at"],
        ["nothing-value", "--conf", "job.yaml", "--id", "id", "--time", "at"],
        ["other-value", "--conf", "job.yaml", "--id", "id", "--time", "at"],
        ["payment-value", "--conf", "job.yaml", "--id", "id", "--time", "att"],
        ["payment-value", "--conf", "job.yaml", "--id", "id", "--time", "id"],
        ["payment-value", "--conf", "job.yaml", "--id", "lines[]", "--time", "at"],
        ["payment-value", "--conf", "job.yaml", "--id", "labels", "--time", "at"],
        ["payment-value", "--conf", "bare.yaml", "--id", "id", "--time", "at"],
        ["--file", "text.avsc", "--id", "id", "--time", "at"],
        ["--file", "broken.avsc", "--id", "id", "--time", "at"],
    ],
)
def test_what_no_event_schema_can_be_made_of_is_one_line(served, buckets, tmp_path, monkeypatch, named, as_worded):
    monkeypatch.chdir(tmp_path)
    served.register("payment-value", WIDE)
    served.register("other-value", "{}", kind="JSON")
    kafka = {"bootstrap_servers": "one:9092"}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump({"kafka": kafka | {"registry": {"url": served.url}}}))
    (tmp_path / "bare.yaml").write_text(yaml.safe_dump({"kafka": kafka}))
    (tmp_path / "text.avsc").write_text('"string"')
    (tmp_path / "broken.avsc").write_text("{")
    ran = buckets("schema", "import", *named)
    assert ran.code == (MISUSED if "bare.yaml" in named else FAILED)
    assert as_worded(ran.err)


WIDE_PROTO = """
syntax = "proto3";
package bank;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "confluent/type/decimal.proto";
message Payment {
  string id = 1;
  google.protobuf.Timestamp at = 2;
  google.protobuf.StringValue payer = 3;
  Kind kind = 4;
  bool vip = 5;
  uint32 visits = 6;
  confluent.type.Decimal amount = 7;
  double risk = 8;
  repeated string lines = 9;
  map<string, string> labels = 10;
  bytes raw = 11;
  Customer customer = 12;
  google.protobuf.Timestamp born = 13;
  oneof means { string card = 14; sint64 account = 15; }
  repeated Customer friends = 16;
  repeated confluent.type.Decimal fees = 17;
  enum Kind { CARD = 0; }
}
message Customer { string country = 1; Customer parent = 2; Empty empty = 3; }
message Empty {}
"""


@pytest.mark.parametrize("by", ["subject", "file", "message"])
def test_an_event_schema_is_made_of_a_schema_of_protobuf(served, buckets, tmp_path, by, as_worded):
    served.register("payment-value", WIDE_PROTO, kind="PROTOBUF")
    (tmp_path / "payment.proto").write_text(WIDE_PROTO)
    (tmp_path / "job.yaml").write_text(
        yaml.safe_dump({"kafka": {"bootstrap_servers": "one:9092", "registry": {"url": served.url}}})
    )
    named = {
        "subject": ["payment-value", "--conf", tmp_path / "job.yaml"],
        "file": ["--file", tmp_path / "payment.proto"],
        "message": ["--file", tmp_path / "payment.proto", "--message", "Payment"],
    }
    ran = buckets("schema", "import", *named[by], "--id", "id", "--time", "at")
    assert ran.code == 0, ran.err
    (tmp_path / "schema.yaml").write_text(ran.out)
    schema = load_event_schema(tmp_path / "schema.yaml")
    assert schema.name == "payment"
    assert schema.attributes == {
        "payer": "string", "kind": "string", "vip": "boolean", "visits": "long", "customer.country": "string",
        "born": "string", "card": "string", "account": "long",
    }  # fmt: skip
    assert schema.arrays == {"lines[]": "string", "friends[].country": "string"}
    assert as_worded("".join(line for line in ran.out.splitlines(keepends=True) if line.startswith("#")))


PROTO3 = 'syntax = "proto3"; '
TWICE = PROTO3 + "message A { string id = 1; string at = 2; } message B { string id = 1; string at = 2; } message C {}"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (TWICE, ["--id", "id", "--time", "at"]),
        (TWICE, ["--id", "id", "--time", "att"]),
        (PROTO3 + "message A { map<string, int32> id = 1; string at = 2; }", ["--id", "id", "--time", "at"]),
        (PROTO3 + "message A { A id = 1; string at = 2; }", ["--id", "id", "--time", "at"]),
        (TWICE, ["--message", "D", "--id", "id", "--time", "at"]),
        (TWICE, ["--message", "C", "--id", "id", "--time", "at"]),
        ("enum E { X = 0; }", ["--id", "id", "--time", "at"]),
        (PROTO3 + "message A { B b = 1; }", ["--id", "id", "--time", "at"]),
    ],
)
def test_what_no_event_schema_can_be_made_of_a_proto_file_is_one_line(
    buckets, tmp_path, monkeypatch, text, named, as_worded
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.proto").write_text(text)
    ran = buckets("schema", "import", "--file", "a.proto", *named)
    assert ran.code == 1
    assert as_worded(ran.err)


def test_a_message_is_named_of_a_schema_of_protobuf_alone(buckets, tmp_path, as_worded):
    (tmp_path / "a.avsc").write_text(json.dumps(WIDE))
    ran = buckets("schema", "import", "--file", tmp_path / "a.avsc", "--message", "A", "--id", "id", "--time", "at")
    assert ran.code == 1
    assert as_worded(ran.err)


# Before a job starts


def test_check_looks_for_the_fields_of_a_schema_of_protobuf_and_at_the_subjects_of_results(served, tmp_path):
    conf = written(tmp_path, {"registry": {"url": served.url}}, format="protobuf")
    settings = yaml.safe_load(conf.read_text())
    conf.write_text(yaml.safe_dump(settings | {"output": {"kind": "kafka", "format": "avro"}}))
    (tmp_path / "schema.yaml").write_text("event_id: id\nevent_time: at\nattributes: {customer.country: string}\n")

    def said() -> str:
        job = load_job(conf)
        assert job.settings.kafka is not None
        assert job.settings.kafka.registry is not None
        try:
            return check_registry(job, job.settings.kafka.registry)
        except BucketsError as error:
            return error.message.replace(served.url, "URL")

    assert said() == "answers; it has no subject payments-value yet"
    body = "message Other { string x = 1; } message Payment { string id = 1; int64 at = 2; Customer customer = 3; }"
    served.register(
        "payments-value", f'syntax = "proto3"; {body} message Customer {{ string country = 1; }}', "PROTOBUF"
    )
    assert said() == "payments-value is at version 1, schema 1: 3 fields"
    served.register("payments-value", 'syntax = "proto3"; message Payment { string id = 1; }', "PROTOBUF")
    assert said().startswith("events of subject payments-value: no column 'at', which event schema 'event' needs")
    served.register(
        "payments-value", 'syntax = "proto3"; message Payment { string id = 1; repeated int64 at = 2; }', "PROTOBUF"
    )
    assert said() == (
        "registry URL: version 3 of payments-value has at, which is a list, and must be one value; [0] behind its "
        "name is its first element; take it out of the "
        "event schema"
    )
    served.register("payments-value", "syntax;", "PROTOBUF")
    assert said() == 'registry URL: version 4 of payments-value cannot be compiled (line 1: Expected "=".)'
    served.spoil = lambda path: (200, {"is_compatible": False, "messages": ["a field is missing"]})
    assert said() == (
        "registry URL: the schema of subject alerts-value is not compatible with those that it has (a field is "
        "missing); name another topic for the output, or see what has been registered there"
    )


@pytest.mark.parametrize(
    ("customer", "fault"),
    [
        (["null", "string"], "has customer.land, which is in something that is not an object"),
        ({"type": "record", "name": "person", "fields": [{"name": "land", "type": {"type": "map", "values": "int"}}]},
         "has customer.land, which is an object, and must be one value"),
    ],
)  # fmt: skip
def test_check_refuses_a_field_that_is_no_single_value_in_a_schema_of_avro(served, tmp_path, customer, fault):
    conf = written(tmp_path, {"registry": {"url": served.url}}, format="avro")
    (tmp_path / "schema.yaml").write_text("event_id: id\nevent_time: at\nattributes: {customer.land: string}\n")
    fields = [{"name": "id", "type": "string"}, {"name": "at", "type": "long"}, {"name": "customer", "type": customer}]
    served.register("payments-value", {"type": "record", "name": "payment", "fields": fields})
    with pytest.raises(BucketsError, match=fault):
        check_registry(load_job(conf), RegistrySettings(url=served.url))


def test_numbers_of_fields_are_pinned_at_a_start_and_kept_where_the_registry_is_away(served, tmp_path):
    job = load_job(written(tmp_path, {"registry": {"url": served.url}}, format="protobuf"))
    assert pinned_fields(job) == PinnedProtobuf()
    served.register("payments-value", PROTO, "PROTOBUF")
    assert pinned_fields(job) == PinnedProtobuf(numbers={"bank.Payment": {"id": (1,), "at": (2,)}})
    served.spoil = lambda path: (503, {})
    assert pinned_fields(job) == PinnedProtobuf()
    assert pinned_fields(load_job(written(tmp_path))) is None


# Keys


@pytest.fixture
def keyed(served, tmp_path):
    """Writes a configuration whose fields lie in keys of a format; says what a look at the registry says."""

    def look(key_format: str, origins: dict[str, str]) -> str:
        conf = written(tmp_path, {"registry": {"url": served.url}}, key_format=key_format)
        schema = {"event_id": "id", "event_time": "at", "attributes": {"card": "string"}, "origins": origins}
        (tmp_path / "schema.yaml").write_text(yaml.safe_dump(schema))
        try:
            return check_registry(load_job(conf), RegistrySettings(url=served.url))
        except BucketsError as error:
            return error.message.replace(served.url, "URL")

    return look


def test_check_looks_for_fields_in_the_schemas_of_keys(served, keyed):
    inside, whole = {"id": "key.id", "card": "key.id"}, {"id": "key"}
    assert keyed("avro", inside) == "answers; it has no subject payments-key yet"
    assert keyed("avro", {}) == "answers"
    assert keyed("text", {}) == "answers"
    served.register("payments-key", {"type": "record", "name": "key", "fields": [{"name": "id", "type": "string"}]})
    assert keyed("avro", inside) == "payments-key is at version 1, schema 1: 1 field"
    assert keyed("avro", {"id": "key.no"}) == (
        "events of subject payments-key: no column 'id', which event schema 'event' needs; "
        "columns there: at, card, key.id"
    )
    assert keyed("avro", whole) == (
        "registry URL: version 1 of payments-key has id, which is an object, and must be one value; take it out of the "
        "event schema"
    )
    assert keyed("protobuf", inside) == "registry URL: version 1 of payments-key is of type AVRO"
    served.register("payments-key", '"string"')
    assert keyed("avro", whole) == "payments-key is at version 2, schema 2: 0 fields"
    assert keyed("avro", inside) == "registry URL: version 2 of payments-key is not a record but of type string"
    served.register(
        "payments-key", 'syntax = "proto3"; message Key { string id = 1; repeated int64 ids = 2; }', "PROTOBUF"
    )
    assert keyed("protobuf", inside) == "payments-key is at version 3, schema 3: 2 fields"
    assert keyed("protobuf", {"id": "key.ids"}) == (
        "registry URL: version 3 of payments-key has id, which is a list, and must be one value; [0] behind its "
        "name is its first element; take it out of the "
        "event schema"
    )


def test_numbers_of_fields_in_keys_are_pinned_too(served, tmp_path):
    conf = written(tmp_path, {"registry": {"url": served.url}}, key_format="protobuf")
    (tmp_path / "schema.yaml").write_text("event_id: id\nevent_time: at\norigins: {id: key.card}\n")
    assert pinned_fields(load_job(conf)) == PinnedProtobuf()
    served.register("payments-key", 'syntax = "proto3"; message Key { string a = 1; string card = 2; }', "PROTOBUF")
    assert pinned_fields(load_job(conf)) == PinnedProtobuf(numbers={"Key": {"card": (2,)}})


def test_events_are_not_sent_to_a_topic_whose_keys_have_a_format(tmp_path, buckets, as_worded):
    conf = written(tmp_path, key_format="json")
    (tmp_path / "events.jsonl").write_text("{}\n")
    ran = buckets("kafka", "send", tmp_path / "events.jsonl", "--conf", conf)
    assert ran.code == 1, ran.out
    assert as_worded(ran.err)


# Changes of a database

ROW = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "long"}, {"name": "at", "type": "long"}]}
PLAIN_ROW = '{"type": "record", "name": "p", "fields": [{"name": "id", "type": "long"}]}'
CHANGE_FIELDS = [
    {"name": "before", "type": ["null", ROW]},
    {"name": "after", "type": ["null", "Value"]},
    {"name": "op", "type": "string"},
]
CHANGE = {"type": "record", "name": "Envelope", "namespace": "bank", "fields": CHANGE_FIELDS}
CHANGE_PROTO = """syntax = "proto3"; package bank;
message Value { int64 id = 1; int64 at = 2; }
message Envelope { Value before = 1; Value after = 2; string op = 3; }
"""


@pytest.mark.parametrize("kind", ["AVRO", "PROTOBUF"])
def test_an_event_schema_of_changes_has_the_fields_of_the_row(served, buckets, tmp_path, kind, as_worded):
    served.register("payments-value", CHANGE if kind == "AVRO" else CHANGE_PROTO, kind)
    conf = written(tmp_path, {"registry": {"url": served.url}}, format=kind.lower(), envelope="debezium")
    named = ("schema", "import", "payments-value", "--conf", conf, "--id", "id", "--time", "at")
    message = ("--message", "bank.Envelope") if kind == "PROTOBUF" else ()
    ran = buckets(*named, *message)
    assert ran.code == 1
    ran_with_it = buckets(*named, "--envelope", "debezium")
    assert ran_with_it.code == 0, ran_with_it.err
    assert as_worded(ran.err + ran_with_it.out)
    (tmp_path / "schema.yaml").write_text(ran_with_it.out)
    assert check_registry(load_job(conf), RegistrySettings(url=served.url)).endswith("3 fields")


@pytest.mark.parametrize("kind", ["AVRO", "PROTOBUF"])
def test_a_schema_without_rows_and_a_row_without_a_field_are_said(served, tmp_path, kind, as_worded):
    plain = {"AVRO": PLAIN_ROW, "PROTOBUF": 'syntax = "proto3"; message P { int64 id = 1; }'}
    changes = {"AVRO": json.dumps(CHANGE).replace('"at"', '"paid"'), "PROTOBUF": CHANGE_PROTO.replace(" at ", " paid ")}
    conf = written(tmp_path, {"registry": {"url": served.url}}, format=kind.lower(), envelope="debezium")
    for text in (plain[kind], changes[kind]):
        served.register("payments-value", text, kind)
        with pytest.raises(BucketsError) as fault:
            check_registry(load_job(conf), RegistrySettings(url=served.url))
        assert as_worded(fault.value.message.replace(served.url, "URL"))


def test_an_event_schema_of_changes_needs_a_row(buckets, tmp_path, as_worded):
    (tmp_path / "plain.avsc").write_text(PLAIN_ROW)
    named = ("--id", "id", "--time", "at", "--envelope", "debezium")
    ran = buckets("schema", "import", "--file", tmp_path / "plain.avsc", *named)
    assert ran.code == 1
    assert as_worded(ran.err)
