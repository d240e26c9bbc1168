"""Expressions: what is read, what is refused and where, one form for one meaning, exact values, three-valued logic."""

import os
from datetime import UTC, datetime
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.expressions.decimals import QUOTIENT_DIGITS, numbers
from buckets.expressions.evaluation import matching
from buckets.expressions.expression import Expression, ExpressionError, Kind
from buckets.expressions.kinds import check_condition
from buckets.expressions.normal_form import normalise
from buckets.expressions.parser import parse_expression
from buckets.expressions.sql_text import quoted_name, quoted_text, to_sql
from tests.core.great_circle_oracle import speed_kmh

FIELDS: dict[str, Kind] = {
    "kind": "text",
    "country code": "text",
    "account": "number",
    "amount": "number",
    "vip": "boolean",
    "at": "time",
}
SCALES = {"account": 0, "amount": 2}
ZONES = ("UTC", "Europe/Berlin", "Asia/Kathmandu")
TEXTS = st.sampled_from(["", "a", "ab", "b", "B", "é", " a ", "it's", "a\\b", "a%", "_", "line\nend", "`", "TRUE"])
LONGS = st.one_of(st.integers(-4, 4), st.sampled_from([2**63 - 1, -(2**63), 10**18]))
CENTS = st.one_of(st.integers(-400, 400), st.sampled_from([2**63 - 1, -(2**63)]))
TIMES = st.integers(-(10**12), 4 * 10**12)
NUMBERS = st.one_of(
    st.integers(-5, 5).map(Decimal),
    st.integers(-5000, 5000).map(lambda mills: Decimal(mills).scaleb(-3)),
    st.sampled_from([Decimal(2**63), Decimal("9223372036854775807.5"), Decimal("1e20"), Decimal("0.1")]),
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "kind": st.none() | TEXTS,
            "country code": st.none() | TEXTS,
            "account": st.none() | LONGS.map(Decimal),
            "amount": st.none() | CENTS.map(lambda cents: Decimal(cents).scaleb(-2)),
            "vip": st.none() | st.booleans(),
            "at": TIMES,
        }
    ),
    max_size=8,
)


def leaf(operator: str, value: Any) -> Expression:
    return Expression(operator, value=value)


def plain(number: Decimal) -> Decimal:
    return parse_expression(f"{number:f} = 0").operands[0].value


def of(operator: str, *operands: st.SearchStrategy, value: Any = None) -> st.SearchStrategy:
    return st.tuples(*operands).map(lambda each: Expression(operator, each, value))


def field(*names: str) -> st.SearchStrategy:
    return st.sampled_from(names).map(lambda name: leaf("field", name))


NUMBER_LITERALS = NUMBERS.map(lambda number: leaf("number", plain(number)))
TEXT_LITERALS = TEXTS.map(lambda text: leaf("text", text))
LIKES = st.sampled_from(["%", "a%", "%b", "_", "a_", "%a%", "", "\\%", "a\\_"])
TEXT_VALUES = st.recursive(
    st.one_of(field("kind", "country code"), TEXT_LITERALS),
    lambda inner: st.one_of(
        *(of(name, inner) for name in ("lower", "upper", "trim")), of("coalesce", inner, inner), of("coalesce", inner)
    ),
    max_leaves=3,
)
MOMENTS = st.one_of(field("at"), st.sampled_from(ZONES).flatmap(lambda zone: of("zone", field("at"), value=zone)))
NUMBER_VALUES = st.recursive(
    st.one_of(
        field("account", "amount"),
        NUMBER_LITERALS,
        of("length", TEXT_VALUES),
        of("hour", MOMENTS),
        of("dayofweek", MOMENTS),
    ),
    lambda inner: st.one_of(
        *(of(operator, inner, inner) for operator in "+-*/%"),
        of("abs", inner),
        of("negate", inner.filter(lambda each: each.operator != "number")),
        of("coalesce", inner, inner),
        of("ratio", inner, inner),
        of("zscore", inner, inner, inner),
        of("geo_speed_kmh", inner, inner, inner, inner, inner),
    ),
    max_leaves=5,
)
COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")
CONDITIONS = st.recursive(
    st.one_of(
        st.sampled_from(COMPARISONS).flatmap(lambda operator: of(operator, NUMBER_VALUES, NUMBER_VALUES)),
        st.sampled_from(COMPARISONS[:2]).flatmap(lambda operator: of(operator, TEXT_VALUES, TEXT_VALUES)),
        of("in", TEXT_VALUES, TEXT_LITERALS, TEXT_LITERALS),
        of("in", NUMBER_VALUES, NUMBER_LITERALS, NUMBER_LITERALS, NUMBER_LITERALS),
        LIKES.flatmap(lambda pattern: of("like", TEXT_VALUES, value=pattern)),
        of("is_null", st.one_of(TEXT_VALUES, NUMBER_VALUES, field("vip"))),
        field("vip"),
        st.booleans().map(lambda value: leaf("boolean", value)),
    ),
    lambda inner: st.one_of(
        of("not", inner),
        *(
            st.lists(inner, min_size=2, max_size=3).map(lambda parts, name=name: Expression(name, tuple(parts)))
            for name in ("and", "or")
        ),
        of("=", inner, inner),
        of("is_null", inner),
    ),
    max_leaves=6,
)


