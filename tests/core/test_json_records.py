"""Files of JSON that are one value with a list of events: cut exactly, numbered by record, and broken as a whole."""

import json

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.config.job import load_job
from buckets.errors import BucketsError
from buckets.events import json_records
from buckets.events.arrivals import RAW, parse
from buckets.events.event_file import file_arrivals, open_event_file
from buckets.events.json_records import record_arrivals, split_records
from buckets.events.schema import EventSchema
from buckets.kafka.sender import event_messages
from buckets.preflight.connections import check_connections
from tests.core.examples import SCHEMA, written_rule
from tests.laws import examples

AROUND = {
    "[]": "%s",
    "Records[]": '{"meta": {"Records": [1]}, "Records": %s, "n": 1.50}',
    "a.b[]": '{"a": {"b": %s}}',
    "a[1].b[]": '{"a": [{"b": 1, "b": 2}, {"b": %s}, null]}',
    "a[0][1][]": '{"a": [[[], %s]]}',
}
EVENTS = ['{"id": "e1", "at": 1, "amount": 1.50}', '{"id":"e2",\n  "at": 2,\n  "amount": 12345678901234567.89}']


def with_records(records: str, **changes) -> EventSchema:
    return EventSchema.model_validate(SCHEMA.model_dump() | {"records": records} | changes)


def read(path, schema, batch_rows=1000):
    rows = [parse(part, schema, frozenset()) for part in record_arrivals(path, 7, schema, batch_rows)]
    return [events for events, _ in rows], [letter for _, letters in rows for letter in letters]


@pytest.mark.parametrize("records", AROUND)
@pytest.mark.parametrize("mark", ["", "\ufeff\n "])
def test_the_records_of_a_file_are_events_with_their_number_and_their_digits(tmp_path, records, mark):
    path = tmp_path / "day.json"
    path.write_text(mark + AROUND[records] % f"[ {EVENTS[0]} ,\n{EVENTS[1]}\n]", encoding="utf-8")
    schema = with_records(records, measures={"amount": {"scale": 2}})
    for batch_rows in (1, 2):
        parts, letters = read(path, schema, batch_rows)
        assert letters == []
        assert [number for part in parts for number in part.position.tolist()] == [1, 2]
        assert [name for part in parts for name in part.event_id.to_pylist()] == ["e1", "e2"]
        assert [amount for part in parts for amount in part.measures["amount"].to_pylist()] == [
            150,
            1234567890123456789,
        ]
    (opened,) = file_arrivals(open_event_file(path, schema), schema)
    assert opened.column(RAW).to_pylist() == EVENTS


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=examples(200))
@given(st.lists(values), st.dictionaries(st.text(max_size=3), values, max_size=3), st.data())
def test_the_texts_of_records_are_cut_out_as_they_were_written(records, others, data):
    style = data.draw(st.sampled_from([{}, {"indent": 2}, {"ensure_ascii": False}, {"separators": (",", ":")}]))
    encodable = json.dumps([records, others], ensure_ascii=False).encode(errors="ignore").decode()
    records, others = json.loads(encodable)
    members = [*others.items(), ("a", {"x": records, "b": records, "y": records})]
    whole = dict(data.draw(st.permutations(members)))
    whole["a"] = {"x": records, "b": records, "y": records}
    texts = split_records(json.dumps(whole, **style).encode(), "a.b[]")
    assert list(map(json.loads, texts)) == records
    if "indent" not in style:
        assert texts == [json.dumps(record, **style).encode() for record in records]
    assert list(map(json.loads, split_records(json.dumps(records, **style).encode(), "[]"))) == records


@pytest.mark.parametrize(
    ("records", "content"),
    [
        ("Records[]", "[]"),
        ("Records[]", "7"),
        ("Records[]", "{}"),
        ("Records[]", '{"records": []}'),
        ("Records[]", '{"Records": null}'),
        ("Records[]", '{"Records": {"id": 1}}'),
        ("Records[]", '{"Records": [1], "Records": [2]}'),
        ("Records[]", '{"Records": [1], "\\u0052ecords": [2]}'),
        ("Records[]", '{"Records": [{"id": 1}'),
        ("Records[]", '{"Records": [{"id": 1}]} {"Records": []}'),
        ("Records[]", '{"Records": [{"id": 01}]}'),
        ("Records[]", "e1,1,2"),
        ("a.b[]", '{"a": []}'),
        ("a.b[]", '{"a": {"c": []}}'),
        ("a.b[]", '{"a": {"b": [1]}, "a": {"b": [2]}}'),
        ("a[1].b[]", '{"a": [{"b": []}]}'),
        ("a[0].b[]", '{"a": {"b": []}}'),
        ("a[0].b[]", '{"a": [{"c": []}]}'),
        ("a[0].b[]", '{"a": [{"b": [1], "b": [2]}]}'),
        ("[]", '{"Records": []}'),
        ("[]", '[{"id": 1},]'),
        ("[]", "[" * 100_000),
    ],
)
def test_a_file_without_such_a_list_is_one_dead_letter_of_a_job_and_one_error_of_a_command(
    tmp_path, records, content, as_worded
):
    path = tmp_path / "day.json"
    path.write_text(content)
    schema = with_records(records)
    parts, (letter,) = read(path, schema)
    assert [len(part) for part in parts] == [0]
    assert (letter.source, letter.source_order, letter.position) == (str(path), 7, 1)
    assert letter.raw == content
    with pytest.raises(BucketsError, check=as_worded) as error:
        open_event_file(path, schema)
    assert letter.reason in error.value.message
    assert "\n" not in error.value.message


