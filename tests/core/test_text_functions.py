"""Functions of texts and of numbers: what DuckDB says of them, known cases, and the ends of what there can be."""

from decimal import Decimal
from fractions import Fraction
from functools import cache

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from buckets.expressions import text_functions
from buckets.expressions.evaluation import computed
from buckets.expressions.number_functions import Numbers, constant, greatest, numbers, scaled_down
from buckets.expressions.parser import parse_expression
from tests.core.conditions import jaro_winkler, levenshtein
from tests.laws import examples

TEXTS = st.none() | st.text("abAB é-", max_size=8) | st.sampled_from(["MARTHA", "MARHTA", "DIXON", "DICKSONX", "😀a"])
CENTS = st.none() | st.integers(-10_000, 10_000) | st.integers(-(10**15), 10**15)
ROWS = st.lists(st.tuples(TEXTS, TEXTS, CENTS, CENTS), min_size=1, max_size=8)


@cache
def duck() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


def both(ours: str, theirs: str, rows: list[tuple]) -> tuple[list, list]:
    """What we and DuckDB say of rows; it compares texts by their bytes, so that these have only letters of one byte."""
    if "levenshtein" in theirs or "jaro" in theirs:
        rows = [(*(text and text.replace("é", "e").replace("😀", "E") for text in row[:2]), *row[2:]) for row in rows]
    texts = [pa.array([row[at] for row in rows], pa.string()) for at in (0, 1)]
    amounts = [pa.array([row[at] for row in rows], pa.int64()) for at in (2, 3)]
    columns = dict(zip("abxy", [*texts, *(numbers(each, 2) for each in amounts)], strict=True))
    decimals = [
        pa.array([None if row[at] is None else Decimal(row[at]).scaleb(-2) for row in rows], pa.decimal128(20, 2))
        for at in (2, 3)
    ]
    events = pa.table(dict(zip("abxy", [*texts, *decimals], strict=True)))
    with duck().cursor() as cursor:
        cursor.register("events", events)
        said = [value for (value,) in cursor.execute(f"select {theirs} from events").fetchall()]
    return plain(computed(parse_expression(ours), columns, len(rows))), said


def plain(found: pa.Array | Numbers) -> list:
    if isinstance(found, pa.Array):
        return found.to_pylist()
    pairs = zip(found.scaled.tolist(), found.valid.tolist(), strict=True)
    return [scaled_down(int(each), found.scale) if valid else None for each, valid in pairs]


SAME = [
    "substring(a, 1, 3)",
    "substring(a, 3)",
    "substring(a, 2, 0)",
    "split_part(a, '-', 1)",
    "split_part(a, 'a', 2)",
    "split_part(a, 'a', -1)",
    "replace(a, 'a', 'bb')",
    "replace(a, 'ab', '')",
    "a || b || '-'",
    "levenshtein(a, b)",
    "greatest(a, b)",
    "least(b, a, 'a')",
    "greatest(x, y, 1)",
    "least(x, y)",
    "a < b",
    "a >= 'a'",
    "CASE WHEN a < b THEN a WHEN x > y THEN b END",
    "CASE WHEN x > 0 THEN x ELSE y * 2 END",
    "CASE a WHEN 'a' THEN 1 WHEN b THEN 2 ELSE 3 END",
    "CASE WHEN x > y THEN a = b ELSE x < 0 END",
    "round(x, 1)",
    "round(x)",
    "round(x, 2)",
    "a ILIKE '%B_'",
    "a NOT ILIKE 'a%'",
]


@pytest.mark.parametrize("text", SAME)
@settings(max_examples=examples(60))
@given(rows=ROWS)
def test_duckdb_says_the_same(text, rows):
    ours, theirs = both(text, text, rows)
    assert ours == theirs


@pytest.mark.parametrize("pattern", ["^a", "b$", "[^a]+-", "a|B", "(?i)AB", "a{2}", r"\\s", r"\\p{Lu}", r"a.b", ""])
@settings(max_examples=examples(60))
@given(rows=ROWS)
def test_a_regular_expression_is_that_of_duckdb(pattern, rows):
    ours, theirs = both(f"a REGEXP '{pattern}'", f"regexp_matches(a, '{pattern.replace(chr(92) * 2, chr(92))}')", rows)
    assert ours == theirs


