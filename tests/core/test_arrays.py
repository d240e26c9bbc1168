"""Arrays inside of events: the same from each format, tested as a list in Python would be, and refused elsewhere."""

import io
import json
import random
from collections.abc import Iterator
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import buckets
from buckets.config.engine import EngineSettings
from buckets.errors import BucketsError
from buckets.events import conversion
from buckets.events.arrivals import BROKEN, POSITION, RAW, SOURCE, SOURCE_ORDER, field_column, parse
from buckets.events.avro.avro_events import read_plain as read_avro
from buckets.events.avro.avro_events import read_registered
from buckets.events.decoded import WriterSchema
from buckets.events.json_events import read_events
from buckets.events.parquet_rows import read_arrivals, table_arrivals
from buckets.events.protobuf.protobuf_events import read_plain as read_protobuf
from buckets.events.schema import EventSchema
from buckets.history.replay.replay import replay_history
from buckets.lint.lint import look
from buckets.lint.subject import Subject
from buckets.rule_files.yaml_rules import load_rule_file
from buckets.rule_tests.tester import RuleTester
from buckets.rules.flink_message import check_against_schema
from tests.core import avro_events, protobuf_events
from tests.core.past import explainer_of
from tests.core.recorded_job import RecordedJob
from tests.fuzz.damage import damaged
from tests.laws import examples

SCHEMA = EventSchema.model_validate(
    {
        "event_id": "id",
        "event_time": "at",
        "attributes": {"payer": "string"},
        "measures": {"amount": {"scale": 2}},
        "arrays": {
            "items[].sku": "string",
            "items[].qty": "long",
            "tags[]": "string",
            "order.lines[].product.code": "string",
            "flags[]": "boolean",
        },
    }
)
ARRAYS = list(SCHEMA.arrays)


def nullable(kind: Any) -> list[Any]:
    return ["null", kind]


def record(name: str, **fields: Any) -> dict[str, Any]:
    listed = [{"name": field, "type": kind} for field, kind in fields.items()]
    return {"type": "record", "name": name, "fields": listed}


def array(items: Any) -> list[Any]:
    return nullable({"type": "array", "items": items})


PRODUCT = record("product", code=nullable("string"))
AVRO = record(
    "payment",
    id="string",
    at="long",
    payer=nullable("string"),
    items=array(nullable(record("item", sku=nullable("string"), other="string", qty=nullable("int")))),
    tags=array(nullable("string")),
    order=nullable(record("order", lines=array(record("line", product=nullable(PRODUCT))))),
    flags=array(nullable("boolean")),
)
PROTO = """syntax = "proto3";
message Payment {
  string id = 1; int64 at = 2; optional string payer = 3; repeated Item items = 4; repeated string tags = 5;
  Order order = 6; repeated bool flags = 7; repeated int64 unpacked = 8 [packed = false]; repeated sint32 packed = 9;
}
message Item { optional string sku = 1; string other = 2; optional int64 qty = 3; }
message Order { repeated Line lines = 1; }
message Line { Product product = 1; }
message Product { optional string code = 1; }
"""
PARQUET = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("at", pa.int64()),
        pa.field("payer", pa.string()),
        pa.field("items", pa.list_(pa.struct({"sku": pa.string(), "other": pa.string(), "qty": pa.int32()}))),
        pa.field("tags", pa.large_list(pa.dictionary(pa.int32(), pa.string()))),
        pa.field("order", pa.struct({"lines": pa.list_(pa.struct({"product": pa.struct({"code": pa.string()})}))})),
        pa.field("flags", pa.list_(pa.bool_())),
    ]
)
TEXTS = st.sampled_from(["A", "B", "", "é🏦", '"sku"', "\\", "items"])
ITEMS = st.fixed_dictionaries(
    {"sku": st.none() | TEXTS, "other": TEXTS, "qty": st.none() | st.integers(-(2**31), 2**31 - 1)}
)
LINES = st.fixed_dictionaries({"product": st.none() | st.fixed_dictionaries({"code": st.none() | TEXTS})})


