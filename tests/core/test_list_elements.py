"""Fields in one element of a list, by a path with its number: from every reader as the event laid flat."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

import buckets
from buckets.archive.delta_source import open_events
from buckets.events.arrivals import BROKEN, RAW, convert
from buckets.events.avro.avro_events import read_plain as read_avro
from buckets.events.decoded import WriterSchema
from buckets.events.event_file import file_arrivals, open_event_file
from buckets.events.field_paths import outer_name, path_of
from buckets.events.json_events import read_events
from buckets.events.parquet_rows import check_parquet, read_arrivals, table_arrivals
from buckets.events.protobuf.protobuf_events import read_plain as read_protobuf
from buckets.events.schema import EventSchema
from buckets.expressions.parser import parse_expression
from buckets.kafka.sender import event_messages
from tests.core.avro_events import encoded as avro_message
from tests.core.avro_events import rows_of
from tests.core.protobuf_events import encoded as protobuf_message
from tests.laws import examples

SCHEMA = EventSchema.model_validate(
    {
        "event_id": "items[0].id",
        "event_time": {"field": "times[0]", "earliest": "1970-01-01T00:00:00Z"},
        "attributes": {"items[1].id": "string", "party.accounts[0].iban": "string", "tags[2]": "string"},
        "measures": {"items[0].amount": {"scale": 2}},
        "arrays": {"items[].id": "string"},
    }
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=4) | st.sampled_from(["id", '"id":', "[0]"])
ITEMS = st.fixed_dictionaries({"id": TEXTS, "amount": st.integers(-99, 99).map(lambda cents: f"{cents / 100:.2f}")})
EVENTS = st.fixed_dictionaries(
    {
        "items": st.lists(ITEMS, max_size=3),
        "times": st.lists(st.integers(0, 10**12), max_size=2),
        "party": st.fixed_dictionaries({"accounts": st.lists(st.fixed_dictionaries({"iban": TEXTS}), max_size=2)}),
        "tags": st.lists(TEXTS, max_size=4),
    }
)
ITEM = {"id": "string", "amount": "string"}
AVRO = {
    "type": "record",
    "name": "Event",
    "fields": [
        {
            "name": "items",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Item",
                    "fields": [{"name": name, "type": kind} for name, kind in ITEM.items()],
                },
            },
        },
        {"name": "times", "type": {"type": "array", "items": "long"}},
        {
            "name": "party",
            "type": {
                "type": "record",
                "name": "Party",
                "fields": [
                    {
                        "name": "accounts",
                        "type": {
                            "type": "array",
                            "items": {
                                "type": "record",
                                "name": "Account",
                                "fields": [{"name": "iban", "type": "string"}],
                            },
                        },
                    }
                ],
            },
        },
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
PROTO = """syntax = "proto3";
message Event { repeated Item items = 1; repeated int64 times = 2; Party party = 3; repeated string tags = 4; }
message Item { string id = 1; string amount = 2; }
message Party { repeated Account accounts = 1; }
message Account { string iban = 1; }
"""
COLUMNS = pa.schema(
    {
        "items": pa.list_(pa.struct({"id": pa.string(), "amount": pa.string()})),
        "times": pa.large_list(pa.int64()),
        "party": pa.struct({"accounts": pa.list_(pa.struct({"iban": pa.string()}))}),
        "tags": pa.list_(pa.string()),
    }
)


def element(values: Sequence[Any], index: int) -> Any:
    return values[index] if index < len(values) else None


def laid_flat(event: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an event, found by a loop of nobody's code."""
    first, second = element(event["items"], 0), element(event["items"], 1)
    account = element(event["party"]["accounts"], 0)
    return {
        "items[0].id": first and first["id"],
        "times[0]": element(event["times"], 0),
        "items[1].id": second and second["id"],
        "party.accounts[0].iban": account and account["iban"],
        "tags[2]": element(event["tags"], 2),
        "items[0].amount": first and first["amount"],
        "items[].id": [item["id"] for item in event["items"]],
    }


