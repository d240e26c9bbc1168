"""Lines of JSON and CSV at random, read as Python itself reads them: equal to the digit, or dead letters with a reason.

`BUCKETS_FUZZ_ROWS` says how many rows; without it, 100,000.
"""

import os
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.events import csv_events, json_events
from buckets.events.arrivals import LONGEST_RAW, RAW, SOURCE, SOURCE_ORDER, parse
from buckets.events.csv_events import text_lines
from tests.core.examples import SCHEMA
from tests.core.written_rows import (
    DEAD,
    HEADER,
    NEEDED,
    SKIPPED,
    csv_line,
    expected_of_csv,
    expected_of_json,
    json_line,
)

ROWS = int(os.environ.get("BUCKETS_FUZZ_ROWS", "100000"))
AT_ONCE = 1000
TEN_MB = 10_000_000


def read(lines: Sequence[bytes], kind: str) -> list[Any]:
    """What comes of each line: an event as a dictionary, a dead letter, or nothing."""
    columns = {
        RAW: pa.array(lines, pa.binary()),
        SOURCE: pa.array(["file"] * len(lines)),
        SOURCE_ORDER: [0] * len(lines),
    }
    texts = text_lines([pa.record_batch(columns)])
    batches = (
        csv_events.read_events(texts, SCHEMA, HEADER)
        if kind == "csv"
        else (json_events.read_events(each, SCHEMA) for each in texts)
    )
    found: list[Any] = [SKIPPED] * len(lines)
    for rows in batches:
        events, dead_letters = parse(rows, SCHEMA, NEEDED)
        columns = {"id": events.event_id, "at": events.times_ms} | events.attributes | events.measures
        values = [each.tolist() for each in columns.values()]
        for position, *event in zip(events.position, *values, strict=True):
            found[position - 1] = dict(zip(columns, event, strict=True))
        for dead_letter in dead_letters:
            assert dead_letter.reason
            assert len(dead_letter.reason) < 400
            check_raw(dead_letter.raw, lines[dead_letter.position - 1])
            dead_letter.reason.encode()
            found[dead_letter.position - 1] = DEAD
    return found


def check_raw(raw: str, line: bytes) -> None:
    """See that a dead letter holds its line, or as much of it as it may, and how long the line is."""
    expected = line[: 5 * LONGEST_RAW].decode(errors="backslashreplace").rstrip("\r\n")
    if len(expected) <= LONGEST_RAW:
        assert raw == expected
        return
    begin, end = raw.rsplit("…", 1)
    assert len(raw) == LONGEST_RAW
    assert expected.startswith(begin)
    try:
        assert end == f" ({len(line.decode()):,} characters in all)"
    except UnicodeDecodeError:
        assert end == f" ({len(line):,} bytes in all)"


def check(lines: Sequence[bytes], kind: str) -> None:
    expected_of = expected_of_csv if kind == "csv" else expected_of_json
    for line, found in zip(lines, read(lines, kind), strict=True):
        expected = expected_of(line)
        assert found == expected, f"{line[:2000]!r} came to {found}, and should to {expected}"


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "draw", "share"), [("json", json_line, 0.8), ("csv", csv_line, 0.2)])
def test_each_line_is_what_python_reads_or_a_dead_letter(kind: str, draw: Callable[[Random], bytes], share: float):
    @settings(max_examples=max(1, int(ROWS * share / AT_ONCE)), deadline=None)
    @given(st.integers(0, 2**64))
    def lines_of(seed: int) -> None:
        dice = Random(seed)
        check([draw(dice) for _ in range(AT_ONCE)], kind)

    lines_of()


@pytest.mark.parametrize("character", ["x", "\xe4", "\u20ac", "\U0001d11e"])
@pytest.mark.parametrize("first", [b"", b"\xff", b"\xff" * 50_000], ids=["valid", "not valid", "half not valid"])
def test_a_dead_letter_keeps_the_beginning_of_its_line_to_the_character(character: str, first: bytes):
    size = len(first.decode(errors="backslashreplace"))
    counts = {max(1, LONGEST_RAW - size + more) for more in (-1, 0, 1, 2 * LONGEST_RAW)}
    assert read([first + character.encode() * count for count in sorted(counts)], "json") == [DEAD] * len(counts)


@pytest.mark.slow
def test_values_of_ten_megabytes_are_read_or_set_aside_and_harm_no_other_line():
    plain = b'{"id":"e","at":1,"payer":"p","amount":1.50,"more":null}'
    zeros = b"0" * TEN_MB
    lines = [
        plain.replace(b'"e"', b'"' + b"x" * TEN_MB + b'"'),
        plain.replace(b"1.50", b"1" + zeros + b"e-%d" % TEN_MB),
        plain.replace(b"1.50", b"1" + zeros),
        plain.replace(b"1.50", b"0." + zeros + b"1"),
        plain.replace(b"null", b"[" + b"1," * (TEN_MB // 2) + b"1]"),
        plain.replace(b"null", b'"' + rb"\u0416" * (TEN_MB // 6) + b'"'),
        plain.replace(b"null", b'"' + rb"\n" * (TEN_MB // 2) + b'"'),
        plain.replace(b"null", b"[" * TEN_MB),
        plain.replace(b'"e"', b'"' + b"\xff" * TEN_MB + b'"'),
    ]
    longest, hundred, *dead, other, escaped, broken, too_deep, no_text, last = read([*lines, plain], "json")
    assert longest["id"] == "x" * TEN_MB
    assert hundred["amount"] == 100
    assert [*dead, too_deep, no_text] == [DEAD] * 4
    assert other == escaped == broken == last == longest | {"id": "e"}
