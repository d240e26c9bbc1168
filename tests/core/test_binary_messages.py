"""Results in Avro and Protobuf: schemas that say what those of JSON say, and what the vendors' decoders read."""

import io
import json
import random

import fastavro
import pytest
from google.protobuf import message_factory

from buckets.audit.tables import BinaryValues, audit_tables, read_message
from buckets.events.decoded import WriterSchema
from buckets.events.protobuf.proto_schema import message_named, read_schema
from buckets.outputs.columns import PUBLISHED, TOPICS
from buckets.outputs.contract import load_contract, schema_path
from buckets.outputs.messages import binary_message, schema_text
from tests.core.binary_results import comparable, of_avro, of_protobuf
from tests.core.real_messages import real_messages
from tests.fuzz.damage import damaged

AVRO_OF = {
    "text": {"string"}, "texts": {"array"}, "object": {"map"}, "objects": {"array"}, "flag": {"boolean"},
    "int32": {"int"}, "int64": {"long"}, "moment": {"timestamp-millis"}, "decimal": {"string"},
}  # fmt: skip
NUMBERED = {
    "alert-v2": """
        version alert_id rule_id rule_version ruleset_version rule key event_id event_time value lower upper
        exact certain warm count count_lower count_upper operator limit window_start window_end event source
        position group_by ingested_at decided_at condition severity tags score held_back terms
    """,
    "held-alert-v1": """
        version alert_id rule_id rule_version ruleset_version rule key event_id event_time value lower upper
        exact certain warm count count_lower count_upper operator limit window_start window_end event source
        position group_by ingested_at decided_at condition severity tags score held_back held_by state terms
    """,
    "evaluation-v2": """
        version event_id rule_id rule_version ruleset_version key event_time value lower upper exact warm
        count count_lower count_upper fired source position id terms
    """,
    "late-event-v1": """
        version event_id group group_by key event_time clock applied too_late other_event_id warm source
        position id
    """,
    "collision-v1": """
        version event_id other_event_id group group_by key event_time kept warm source position id
    """,
    "duplicate-v1": """
        version event_id group group_by key event_time warm source position id
        event compared other_values own_values
    """,
    "dead-letter-v1": """
        version position reason raw source id
    """,
}
"""By schema its fields in Protobuf in the order of their numbers, from 1; new ones go to the end."""
COUNTS = ("count", "count_lower", "count_upper")
TERM = {"name": "f", "function": "sum", "window": "24h", "value": "1.50", "exact": True, "count": 3, "warm": True}
TERMS = [
    TERM | {"of": "amount", "where": {"all": [{"kind": "CARD"}]}, "group_by": ["payer"]},
    TERM | {"group_by": []},
    TERM | {"value": True, "lower": False, "upper": True, "may_be_null": True, "p": "99.9", "where": "kind = 'CARD'"},
    TERM | {"value": None, "exact": False},
]


def in_order(term):
    """A feature with its fields in the order of the schema, in which they are written."""
    return {name: term[name] for name in _terms_of("alert-v2") if name in term}


@pytest.fixture(scope="module")
def sent():
    """Messages of every output; one of the alerts, of a rule with features."""
    shown = {name: [json.loads(message.value) for message in messages] for name, messages in real_messages().items()}
    for name, rows in shown.items():
        if "terms" in rows[0]:
            plain = {
                **dict.fromkeys([*COUNTS, "value", "lower", "upper", "operator", "limit"]),
                "terms": [in_order(term) for term in TERMS],
                "key": {"payer": "zoë", "vip": True, "visits": -(2**63)},
                "event": {"id": "e", "t": -5, "country": None, "tags[]": ["é", None], "items[].qty": [1]},
            }
            rows.append({field: plain.get(field, value) for field, value in rows[0].items()})
        assert rows, name
    return shown


def parsed(output):
    return fastavro.parse_schema(json.loads(schema_text(output, "avro")))


def class_of(output):
    return message_factory.GetMessageClass(
        message_named(read_schema(WriterSchema("PROTOBUF", schema_text(output, "protobuf"))), None)
    )


@pytest.mark.parametrize("output", TOPICS)
def test_the_vendors_decoder_of_avro_reads_what_json_says(sent, output):
    schema = parsed(output)
    for shown in sent[output]:
        written = io.BytesIO(binary_message(output, "avro", shown))
        read = fastavro.schemaless_reader(written, schema, None)
        assert written.read() == b""
        assert comparable(of_avro(read)) == comparable(shown)