def read_as(rows: pa.RecordBatch) -> list[dict[str, Any] | None]:
    """What is read: the fields of events, None for what is none."""
    parsed = convert(rows, SCHEMA, frozenset())
    events, faults = parsed.every, parsed.faults
    amounts = events.measures["items[0].amount"].to_pylist()
    columns = {
        "items[0].id": events.event_id.to_pylist(),
        "times[0]": events.times_ms.tolist(),
        **{name: values.to_pylist() for name, values in events.attributes.items()},
        "items[0].amount": [None if amount is None else f"{amount / 100:.2f}" for amount in amounts],
    }
    return [
        None if row in faults else {name: values[row] for name, values in columns.items()} for row in range(len(events))
    ]


def expected_of(event: Mapping[str, Any]) -> dict[str, Any] | None:
    flat = laid_flat(event)
    if not flat["items[0].id"] or flat["times[0]"] is None:
        return None
    amount = flat["items[0].amount"]
    return flat | {"items[0].amount": None if amount is None else f"{float(amount):.2f}"}


def in_json(events: list[dict[str, Any]]) -> pa.RecordBatch:
    rows = rows_of([json.dumps(event).encode() for event in events])
    text = pa.array([json.dumps(event) for event in events], pa.string())
    return read_events(
        rows.set_column(rows.schema.get_field_index(RAW), RAW, text).append_column(
            BROKEN, pa.nulls(len(events), pa.string())
        ),
        SCHEMA,
    )


def in_avro(events: list[dict[str, Any]]) -> pa.RecordBatch:
    return read_avro(
        rows_of([avro_message(AVRO, event) for event in events]), SCHEMA, WriterSchema("AVRO", json.dumps(AVRO))
    )


def in_protobuf(events: list[dict[str, Any]]) -> pa.RecordBatch:
    messages = [protobuf_message(PROTO, event, "Event") for event in events]
    return read_protobuf(rows_of(messages), SCHEMA, WriterSchema("PROTOBUF", PROTO), "Event")


def in_table(events: list[dict[str, Any]]) -> pa.RecordBatch:
    # Behind a row that is cut off, so that offsets do not begin at 0.
    table = pa.Table.from_pylist([events[0], *events], schema=COLUMNS).combine_chunks().slice(1)
    (rows,) = table_arrivals(table, SCHEMA)
    return rows


@settings(max_examples=examples(200))
@given(st.lists(EVENTS, min_size=1, max_size=6))
@pytest.mark.parametrize("read", [in_json, in_avro, in_protobuf, in_table])
def test_every_reader_finds_what_lies_in_an_element(read, events):
    assert read_as(read(events)) == list(map(expected_of, events))


def test_files_and_tables_of_delta_are_read_so(tmp_path):
    events = [
        {
            "items": [{"id": f"e{n}", "amount": "1.50"}],
            "times": [1000 * n],
            "party": {"accounts": [{"iban": "DE"}]},
            "tags": [],
        }
        for n in range(4)
    ]
    table = pa.Table.from_pylist(events, schema=COLUMNS.set(1, pa.field("times", pa.list_(pa.int64()))))
    pq.write_table(table, tmp_path / "events.parquet")
    (tmp_path / "events.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))
    for name in ("events.parquet", "events.jsonl"):
        file = open_event_file(tmp_path / name, SCHEMA)
        assert file.fields == {*SCHEMA.field_names} - ({"items[1].id", "tags[2]"} if name.endswith("l") else set())
        assert [row for rows in file_arrivals(file, SCHEMA) for row in read_as(rows)] == list(map(expected_of, events))
    write_deltalake(tmp_path / "delta", table.take([3, 1, 0, 2]))
    rows = [row for rows in open_events(tmp_path / "delta", SCHEMA, None, print) for row in read_as(rows)]
    assert rows == list(map(expected_of, events))


def test_a_list_in_a_list_is_read_by_its_numbers():
    schema = EventSchema.model_validate(
        {
            "event_id": "id",
            "event_time": {"field": "at", "earliest": "1970-01-01T00:00:00Z"},
            "attributes": {"rows[1][0].name": "string"},
        }
    )
    table = pa.table({"id": ["a", "b"], "at": [1, 2], "rows": [[[], [{"name": "x"}]], [[{"name": "y"}]]]})
    rule = buckets.Rule.model_validate(
        {
            "rule_id": "r",
            "group_by": ["rows[1][0].name"],
            "aggregate": {"function": "count"},
            "window": {"length": "1h"},
            "limit": {"operator": ">=", "value": 1},
        }
    )
    assert buckets.evaluate(table, [rule], schema).alerts["event_id"].to_pylist() == ["a"]
    name = {"type": "record", "name": "N", "fields": [{"name": "name", "type": "string"}]}
    written = {
        "type": "record",
        "name": "E",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "at", "type": "long"},
            {"name": "rows", "type": {"type": "array", "items": {"type": "array", "items": name}}},
        ],
    }
    messages = [avro_message(written, row) for row in table.to_pylist()]
    parsed = convert(
        read_avro(rows_of(messages), schema, WriterSchema("AVRO", json.dumps(written))), schema, frozenset()
    )
    assert not parsed.faults
    assert parsed.every.attributes["rows[1][0].name"].to_pylist() == ["x", None]


