"""CSV as people have it: delimiters, decimal commas, encodings, files without a header line, columns without a name."""

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from buckets.archive.delta_source import open_events
from buckets.errors import BucketsError
from buckets.events.arrivals import RAW, SOURCE, SOURCE_ORDER, parse
from buckets.events.csv_events import plain_numbers
from buckets.events.csv_format import PLAIN_CSV, CsvFormat
from buckets.events.schema import EventSchema, load_event_schema
from buckets.events.source_files import line_reader
from buckets.numbers.fixed_point import format_scaled

FIELDS = {
    "name": "booking",
    "event_id": "id",
    "event_time": {"field": "booked", "unit": "iso8601"},
    "attributes": {"payee": "string", "points": "long"},
    "measures": {"amount": {"scale": 2}},
}
_HALVES = ("utf-16-le", "surrogatepass")
BOOKED = "2026-01-05T00:00:00Z"


def schema_of(**csv: Any) -> EventSchema:
    return EventSchema.model_validate(FIELDS | {"csv": csv})


def read(path: Path, schema: EventSchema) -> tuple[list[tuple], dict[int, str]]:
    """Id, payee, points and amount of each event of a file, and why a line is none."""
    rows, dead = [], {}
    for batch in open_events(path, schema, None, print):
        events, letters = parse(batch, schema, frozenset())
        names, points = (events.attributes[name].to_pylist() for name in ("payee", "points"))
        rows += zip(events.event_id.to_pylist(), names, points, events.measures["amount"].to_pylist(), strict=True)
        dead |= {letter.position: letter.reason for letter in letters}
    return rows, dead


def read_as_job(content: bytes, schema: EventSchema) -> tuple[list[tuple], dict[int, str]]:
    """The same, of lines as Spark has them."""
    lines = content.removesuffix(b"\n").split(b"\n")
    of_file = pa.record_batch(
        {
            RAW: pa.array(lines, pa.binary()),
            SOURCE: pa.array(["day.csv"] * len(lines)),
            SOURCE_ORDER: pa.array([0] * len(lines), pa.int64()),
        }
    )
    rows, dead = [], {}
    for batch in line_reader("csv", schema, None)([of_file]):
        events, letters = parse(batch, schema, frozenset())
        names, points = (events.attributes[name].to_pylist() for name in ("payee", "points"))
        rows += zip(events.event_id.to_pylist(), names, points, events.measures["amount"].to_pylist(), strict=True)
        dead |= {letter.position: letter.reason for letter in letters}
    return rows, dead


BANK = f"id;booked;payee;points;amount;;\ne1;{BOOKED};Müller;1.000;-1.234,56;;\ne2;{BOOKED};Grün & Söhne €;;5,00;;\n"
BANK_ROWS = [("e1", "Müller", 1000, -123_456), ("e2", "Grün & Söhne €", None, 500)]
GERMAN = {"delimiter": ";", "decimal": ",", "thousands": "."}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "iso8859-15", "utf-16", "utf-16-le", "gb18030"])
def test_the_export_of_a_bank_is_read_as_it_comes(tmp_path, encoding):
    text = BANK.replace("ü", "u").replace("Müller", "Muller").replace("ö", "o") if encoding == "gb18030" else BANK
    rows = [(one, name.translate({ord("ü"): "u", ord("ö"): "o"}), *others) for one, name, *others in BANK_ROWS]
    rows = rows if encoding == "gb18030" else BANK_ROWS
    path = tmp_path / "day.csv"
    path.write_bytes(text.replace("\n", "\r\n").encode(encoding))
    schema = schema_of(**GERMAN, encoding=encoding)
    assert read(path, schema) == (rows, {})
    if schema.csv.is_by_line:
        assert read_as_job(path.read_bytes(), schema) == (rows, {})


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|", "\x1f"])
def test_a_file_without_a_header_line_has_the_names_of_the_schema(tmp_path, delimiter):
    path = tmp_path / "day.csv"
    lines = [["e1", BOOKED, "x", "Ann", "5"], ["e2", BOOKED, "y", f'"a{delimiter}b"', "6.5"]]
    content = "\ufeff" + "".join(f"{delimiter.join(line)}\n" for line in lines)
    path.write_text(content)
    schema = schema_of(delimiter=delimiter, header=["id", "booked", "", "payee", "amount"])
    expected = [("e1", "Ann", None, 500), ("e2", f"a{delimiter}b", None, 650)]
    assert read(path, schema) == (expected, {})
    assert read_as_job(content.encode(), schema) == (expected, {})


