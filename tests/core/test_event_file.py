"""One file of events cut into parts."""

import bz2
import errno
import gzip
import json
import os
import re
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.errors import BucketsError
from buckets.events.arrivals import POSITION, RAW, parse
from buckets.events.event_file import file_arrivals, numbered_lines, open_event_file
from tests.core.examples import SCHEMA
from tests.laws import examples

NEEDED = frozenset({"amount"})
LINES = [json.dumps({"id": f"e{n}", "at": n, "amount": "1"}) for n in range(7)]


@pytest.fixture
def write(tmp_path):
    def written(name: str, content: str | bytes):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return written


def opened(path):
    return open_event_file(path, SCHEMA)


def parts_of(path, batch_rows=None) -> list[list[dict]]:
    return [part.select([POSITION, RAW]).to_pylist() for part in numbered_lines(opened(path), batch_rows)]


@pytest.mark.parametrize(("batch_rows", "sizes"), [(None, [7]), (3, [3, 3, 1]), (1, [1] * 7), (7, [7]), (100, [7])])
def test_a_file_is_cut_into_parts_of_so_many_rows_in_its_order(write, tmp_path, batch_rows, sizes):
    parts = parts_of(write("day.jsonl", "\n".join(LINES)), batch_rows)
    assert [len(part) for part in parts] == sizes
    rows = [row for part in parts for row in part]
    assert rows == [{POSITION: n, RAW: line.encode()} for n, line in enumerate(LINES, 1)]


def test_lines_keep_their_numbers_when_blank_ones_are_left_out(write, tmp_path):
    path = write("day.json", "\n" + LINES[0] + "\r\n  \n\n" + LINES[1] + "\n")
    (part,) = parts_of(path)
    assert part == [{POSITION: 2, RAW: LINES[0].encode()}, {POSITION: 5, RAW: LINES[1].encode()}]


def test_the_header_of_a_csv_file_is_no_row(write, tmp_path):
    path = write("day.csv", "\ufeff id ,at,amount\ne1,1,5\n\ne2,2,6\n")
    assert opened(path).header == ["id", "at", "amount"]
    (part,) = parts_of(path)
    assert part == [{POSITION: 2, RAW: b"e1,1,5"}, {POSITION: 4, RAW: b"e2,2,6"}]


def test_bytes_that_are_no_text_stay_in_their_line(write, tmp_path):
    path = write("day.jsonl", LINES[0].encode() + b"\n\xff\xfe{\n" + LINES[1].encode())
    (part,) = parts_of(path)
    assert [row["raw"] for row in part] == [LINES[0].encode(), b"\xff\xfe{", LINES[1].encode()]


@settings(max_examples=examples(20))
@given(st.integers(1, 3))
def test_parquet_rows_keep_their_types_and_get_numbers(tmp_path_factory, row_group):
    path = tmp_path_factory.mktemp("parquet") / "day.parquet"
    rows = [{"id": f"e{n}", "at": n, "amount": Decimal(n)} for n in range(7)]
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=row_group)
    parts = [parse(part, SCHEMA, NEEDED)[0] for part in file_arrivals(opened(path), SCHEMA)]
    assert [position for part in parts for position in part.position.tolist()] == list(range(1, 8))
    assert [time for part in parts for time in part.times_ms.tolist()] == [row["at"] for row in rows]
    assert [amount for part in parts for amount in part.measures["amount"].to_pylist()] == [n * 100 for n in range(7)]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("day.jsonl", ""),
        ("day.jsonl", " \n\n"),
        ("day.csv", ""),
        ("day.parquet", ""),
        ("day.parquet", "PAR1 nothing"),
        ("day.txt", "x"),
        ("day", "x"),
        ("day.csv", "id,at\n"),
        ("day.csv", 'id,"at\n'),
        ("day.jsonl", '{"id": 1, "when": 2}\n'),
        ("day.jsonl", '{"when": 2}\nbroken\n'),
    ],
)
def test_a_file_that_cannot_be_events_is_named(write, name, content, as_worded):
    path = write(name, content)
    with pytest.raises(BucketsError, check=as_worded) as error:
        opened(path)
    assert "\n" not in error.value.message


def test_a_parquet_file_without_rows_or_columns_is_named(tmp_path, as_worded):
    table = pa.table({"id": ["e"], "at": [1], "amount": [1]})
    pq.write_table(table.slice(0, 0), tmp_path / "none.parquet")
    pq.write_table(table.drop_columns(["at"]), tmp_path / "timeless.parquet")
    with pytest.raises(BucketsError, check=as_worded):
        opened(tmp_path / "none.parquet")
    with pytest.raises(BucketsError, check=as_worded):
        opened(tmp_path / "timeless.parquet")


