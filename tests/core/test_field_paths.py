"""Fields inside of objects, by the path that is their name: as the same events laid flat; JSON, tables and files."""

import json
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import buckets
from buckets.errors import BucketsError
from buckets.events.arrivals import BROKEN, RAW, field_column
from buckets.events.field_paths import reachable
from buckets.events.json_events import read_events
from buckets.events.parquet_rows import field_batches
from buckets.events.schema import EventSchema
from tests.laws import examples

SCHEMA = EventSchema.model_validate(
    {
        "event_id": "meta.id",
        "event_time": "meta.at",
        "attributes": {
            "payer.home.country": "string",
            "payer.name": "string",
            "payee.name": "string",
            "flat": "string",
        },
        "measures": {"sum.amount": {"scale": 2}},
    }
)
FLAT = EventSchema.model_validate(
    {
        "event_id": "a",
        "event_time": "b",
        "attributes": {"c": "string", "d": "string", "e": "string", "flat": "string"},
        "measures": {"f": {"scale": 2}},
    }
)
TEXTS = st.text(max_size=6) | st.sampled_from(['"name"', "\\", "meta", '{"id":1}', "\u2028", "name"])
VALUES = st.none() | TEXTS | st.integers() | st.decimals(allow_nan=False, allow_infinity=False).map(str) | st.booleans()


def columns_of(texts, schema):
    """What is read of texts: a list for each declared field, and the reasons."""
    rows = pa.record_batch({RAW: pa.array(texts, pa.string()), BROKEN: pa.nulls(len(texts), pa.string())})
    read = read_events(rows, schema)
    return [read.column(field_column(index)).to_pylist() for index in range(len(schema.field_names))], read.column(
        BROKEN
    ).to_pylist()


def nested(values, drop_empty):
    """An event whose fields lie where the names of `SCHEMA` lead; objects of nothing but nulls may be left out."""
    event: dict = {}
    for name, value in values.items():
        *way, last = name.split(".")
        inside = event
        for step in way:
            inside = inside.setdefault(step, {})
        inside[last] = value
    return {
        name: value
        for name, value in event.items()
        if not (drop_empty and isinstance(value, dict) and all(each is None for each in value.values()))
    }


@given(
    st.lists(st.tuples(*[VALUES] * len(SCHEMA.field_names), st.booleans(), st.booleans()), max_size=6),
    st.booleans(),
)
@settings(max_examples=examples(4_000))
def test_fields_inside_of_objects_are_read_as_those_that_are_not(events, ensure_ascii):
    nested_texts, flat_texts = [], []
    for *values, drop_empty, has_others in events:
        event = nested(dict(zip(SCHEMA.field_names, values, strict=True)), drop_empty)
        # Of others with the same names nothing is taken.
        others = {"other": {"name": "no", "id": [1, {"name": 2}]}} if has_others else {}
        nested_texts.append(json.dumps(event | others, ensure_ascii=ensure_ascii))
        flat_texts.append(json.dumps(dict(zip(FLAT.field_names, values, strict=True)), ensure_ascii=ensure_ascii))
    found, reasons = columns_of(nested_texts, SCHEMA)
    expected, flat_reasons = columns_of(flat_texts, FLAT)
    assert found == expected
    named = dict(zip(FLAT.field_names, SCHEMA.field_names, strict=True))
    assert reasons == [
        reason and f"{named[reason.partition(':')[0]]}:{reason.partition(':')[2]}" for reason in flat_reasons
    ]


@pytest.mark.parametrize(
    ("event", "field", "expected"),
    [
        ('{"payer": {"home": null}}', "payer.home.country", None),
        ('{"payer": {"home": {"country": "FR"}}}', "payer.home.country", "FR"),
        ('{"payer.home.country": "top", "payer": {"home": {"country": "FR"}}}', "payer.home.country", "top"),
        ('{"payer.home.country": null, "payer": {"home": {"country": "FR"}}}', "payer.home.country", "FR"),
        ('{"payer": {"home.country": "FR"}}', "payer.home.country", None),
        ('{"sum": {"amount": 1.10}}', "sum.amount", "1.10"),
        ('{"sum": {"amount": 123456789012345678901234567890}}', "sum.amount", "123456789012345678901234567890"),
        ('{"p\\u0061yer": {"n\\u0061me": "ann"}}', "payer.name", "ann"),
    ],
)
def test_what_lies_at_a_path_is_read_as_it_is_written(event, field, expected):
    found, reasons = columns_of([event, '{"payer": {"name": "bob"}}'], SCHEMA)
    assert reasons == [None, None]
    assert found[SCHEMA.field_names.index(field)][0] == expected