@pytest.mark.parametrize(
    ("ours", "theirs", "within"),
    [
        ("jaro_winkler(a, b)", "jaro_winkler_similarity(a, b)", Decimal("0.0000005001")),
        ("sqrt(abs(x))", "sqrt(abs(x))", Decimal("1e-8")),
        ("ln(abs(x))", "case when x <> 0 then ln(abs(x)) end", Decimal("1e-12")),
    ],
)
@settings(max_examples=examples(200))
@given(rows=ROWS)
@example(rows=[("", "", 0, 0), ("a", "", 1, 0), ("ab", "ba", 7, 7), ("abcdefgh", "hgfedcba", -1, 0)])
def test_duckdb_says_nearly_the_same_in_floating_point(ours, theirs, within, rows):
    for one, other in zip(*both(ours, theirs, rows), strict=True):
        assert (one is None) == (other is None)
        assert one is None or abs(one - Decimal(other)) <= within


WORDS = st.text("abc", max_size=14) | st.text("ab", min_size=60, max_size=70)


@settings(max_examples=examples(300))
@given(WORDS, WORDS)
def test_likeness_is_what_its_definition_says(first, second):
    found = text_functions.levenshtein(first, second)
    assert found == levenshtein(first, second) == text_functions.levenshtein(second, first)
    similar = text_functions.jaro_winkler(first, second)
    assert similar is not None
    assert abs(Fraction(similar, 10**6) - jaro_winkler(first, second)) <= Fraction(1, 2 * 10**6)
    assert similar == 10**6 if first == second != "" else similar < 10**6


@pytest.mark.parametrize(
    ("first", "second", "similarity"),
    [("MARTHA", "MARHTA", 961111), ("DIXON", "DICKSONX", 813333), ("DWAYNE", "DUANE", 840000), ("a", "b", 0)],
)
def test_known_similarities(first, second, similarity):
    assert text_functions.jaro_winkler(first, second) == similarity


def test_long_texts_are_not_compared_and_not_made():
    long, longer = "é" * 1000, "é" * 1001
    pairs = pa.array([long, longer, None]), pa.array([longer[:999], "a", "a"])
    for name, found in (("levenshtein", 1), ("jaro_winkler", 999800)):
        assert text_functions.compared_texts(name, *pairs).to_pylist() == [found, None, None]
    half = "a" * 50_000
    assert text_functions.concat(pa.array([half, half]), pa.array([half, half + "a"])).is_valid().to_pylist() == [
        True,
        False,
    ]
    doubled = text_functions.replace(pa.array([half, half + "a", "ab"]), "a", "aa")
    assert doubled.is_valid().to_pylist() == [True, False, True]
    assert doubled[2].as_py() == "aab"


def test_functions_of_constants_and_of_no_rows():
    texts = {"a": pa.array([], pa.string()), "x": numbers(pa.array([], pa.int64()), 2)}
    for text in [*SAME, "jaro_winkler(a, 'b')", "sqrt(x)", "ln(x)"]:
        empty = texts | {"b": texts["a"], "y": texts["x"]}
        assert plain(computed(parse_expression(text), empty, 0)) == []
    for text, value in [
        ("substring('abc', -5, 3)", "a"),
        ("split_part('a-b', '-', 3)", ""),
        ("levenshtein('kitten', 'sitting')", Decimal(3)),
        ("sqrt(2)", Decimal("1.414213562373095049")),
        ("sqrt(-1)", None),
        ("ln(10)", Decimal("2.302585092994045684")),
        ("ln(0)", None),
        ("round(-2.5)", Decimal(-3)),
        ("round(1250, -2)", Decimal(1300)),
        ("round(0.15, 1)", Decimal("0.2")),
        ("CASE WHEN FALSE THEN 1 END", None),
        ("greatest(CASE WHEN FALSE THEN 1 END, -3)", Decimal(-3)),
    ]:
        assert plain(computed(parse_expression(text), {}, 2)) == [value, value], text


@given(st.lists(st.integers(-(10**40), 10**40), min_size=2, max_size=4))
def test_the_greatest_of_numbers_of_any_size(values):
    columns = [constant(Decimal(value)) for value in values]
    assert int(greatest(columns).scaled) == max(values)
    assert int(greatest(columns, least=True).scaled) == min(values)
    assert np.all(np.abs(greatest(columns).scaled) <= greatest(columns).largest)