def test_a_folder_and_a_missing_file_are_named(tmp_path, as_worded):
    with pytest.raises(BucketsError, check=as_worded):
        opened(tmp_path)
    with pytest.raises(BucketsError, check=as_worded):
        opened(tmp_path / "none.csv")


def test_broken_lines_at_the_top_do_not_hide_the_fields_below(write):
    assert opened(write("day.jsonl", "broken\n[1]\n" + LINES[0])).kind == "json"


@pytest.mark.parametrize("name", ["position", "field_0", "`", "a.b"])
def test_a_field_of_a_parquet_file_may_have_any_name(tmp_path, name):
    schema = SCHEMA.model_copy(update={"attributes": {name: "string"}})
    columns = {"id": ["e"], "at": [1], "amount": [1], "a": [{"b": "another"}], name: ["front"]}
    pq.write_table(pa.table(columns), tmp_path / "day.parquet")
    file = open_event_file(tmp_path / "day.parquet", schema)
    (rows,) = file_arrivals(file, schema)
    events, dead_letters = parse(rows, schema, NEEDED)
    assert dead_letters == []
    assert events.attributes[name].to_pylist() == ["front"]
    assert (events.source.to_pylist(), events.position.tolist()) == ([str(file.path)], [1])


@pytest.mark.parametrize("depth", [1_000, 20_000])
def test_deep_nesting_at_the_top_hides_nothing_and_harms_nobody(write, depth):
    deep = '{"when": ' + "[" * depth + "]" * depth + "}"
    assert opened(write("day.jsonl", f"{deep}\n{LINES[0]}")).kind == "json"
    assert opened(write("deep.jsonl", deep)).kind == "json"


def test_names_that_cannot_be_shown_are_escaped_and_cut(write, as_worded):
    with pytest.raises(BucketsError, check=as_worded) as error:
        opened(write("day.jsonl", '{"\\ud800": 1, "a\\nb": 2, "id": 3, "' + "x" * 10_000 + '": 4}'))
    said = error.value.message
    assert said.encode().decode().isprintable()
    assert len(said) < 1000


def test_a_byte_order_mark_is_no_part_of_the_first_line(write, tmp_path):
    (part,) = parts_of(write("day.jsonl", "\ufeff" + LINES[0]))
    assert part[0]["raw"] == LINES[0].encode()


def test_a_header_without_events_is_refused(write, as_worded):
    with pytest.raises(BucketsError, check=as_worded):
        opened(write("day.csv", "id,at,amount\n"))


def test_a_file_without_a_header_says_what_to_write_above_it(write, as_worded):
    with pytest.raises(BucketsError, check=as_worded):
        opened(write("day.csv", "e1,0,5.00\ne2,1,6.00\n"))


def test_a_file_of_two_byte_letters_says_so(tmp_path, as_worded):
    for name, encoding in (("day.csv", "utf-16"), ("day.jsonl", "utf-16-le")):
        (tmp_path / name).write_bytes('{"id": "e1"}\n'.encode(encoding))
        with pytest.raises(BucketsError, check=as_worded):
            opened(tmp_path / name)


def test_a_header_that_names_a_field_twice_is_refused(write, as_worded):
    with pytest.raises(BucketsError, check=as_worded):
        opened(write("day.csv", "id,at,amount,id\ne,1,5,f\n"))


def test_names_that_no_field_has_may_stand_in_a_header_twice(write):
    path = write("day.csv", "id,Account,at,Account,amount\ne,x,1,y,5\n")
    (rows,) = file_arrivals(opened(path), SCHEMA)
    events, letters = parse(rows, SCHEMA, frozenset())
    assert (events.event_id.to_pylist(), events.measures["amount"].to_pylist(), letters) == (["e"], [500], [])