def test_a_header_line_beside_names_in_the_schema_is_told(tmp_path, as_worded):
    path = tmp_path / "day.csv"
    path.write_text(f"id,amount,booked\ne1,5,{BOOKED}\n")
    with pytest.raises(BucketsError, check=as_worded):
        read(path, schema_of(header=["id", "booked", "amount"]))


def test_several_files_have_headers_of_their_own(tmp_path):
    (tmp_path / "a.csv").write_text(f"id;booked;amount\ne1;{BOOKED};1,00\n")
    (tmp_path / "b.csv").write_text(f"amount;id;booked;;\n2,00;e2;{BOOKED};;\n3,00;e3;{BOOKED}\n")
    os.utime(tmp_path / "a.csv", (1, 1))
    expected = [("e1", None, None, 100), ("e2", None, None, 200), ("e3", None, None, 300)]
    assert read(tmp_path, schema_of(**GERMAN)) == (expected, {})


@pytest.mark.parametrize(
    ("csv", "text", "plain"),
    [
        ({}, "1.000", "1.000"),
        ({}, "1.000,50", None),
        ({}, "1,000", None),
        ({}, "abc", "abc"),
        ({"decimal": ","}, "1,000", "1.000"),
        ({"decimal": ","}, "1.000", None),
        ({"decimal": ","}, "-,5", "-.5"),
        ({"decimal": ","}, "1,5E3", "1.5E3"),
        ({"decimal": ",", "thousands": "."}, "1.000", "1000"),
        ({"decimal": ",", "thousands": "."}, "1.00", None),
        ({"decimal": ",", "thousands": "."}, "1000,5", "1000.5"),
        ({"decimal": ",", "thousands": "."}, "1234.567", None),
        ({"decimal": ",", "thousands": "."}, "+12.345.678,9", "+12345678.9"),
        ({"decimal": ",", "thousands": "."}, "1.234.56", None),
        ({"decimal": ",", "thousands": "."}, "1,234.567", None),
        ({"decimal": ",", "thousands": " "}, "-1 234\u00a0567\u202f890,12", "-1234567890.12"),
        ({"decimal": ",", "thousands": " "}, " 1", None),
        ({"thousands": "'"}, "1'234.50", "1234.50"),
        ({"thousands": "'"}, "1\u2019234.50", "1234.50"),
        ({"thousands": ","}, "1,234,567.5", "1234567.5"),
        ({"thousands": ","}, "1,23,456", None),
        ({"thousands": ","}, "", None),
    ],
)
def test_a_number_has_one_reading_or_none(csv, text, plain, as_worded):
    numbers, faults = plain_numbers(pa.array([None, text]), CsvFormat(**csv))
    if plain is None:
        assert as_worded(faults[1])
    else:
        assert numbers.to_pylist() == [None, plain]
        assert faults == {}


@given(st.integers(-(10**14), 10**14), st.sampled_from([(",", "."), (",", " "), (",", None), (".", ","), (".", "'")]))
def test_what_was_written_with_groups_is_read_back(number, written):
    decimal, thousands = written
    text = f"{number // 100 if number >= 0 else -(-number // 100):,}.{abs(number) % 100:02d}"
    text = text.translate({ord(","): thousands or "", ord("."): decimal})
    text = f"-{text}" if number < 0 and not text.startswith("-") else text
    numbers, faults = plain_numbers(pa.array([text]), CsvFormat(decimal=decimal, thousands=thousands))
    assert (numbers.to_pylist(), faults) == ([format_scaled(number, 2)], {})


def test_an_amount_that_is_none_is_a_dead_letter_with_the_declaration_that_would_fit(tmp_path, as_worded):
    path = tmp_path / "day.csv"
    path.write_text(f'id,booked,payee,points,amount\ne1,{BOOKED},a,1,"1.000,50"\ne2,{BOOKED},"1,5",2,3\n')
    rows, dead = read(path, schema_of())
    assert rows == [("e2", "1,5", 2, 300)]
    assert as_worded(dead[2])


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_another_delimiter_is_named(tmp_path, delimiter, as_worded):
    path = tmp_path / "day.csv"
    content = BANK.replace(";", delimiter)
    path.write_text(content)
    with pytest.raises(BucketsError, check=as_worded):
        read(path, schema_of())
    rows, dead = read_as_job(content.encode(), schema_of())
    assert rows == []
    assert [position for position, reason in dead.items() if as_worded(reason)] == [1, 2, 3]


