"""Ids that are made of fields or rows: the same from every source, and kept from there on."""

import hashlib
import json
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import buckets
from buckets.archive.arrived_rows import arrivals_of
from buckets.archive.delta_source import open_events
from buckets.checkpoint.identity import fixed_settings
from buckets.config.job import schema_faults
from buckets.config.settings import JobSettings
from buckets.errors import BucketsError, refuse
from buckets.events.arrivals import parse
from buckets.events.decoded import PinnedProtobuf
from buckets.events.schema import EventSchema, load_event_schema
from buckets.kafka.sender import event_messages
from tests.core.archived_job import archived
from tests.core.avro_events import encoded as avro_encoded
from tests.core.examples import rule, with_new_names
from tests.core.pinned import Pinned
from tests.core.protobuf_events import encoded as protobuf_encoded
from tests.core.read_messages import TestMessage, read_messages

HASHED = {
    "event_id": {"hash": ["payer", "at", "amount", "vip", "account", "tags[]"]},
    "event_time": "at",
    "attributes": {"payer": "string", "account": "long", "vip": "boolean"},
    "measures": {"amount": {"scale": 2}},
    "arrays": {"tags[]": "string"},
}
SCHEMA = EventSchema.model_validate(HASHED)
ROW = {"payer": "Ännchen", "at": 1_700_000_000_000, "amount": "12.50", "vip": True, "account": 7, "tags": ["a", "b:c"]}
BARE = {"payer": None, "at": 1_700_000_000_001, "amount": None, "vip": None, "account": None, "tags": None}
TEXTS = [
    "8:Ännchen13:1700000000000" + "4:12.5" + "4:true" + "1:7" + "8:1:a3:b:c",
    "-13:1700000000001" + "-" + "-" + "-" + "-",
]
IDS = [hashlib.blake2b(text.encode(), digest_size=16).hexdigest() for text in TEXTS]


def ids_of(batches: Iterable[pa.RecordBatch], schema: EventSchema = SCHEMA) -> list[str]:
    ids = []
    for batch in batches:
        events, dead_letters = parse(batch, schema, frozenset())
        assert dead_letters == []
        ids += events.event_id.to_pylist()
    return ids


def write_json(folder: Path) -> Path:
    path = folder / "day.jsonl"
    other = {"event_id": ["no id of ours"], "at": "1700000000000.0", "amount": 12.5, "account": 7.0}
    path.write_text("".join(json.dumps(row) + "\n" for row in (ROW | other, BARE)))
    return path


def write_csv(folder: Path) -> Path:
    path = folder / "day.csv"
    names = ["event_id", *ROW]
    (folder / "names").write_text(",".join(names))
    first = ["x", "Ännchen", "1700000000000", "12.5", "TRUE", "+7", '"[""a"",""b:c""]"']
    bare = ["x", "", "1700000000001", "", "", "", ""]
    header = ",".join("tags[]" if name == "tags" else name for name in names)
    path.write_text(f"{header}\n{','.join(first)}\n{','.join(bare)}\n")
    return path


def typed_table() -> pa.Table:
    kinds = {
        "payer": pa.string(),
        "at": pa.timestamp("us", "UTC"),
        "amount": pa.decimal128(30, 4),
        "vip": pa.bool_(),
        "account": pa.int16(),
        "tags": pa.list_(pa.string()),
        "number": pa.int64(),
    }
    rows = [ROW | {"amount": Decimal("12.5"), "number": 0}, BARE | {"number": 1}]
    rows = [row | {"at": row["at"] * 1000} for row in rows]
    return pa.table({name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()})


def write_parquet(folder: Path) -> Path:
    pq.write_table(typed_table().append_column("event_id", pa.array([1.5, None])), folder / "day.parquet")
    return folder / "day.parquet"


def write_delta(folder: Path) -> Path:
    write_deltalake(folder / "table", typed_table())
    return folder / "table"


@pytest.mark.parametrize("write", [write_json, write_csv, write_parquet, write_delta])
def test_a_row_has_one_id_in_all_files_and_tables(tmp_path, write):
    path = write(tmp_path)
    schema = SCHEMA
    if write is write_csv:
        # In a cell an array is text, and its column is called like the field.
        assert "tags[]" in path.read_text()
    arrival = "number" if write is write_delta else None
    assert ids_of(open_events(path, schema, arrival, print)) == IDS


AVRO = {
    "type": "record",
    "name": "Payment",
    "fields": [
        {"name": "payer", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "amount", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4}]},
        {"name": "vip", "type": ["null", "boolean"]},
        {"name": "account", "type": ["null", "int"]},
        {"name": "tags", "type": ["null", {"type": "array", "items": "string"}]},
    ],
}
PROTO = """syntax = "proto3";
message Payment {
  optional string payer = 1; int64 at = 2; optional string amount = 3; optional bool vip = 4;
  optional sint32 account = 5; repeated string tags = 6;
}
"""