PACK = {
    "gz": gzip.compress,
    "zst": lambda content: pa.compress(content, "zstd", asbytes=True),
    "bz2": bz2.compress,
}
ROWS = b"".join(b"e%d,%d,1.50\n" % (n, n) for n in range(5000))
FILES = {
    "day.csv": (b"id,at,amount\n" + ROWS, SCHEMA),
    "day.jsonl": (b"".join(b'{"id": "e%d", "at": %d, "amount": 1.50}\n' % (n, n) for n in range(5000)), SCHEMA),
    "day.json": (
        json.dumps([{"id": f"e{n}", "at": n, "amount": "1.50"} for n in range(5000)], indent=1).encode(),
        SCHEMA.model_copy(update={"records": "[]"}),
    ),
}


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("name", FILES)
def test_a_compressed_file_is_read_as_what_is_in_it(write, name, suffix):
    content, schema = FILES[name]
    path = write(f"{name}.{suffix}", PACK[suffix](content))
    parts = [parse(part, schema, NEEDED) for part in file_arrivals(open_event_file(path, schema), schema, 700)]
    assert [name for part, _ in parts for name in part.event_id.to_pylist()] == [f"e{n}" for n in range(5000)]
    assert {name for part, _ in parts for name in part.source.to_pylist()} == {path.name}
    assert not [letter for _, letters in parts for letter in letters]


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", [lambda packed: packed[:-20], lambda packed: packed[:3], lambda packed: b"id,at\n"])
def test_a_compressed_file_that_is_damaged_is_named(write, name, suffix, damage):
    content, schema = FILES[name]
    path = write(f"{name}.{suffix}", damage(PACK[suffix](content)))
    with pytest.raises(BucketsError, match=re.escape(f"events {path}: cannot be read (")) as error:
        list(file_arrivals(open_event_file(path, schema), schema))
    assert "\n" not in error.value.message


def test_a_file_that_may_not_be_read_is_named(write, monkeypatch, as_worded):
    path = write("day.jsonl", LINES[0])

    def refuse(*_):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(type(path), "open", refuse)
    with pytest.raises(BucketsError, check=as_worded):
        opened(path)


EVENT = {"id": "e", "at": 1, "amount": "1"}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (json.dumps([EVENT] * 3), 'records: "[]"'),
        (json.dumps([EVENT]), 'records: "[]"'),
        (json.dumps([EVENT] * 50, indent=2), 'records: "[]"'),
        ("[\n" + ",\n".join(map(json.dumps, [EVENT] * 3)) + "\n]", 'records: "[]"'),
        ("\ufeff[" + ",\n".join(map(json.dumps, [EVENT] * 3)) + "]\n", 'records: "[]"'),
        (json.dumps({"Records": [EVENT] * 3}), 'records: "Records[]"'),
        (json.dumps({"n": 1, "to pay": [EVENT] * 3, "names": {}}, indent=2), 'records: "to pay[]"'),
        ('{"Records": [\n' + ",\n".join(map(json.dumps, [EVENT] * 3)) + "\n]}", 'records: "Records[]"'),
        (json.dumps({"ids": [1], "data": {"of": {"items": [EVENT]}}}, indent=2), 'records: "data.of.items[]"'),
        (json.dumps({"a.b": [EVENT]}, indent=2), "one object a line"),
        (json.dumps(EVENT, indent=2), "one object a line"),
        (json.dumps(EVENT | {"items": [{"sku": 1}]}, indent=2), "write one object a line"),
        ("\n".join(json.dumps(EVENT, indent=2) for _ in range(3)), "one object a line"),
        (json.dumps({"a": [EVENT], "b": [EVENT]}, indent=2), "one object a line"),
        ("{\n" + '"id": "e",\n' * 100, "one object a line"),
    ],
)
def test_json_that_is_not_one_object_a_line_says_once_what_to_write(write, content, told, as_worded):
    with pytest.raises(BucketsError, check=as_worded) as error:
        opened(write("day.json", content))
    assert told in error.value.message
    assert ("records" in told) == ("records" in error.value.message)
    assert "\n" not in error.value.message


@pytest.mark.parametrize(
    "first",
    [
        '[{"id": "x"}]',
        "[2026-01-01] begin",
        '{"id": "cut',
        "{}",
        '{"meta": [1, 2]}',
        '{"id": "x", "parts": [{"a": 1}]}',
    ],
)
def test_a_first_line_that_is_no_event_does_not_hide_the_others(write, first):
    assert opened(write("day.jsonl", f"{first}\n{LINES[1]}\n")).kind == "json"


def test_lines_with_lists_whose_fields_have_other_names_are_told_so(write, as_worded):
    line = json.dumps({"uuid": "e", "when": 1, "items": [{"sku": "s"}]})
    with pytest.raises(BucketsError, check=as_worded):
        opened(write("day.jsonl", f"{line}\n{line}\n"))


def test_what_is_told_to_be_written_is_read(write):
    path = write("day.json", json.dumps({"to": 1, "Records": [EVENT, EVENT | {"id": "f"}]}, indent=2))
    with pytest.raises(BucketsError) as error:
        opened(path)
    records = re.search('records: "(.*)"', error.value.message)[1]
    schema = SCHEMA.model_copy(update={"records": records})
    ((events, _),) = (parse(rows, schema, NEEDED) for rows in file_arrivals(open_event_file(path, schema), schema))
    assert events.event_id.to_pylist() == ["e", "f"]
