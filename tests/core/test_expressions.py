"""Expressions: what is read, what is refused and where, one form for one meaning, exact values, three-valued logic."""

import os
from decimal import Decimal, localcontext

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.expressions.evaluation import matching
from buckets.expressions.expression import ExpressionError, normalise, quoted_name, quoted_text, to_sql
from buckets.expressions.parser import parse_expression
from buckets.expressions.wording import check_condition
from tests.core.conditions import CONDITIONS, FIELDS, ROWS, TEXTS_OF_ANY_KIND, columns_of, value
from tests.laws import examples


@settings(max_examples=examples(200))
@given(CONDITIONS, ROWS)
def test_a_condition_holds_where_a_plain_evaluation_says_so(expression, rows):
    check_condition(expression, FIELDS)
    expected = [value(expression, row) is True for row in rows]
    assert matching(expression, columns_of(rows), len(rows)).to_pylist() == expected


@settings(max_examples=examples(200))
@given(CONDITIONS, ROWS)
def test_the_one_form_means_the_same_and_stays_as_it_is(expression, rows):
    one_form = normalise(expression)
    check_condition(one_form, FIELDS)
    columns = columns_of(rows)
    assert matching(one_form, columns, len(rows)) == matching(expression, columns, len(rows))
    assert normalise(one_form) == one_form


@settings(max_examples=examples(200))
@given(CONDITIONS)
def test_what_is_written_reads_back_as_it_was(expression):
    assert parse_expression(to_sql(expression)) == expression
    one_form = normalise(expression)
    assert normalise(parse_expression(to_sql(one_form))) == one_form


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a = 1 AND b = 2", "b = 2.0 AND (1 = a)"),
        ("a BETWEEN 1 AND 2", "a <= 2 AND a >= 1.00"),
        ("NOT (a > 1 OR b IS NULL)", "b IS NOT NULL AND a <= 1"),
        ("a IN (1, 2, 2)", "a = 2 OR 1 = a"),
        ("a NOT IN (1, 2)", "a <> 1 AND a != 2"),
        ("a IN ('x')", "a = 'x'"),
        ("flag", "flag = TRUE"),
        ("NOT flag", "flag <> true"),
        ("a + b * c > 0", "0 < c * b + a"),
        ("a LIKE 'x%' and a like 'x%'", "a LIKE 'x%'"),
        ("NOT NOT a = 1", "a == 1"),
        ("a + b + c > 0", "c + (b + a) > 0"),
        ("a * (2 * c) = 1", "1 = 2 * a * c"),
        ('`a` = "x"', "a = 'x'"),
        ("a.b.c = 1", "`a.b.c` = 1"),
        ("RATIO(a, b + 1) > 5", "5 < a / (1 + b)"),
        ("ZScore(a, b, c) > 3", "3 < zscore(a, b, c)"),
        ("'x' IN tags[]", "tags[] IN ('x', 'x')"),
        ("'x' IN a.b[].c OR a.b[].c IN ('y')", "`a.b[].c` IN ('y', 'x')"),
        ("NOT ('x' IN tags[] OR 'y' IN tags[])", "tags[] NOT IN ('x', 'y')"),
        ("size(tags[]) > 1", "1 < array_size(`tags[]`)"),
        ("a RLIKE 'x' AND NOT a REGEXP r'\\d'", "regexp(a, 'x') AND a NOT REGEXP '\\\\d'"),
        ("a ILIKE 'FR%'", "a ilike 'FR%'"),
        ("a || 'x' || b = 'c'", "'c' = concat(a, concat('x', b))"),
        ("substr(a, 1, 6) = 'b'", "substring(a FROM 1 FOR 6) = 'b'"),
        ("greatest(a, b, 1) > least(b, c)", "greatest(1, greatest(b, a), a) > least(c, b)"),
        ("CASE a WHEN 1 THEN b ELSE c END > 2", "2 < CASE WHEN 1 = a THEN b ELSE c END"),
        ("CASE WHEN a THEN b END", "CASE WHEN a THEN b END = TRUE"),
        ("NOT a < 'x'", "'x' <= a"),
        ("is_weekend(at)", "dayofweek(at) IN (7, 1)"),
        ("dayofmonth(at) = 1 OR date(at) = '2026-12-24'", "Date(at) = '2026-12-24' OR day(at) = 1"),
    ],
)
def test_one_condition_in_another_spelling(one, other):
    assert normalise(parse_expression(one)) == normalise(parse_expression(other))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "kind = ",
        "(kind = 'a'",
        "kind = 'a",
        "kind = 'a' kind = 'b'",
        "kind = 'a'; kind = 'b'",
        "kind = 'it''s'",
        "sum(amount) > 1",
        "vip AND mystery(kind) = 1",
        "vip AND\n  cast(kind as int) = 1",
        "amount IN (SELECT 1)",
        "amount BETWEEN SYMMETRIC 1 AND 2",
        "amount > NULL",
        "vip IS TRUE",
        "amount IN (account)",
        "kind LIKE lower(kind)",
        "amount > 1e40",
        "amount > 1e99999",
        "amount IN ()",
        "map(amount in 1",
        "show = 1",
        "vip = kind LIKE 'a%'",
        "vip = vip = vip",
        "amount > " + "9" * 65,
        "{amount} > 1",
        "x" * 10_001,
        "vip AND\n  Ratio(amount) > 1",
        "ratio() > 1",
        "is_weekend()",
        "date '2026-12-24' = kind",
        "zscore(amount, 1, 2, 3) > 1",
        "geo_speed_kmh(1, 2) > 1",
        "ratio(DISTINCT amount, 1) > 1",
        "ratio(*, 1) > 1",
        "ratio(amount, 1) OVER () > 1",
        "`ratio`(amount, 1) > 1",
        "mystery(1) > 1",
        "'a' IN tags",
        "kind IN tags[]",
        "tags['x'] = 'a'",
        "tags[1.5] = 'a'",
        "tags[ 1] = 'a'",
        "tags[1] [2] = 'a'",
        "'a' IN tags[ ]",
        "tags[",
        "'a' IN []",
        "'a' NOT IN LIST tags[]",
        "kind REGEXP '('",
        "kind REGEXP kind",
        "kind REGEXP '\\d+'",
        "kind REGEXP r'(?=a)'",
        "kind REGEXP r'\\1'",
        "kind REGEXP '" + "a" * 251 + "'",
        "kind ILIKE lower(kind)",
        "kind REGEXP ANY ('a', 'b')",
        "levenshtein(kind, kind, 2) > 1",
        "jaro_wrinkler(kind, kind) > 1",
        "CASE WHEN vip THEN NULL END",
        "CASE kind END = 'a'",
        "if(vip, 1, 2) = 1",
        "(" * 4000 + "vip" + ")" * 4000,
        "NOT " * 60 + "vip",
    ],
)
def test_what_cannot_be_read_is_said_with_its_column(text, as_worded):
    with pytest.raises(ExpressionError) as caught:
        parse_expression(text)
    assert as_worded(caught.value.located(text))


