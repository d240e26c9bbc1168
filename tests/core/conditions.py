"""Conditions and rows as hypothesis draws them, and a plain evaluation by Python's own numbers to compare with."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
from hypothesis import strategies as st

from buckets.expressions.expression import TIME_PARTS, WEEKEND, Expression, Kind
from buckets.expressions.number_functions import QUOTIENT_DIGITS, numbers
from buckets.expressions.parser import parse_expression
from tests.core.great_circle_oracle import speed_kmh

FIELDS: dict[str, Kind] = {
    "kind": "text",
    "country code": "text",
    "account": "number",
    "amount": "number",
    "vip": "boolean",
    "at": "time",
    "tags[]": "texts",
    "lines[].codes": "numbers",
    "flags[]": "booleans",
}
ARRAYS = ("tags[]", "lines[].codes", "flags[]")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SCALES = {"account": 0, "amount": 2}
ZONES = ("UTC", "Europe/Berlin", "Asia/Kathmandu", "America/New_York", "Australia/Lord_Howe", "Pacific/Chatham")
TEXTS = st.sampled_from(["", "a", "ab", "b", "B", "é", " a ", "it's", "a\\b", "a%", "_", "line\nend", "`", "TRUE"])
LONGS = st.one_of(st.integers(-4, 4), st.sampled_from([2**63 - 1, -(2**63), 10**18]))
CENTS = st.one_of(st.integers(-400, 400), st.sampled_from([2**63 - 1, -(2**63)]))
TIMES = st.one_of(st.integers(-(10**12), 5 * 10**12), st.integers(-62_135_510_400_000, 253_402_214_399_999))
"""From 1938 to 2128, and from the second day of the year 1 to the last but one of 9999: each zone has a date then."""
NUMBERS = st.one_of(
    st.integers(-5, 5).map(Decimal),
    st.integers(-5000, 5000).map(lambda mills: Decimal(mills).scaleb(-3)),
    st.sampled_from([Decimal(2**63), Decimal("9223372036854775807.5"), Decimal("1e20"), Decimal("0.1")]),
)
ARRAY_ROW = {
    "tags[]": st.none() | st.lists(st.none() | TEXTS, max_size=3),
    "lines[].codes": st.none() | st.lists(st.none() | LONGS.map(Decimal), max_size=3),
    "flags[]": st.none() | st.lists(st.none() | st.booleans(), max_size=2),
}
ROWS = st.lists(
    st.fixed_dictionaries(
        ARRAY_ROW
        | {
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
DATE_LITERALS = TIMES.map(lambda ms: leaf("text", (EPOCH + timedelta(milliseconds=ms)).date().isoformat()))
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
        *(of(part, MOMENTS) for part in TIME_PARTS if part != "date"),
        of("length", of("date", MOMENTS)),
        of("array_size", field(*ARRAYS)),
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
        of("=", of("date", MOMENTS), DATE_LITERALS),
        of("in", of("date", MOMENTS), DATE_LITERALS, DATE_LITERALS),
        of("like", of("date", MOMENTS), value="%-0_"),
        of("in", of("dayofweek", MOMENTS), *map(st.just, WEEKEND)),
        LIKES.flatmap(lambda pattern: of("like", st.one_of(TEXT_VALUES, field("tags[]")), value=pattern)),
        of("in", field("tags[]"), TEXT_LITERALS, TEXT_LITERALS),
        of("in", field("lines[].codes"), NUMBER_LITERALS),
        of("in", field("flags[]"), st.booleans().map(lambda value: leaf("boolean", value))),
        of("is_null", st.one_of(TEXT_VALUES, NUMBER_VALUES, field("vip", *ARRAYS))),
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
        of("coalesce", inner, inner),
    ),
    max_leaves=6,
)


WORDS = """
    array_size( tags[] []
    AND OR NOT IN BETWEEN LIKE IS NULL TRUE CASE WHEN SELECT FROM INTERVAL DATE CAST AS lower coalesce hour sum
    explode date( is_weekend(
    ratio zscore geo_speed_kmh( ratio( zscore(
    ( ) ( ) , . = != <> < >= <=> + - * / % || :: -> : ; @ ? { } [ ] ' ` -- /* */ \\ 1 0 1.5 1e9 1e999 0x1F 'a' "b" 'UTC'
"""
PIECES = [*WORDS.split(), *FIELDS, "`country code`", "9" * 40, "AT TIME ZONE", "\x00", "\n", "é"]
TEXTS_OF_ANY_KIND = st.one_of(st.lists(st.sampled_from(PIECES), max_size=14).map(" ".join), st.text(max_size=40))
"""Mostly no conditions."""


def columns_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    columns: dict[str, Any] = {
        name: pa.array([row[name] for row in rows], pa.string()) for name in ("kind", "country code")
    }
    for name, scale in SCALES.items():
        scaled = [None if row[name] is None else int(row[name].scaleb(scale)) for row in rows]
        columns[name] = numbers(pa.array(scaled, pa.int64()), scale)
    columns["tags[]"] = pa.array([row.get("tags[]") for row in rows], pa.list_(pa.string()))
    codes = (row.get("lines[].codes") for row in rows)
    whole = [of and [None if code is None else int(code) for code in of] for of in codes]
    columns["lines[].codes"] = pa.array(whole, pa.list_(pa.int64()))
    columns["flags[]"] = pa.array([row.get("flags[]") for row in rows], pa.list_(pa.bool_()))
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
    letter, rest = (pattern[1:2], pattern[2:]) if escaped else (pattern[0], pattern[1:])
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
    if operator == "date":
        return local_time(row, operands[0]).date().isoformat()
    if operator == "dayofweek":
        return Fraction(local_time(row, operands[0]).isoweekday() % 7 + 1)
    if operator in TIME_PARTS:
        return Fraction(getattr(local_time(row, operands[0]), operator))
    found = [value(operand, row) for operand in operands]
    if operands[0].is_array and operator in ("in", "like") and found[0] is not None:
        tests = [None if element is None else of_known(expression, element, *found[1:]) for element in found[0]]
        return True if True in tests else None if None in tests else False
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
        "array_size": lambda: Fraction(len(first)),
        "abs": lambda: abs(first),
        "negate": lambda: -first,
    }[operator]()