@pytest.mark.parametrize(
    ("name", "steps", "read"),
    [
        ("a", ("a",), "a"),
        ("a[0]", ("a", 0), "a"),
        ("a.b[12].c.d", ("a", "b", 12, "c", "d"), "a.b"),
        ("a[]", ("a[]",), "a"),
        ("a[x]", ("a[x]",), "a[x]"),
        ("[0]", ("[0]",), "[0]"),
        ("a[0]b", ("a[0]b",), "a[0]b"),
    ],
)
def test_a_name_is_a_path(name, steps, read):
    assert path_of(name) == steps
    assert outer_name(name) == read


@pytest.mark.parametrize(
    "text", ["items[0].id = 'a'", "matrix[1][2] > 3", "a.b[0].c[1].d IS NULL", "`items[0].id` = 'a'"]
)
def test_conditions_name_elements(text):
    assert set(parse_expression(text).fields()) == {text.replace("`", "").split()[0]}


def test_elements_of_lists_in_elements_are_an_array_from_json_tables_and_files(tmp_path):
    schema = EventSchema.model_validate(
        {"event_id": "id", "event_time": "at", "arrays": {"items[].codes[1]": "string"}}
    )
    time_ms = 1_700_000_000_000
    events = [
        {"id": "a", "at": time_ms, "items": [{"codes": ["x", "y"]}, {"codes": []}]},
        {"id": "b", "at": time_ms + 1, "items": []},
    ]
    pq.write_table(pa.Table.from_pylist(events), tmp_path / "events.parquet")
    (tmp_path / "events.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))
    read = [*table_arrivals(pa.Table.from_pylist(events), schema)]
    for name in ("events.parquet", "events.jsonl"):
        read += file_arrivals(open_event_file(tmp_path / name, schema), schema)
    for rows in read:
        found = convert(rows, schema, frozenset())
        assert not found.faults
        assert found.every.attributes["items[].codes[1]"].to_pylist() == [["y", None], []]


def test_what_orders_rows_may_be_inside_of_a_struct(tmp_path):
    schema = EventSchema.model_validate({"event_id": "d.id", "event_time": {"field": "d.at", "earliest": "1970-01-01"}})
    pq.write_table(pa.table({"d": [{"id": "a", "at": 7}, {"id": "b", "at": 5}]}), tmp_path / "events.parquet")
    check_parquet(tmp_path / "events.parquet", schema, "d.at")
    (rows,) = read_arrivals(tmp_path / "events.parquet", 0, schema, "d.at")
    assert rows.column("source_order").to_pylist() == [7, 5]


def test_the_key_of_a_message_is_found_by_its_path(tmp_path):
    schema = EventSchema.model_validate(
        {"event_id": "id", "event_time": "at", "attributes": {"d.card": "string", "l[0].c": "string"}}
    )
    line = json.dumps({"id": "a", "at": 1_700_000_000_000, "d": {"card": "c9"}, "l": [{"c": "q"}]})
    (tmp_path / "events.jsonl").write_text(f"{line}\n")
    for key, value in (("d.card", "c9"), ("l[0].c", "q")):
        (message,) = event_messages(tmp_path / "events.jsonl", schema, key, print)
        assert message == (value, line.encode())