@pytest.mark.parametrize("written_in", ["json", "avro", "protobuf"])
def test_a_message_has_the_id_of_its_row_in_a_file(tmp_path, written_in):
    source, pinned = {"format": written_in}, Pinned()
    first = ROW | {"amount": Decimal("12.5")} if written_in == "avro" else ROW
    if written_in == "json":
        values = [json.dumps(row).encode() for row in (ROW, BARE)]
    elif written_in == "avro":
        pinned = Pinned(avro_schema=json.dumps(AVRO))
        values = [avro_encoded(AVRO, row | {"at": row["at"] * 1000}) for row in (first, BARE)]
    else:
        pinned = Pinned(protobuf=PinnedProtobuf(text=PROTO, message="Payment"))
        values = [
            protobuf_encoded(PROTO, {name: value for name, value in row.items() if value is not None})
            for row in (ROW, BARE)
        ]
    read = read_messages(tmp_path, [TestMessage(value) for value in values], HASHED, source, pinned)
    assert read.dead == {}
    # A repeated field of Protobuf is never missing.
    found = [event["event_id"] for event in read.events]
    assert found[0] == IDS[0]
    without = hashlib.blake2b((TEXTS[1][:-1] + "0:").encode(), digest_size=16).hexdigest()
    assert found[1] == (without if written_in == "protobuf" else IDS[1])


def test_an_id_may_be_made_of_a_header_and_the_time_of_the_broker(tmp_path):
    schema = {
        "event_id": {"hash": ["trace", "create_time"], "field": "key"},
        "event_time": {"broker": "create_time"},
        "attributes": {"trace": "string"},
        "origins": {"trace": "headers.trace"},
    }
    messages = [TestMessage(b"{}", headers=[("trace", b"t1")], time_ms=5)]
    read = read_messages(tmp_path, messages, schema)
    assert read.events[0]["key"] == hashlib.blake2b(b"2:t11:5", digest_size=16).hexdigest()


def test_an_id_may_be_made_of_a_row_of_debezium_its_key_and_its_envelope(tmp_path):
    schema = {
        "event_id": {"hash": ["card", "payer", "lsn"]},
        "event_time": "at",
        "attributes": {"card": "string", "payer": "string", "lsn": "long"},
        "origins": {"card": "key.card", "lsn": "envelope.source.lsn"},
    }
    change = {"op": "c", "source": {"lsn": 7}, "after": {"at": 5, "payer": "p", "event_id": {"of": "theirs"}}}
    message = TestMessage(json.dumps(change).encode(), key=b'{"card": "c1"}')
    source = {"envelope": "debezium", "key_format": "json"}
    read = read_messages(tmp_path, [message, TestMessage(None)], schema, source, Pinned(key_format="json"))
    assert read.dead == {}
    assert read.skipped == {"tombstone": 1}
    assert read.events[0]["event_id"] == hashlib.blake2b(b"2:c11:p1:7", digest_size=16).hexdigest()


def table_of(*rows: dict[str, Any]) -> pa.Table:
    kinds = {"payer": pa.string(), "at": pa.int64(), "amount": pa.string()}
    return pa.table({name: pa.array([row.get(name) for row in rows], kind) for name, kind in kinds.items()})


SMALL = {"event_time": "at", "attributes": {"payer": "string"}, "measures": {"amount": {"scale": 2}}}
PAYMENTS = [
    {"payer": "a", "at": 1, "amount": "5"},
    {"payer": "a", "at": 1, "amount": "5"},
    {"payer": "a", "at": 1, "amount": "6"},
    {"payer": None, "at": 2, "amount": "6"},
    {"payer": "", "at": 2, "amount": "6"},
]


def test_two_equal_rows_are_one_event_by_hash_and_two_by_row():
    by_hash = EventSchema.model_validate(SMALL | {"event_id": {"hash": ["payer", "at", "amount"]}})
    by_row = EventSchema.model_validate(SMALL | {"event_id": {"row": True}})
    hashed = buckets.evaluate(table_of(*PAYMENTS), [rule()], by_hash)
    assert hashed.duplicates["position"].to_pylist() == [1]
    assert hashed.evaluations["position"].to_pylist() == [0, 2, 4]
    rows = buckets.evaluate(table_of(*PAYMENTS), [rule()], by_row)
    assert len(rows.duplicates) == 0
    assert rows.evaluations["event_id"].to_pylist() == ["table:0", "table:1", "table:2", "table:4"]
    assert rows.evaluations["value"].to_pylist()[:3] == [5, 10, 16]