def lists(element: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | st.lists(element, max_size=3)


EVENTS = st.fixed_dictionaries(
    {
        "payer": st.none() | TEXTS,
        "items": lists(st.none() | ITEMS),
        "tags": lists(st.none() | TEXTS),
        "order": st.none() | st.fixed_dictionaries({"lines": lists(LINES)}),
        "flags": lists(st.none() | st.booleans()),
    }
)


def text_rows(texts: list[str]) -> pa.RecordBatch:
    count = len(texts)
    return pa.record_batch(
        {
            SOURCE: pa.array(["s"] * count, pa.string()),
            SOURCE_ORDER: pa.array([0] * count, pa.int64()),
            POSITION: pa.array(range(count), pa.int64()),
            RAW: pa.array(texts, pa.string()),
            BROKEN: pa.nulls(count, pa.string()),
        }
    )


def found(rows: pa.RecordBatch, schema: EventSchema = SCHEMA) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """The arrays of events, and the reasons of dead letters by position."""
    events, dead = parse(rows, schema, frozenset())
    columns = {name: events.attributes[name].to_pylist() for name in schema.arrays}
    arrays = [{name: column[row] for name, column in columns.items()} for row in range(len(events))]
    return arrays, {letter.position: letter.reason for letter in dead}


def read_json(text: str, schema: EventSchema = SCHEMA) -> tuple[list[dict[str, Any]], dict[int, str]]:
    return found(read_events(text_rows([text]), schema), schema)


def expected(text: str) -> dict[str, Any]:
    """What the arrays of an event are, by Python's own JSON."""
    event = json.loads(text)

    def each(elements: Any, *steps: str) -> Any:
        if elements is None:
            return None
        values = []
        for element in elements:
            for step in steps:
                element = None if element is None else element.get(step)
            values.append(element)
        return values

    return {
        "items[].sku": each(event.get("items"), "sku"),
        "items[].qty": each(event.get("items"), "qty"),
        "tags[]": each(event.get("tags")),
        "order.lines[].product.code": each((event.get("order") or {}).get("lines"), "product", "code"),
        "flags[]": each(event.get("flags")),
    }


def without_nulls(value: Any) -> Any:
    """A value as JSON of Protobuf has it, which knows no nulls; in a list they are left out."""
    if isinstance(value, dict):
        return {name: without_nulls(part) for name, part in value.items() if part is not None}
    return [without_nulls(part) for part in value if part is not None] if isinstance(value, list) else value


@pytest.mark.slow
@given(st.lists(EVENTS, min_size=1, max_size=5), st.booleans())
@settings(max_examples=examples(2_000), deadline=None)
def test_arrays_are_the_same_from_json_avro_parquet_and_tables(events, ensure_ascii):
    events = [{"id": f"e{number}", "at": number} | event for number, event in enumerate(events)]
    texts = [json.dumps(event, ensure_ascii=ensure_ascii) for event in events]
    wanted = [expected(text) for text in texts]
    assert found(read_events(text_rows(texts), SCHEMA)) == (wanted, {})
    messages = [avro_events.encoded(AVRO, event) for event in events]
    assert found(read_avro(avro_events.rows_of(messages), SCHEMA, WriterSchema("AVRO", json.dumps(AVRO)))) == (
        wanted,
        {},
    )
    table = pa.Table.from_pylist(events, PARQUET)
    for number in range(len(events)):
        (rows,) = table_arrivals(table.slice(number, 1), SCHEMA)
        assert found(rows) == ([wanted[number]], {})


@given(st.lists(EVENTS, min_size=1, max_size=5))
@settings(max_examples=examples(1_000), deadline=None)
def test_repeated_fields_of_protobuf_are_arrays_that_are_empty_where_nothing_is_written(events):
    events = [without_nulls({"id": f"e{number}", "at": number} | event) for number, event in enumerate(events)]
    messages = [protobuf_events.encoded(PROTO, event, "Payment") for event in events]
    wanted = [expected(json.dumps(event)) for event in events]
    for event, arrays in zip(events, wanted, strict=True):
        there = [name for name in ARRAYS if not name.startswith("order.") or "order" in event]
        arrays.update({name: arrays[name] or [] for name in there})
    read = read_protobuf(avro_events.rows_of(messages), SCHEMA, WriterSchema("PROTOBUF", PROTO), "Payment")
    assert found(read) == (wanted, {})


def test_arrays_of_parquet_files_are_read_by_their_lists_and_by_their_own_names(tmp_path):
    event = {"id": "e", "at": 1, "items": [{"sku": "A", "qty": 1}, None], "tags": ["t"], "order": None, "flags": []}
    pq.write_table(pa.Table.from_pylist([event], PARQUET), tmp_path / "lists.parquet")
    own = pa.table({"id": ["e"], "at": [1], "tags[]": pa.array([["t", None]]), "items[].qty": pa.array([["1", "2"]])})
    pq.write_table(own, tmp_path / "own.parquet")
    (rows,) = read_arrivals(tmp_path / "lists.parquet", 0, SCHEMA, None)
    assert found(rows) == ([expected(json.dumps(event))], {})
    (rows,) = read_arrivals(tmp_path / "own.parquet", 0, SCHEMA, None)
    nothing = dict.fromkeys(ARRAYS)
    assert found(rows) == ([nothing | {"tags[]": ["t", None], "items[].qty": [1, 2]}], {})


def test_packed_lists_lists_that_are_not_and_lists_of_which_a_message_is_merged_are_whole():
    schema = EventSchema.model_validate(
        {"event_id": "id", "event_time": "at", "arrays": {"unpacked[]": "long", "packed[]": "long"}}
    )
    kind = protobuf_events.class_of(PROTO, "Payment")
    first, second = kind(id="e", at=1, unpacked=[-1, 2**40], packed=[-3]), kind(packed=[4, 5], unpacked=[6])
    whole = first.SerializeToString() + second.SerializeToString()
    # Each field of a list may come in the other form too.
    swapped = whole + b"\x42\x02\x07\x08" + b"\x48\x10"
    read = read_protobuf(avro_events.rows_of([whole, swapped]), schema, WriterSchema("PROTOBUF", PROTO), "Payment")
    plain = {"unpacked[]": [-1, 2**40, 6], "packed[]": [-3, 4, 5]}
    assert found(read, schema) == (
        [plain, {"unpacked[]": [-1, 2**40, 6, 7, 8], "packed[]": [-3, 4, 5, 8]}],
        {},
    )


def test_a_list_of_a_oneof_that_another_field_has_replaced_is_gone():
    text = """syntax = "proto3";
    message P { string id = 1; int64 at = 2; oneof way { Cards cards = 3; string cash = 4; } }
    message Cards { repeated string numbers = 1; }
    """
    arrays = {"cards.numbers[]": "string"}
    schema = EventSchema.model_validate({"event_id": "id", "event_time": "at", "arrays": arrays})
    kind = protobuf_events.class_of(text, "P")
    begin, many = kind(id="e", at=1).SerializeToString(), kind(cards={"numbers": ["a", "b", "c"]}).SerializeToString()
    cash, one = kind(cash="x").SerializeToString(), kind(cards={"numbers": ["d"]}).SerializeToString()
    messages = [begin + many + cash + one, begin + many + cash, begin + many + one]
    read = read_protobuf(avro_events.rows_of(messages), schema, WriterSchema("PROTOBUF", text), "P")
    assert found(read, schema)[0] == [{"cards.numbers[]": value} for value in (["d"], None, ["a", "b", "c", "d"])]


@pytest.mark.parametrize(
    "event",
    [
        '{"items": 5}',
        '{"items": {"sku": "A"}}',
        '{"items": ["A"]}',
        '{"items": [{"sku": "A"}, {"sku": ["B"]}]}',
        '{"items": [{"sku": "A"}, {"sku": true}]}',
        '{"items": [{"sku": "A", "sku": "B"}]}',
        '{"items": [{"qty": 1}, {"qty": 1.5}]}',
        '{"items": [], "items": []}',
        '{"tags": "A"}',
        '{"tags": [{"a": 1}]}',
        '{"tags": ["A", "\\ud800"]}',
        '{"flags": [true, "yes"]}',
        '{"order": {"lines": [{"product": {}}, {"product": 5}]}}',
        '{"order": []}',
        '{"tags[]": "A"}',
        '{"tags[]": ["A", "\\ud800"]}',
        '{"items[].sku": ["\\ud800"]}',
    ],
)
def test_what_is_no_array_is_one_dead_letter_that_says_which_element(event, as_worded):
    texts = ['{"id": "1", "at": 1, "tags": ["x"]}', event.replace("{", '{"id": "2", "at": 1, ', 1)]
    arrays, dead = found(read_events(text_rows([*texts, texts[0]]), SCHEMA))
    assert ([each["tags[]"] for each in arrays], list(dead)) == ([["x"], ["x"]], [1])
    assert as_worded(dead[1])


def of_avro(kind: Any, value: Any, name: str = "tags[]") -> tuple[list[dict[str, Any]], dict[int, str]]:
    schema = EventSchema.model_validate({"event_id": "id", "event_time": "at", "arrays": {name: "string"}})
    written = record("payment", id="string", at="long", tags=kind)
    message = avro_events.encoded(written, {"id": "e", "at": 1, "tags": value})
    return found(read_avro(avro_events.rows_of([message]), schema, WriterSchema("AVRO", json.dumps(written))), schema)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("string", "A"),
        ({"type": "map", "values": "string"}, {"A": "B"}),
        ({"type": "array", "items": record("item", sku="string")}, [{"sku": "A"}]),
        ({"type": "array", "items": {"type": "array", "items": "string"}}, [["A"]]),
        ({"type": "array", "items": "boolean"}, [True]),
    ],
)
def test_what_is_no_array_in_avro_is_a_dead_letter(kind, value, as_worded):
    ((), dead) = of_avro(kind, value)
    assert as_worded(dead[0])