@pytest.mark.parametrize(
    "content",
    [
        b"id,booked,amount\re1,2026-01-05T00:00:00Z,1\r",
        b'id,booked,"amount\n',
        b"id,booked,id\n1,2,3\n",
        b"id,booked,\xff\ne1,2026-01-05T00:00:00Z,1\n",
    ],
)
def test_a_file_whose_header_is_none_says_why(tmp_path, content, as_worded):
    path = tmp_path / "day.csv"
    path.write_bytes(content)
    with pytest.raises(BucketsError, check=as_worded):
        read(path, schema_of())
    rows, dead = read_as_job(content, schema_of())
    assert rows == []
    assert all(as_worded(reason) for reason in dead.values())
    assert len(dead) == content.removesuffix(b"\n").count(b"\n") + 1


def test_a_line_break_in_quotes_and_a_carriage_return_are_told_in_words_of_ours(as_worded):
    lines = ["id,booked,payee,amount", f'e1,{BOOKED},"two', 'lines",5', f"e2,{BOOKED},a,1\re3,{BOOKED},b,2"]
    rows, dead = read_as_job("\n".join(lines).encode(), schema_of())
    assert rows == []
    assert dead[2] == dead[3]
    assert all(as_worded(dead[position]) for position in (2, 4))


@pytest.mark.parametrize(
    ("encoding", "content"),
    [
        ("cp1252", f"id,booked,payee,amount\ne1,{BOOKED},\x81,1\ne2,{BOOKED},a,1\n".encode("latin-1")),
        ("utf-8", f"id,booked,payee,amount\ne1,{BOOKED},\xe9,1\ne2,{BOOKED},a,1\n".encode("latin-1")),
        (
            "utf-16-le",
            f"id,booked,payee,amount\ne1,{BOOKED},\ud800,1\ne2,{BOOKED},a,1\n".encode("utf-16-le", "surrogatepass"),
        ),
    ],
)
def test_what_is_not_valid_in_the_encoding_is_a_dead_letter(tmp_path, encoding, content, as_worded):
    path = tmp_path / "day.csv"
    path.write_bytes(content)
    rows, dead = read(path, schema_of(encoding=encoding))
    assert rows == [("e2", "a", None, 100)]
    assert as_worded(dead[2])


def test_a_file_of_another_encoding_says_so(tmp_path, as_worded):
    path = tmp_path / "day.csv"
    path.write_bytes(BANK.encode("utf-16-le")[:-1])
    with pytest.raises(BucketsError, check=as_worded):
        read(path, schema_of(**GERMAN, encoding="utf-16-le"))
    path.write_bytes(BANK.encode("utf-8-sig"))
    cp1252 = schema_of(**GERMAN, encoding="cp1252")
    with pytest.raises(BucketsError, check=as_worded):
        read(path, cp1252)
    rows, dead = read_as_job(BANK.encode("utf-8-sig"), cp1252)
    assert rows == []
    assert all(as_worded(reason) for reason in dead.values())
    path.write_bytes(BANK.encode("utf-16"))
    with pytest.raises(BucketsError, check=as_worded):
        read(path, schema_of(**GERMAN))


@pytest.mark.parametrize(
    "csv",
    [
        '{delimiter: ";;"}',
        "{delimiter: a}",
        "{delimiter: \\t}",
        "{delimiter: '\"'}",
        '{decimal: ";"}',
        '{decimal: ",", thousands: ","}',
        '{thousands: "."}',
        '{thousands: "_"}',
        "{encoding: utf-9}",
        "{encoding: rot13}",
        "{encoding: unicode_escape}",
        "{header: [id, amount, id]}",
        "{header: [id, amount]}",
        "{seperator: ';'}",
    ],
)
def test_a_declaration_that_is_none_is_one_line(tmp_path, csv, as_worded):
    path = tmp_path / "schema.yaml"
    path.write_text(f"event_id: id\nevent_time: at\ncsv: {csv}\n")
    with pytest.raises(BucketsError, check=as_worded) as error:
        load_event_schema(path)
    assert "\n" not in error.value.message


def test_the_usual_declaration_is_not_written_down():
    plain = schema_of()
    assert plain.csv == PLAIN_CSV
    assert "csv" not in plain.model_dump()
    german = schema_of(**GERMAN, encoding="latin-1", header=["id", "booked"])
    assert EventSchema.model_validate(german.model_dump(mode="json")) == german