@pytest.mark.parametrize("output", TOPICS)
def test_the_vendors_decoder_of_protobuf_reads_what_json_says(sent, output):
    kind = class_of(output)
    for shown in sent[output]:
        value = binary_message(output, "protobuf", shown)
        assert value[:1] == b"\0"
        read = of_protobuf(kind.FromString(value[1:]))
        assert comparable(read, is_protobuf=True) == comparable(shown, is_protobuf=True)


@pytest.mark.parametrize("written_in", ["avro", "protobuf"])
@pytest.mark.parametrize("output", TOPICS)
def test_what_is_written_is_read_back_as_the_row_that_json_gives(sent, tmp_path, output, written_in):
    values = BinaryValues(written_in, tmp_path, lambda number: WriterSchema("AVRO", schema_text(output, "avro")))
    table = audit_tables([output])[output]
    for shown in sent[output]:
        value = b"\0\0\0\0\7" + binary_message(output, written_in, shown)
        assert read_message(table, value, values) == read_message(table, json.dumps(shown).encode(), values)
        for broken in (value[:-1], value[:3], value + b"\xff"):
            with pytest.raises(ValueError, match=r"."):
                read_message(table, broken, values)


@pytest.mark.parametrize("written_in", ["avro", "protobuf"])
def test_a_damaged_result_is_read_or_said_to_be_none(sent, tmp_path, written_in):
    values = BinaryValues(written_in, tmp_path, lambda number: WriterSchema("AVRO", schema_text("alerts", "avro")))
    table, rng, refused = audit_tables(["alerts"])["alerts"], random.Random(2), 0
    whole = [b"\0\0\0\0\7" + binary_message("alerts", written_in, shown) for shown in sent["alerts"]]
    for at in range(2000):
        try:
            read_message(table, damaged(rng, whole[at % len(whole)]), values)
        except ValueError:
            refused += 1
    assert 0 < refused < 2000


def test_a_result_whose_schema_nobody_knows_is_said(tmp_path):
    values = BinaryValues("avro", tmp_path, lambda number: None)
    with pytest.raises(ValueError, match=r"schema 7 is not one of Avro in the registry"):
        read_message(audit_tables(["alerts"])["alerts"], b"\0\0\0\0\7abc", values)


@pytest.mark.parametrize("output", TOPICS)
def test_schemas_in_avro_have_the_fields_of_json_with_their_types(output):
    contract = load_contract(PUBLISHED[output].contract)
    fields = {field["name"]: field for field in json.loads(schema_text(output, "avro"))["fields"]}
    assert list(fields) == [field.name for field in contract.fields]
    for field in contract.fields:
        kind = fields[field.name]["type"]
        branches = kind if isinstance(kind, list) else [kind]
        kinds = {each.get("logicalType", each["type"]) if isinstance(each, dict) else each for each in branches}
        assert ("null" in kinds) == (field.nullable or not field.required), field.name
        assert kinds - {"null"} == AVRO_OF[field.kind], field.name
        assert fields[field.name]["doc"] == field.description


@pytest.mark.parametrize("output", TOPICS)
def test_schemas_in_protobuf_have_the_fields_of_json_and_each_keeps_its_number(output):
    contract = load_contract(PUBLISHED[output].contract)
    fields = class_of(output).DESCRIPTOR.fields_by_name
    assert set(fields) == {field.name for field in contract.fields}
    for field in contract.fields:
        found = fields[field.name]
        is_many = field.kind in ("texts", "objects", "object")
        assert found.is_repeated == is_many, field.name
        if not is_many and field.kind != "moment":
            assert found.has_presence == (field.nullable or not field.required), field.name
    numbered = NUMBERED[PUBLISHED[output].contract].split()
    assert {name: each.number for name, each in fields.items()} == {name: at for at, name in enumerate(numbered, 1)}


def _terms_of(contract):
    return json.loads(schema_path(contract).read_text(encoding="utf-8"))["properties"]["terms"]["items"]["properties"]


@pytest.mark.parametrize("output", [output for output in TOPICS if "alert" in output or output == "evaluations"])
def test_features_have_the_fields_of_json(output):
    names = list(_terms_of(PUBLISHED[output].contract))
    record = next(field for field in json.loads(schema_text(output, "avro"))["fields"] if field["name"] == "terms")
    kinds = record["type"] if isinstance(record["type"], list) else [record["type"]]
    (array,) = [kind for kind in kinds if kind != "null"]
    assert [field["name"] for field in array["items"]["fields"]] == names
    term = class_of(output).DESCRIPTOR.nested_types_by_name["Term"]
    assert {field.name: field.number for field in term.fields} == {name: at for at, name in enumerate(names, 1)}