@pytest.mark.parametrize(
    "event",
    [
        '{"payer": "ann"}',
        '{"payer": [{"name": "ann"}]}',
        '{"payer": {"home": 5, "name": "ann"}}',
        '{"payer": {"name": "ann", "name": "bob"}}',
        '{"payer": {"name": "ann"}, "payer": {"name": "bob"}}',
        '{"payer": {"home": {"country": "FR"}, "home": {}}}',
        '{"payer": {"name": "\\ud800"}}',
        '{"payer": {"name": {"first": "ann"}}}',
    ],
)
def test_what_is_no_object_or_given_twice_is_one_dead_letter_and_no_neighbour(event, as_worded):
    good = '{"payer": {"name": "bob"}}'
    found, reasons = columns_of([good, event, good], SCHEMA)
    assert reasons[0] is reasons[2] is None
    assert as_worded(reasons[1])
    assert found[SCHEMA.field_names.index("payer.name")][::2] == ["bob", "bob"]


def events(count=6):
    """Payments with structs, and the same laid flat."""
    names = [None if number == 4 else f"p{number % 2}" for number in range(count)]
    payers = [None if number == 5 else {"name": name, "age": number} for number, name in enumerate(names)]
    return pa.table(
        {
            "meta": pa.array([{"id": f"e{number}", "at": 1_000 * number} for number in range(count)]),
            "payer": pa.array(payers),
            "sum": pa.array([{"amount": Decimal("1.10")}] * count, pa.struct({"amount": pa.decimal128(10, 2)})),
            "flat": pa.array(["x"] * count),
        }
    )


RULES = """
rules:
  - rule_id: sums
    group_by: [payer.name]
    aggregate: {function: sum, measure: sum.amount}
    window: {length: 1h}
    limit: {operator: ">", value: 1}
  - rule_id: conditions
    group_by: [payer.name]
    features: {total: {function: sum, of: sum.amount, window: 1h}}
    when: total > 2 AND payer.name = 'p0' AND `payer.name` IS NOT NULL
"""


def rules_in(folder):
    (folder / "rules.yaml").write_text(RULES, encoding="utf-8")
    return buckets.load_rules(folder / "rules.yaml", SCHEMA)


@pytest.mark.parametrize("kind", ["table", "file"])
def test_structs_of_tables_and_files_are_evaluated(tmp_path, kind):
    table = events()
    if kind == "file":
        pq.write_table(table, tmp_path / "events.parquet")
        (piece,) = field_batches(tmp_path / "events.parquet", SCHEMA.field_names)
        assert piece.column("payer.name").to_pylist() == ["p0", "p1", "p0", "p1", None, None]
        assert piece.column("payer.home.country").null_count == 6
        table = pa.Table.from_batches([piece])
    found = buckets.evaluate(table, rules_in(tmp_path), SCHEMA)
    alerts = found.alerts.select(["rule_id", "event_id", "value", "key"]).to_pylist()
    assert [(each["event_id"], str(each["value"])) for each in alerts if each["rule_id"] == "sums"] == [
        ("e0", "1.10"),
        ("e1", "1.10"),
        ("e2", "2.20"),
        ("e3", "2.20"),
    ]
    assert [each["event_id"] for each in alerts if each["rule_id"] == "conditions"] == ["e2"]
    assert alerts[0]["key"] == {"payer.name": "p0"}


def test_a_path_that_leads_nowhere_is_a_missing_column(tmp_path, as_worded):
    with pytest.raises(BucketsError) as caught:
        buckets.evaluate(events().drop_columns(["meta"]), rules_in(tmp_path), SCHEMA)
    assert as_worded(caught.value)
    assert "payer.name" in reachable(SCHEMA.field_names, events().schema)
    assert "payer.home.country" not in reachable(SCHEMA.field_names, events().schema)