def test_rules_over_alerts_name_the_ids_that_were_made():
    schema = EventSchema.model_validate(SMALL | {"event_id": {"hash": ["payer", "at", "amount"]}})
    low = rule(limit={"operator": ">", "value": "1"})
    over = rule("over", None, on="alerts", limit={"operator": ">=", "value": "1"})
    alerts = buckets.evaluate(table_of(*PAYMENTS), [low, over], schema).alerts
    ids = alerts["event_id"].to_pylist()
    assert len(ids) == 2 * len(set(ids)) > 0
    assert {alert["event_id"] for alert in alerts["event"].to_pylist()} == set(ids)


def test_null_and_empty_text_are_two_ids_and_values_do_not_run_into_each_other():
    schema = EventSchema.model_validate(SMALL | {"event_id": {"hash": ["payer", "amount"]}})
    rows = [*PAYMENTS[3:], {"payer": "1:6", "at": 3, "amount": None}, {"payer": "1", "at": 3, "amount": "6"}]
    ids = buckets.features(table_of(*rows), [rule()], schema)["event_id"].to_pylist()
    assert len(set(ids)) == len(rows)


def test_rows_of_a_later_table_are_others_and_a_fresh_evaluator_begins_again():
    schema = EventSchema.model_validate(SMALL | {"event_id": {"row": True, "field": "row"}})
    evaluator = buckets.Evaluator([rule()], schema)
    first, second = (evaluator.evaluate(table_of(*PAYMENTS[:2])) for _ in range(2))
    assert first.evaluations["event_id"].to_pylist() == ["table:0", "table:1"]
    assert second.evaluations["event_id"].to_pylist() == ["table2:0", "table2:1"]
    assert second.evaluations["value"].to_pylist() == [15, 20]
    again = evaluator.fresh().evaluate(table_of(*PAYMENTS[:2]))
    assert again.evaluations["event_id"].to_pylist() == ["table:0", "table:1"]


def test_features_of_ids_that_were_made_are_found_by_them():
    schema = EventSchema.model_validate(SMALL | {"event_id": {"hash": ["payer", "at", "amount"]}})
    everything = buckets.features(table_of(*PAYMENTS), [rule()], schema)
    wanted = everything["event_id"].combine_chunks().slice(2, 1)
    found = buckets.features(table_of(*PAYMENTS), [rule()], schema, ids=wanted)
    assert found["position"].to_pylist() == [2]


@pytest.mark.parametrize("write", [write_json, write_csv, write_parquet])
def test_a_row_is_named_by_its_file_and_number(tmp_path, write):
    schema = EventSchema.model_validate(HASHED | {"event_id": {"row": True}})
    path = write(tmp_path)
    first = 2 if write is write_csv else 1
    expected = [f"{path.name}:{first}", f"{path.name}:{first + 1}"]
    assert ids_of(open_events(path, schema, None, print), schema) == expected
    if write is write_parquet:
        again = tmp_path / "again" / "other.parquet"
        again.parent.mkdir()
        path.rename(again)
        found = ids_of(open_events(again.parent, schema, None, print), schema)
        assert found == ["other.parquet:1", "other.parquet:2"]


def test_a_table_of_delta_has_no_rows_to_name(tmp_path, as_worded):
    schema = EventSchema.model_validate(HASHED | {"event_id": {"row": True}})
    with pytest.raises(BucketsError, check=as_worded):
        open_events(write_delta(tmp_path), schema, "number", print)


@pytest.mark.parametrize("made", [{"hash": ["payer", "at", "amount"]}, {"row": True}])
def test_ids_that_were_archived_come_back_also_without_the_fields_that_they_were_made_of(tmp_path, made):
    schema = EventSchema.model_validate(SMALL | {"event_id": made})
    path = tmp_path / "day.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in PAYMENTS))
    (arrived,) = open_events(path, schema, None, print)
    kept = archived(arrived, schema, 0)
    for rows in (kept, kept.drop_columns(["payer"])):
        assert ids_of(arrivals_of(rows, schema), schema) == ids_of([arrived], schema)


def test_a_renamed_field_leaves_ids_as_they_are(tmp_path):
    schema = EventSchema.model_validate(SMALL | {"event_id": {"hash": ["payer", "at"]}})
    renamed = schema.renamed({"payer": "debtor", "event_id": "own_id"})
    assert renamed.identity.hash == ("debtor", "at")
    table = table_of(*PAYMENTS)
    named = table.rename_columns(["debtor", "at", "amount"])
    before = buckets.features(table, [rule()], schema)["event_id"]
    after = buckets.features(named, [rule(group_by=["debtor"])], renamed)["event_id"]
    assert before.to_pylist() == after.to_pylist()


def test_a_dead_letter_is_none_of_the_id(as_worded):
    schema = EventSchema.model_validate(SMALL | {"event_id": {"hash": ["payer", "amount"]}})
    results = buckets.evaluate(table_of({"payer": "a", "at": 1, "amount": "much"}), [rule()], schema)
    assert as_worded(results.dead_letters["reason"][0].as_py())


