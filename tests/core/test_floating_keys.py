"""A key that is an integer in one place and floating point in another is one key, whatever reads it."""

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import buckets
from buckets.archive.delta_source import open_events
from buckets.events.arrivals import parse
from buckets.events.schema import EventSchema
from buckets.rules.rule import Rule
from tests.core import test_avro as avro
from tests.core import test_protobuf as protobuf

CARD = 4_000_000_000_000_002
SCHEMA = EventSchema.model_validate(
    {"event_id": "id", "event_time": "at", "attributes": {"card": "string", "number": "long"}}
)
RULE = Rule.model_validate(
    {
        "rule_id": "r",
        "group_by": ["card"],
        "aggregate": {"function": "count"},
        "window": {"length": "1h"},
        "limit": {"operator": ">", "value": 0},
    }
)


def table(first: int, kind: pa.DataType, cards: list) -> pa.Table:
    """Payments; their ids are numbers of the same type as their cards."""
    ids = range(first, first + len(cards))
    columns = {"id": pa.array(ids).cast(kind), "at": pa.array([1_767_225_600_000 + number for number in ids])}
    return pa.table(columns | {"card": pa.array(cards, pa.int64()).cast(kind)})


FILES = [table(1, pa.int64(), [CARD]), table(2, pa.float64(), [CARD, None]), table(4, pa.int64(), [CARD])]


def counts(tables: list[pa.Table]) -> list[int]:
    evaluator = buckets.Evaluator([RULE], SCHEMA)
    return [count for each in tables for count in evaluator.evaluate(each).evaluations["count"].to_pylist()]


def test_tables_in_python_of_either_type_have_one_key():
    assert counts(FILES) == [1, 2, 3]


@pytest.mark.parametrize("write", [pq.write_table, None], ids=["parquet", "delta"])
def test_a_folder_of_files_has_one_key_and_one_kind_of_id(tmp_path, write):
    for number, each in enumerate(FILES):
        if write is None:
            write_deltalake(tmp_path, each.cast(FILES[1].schema), mode="append")
        else:
            write(each, tmp_path / f"{number}.parquet")
    arrivals = open_events(tmp_path, SCHEMA, None, print)
    events, dead = zip(*(parse(rows, SCHEMA, frozenset()) for rows in arrivals), strict=True)
    found = [
        pair
        for each in events
        for pair in zip(each.event_id.to_pylist(), each.attributes["card"].to_pylist(), strict=True)
    ]
    assert sorted(found, key=str) == [("1", str(CARD)), ("2", str(CARD)), ("3", None), ("4", str(CARD))]
    assert not any(dead)


def test_what_may_be_another_number_is_a_dead_letter_that_says_why(as_worded):
    columns = {"id": ["a", "b", "c", "d"], "at": [1_767_225_600_000] * 4}
    cards = pa.array([2.0**53, 0.5, float("nan"), 7.0])
    results = buckets.evaluate(pa.table(columns | {"card": cards, "number": cards}), [RULE], SCHEMA)
    assert results.evaluations["event_id"].to_pylist() == ["d"]
    assert as_worded("\n".join(results.dead_letters["reason"].to_pylist()))


def test_numbers_in_json_and_csv_are_texts_as_they_are_written(tmp_path):
    """Two spellings are two texts there: every character arrives."""
    written = ["4000000000000002", "4000000000000002.0", "4e15"]
    (tmp_path / "a.jsonl").write_text(
        "\n".join(f'{{"id": "e{at}", "at": 1767225600000, "card": {card}}}' for at, card in enumerate(written))
    )
    pacsv.write_csv(
        pa.table({"id": ["a", "b", "c"], "at": [1_767_225_600_000] * 3, "card": written}), tmp_path / "b.csv"
    )
    for name in ("a.jsonl", "b.csv"):
        arrivals = open_events(tmp_path / name, SCHEMA, None, print)
        (events,) = (parse(rows, SCHEMA, frozenset())[0] for rows in arrivals)
        assert events.attributes["card"].to_pylist() == written


def test_messages_in_avro_and_protobuf_have_one_key():
    schema = avro.avro(country="double")
    found, dead = avro.read(avro.message(schema, country=float(CARD)), avro.message(schema, country=0.5), s1=schema)
    assert [event["country"] for event in found] == [str(CARD)]
    assert dead[1].startswith("country: 0.5 is floating point and no whole number")
    mixed = avro.avro(country=["long", "double"], visits=["null", "double"])
    messages = [
        avro.message(mixed, country=card, visits=visits) for card, visits in ((CARD, 7.0), (float(CARD), 2.0**53))
    ]
    found, dead = avro.read(*messages, s1=mixed)
    assert [(event["country"], event["visits"]) for event in found] == [(str(CARD), 7)]
    assert dead[1].startswith("visits: 9007199254740992.0 is floating point of 9,007,199,254,740,992 or more")
    text = protobuf.proto(country="double country = 3")
    found, dead = protobuf.read(
        protobuf.message(text, country=float(CARD)), protobuf.message(text, country=0.5), s1=text
    )
    assert [event["country"] for event in found] == [str(CARD)]
    assert dead[1].startswith("country: 0.5 is floating point and no whole number")