def test_elements_of_several_types_become_what_is_declared():
    kind = {"type": "array", "items": ["null", "string", "long", "double"]}
    assert of_avro(kind, ["A", None, 7, 15.0]) == ([{"tags[]": ["A", None, "7", "15"]}], {})
    assert of_avro({"type": "array", "items": "string"}, ["A"], "tags[].sku") == ([{"tags[].sku": [None]}], {})


def test_a_schema_that_changes_gives_the_same_arrays_in_one_batch():
    schema = EventSchema.model_validate({"event_id": "id", "event_time": "at", "arrays": {"items[].code": "string"}})
    items = [
        None,
        array(record("item", code="int")),
        array(record("item", code=nullable("string"))),
        array(record("item", other="int")),
        "string",
    ]
    values = [None, [{"code": 7}], [{"code": "x"}, {"code": None}], [{"other": 1}], "no list"]
    kinds, messages = {}, []
    for number, (kind, value) in enumerate(zip(items, values, strict=True)):
        fields = {"id": "string", "at": "long"} | ({} if kind is None else {"items": kind})
        kinds[number] = record("payment", **fields)
        event = {"id": f"e{number}", "at": 1} | ({} if kind is None else {"items": value})
        messages.append(b"\0" + number.to_bytes(4) + avro_events.encoded(kinds[number], event))
    read = read_registered(
        avro_events.rows_of(messages), schema, lambda number: WriterSchema("AVRO", json.dumps(kinds[number]))
    )
    wanted = [None, ["7"], ["x", None], [None]]
    assert found(read, schema) == (
        [{"items[].code": each} for each in wanted],
        {4: "items[].code: is one value, and must be a list"},
    )