def columns_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    columns: dict[str, Any] = {
        name: pa.array([row[name] for row in rows], pa.string()) for name in ("kind", "country code")
    }
    for name, scale in SCALES.items():
        scaled = [None if row[name] is None else int(row[name].scaleb(scale)) for row in rows]
        columns[name] = numbers(pa.array(scaled, pa.int64()), scale)
    columns["vip"] = pa.array([row["vip"] for row in rows], pa.bool_())
    columns["at"] = pa.array([row["at"] for row in rows], pa.timestamp("ms", "UTC"))
    return columns


# --- a plain evaluation, by Python's own numbers, to compare with -----------------------------------------------


def half_to_even(number: Fraction, digits: int = QUOTIENT_DIGITS) -> Fraction:
    return Fraction(round(number * 10**digits), 10**digits)


def is_like(text: str, pattern: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(is_like(text[start:], pattern[1:]) for start in range(len(text) + 1))
    escaped = pattern[0] == "\\"
    letter, rest = (pattern[1], pattern[2:]) if escaped else (pattern[0], pattern[1:])
    return bool(text) and (text[0] == letter or (letter == "_" and not escaped)) and is_like(text[1:], rest)


def compute(operator: str, first: Fraction, second: Fraction) -> Fraction | None:
    if operator in "/%" and second == 0:
        return None
    if operator == "%":
        rest = abs(first) % abs(second)
        return -rest if first < 0 else rest
    return {
        "+": lambda: first + second,
        "-": lambda: first - second,
        "*": lambda: first * second,
        "/": lambda: half_to_even(first / second),
    }[operator]()


def local_time(row: dict[str, Any], expression: Expression) -> datetime:
    zone = str(expression.value) if expression.operator == "zone" else "UTC"
    moment = datetime.fromtimestamp(row["at"] // 1000, UTC)
    return moment.astimezone(ZoneInfo(zone))


def value(expression: Expression, row: dict[str, Any]) -> Any:
    operator, operands = expression.operator, expression.operands
    if expression.is_literal:
        return Fraction(expression.value) if operator == "number" else expression.value
    if operator == "field":
        found = row[str(expression.value)]
        return Fraction(found) if isinstance(found, Decimal) else found
    if operator in ("and", "or"):
        found = [value(operand, row) for operand in operands]
        decides = operator == "or"
        return decides if decides in found else (None if None in found else not decides)
    if operator == "is_null":
        return value(operands[0], row) is None
    if operator == "coalesce":
        return next((found for operand in operands if (found := value(operand, row)) is not None), None)
    if operator == "hour":
        return Fraction(local_time(row, operands[0]).hour)
    if operator == "dayofweek":
        return Fraction(local_time(row, operands[0]).isoweekday() % 7 + 1)
    found = [value(operand, row) for operand in operands]
    if None in found:
        return None
    return of_known(expression, *found)


def of_known(expression: Expression, first: Any, *others: Any) -> Any:
    operator = expression.operator
    if operator == "in":
        return first in others
    if others and operator in "+-*/%":
        return compute(operator, first, others[0])
    if operator == "ratio":
        return compute("/", first, others[0])
    if operator == "zscore":
        return compute("/", first - others[0], others[1])
    if operator == "geo_speed_kmh":
        speed = speed_kmh(first, *others)
        return None if speed is None else half_to_even(speed, 3)
    if operator in COMPARISONS:
        return {
            "=": lambda a, b: a == b,
            "!=": lambda a, b: a != b,
            "<": lambda a, b: a < b,
            "<=": lambda a, b: a <= b,
            ">": lambda a, b: a > b,
            ">=": lambda a, b: a >= b,
        }[operator](first, others[0])
    return {
        "not": lambda: not first,
        "like": lambda: is_like(first, str(expression.value)),
        "lower": lambda: first.lower(),
        "upper": lambda: first.upper(),
        "trim": lambda: first.strip(" "),
        "length": lambda: Fraction(len(first)),
        "abs": lambda: abs(first),
        "negate": lambda: -first,
    }[operator]()


@settings(max_examples=200)
@given(CONDITIONS, ROWS)
def test_a_condition_holds_where_a_plain_evaluation_says_so(expression, rows):
    check_condition(expression, FIELDS)
    expected = [value(expression, row) is True for row in rows]
    assert matching(expression, columns_of(rows), len(rows)).to_pylist() == expected


@settings(max_examples=200)
@given(CONDITIONS, ROWS)
def test_the_one_form_means_the_same_and_stays_as_it_is(expression, rows):
    one_form = normalise(expression)
    check_condition(one_form, FIELDS)
    columns = columns_of(rows)
    assert matching(one_form, columns, len(rows)) == matching(expression, columns, len(rows))
    assert normalise(one_form) == one_form


@settings(max_examples=200)
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
        ("(kind = 'a'", "column 9: Expecting ), at \"'a'\""),
        ("kind = 'a", "column 1: a quote or a comment is opened"),
        ("kind = 'a' kind = 'b'", "column 17: this is not SQL, at '='"),
        ("kind = 'a'; kind = 'b'", "column 1: holds several statements"),
        ("kind = 'it''s'", "column 8: two texts stand side by side"),
        ("sum(amount) > 1", "column 1: sum is not known here"),
        ("vip AND mystery(kind) = 1", "column 9: mystery is not known here"),
        ("vip AND\n  cast(kind as int) = 1", "line 2, column 8: CAST is not known here"),
        ("amount IN (SELECT 1)", "this form of IN is not known here"),
        ("amount BETWEEN SYMMETRIC 1 AND 2", "this form of BETWEEN is not known here"),
        ("payments.amount > 1", "this form of COLUMN is not known here"),
        ("amount > NULL", "NULL is no value"),
        ("vip IS TRUE", "column 1: IS takes NULL alone"),
        ("amount IN (account)", "column 12: IN takes values"),
        ("kind LIKE lower(kind)", "column 1: LIKE takes a pattern"),
        ("amount > 1e40", "column 10: 1e40 has more than 38 digits"),
        ("amount > 1e99999", "column 10: '1e99999' is not a decimal number"),
        ("amount IN ()", "this form of IN is not known here"),
        ("map(amount in 1", "column 1: this is not SQL"),
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

WORDS = """
    AND OR NOT IN BETWEEN LIKE IS NULL TRUE CASE WHEN SELECT FROM INTERVAL DATE CAST AS lower coalesce hour sum explode
    ratio zscore geo_speed_kmh( ratio( zscore(
    ( ) ( ) , . = != <> < >= <=> + - * / % || :: -> : ; @ ? { } [ ] ' ` -- /* */ \\ 1 0 1.5 1e9 1e999 0x1F 'a' "b" 'UTC'
"""
PIECES = [*WORDS.split(), *FIELDS, "`country code`", "9" * 40, "AT TIME ZONE", "\x00", "\n", "é"]
TEXTS_OF_ANY_KIND = st.one_of(st.lists(st.sampled_from(PIECES), max_size=14).map(" ".join), st.text(max_size=40))
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