@pytest.mark.parametrize(
    "text",
    [
        "amout > 1",
        "Amount > 1",
        "amount",
        "vip AND kind",
        "NOT account",
        "kind = 5",
        "account = '5'",
        "account IN (1, 'a')",
        "vip < TRUE",
        "kind + 1 > 2",
        "-kind = 1",
        "account LIKE 'a'",
        "lower(account) = 'a'",
        "hour(account) = 1",
        "at = at",
        "date(at) = '24.12.2026'",
        "date(at) IN ('2026-12-24', '2026-02-29')",
        "date(kind) = '2026-12-24'",
        "date(at, kind) = '2026-12-24'",
        "is_weekend(account)",
        "month(at) = '12'",
        "hour(at AT TIME ZONE 'Europe/Berlim') = 1",
        "hour(at AT TIME ZONE '../../etc/passwd') = 1",
        "hour(at AT TIME ZONE 'posixrules') = 1",
        "dayofweek() = 1",
        "vip = '\x00'",
        "hour(kind AT TIME ZONE 'UTC') = 1",
        "hour(at AT TIME ZONE 'UTC' AT TIME ZONE 'UTC') = 1",
        "ratio(amount, kind) > 1",
        "zscore(amount, vip, 1) > 1",
        "geo_speed_kmh(1, 2, 3, 4, at) > 1",
        "ratio(amount, 1)",
        "coalesce(kind, 1) = 1",
        "tags[] = 'a'",
        "'a' = tags[]",
        "tags[] = tags[]",
        "5 IN tags[]",
        "lines[].codes IN ('a')",
        "lines[].codes > 5",
        "lines[].codes LIKE '1%'",
        "flags[]",
        "lower(tags[]) = 'a'",
        "coalesce(tags[], tags[]) IS NULL",
        "array_size(kind) = 1",
        "array_size(tags[], 1) = 1",
        "lookup(l, tags[], 'tier') = 'x'",
        "account REGEXP '1'",
        "kind || account = 'a'",
        "concat(kind) = 'a'",
        "substring(kind, account) = 'a'",
        "substring(kind) = 'a'",
        "substring(kind, 0) = 'a'",
        "substring(kind, 1, -1) = 'a'",
        "substring(kind, 1.5) = 'a'",
        "split_part(kind, '', 1) = 'a'",
        "split_part(kind, '-', 0) = 'a'",
        "replace(kind, '', 'a') = 'a'",
        "replace(kind, kind, 'a') = 'a'",
        "replace(kind, 'a') = 'a'",
        "levenshtein(kind, account) > 1",
        "jaro_winkler(kind) > 1",
        "round(amount, account) > 1",
        "round(amount, 39) > 1",
        "sqrt(kind) > 1",
        "ln(amount, 2) > 1",
        "greatest(account, kind) = 1",
        "least(amount) = 1",
        "greatest(vip, vip)",
        "CASE WHEN account THEN 1 END = 1",
        "CASE WHEN vip THEN 1 ELSE 'a' END = 1",
        "CASE WHEN vip THEN at END IS NULL",
        "CASE WHEN vip THEN 1 END",
        "'a' IN line[].codes",
    ],
)
def test_what_does_not_go_together_is_said_with_its_column(text, as_worded):
    with pytest.raises(ExpressionError) as caught:
        check_condition(parse_expression(text), FIELDS)
    assert as_worded(caught.value.located(text))