@pytest.mark.parametrize("name", ["tags[]", "payer[]", "order[].lines", "items[].others", "items[].maps", "items[]"])
def test_what_is_no_array_in_protobuf_is_a_dead_letter(name, as_worded):
    schema = EventSchema.model_validate({"event_id": "id", "event_time": "at", "arrays": {name: "string"}})
    text = PROTO.replace("repeated string tags = 5", "map<string, string> tags = 5").replace(
        "string other = 2", "repeated string others = 2; map<string, string> maps = 4"
    )
    message = protobuf_events.encoded(text, {"id": "e", "at": 1}, "Payment")
    read = read_protobuf(avro_events.rows_of([message]), schema, WriterSchema("PROTOBUF", text), "Payment")
    assert as_worded(found(read, schema)[1][0])


def test_an_element_of_protobuf_that_is_written_in_another_type_makes_the_message_broken(as_worded):
    schema = EventSchema.model_validate(
        {"event_id": "id", "event_time": "at", "arrays": {"items[].sku": "string", "tags[]": "string"}}
    )
    good = protobuf_events.encoded(PROTO, {"id": "e", "at": 1, "items": [{"sku": "A"}], "tags": ["x"]}, "Payment")
    broken = good + b"\x22\x02\x08\x01"
    read = read_protobuf(avro_events.rows_of([good, broken, good]), schema, WriterSchema("PROTOBUF", PROTO), "Payment")
    arrays, dead = found(read, schema)
    assert arrays == [{"items[].sku": ["A"], "tags[]": ["x"]}] * 2
    assert as_worded(dead[1])