@pytest.mark.parametrize(
    "written",
    [
        "{hash: []}",
        "{row: false}",
        "{hash: [at], row: true}",
        "{hash: [at, at]}",
        "{hash: [nothing]}",
        "{hash: [event_id]}",
        "{rows: true}",
        "{}",
        "{row: true, field: at}",
        "[at]",
    ],
)
def test_an_id_that_cannot_be_made_is_one_line(tmp_path, written, as_worded):
    path = tmp_path / "schema.yaml"
    path.write_text(f"event_id: {written}\nevent_time: at\n")
    with pytest.raises(BucketsError, check=as_worded) as error:
        load_event_schema(path)
    assert "\n" not in error.value.message


def test_a_schema_whose_id_is_a_field_is_written_as_before():
    plain = EventSchema.model_validate(SMALL | {"event_id": "id"})
    assert plain.model_dump()["event_id"] == "id"
    assert EventSchema.model_validate(SMALL | {"event_id": {"field": "id"}}) == plain
    for made in ({"hash": ["payer"]}, {"row": True, "field": "id"}):
        schema = EventSchema.model_validate(SMALL | {"event_id": made})
        assert EventSchema.model_validate(schema.model_dump(mode="json")) == schema
        assert schema.with_written_ids.model_dump()["event_id"] == schema.event_id


def test_tests_of_rules_need_no_id_among_the_names_of_columns():
    header = {"csv": {"header": ["payer", "at", "amount"]}}
    for made in ({"hash": ["payer", "at"]}, {"row": True}):
        schema = EventSchema.model_validate(SMALL | header | {"event_id": made}).with_written_ids
        assert EventSchema.model_validate_json(schema.model_dump_json()) == schema
        table = table_of(PAYMENTS[0]).append_column("event_id", pa.array(["e"]))
        assert buckets.evaluate(table, [rule()], schema).evaluations["event_id"].to_pylist() == ["e"]


def checks_of(source: dict[str, Any], schema: EventSchema) -> None:
    """What a start sees of a schema under a source."""
    settings = JobSettings.model_validate(
        {
            "source": source,
            "schema": "s.yaml",
            "rules": "r.yaml",
            "checkpoint": "c",
            "output": {"path": "t"},
            "kafka": {"bootstrap_servers": "b:1"},
        }
    )
    refuse(schema_faults(Path("conf.yaml"), settings, schema))


def test_a_job_over_a_topic_or_a_delta_table_refuses_ids_of_rows(as_worded):
    by_row = EventSchema.model_validate(SMALL | {"event_id": {"row": True}})
    by_hash = EventSchema.model_validate(SMALL | {"event_id": {"hash": ["payer"]}})
    for source in ({"kind": "kafka", "topic": "payments"}, {"kind": "delta", "path": "/d", "arrival": "n"}):
        checks_of(source, by_hash)
        with pytest.raises(BucketsError, check=as_worded):
            checks_of(source, by_row)
    for kind in ("json", "csv", "parquet"):
        checks_of({"kind": kind, "path": "/d"}, by_row)


def test_a_job_refuses_files_whose_lines_spark_cannot_find(as_worded):
    schema = EventSchema.model_validate(SMALL | {"event_id": "id", "csv": {"encoding": "utf-16"}})
    checks_of({"kind": "json", "path": "/d"}, schema)
    with pytest.raises(BucketsError, check=as_worded):
        checks_of({"kind": "csv", "path": "/d"}, schema)


def test_events_of_a_file_go_into_a_topic_without_the_id_which_is_made_there(tmp_path, as_worded):
    path = write_csv(tmp_path)
    sent = list(event_messages(path, SCHEMA, "payer", on_bad=lambda rows: None))
    assert [key for key, _ in sent] == ["Ännchen", ""]
    assert all("event_id" not in json.loads(value) for _, value in sent)
    values = [json.loads(value) for _, value in sent]
    flat = [{"tags" if name == "tags[]" else name: value for name, value in row.items()} for row in values]
    messages = [TestMessage(json.dumps(row).encode()) for row in flat]
    assert [event["event_id"] for event in read_messages(tmp_path, messages, HASHED).events] == IDS
    with pytest.raises(BucketsError, check=as_worded):
        event_messages(path, SCHEMA, "event_id", on_bad=lambda rows: None)


def test_what_must_stay_of_an_id_stays_under_new_names_of_fields():
    schema = EventSchema.model_validate(SMALL | {"event_id": {"hash": ["payer", "at"]}})
    now = with_new_names(schema, {"payer": "debtor", "at": "then"})
    assert fixed_settings(schema.renamed(now.new_names)) == fixed_settings(now)
    other = EventSchema.model_validate(SMALL | {"event_id": {"hash": ["at", "payer"]}})
    assert fixed_settings(schema) != fixed_settings(other)