def test_each_record_that_is_no_event_is_a_dead_letter_with_its_text(tmp_path):
    bad = ["7", '{"id": "x",  "id": "y", "at": 1}', '{"id": 0.10, "at":\n 1, "amount": 1.234}', "null"]
    path = tmp_path / "day.json"
    path.write_text(f'{{"Records": [{EVENTS[0]}, {", ".join(bad)}]}}')
    (events,), letters = read(path, with_records("Records[]"))
    assert events.event_id.to_pylist() == ["e1"]
    assert [(letter.position, letter.raw) for letter in letters] == list(enumerate(bad, 2))
    assert letters[1].reason == "id: is given twice"


def test_bytes_that_are_no_text_spoil_only_their_record(tmp_path):
    path = tmp_path / "day.json"
    path.write_bytes(b'{"Records": [{"id": "\xff", "at": 1}, ' + EVENTS[0].encode() + b"]}")
    (events,), (letter,) = read(path, with_records("Records[]"))
    assert (events.event_id.to_pylist(), letter.position, letter.reason) == (["e1"], 1, "is not valid UTF-8")


@pytest.mark.parametrize("content", ["", " \n", '{"Records": []}'])
def test_a_file_without_records_has_no_rows(tmp_path, content, as_worded):
    path = tmp_path / "day.json"
    path.write_text(content)
    assert read(path, with_records("Records[]")) == ([], [])
    with pytest.raises(BucketsError, check=as_worded):
        open_event_file(path, with_records("Records[]"))


def test_a_file_that_is_too_large_is_not_read(tmp_path, monkeypatch, as_worded):
    monkeypatch.setattr(json_records, "MOST_BYTES", 20)
    path = tmp_path / "day.json"
    path.write_text(f"[{EVENTS[0]}]")
    (_,), (letter,) = read(path, with_records("[]"))
    with pytest.raises(BucketsError, check=as_worded) as error:
        open_event_file(path, with_records("[]"))
    assert letter.reason in error.value.message


@pytest.mark.parametrize("name", ["day.csv", "day.csv.gz", "day.parquet"])
def test_records_are_for_files_of_json(tmp_path, name, as_worded):
    (tmp_path / name).write_text("id,at\ne,1\n")
    with pytest.raises(BucketsError, check=as_worded):
        open_event_file(tmp_path / name, with_records("[]"))


def test_records_that_are_about_something_else_are_named(tmp_path, as_worded):
    path = tmp_path / "day.json"
    path.write_text('[{"when": 1}, {"id": "e"}]')
    with pytest.raises(BucketsError, check=as_worded):
        open_event_file(path, with_records("[]"))


@pytest.mark.parametrize("records", ["", "Records", "[]a", "a[].b[]", "a[]b", "a..b[]", ".a[]", "a.[]", "[][]"])
def test_records_name_one_list(records):
    with pytest.raises(ValueError, match="records"):
        with_records(records)


@pytest.mark.parametrize("kind", ["csv", "parquet", "delta", "kafka", "json"])
def test_a_source_of_another_kind_has_no_records(tmp_path, kind, as_worded):
    (tmp_path / "schema.yaml").write_text("event_id: id\nevent_time: at\nrecords: []\n")
    (tmp_path / "rules.yaml").write_text(
        yaml.safe_dump({"rules": [written_rule(aggregate={"function": "count"}, group_by=[])]})
    )
    place = {"topic": "t"} if kind == "kafka" else {"path": "in"}
    source = {"kind": kind} | place | ({"arrival": "at"} if kind == "delta" else {})
    conf = {
        "source": source,
        "schema": "schema.yaml",
        "rules": "rules.yaml",
        "checkpoint": "c",
        "output": {"path": "t"},
    }
    (tmp_path / "conf.yaml").write_text(yaml.safe_dump(conf | {"kafka": {"bootstrap_servers": "localhost:9092"}}))
    if kind == "json":
        assert load_job(tmp_path / "conf.yaml").event_schema.records == "[]"
        return
    with pytest.raises(BucketsError, check=as_worded):
        load_job(tmp_path / "conf.yaml")


def test_records_are_sent_to_a_topic_as_they_are(tmp_path):
    path = tmp_path / "day.json"
    path.write_text(AROUND["a.b[]"] % f"[{EVENTS[0]}, 7, {EVENTS[1]}]")
    sent = list(event_messages(path, with_records("a.b[]"), "id", on_bad=lambda rows: None))
    assert sent == [("e1", EVENTS[0].encode()), ("", b"7"), ("e2", EVENTS[1].encode())]


def test_a_schema_without_records_is_written_without_them():
    assert "records" not in SCHEMA.model_dump()
    assert EventSchema.model_validate(with_records("a.b[]").model_dump(mode="json")).records == "a.b[]"


@pytest.mark.parametrize("records", [{}, {"records": "Records[]"}])
def test_a_check_of_a_job_says_what_to_write_for_a_file_that_is_one_value(tmp_path, records):
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump(SCHEMA.model_dump(mode="json") | records))
    rules = [written_rule(aggregate={"function": "count"}, group_by=[])]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"rules": rules}))
    conf = {"schema": "schema.yaml", "rules": "rules.yaml", "checkpoint": "c", "output": {"path": "t"}}
    (tmp_path / "conf.yaml").write_text(yaml.safe_dump(conf | {"source": {"kind": "json", "path": "in"}}))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "day.json").write_text(f"[{EVENTS[0]}]")
    job = load_job(tmp_path / "conf.yaml")
    source = next(answer for answer in check_connections(tmp_path / "conf.yaml", job) if answer.thing == "source")
    with pytest.raises(BucketsError) as error:
        open_event_file(tmp_path / "in" / "day.json", job.event_schema)
    assert source.faults == (error.value.message,)