def test_an_array_has_at_most_so_many_elements(as_worded):
    most = conversion.MOST_ELEMENTS
    schema = EventSchema.model_validate({"event_id": "id", "event_time": "at", "arrays": {"tags[]": "string"}})
    events = [{"id": str(count), "at": 1, "tags": ["x"] * count} for count in (most, most + 1)]
    kind = record("payment", id="string", at="long", tags={"type": "array", "items": "string"})
    of_json = found(read_events(text_rows(list(map(json.dumps, events))), schema), schema)
    messages = [avro_events.encoded(kind, event) for event in events]
    of_avro = found(read_avro(avro_events.rows_of(messages), schema, WriterSchema("AVRO", json.dumps(kind))), schema)
    messages = [protobuf_events.encoded(PROTO, event, "Payment") for event in events]
    rows = read_protobuf(avro_events.rows_of(messages), schema, WriterSchema("PROTOBUF", PROTO), "Payment")
    assert of_json == of_avro == found(rows, schema)
    assert [len(each["tags[]"]) for each in of_json[0]] == [most]
    assert as_worded(of_json[1][1])


@pytest.mark.parametrize("text", ["A", "{}", '["A", ["B"]]', '["A", {}]', "[NaN]", '["\\ud800"]', "[1", '["x"]'])
def test_a_cell_of_csv_is_a_list_in_json(text, as_worded):
    column, faults = conversion.arrays(pa.array([None, '["A", null, 1.50, true]', text]), "string")
    assert column[:2].to_pylist() == [None, ["A", None, "1.50", "true"]]
    assert faults.keys() <= {2}
    assert as_worded(faults.get(2, str(column[2])))


# Event schemas and rules


@pytest.mark.parametrize(
    "changes",
    [
        {"arrays": {"tags": "string"}},
        {"arrays": {"a[].b[]": "string"}},
        {"arrays": {"[].sku": "string"}},
        {"arrays": {"items[]sku": "string"}},
        {"arrays": {"items[].": "string"}},
        {"arrays": {"items..x[]": "string"}},
        {"arrays": {"tags[]": "decimal"}},
        {"attributes": {"tags[]": "string"}},
        {"event_id": "ids[]"},
        {"arrays": {"tags[]": "string"}, "origins": {"tags[]": "headers.tags"}},
    ],
)
def test_what_an_event_schema_cannot_have_is_refused(changes, as_worded):
    with pytest.raises(ValueError, check=as_worded):
        EventSchema.model_validate({"event_id": "id", "event_time": "at"} | changes)


def written_rule(**changes: Any) -> dict[str, Any]:
    features = {"payments": {"function": "count", "window": "1h"}}
    return {"rule_id": "r", "group_by": ["payer"], "features": features, "when": "payments > 1"} | changes


@pytest.mark.parametrize(
    "changes",
    [
        {"group_by": ["items[].sku"]},
        {"where": {"items[].sku": "A"}},
        {"where": "items[].sku = 'A'"},
        {"where": "5 IN items[].sku"},
        {"where": "'A' IN items[].name"},
        {"when": "payments > items[].qty"},
        {"features": {"payments": {"function": "sum", "of": "items[].qty", "window": "1h"}}},
        {"features": {"payments": {"function": "count_distinct", "of": "items[].sku", "window": "1h"}}},
        {"features": {"payments": {"function": "count", "window": "1h", "group_by": ["tags[]"]}}},
    ],
)
def test_where_an_array_cannot_stand_is_said_in_one_line(changes, as_worded):
    fault = check_against_schema(buckets.Rule.model_validate(written_rule(**changes)), SCHEMA)
    assert fault is not None
    assert as_worded(f"{'.'.join(fault[0])}: {fault[1]}")


