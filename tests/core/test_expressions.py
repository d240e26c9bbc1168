"""Expressions: what is read, what is refused and where, one form for one meaning, exact values, three-valued logic."""

import os
from decimal import Decimal, localcontext

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.expressions.evaluation import matching
from buckets.expressions.expression import ExpressionError
from buckets.expressions.kinds import check_condition
from buckets.expressions.normal_form import normalise
from buckets.expressions.parser import parse_expression
from buckets.expressions.sql_text import quoted_name, quoted_text, to_sql
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
        ("RATIO(a, b + 1) > 5", "5 < a / (1 + b)"),
        ("ZScore(a, b, c) > 3", "3 < zscore(a, b, c)"),
    ],
)
def test_one_condition_in_another_spelling(one, other):
    assert normalise(parse_expression(one)) == normalise(parse_expression(other))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "column 1: is empty"),
        ("kind = ", "an operand is missing"),
        ("(kind = 'a'", "column 1: this bracket is not closed"),
        ("kind = 'a", "column 1: a quote or a comment is opened"),
        ("kind = 'a' kind = 'b'", "column 17: this is not SQL, at '='"),
        ("kind = 'a'; kind = 'b'", "column 1: holds several statements"),
        ("kind = 'it''s'", "column 8: two texts stand side by side"),
        ("sum(amount) > 1", "column 1: sum is not known here"),
        ("vip AND mystery(kind) = 1", "column 9: mystery is not known here"),
        ("vip AND\n  cast(kind as int) = 1", "line 2, column 8: CAST is not known here"),
        ("amount IN (SELECT 1)", "this form of IN is not known here"),
        ("amount BETWEEN SYMMETRIC 1 AND 2", "this form of BETWEEN is not known here"),
        ("payments.amount > 1", "payments.amount has a point in it; fields are top-level, and a name with a point"),
        ("amount > NULL", "NULL is no value"),
        ("vip IS TRUE", "column 1: IS takes NULL alone"),
        ("amount IN (account)", "column 12: IN takes values"),
        ("kind LIKE lower(kind)", "column 1: LIKE takes a pattern"),
        ("amount > 1e40", "column 10: 1e40 has more than 38 digits"),
        ("amount > 1e99999", "column 10: '1e99999' is not a decimal number"),
        ("amount IN ()", "this form of IN is not known here"),
        ("map(amount in 1", "column 4: this bracket is not closed"),
        ("show = 1", "column 1: this begins with a word of SQL; if it is a field, write it in backticks"),
        ("vip = kind LIKE 'a%'", "column 1: a condition is compared with something; put brackets round"),
        ("vip = vip = vip", "put brackets round the condition"),
        ("amount > " + "9" * 65, "has more than 38 digits"),
        ("{amount} > 1", "column 2: PLACEHOLDER is not known here"),
        ("x" * 10_001, "column 10001: has 10,001 characters"),
        ("vip AND\n  Ratio(amount) > 1", "line 2, column 3: ratio(a, b) takes 2 numbers, and 1 is given"),
        ("ratio() > 1", "column 1: ratio(a, b) takes 2 numbers, and none are given"),
        ("zscore(amount, 1, 2, 3) > 1", "column 1: zscore(x, mean, deviation) takes 3 numbers, and 4 are given"),
        ("geo_speed_kmh(1, 2) > 1", "geo_speed_kmh(latitude, longitude, earlier_latitude, earlier_longitude, seconds)"),
        ("ratio(DISTINCT amount, 1) > 1", "ratio(a, b) takes 2 numbers, and 1 is given"),
        ("ratio(*, 1) > 1", "STAR is not known here"),
        ("ratio(amount, 1) OVER () > 1", "is not known here; there are comparisons, AND, OR,"),
        ("`ratio`(amount, 1) > 1", "ratio is not known here"),
        ("mystery(1) > 1", "lower, ratio, trim, upper, zscore"),
        ("(" * 4000 + "vip" + ")" * 4000, "operators stand inside each other"),
        ("NOT " * 60 + "vip", "operators stand inside each other"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_column(text, said):
    with pytest.raises(ExpressionError) as caught:
        parse_expression(text)
    assert said in caught.value.located(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("amout > 1", "column 1: there is no field 'amout'; there are kind,"),
        ("Amount > 1", "column 1: there is no field 'Amount'; did you mean amount?"),
        ("amount", "column 1: a condition is true or false, and amount is a number"),
        ("vip AND kind", "column 9: AND takes conditions, and kind is a text"),
        ("NOT account", "column 5: NOT takes conditions, and account is a number"),
        ("kind = 5", "column 1: kind is a text, and 5 is a number; they cannot be compared"),
        ("account = '5'", "column 1: account is a number, and '5' is a text"),
        ("account IN (1, 'a')", "account is a number, and 'a' is a text"),
        ("kind > 'a'", "column 1: > needs numbers, and kind is a text"),
        ("vip < TRUE", "column 1: < needs numbers, and vip is true or false"),
        ("kind + 1 > 2", "column 1: + takes numbers, and kind is a text"),
        ("-kind = 1", "- takes numbers, and kind is a text"),
        ("account LIKE 'a'", "column 1: LIKE takes a text, and account is a number"),
        ("lower(account) = 'a'", "column 7: lower takes a text, and account is a number"),
        ("hour(account) = 1", "column 6: hour takes a time, and account is a number"),
        ("at = at", "column 1: times are not compared here"),
        ("hour(at AT TIME ZONE 'Europe/Berlim') = 1", "column 6: there is no time zone 'Europe/Berlim'"),
        ("hour(at AT TIME ZONE '../../etc/passwd') = 1", "there is no time zone"),
        ("hour(at AT TIME ZONE 'posixrules') = 1", "there is no time zone"),
        ("dayofweek() = 1", "column 1: dayofweek takes one operand"),
        ("vip = '\x00'", "vip is true or false, and '\\x00' is a text"),
        ("hour(kind AT TIME ZONE 'UTC') = 1", "AT TIME ZONE takes a time, and kind is a text"),
        ("hour(at AT TIME ZONE 'UTC' AT TIME ZONE 'UTC') = 1", "the time is in a zone already"),
        ("ratio(amount, kind) > 1", "column 15: ratio takes numbers, and kind is a text"),
        ("zscore(amount, vip, 1) > 1", "column 16: zscore takes numbers, and vip is true or false"),
        ("geo_speed_kmh(1, 2, 3, 4, at) > 1", "column 27: geo_speed_kmh takes numbers, and at is a time"),
        ("ratio(amount, 1)", "column 1: a condition is true or false, and ratio(amount, 1) is a number"),
        ("coalesce(kind, 1) = 1", "column 1: coalesce takes texts, numbers or conditions, all of one kind"),
    ],
)
def test_what_does_not_go_together_is_said_with_its_column(text, said):
    with pytest.raises(ExpressionError) as caught:
        check_condition(parse_expression(text), FIELDS)
    assert said in caught.value.located(text)


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

FUZZED = int(os.environ.get("BUCKETS_FUZZ_CONDITIONS", "1000"))


@settings(max_examples=FUZZED)
@given(TEXTS_OF_ANY_KIND, ROWS)
def test_any_text_is_a_condition_that_can_be_evaluated_or_one_line_that_says_why_not(text, rows):
    """`BUCKETS_FUZZ_CONDITIONS` says how many texts; without it, 1,000."""
    try:
        expression = parse_expression(text)
        check_condition(expression, FIELDS)
        said = ""
    except ExpressionError as error:
        said = error.located(text)
    assert said.isprintable()
    assert said or len(matching(normalise(expression), columns_of(rows), len(rows))) == len(rows)
