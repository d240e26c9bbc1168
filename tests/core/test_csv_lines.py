"""CSV line by line: a broken line harms no other."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buckets.events.csv_events import read_lines, split_line
from buckets.events.csv_format import PLAIN_CSV

FIELDS = st.text(st.characters(blacklist_characters="\r\n\x00", blacklist_categories=["Cs"]), max_size=8)


def written(values: list[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(values)
    return text.getvalue()


@given(st.lists(FIELDS, min_size=1, max_size=6))
def test_splitting_what_was_written_gives_the_fields_back(values):
    assert split_line(written(values), PLAIN_CSV) == values


@given(st.lists(st.lists(FIELDS, min_size=3, max_size=3) | st.lists(FIELDS, min_size=4, max_size=4), max_size=6))
def test_each_line_is_a_row_of_its_own(rows):
    columns, broken = read_lines([written(row) for row in rows], ["a", "b", "c"], ["c", "a", "none"], PLAIN_CSV)
    good = [len(row) == 3 for row in rows]
    assert columns["a"] == [row[0] or None if fits else None for row, fits in zip(rows, good, strict=True)]
    assert columns["c"] == [row[2] or None if fits else None for row, fits in zip(rows, good, strict=True)]
    assert columns["none"] == [None] * len(rows)
    expected = [None if fits else "broken CSV: 4 fields where the header has 3" for fits in good]
    assert broken == expected


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("1,2", ["1", "2"]),
        ('"a,b","say ""hi"""', ["a,b", 'say "hi"']),
        (",", ["", ""]),
        (' 1, "2"', [" 1", ' "2"']),
        ("é,\u2028", ["é", "\u2028"]),
        ("", []),
    ],
)
def test_a_line_is_split_at_its_commas(line, values):
    assert split_line(line, PLAIN_CSV) == values


@pytest.mark.parametrize("line", ['"open', '1,"2"3', "1\r2", '"1\n2'])
def test_a_broken_line_is_named_and_the_next_one_is_read(line, as_worded):
    with pytest.raises(ValueError, check=as_worded):
        split_line(line, PLAIN_CSV)
    columns, broken = read_lines([line, "1,2"], ["a", "b"], ["a"], PLAIN_CSV)
    assert columns["a"] == [None, "1"]
    assert as_worded(broken[0])
    assert broken[1] is None


def test_too_few_and_too_many_fields_are_counted(as_worded):
    _, (*broken, whole) = read_lines(["1", "1,2,3", "1,2"], ["a", "b"], ["a"], PLAIN_CSV)
    assert whole is None
    assert all(as_worded(reason) for reason in broken)


def test_a_field_may_be_long():
    assert split_line("x" * 200_000 + ",y", PLAIN_CSV) == ["x" * 200_000, "y"]