RULES = [
    written_rule(rule_id="gifts", where="'A' IN items[].sku"),
    written_rule(rule_id="no-gifts", where="items[].sku NOT IN ('A', 'B')"),
    written_rule(rule_id="many", when="array_size(items[].sku) >= 2 AND payments >= 1"),
    written_rule(
        rule_id="gifts-before",
        features={"gifts": {"function": "count", "window": "1h", "where": "tags[] LIKE 'A%' OR 2 IN items[].qty"}},
        when="gifts >= 2 AND NOT ('B' IN tags[])",
    ),
    written_rule(rule_id="missing", where="tags[] IS NULL AND TRUE IN flags[]"),
    written_rule(
        rule_id="others",
        features={"all": {"function": "count", "window": "1h", "group_by": []}},
        when="`all` >= 2 AND 'A' IN items[].sku",
    ),
]
PAID = st.fixed_dictionaries(
    {
        "payer": st.sampled_from(["p1", "p2"]),
        "items": lists(
            st.fixed_dictionaries(
                {"sku": st.none() | st.sampled_from(["A", "B", "C"]), "qty": st.none() | st.integers(1, 2)}
            )
        ),
        "tags": lists(st.none() | st.sampled_from(["A", "AB", "B"])),
        "flags": lists(st.none() | st.booleans()),
    }
)


def joined(tests: list[bool | None]) -> bool | None:
    return True if True in tests else None if None in tests else False


def is_any(elements: list[Any] | None, test: Any) -> bool | None:
    """Whether an element passes a test, as SQL's OR of all."""
    if elements is None:
        return None
    return joined([None if element is None else test(element) for element in elements])


def fired(event: dict[str, Any], earlier: list[dict[str, Any]]) -> Iterator[str]:
    """The rules that fire at an event, by lists in Python; all events lie in one window."""
    arrays, mine = expected(json.dumps(event)), [*(each for each in earlier if each["payer"] == event["payer"]), event]

    def of(each: dict[str, Any], name: str, test: Any) -> bool | None:
        return is_any(expected(json.dumps(each))[name], test)

    def has_gift(each: dict[str, Any]) -> bool:
        tests = [of(each, "tags[]", lambda tag: tag.startswith("A")), of(each, "items[].qty", lambda qty: qty == 2)]
        return joined(tests) is True

    def is_missing(each: dict[str, Any]) -> bool:
        return each["tags"] is None and of(each, "flags[]", lambda flag: flag) is True

    gifts = [each for each in mine if of(each, "items[].sku", lambda sku: sku == "A") is True]
    if event in gifts and len(gifts) > 1:
        yield "gifts"
    plain = [each for each in mine if of(each, "items[].sku", lambda sku: sku in ("A", "B")) is False]
    if event in plain and len(plain) > 1:
        yield "no-gifts"
    if arrays["items[].sku"] is not None and len(arrays["items[].sku"]) >= 2:
        yield "many"
    if sum(map(has_gift, mine)) >= 2 and of(event, "tags[]", lambda tag: tag == "B") is False:
        yield "gifts-before"
    missing = list(filter(is_missing, mine))
    if event in missing and len(missing) > 1:
        yield "missing"
    if len(earlier) >= 1 and event in gifts:
        yield "others"


@pytest.mark.slow
@given(st.lists(PAID, min_size=1, max_size=8))
@settings(max_examples=examples(400), deadline=None)
def test_rules_fire_where_lists_in_python_say_so(payments):
    events = [{"id": f"e{number}", "at": number, "amount": "1"} | each for number, each in enumerate(payments)]
    read = read_events(text_rows(list(map(json.dumps, events))), SCHEMA)
    table = pa.table({name: read.column(field_column(index)) for index, name in enumerate(SCHEMA.field_names)})
    results = buckets.evaluate(table, list(map(buckets.Rule.model_validate, RULES)), SCHEMA)
    alerts = {(row["event_id"], row["rule_id"]) for row in results.alerts.to_pylist()}
    assert alerts == {
        (event["id"], rule) for number, event in enumerate(events) for rule in fired(event, events[:number])
    }
    for row in results.alerts.to_pylist():
        event = next(each for each in events if each["id"] == row["event_id"])
        assert {name: row["event"][name] for name in ARRAYS} == expected(json.dumps(event))