def test_a_quotient_is_rounded_half_to_even():
    rows = [
        {"kind": None, "country code": None, "account": Decimal(n), "amount": Decimal(0), "vip": None, "at": 0}
        for n in (1, 3, -1)
    ]
    half = "account / 2000000000000000000"
    held = matching(parse_expression(f"{half} IN (0, 0.000000000000000002)"), columns_of(rows), 3)
    assert held.to_pylist() == [True, True, True]


DEEP = [
    "account / amount * amount > 0",
    "account / amount * 1.5 = 0",
    "coalesce(amount / account * amount, 0) > 1",
    "amount * (account / amount) BETWEEN 0 AND 5",
    "0.0000000000000000000001 % amount >= 0",
    "0 - account / amount * amount < 0",
    "account * account = -12193263124676115444596859332114007",
    "account > -12345678901234567890123456789.99",
    "zscore(account * account, amount, account / amount) > 1",
    "ratio(account, amount * amount) * amount <= ratio(amount, account)",
    "geo_speed_kmh(amount, amount, account / 3, account, amount / 7) BETWEEN 1 AND 500",
    "geo_speed_kmh(amount, account, amount, account, account * amount * 1e37) = 0",
    "upper(kind) = 'SS' OR lower(kind) = 'i\u0307' OR length(upper(kind)) = 2",
]


@pytest.mark.parametrize("text", DEEP)
@given(rows=ROWS)
def test_numbers_with_many_digits_and_letters_that_become_two_are_exact(text, rows):
    special = [{**row, "kind": kind} for row, kind in zip(rows, ["ß", "İ", "ﬁ"], strict=False)]
    expression, all_rows = parse_expression(text), [*rows, *special]
    expected = [value(expression, row) is True for row in all_rows]
    assert matching(expression, columns_of(all_rows), len(all_rows)).to_pylist() == expected
    assert matching(normalise(expression), columns_of(all_rows), len(all_rows)).to_pylist() == expected


def test_a_number_keeps_all_its_digits_with_a_sign_too():
    number = "12345678901234567890123456789012345678"
    assert to_sql(parse_expression(f"amount > -{number}")) == f"amount > -{number}"


@given(st.text(min_size=1, max_size=20))
def test_any_name_and_any_text_can_be_written(text):
    with localcontext():
        read = parse_expression(f"{quoted_name(text)} = {quoted_text(text)}")
    assert [operand.value for operand in read.operands] == [text, text]


def test_a_condition_without_fields_holds_for_all_rows_or_none():
    assert matching(parse_expression("1 < 2"), {}, 3) == pa.array(np.ones(3, np.bool_))
    assert matching(parse_expression("1 / 0 = 1 OR FALSE"), {}, 2).to_pylist() == [False, False]


# --- any text ---------------------------------------------------------------------------------------------------

FUZZED = int(os.environ.get("BUCKETS_FUZZ_CONDITIONS", examples(4000)))


@settings(max_examples=FUZZED)
@given(TEXTS_OF_ANY_KIND, ROWS)
def test_any_text_is_a_condition_that_can_be_evaluated_or_one_line_that_says_why_not(text, rows):
    """`BUCKETS_FUZZ_CONDITIONS` says how many texts."""
    try:
        expression = parse_expression(text)
        check_condition(expression, FIELDS)
        said = ""
    except ExpressionError as error:
        said = error.located(text)
    assert said.isprintable()
    assert said or len(matching(normalise(expression), columns_of(rows), len(rows))) == len(rows)