# A job: archive, replay, explain, rules over alerts


MINUTE_MS = 60_000
START_MS = 1_700_000_000_000
OVER_ALERTS = written_rule(rule_id="over", on="alerts", where="'A' IN items[].sku", when="payments >= 1")


def paid(number: int, **arrays: Any) -> dict[str, Any]:
    """A row of a source in which arrays are text, as a cell of CSV has them."""
    row = {"id": f"e{number}", "at": START_MS + number * MINUTE_MS, "payer": "p", "amount": "1", "position": number}
    return row | {name: json.dumps(elements) for name, elements in arrays.items()}


@pytest.fixture
def job(tmp_path) -> RecordedJob:
    job = RecordedJob(tmp_path, SCHEMA, shards=2, allowed_lateness="1h")
    job.use([*map(buckets.Rule.model_validate, [*RULES, OVER_ALERTS])])
    job.batch([paid(0, **{"items[].sku": ["A"], "tags[]": ["AB"]}), paid(1, **{"items[].sku": ["C", "A"]})])
    job.batch([paid(2), paid(3, **{"items[].sku": ["A", None], "items[].qty": [2, 1], "tags[]": []}), paid(4)])
    return job


def test_arrays_are_archived_replayed_and_explained(job, tmp_path, as_worded):
    rows = pa.concat_tables(job.archive.tables(columns=["id", *ARRAYS])).to_pylist()
    assert [row["items[].sku"] for row in rows] == [["A"], ["C", "A"], None, ["A", None], None]
    assert [row["items[].qty"] for row in rows] == [None, None, None, [2, 1], None]
    found = replay_history(job.history(), evaluations=True, cuts="recorded")
    assert (found.is_equal, found.events) == (True, 5)
    alerts = {(row["event_id"], row["rule_id"]) for row in job.rows["alerts"]}
    assert alerts == {
        *((event, rule) for event in ("e1", "e3") for rule in ("gifts", "many", "others", "over")),
        ("e3", "gifts-before"),
    }
    explainer = explainer_of(job, tmp_path / "results")
    explained = explainer.event("e3", "gifts-before")
    assert explained.outcome == "alert"
    assert explained.event.fields["items[].sku"] == ["A", None]
    assert as_worded("; ".join(part.text for part in explained.condition.tests()))
    assert as_worded(explainer.event("e2", "gifts").reasons[0].sentence)
    assert as_worded(explainer.event("e3", "many").condition.tests()[0].text)
    assert explainer.event("e3", "over").outcome == "alert"
    said = next(row["condition"] for row in job.rows["alerts"] if row["rule_id"] == "many")
    assert as_worded(said)


def test_an_archive_gets_the_columns_of_arrays_that_are_declared_later(tmp_path):
    earlier = SCHEMA.model_copy(update={"arrays": {}})
    job = RecordedJob(tmp_path, earlier)
    job.use([buckets.Rule.model_validate(written_rule())])
    job.batch([paid(0)])
    job.writer.write(1, SCHEMA, job.pipeline.rule_set, [])
    (rows,) = job.archive.tables(columns=["id", "items[].sku"])
    assert rows["items[].sku"].to_pylist() == [None]
    assert rows.schema.field("items[].sku").type == pa.list_(pa.string())


# Tests of rules, and the lint


RULE_FILE = """\
rules:
  - rule_id: gifts
    group_by: [payer]
    where: "'A' IN items[].sku"
    features: {payments: {function: count, window: 1h}}
    when: payments >= 2 AND array_size(items[].sku) < 3
tests:
  - name: gifts
    defaults: {payer: p, "flags[]": [true, null]}
    given:
      - {id: one, at: 0s, "items[].sku": [A, B]}
      - {id: two, at: 1s, "items[].sku": [B, null]}
      - {id: three, at: 2s, "items[].sku": [A], "items[].qty": [5]}
      - {id: four, at: 3s, "items[].sku": [A, A, A]}
    expect:
      alerts: [{event: three, value: 2}]
"""


def test_tests_of_rules_give_arrays_as_lists(tmp_path):
    path = tmp_path / "rules.yaml"
    path.write_text(RULE_FILE.replace(", value: 2", ", features: {payments: 2}"))
    file = load_rule_file(path, SCHEMA)
    outcome = RuleTester(file, SCHEMA, EngineSettings()).run(0)
    assert (outcome.status, list(outcome.failures)) == ("passed", [])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[A, B]", "A"),
        ("payer: p,", "payer: [p],"),
        ("[A, B]", "[A, true]"),
        ("[A, B]", "[[A], B]"),
        ("[5]", "[true]"),
    ],
)
def test_what_no_test_can_give_is_said_with_its_place(old, new, tmp_path, as_worded):
    path = tmp_path / "rules.yaml"
    path.write_text(RULE_FILE.replace(old, new).replace(", value: 2", ""))
    with pytest.raises(BucketsError, check=as_worded):
        RuleTester(load_rule_file(path, SCHEMA), SCHEMA, EngineSettings()).run(0)


@pytest.mark.parametrize(
    ("where", "codes"),
    [
        ("'A' IN items[].sku AND 'B' IN items[].sku", set()),
        ("'A' IN items[].sku AND 'B' NOT IN items[].sku", set()),
        ("'A' IN items[].sku AND NOT 'A' IN items[].sku", set()),
        ("items[].sku IS NOT NULL AND array_size(items[].sku) > 1", set()),
        ("array_size(items[].sku) > 10000", {"B104"}),
        ("tags[] IS NULL AND tags[] IS NOT NULL", {"B104"}),
    ],
)
def test_the_lint_knows_that_an_array_has_many_values(where, codes):
    rule = buckets.Rule.model_validate(written_rule(where=where))
    report = look(Subject((rule,), START_MS, SCHEMA, EngineSettings()))
    assert {finding.code.code for finding in report.findings} & {"B101", "B102", "B103", "B104"} == codes


# Damaged messages


def of_vendor(message: Any) -> dict[str, Any]:
    """The arrays of a message of Protobuf, as the vendor's decoder reads it."""

    def optional(part: Any, name: str) -> Any:
        return getattr(part, name) if part.HasField(name) else None

    codes = [optional(line.product, "code") if line.HasField("product") else None for line in message.order.lines]
    return {
        "items[].sku": [optional(item, "sku") for item in message.items],
        "items[].qty": [optional(item, "qty") for item in message.items],
        "tags[]": list(message.tags),
        "order.lines[].product.code": codes if message.HasField("order") else None,
        "flags[]": list(message.flags),
    }


def test_a_damaged_message_is_a_dead_letter_or_has_the_arrays_that_the_vendor_reads():
    dice = random.Random(7)
    item, line = {"sku": "A", "other": "x", "qty": 7}, {"product": {"code": "c"}}
    event = {"id": "e", "at": 1, "payer": "p", "tags": ["t", "u"], "flags": [True, False]}
    event |= {"items": [item, item | {"sku": "B"}], "order": {"lines": [line, {"product": None}]}}
    whole = avro_events.encoded(AVRO, event)
    messages = [damaged(dice, whole) for _ in range(4_000)]
    arrays, dead = found(read_avro(avro_events.rows_of(messages), SCHEMA, WriterSchema("AVRO", json.dumps(AVRO))))
    sound = [message for at, message in enumerate(messages) if at not in dead]
    assert 100 < len(sound) < len(messages) - 100
    for message, of_message in zip(sound, arrays, strict=True):
        read = fastavro.schemaless_reader(io.BytesIO(message), AVRO, None)
        assert of_message == expected(json.dumps(read))
    kind = protobuf_events.class_of(PROTO, "Payment")
    whole = protobuf_events.encoded(PROTO, without_nulls(event), "Payment")
    messages = [damaged(dice, whole) for _ in range(4_000)]
    arrays, dead = found(
        read_protobuf(avro_events.rows_of(messages), SCHEMA, WriterSchema("PROTOBUF", PROTO), "Payment")
    )
    sound = [message for at, message in enumerate(messages) if at not in dead]
    assert 100 < len(sound) < len(messages) - 100
    for message, of_message in zip(sound, arrays, strict=True):
        assert of_message == of_vendor(protobuf_events.vendor_reads(kind, message))
