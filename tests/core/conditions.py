"""Conditions and rows as hypothesis draws them, and a plain evaluation by Python's own numbers to compare with."""

import re
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
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
LIKES = st.sampled_from(["%", "a%", "%b", "_", "a_", "%a%", "", "\\%", "a\\_", "A%", "%É"])
REGEXPS = st.sampled_from(["", "a", "^a", "b$", "a|B", "[^a]", "(?i)B", "^.$", "\\\\", "\\s", "it's", "%", "é{1,2}"])
PLACES = st.sampled_from([-3, -2, -1, 1, 2, 3, 1_000_000]).map(lambda place: leaf("number", Decimal(place)))
LENGTHS = st.sampled_from([0, 1, 2, 5]).map(lambda length: leaf("number", Decimal(length)))
DIGITS = st.sampled_from([-38, -2, -1, 0, 1, 2, 5, 38]).map(lambda digits: leaf("number", Decimal(digits)))
FULL_TEXTS = TEXT_LITERALS.filter(lambda text: text.value != "")
FLAGS = st.one_of(field("vip"), of("is_null", field("kind", "account")), of(">", field("amount"), field("account")))


def case(*values: st.SearchStrategy) -> st.SearchStrategy:
    """`CASE` with one condition or two, and with or without ELSE."""
    whole = [operand for value in values for operand in (FLAGS, value)]
    return st.one_of(of("case", *whole[:2]), of("case", *whole[:2], values[-1]), of("case", *whole))


TEXT_VALUES = st.recursive(
    st.one_of(field("kind", "country code"), TEXT_LITERALS),
    lambda inner: st.one_of(
        *(of(name, inner) for name in ("lower", "upper", "trim")), of("coalesce", inner, inner), of("coalesce", inner),
        of("concat", inner, inner), of("substring", inner, PLACES), of("substring", inner, PLACES, LENGTHS),
        of("split_part", inner, FULL_TEXTS, PLACES), of("replace", inner, FULL_TEXTS, TEXT_LITERALS),
        of("greatest", inner, inner), of("least", inner, inner), case(inner, inner),
    ),
    max_leaves=3,
)  # fmt: skip
MOMENTS = st.one_of(field("at"), st.sampled_from(ZONES).flatmap(lambda zone: of("zone", field("at"), value=zone)))
NUMBER_VALUES = st.recursive(
    st.one_of(
        field("account", "amount"),
        NUMBER_LITERALS,
        of("length", TEXT_VALUES),
        *(of(part, MOMENTS) for part in TIME_PARTS if part != "date"),
        of("length", of("date", MOMENTS)),
        of("array_size", field(*ARRAYS)),
        of("levenshtein", TEXT_VALUES, TEXT_VALUES),
        of("jaro_winkler", TEXT_VALUES, TEXT_VALUES),
    ),
    lambda inner: st.one_of(
        *(of(operator, inner, inner) for operator in "+-*/%"),
        of("abs", inner),
        of("negate", inner.filter(lambda each: each.operator != "number")),
        of("coalesce", inner, inner),
        of("ratio", inner, inner),
        of("zscore", inner, inner, inner),
        of("geo_speed_kmh", inner, inner, inner, inner, inner),
        of("greatest", inner, inner),
        of("least", inner, inner, inner),
        case(inner, inner),
        of("round", inner),
        of("round", inner, DIGITS),
        of("sqrt", inner),
        of("ln", inner),
    ),
    max_leaves=5,
)
COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")
CONDITIONS = st.recursive(
    st.one_of(
        st.sampled_from(COMPARISONS).flatmap(lambda operator: of(operator, NUMBER_VALUES, NUMBER_VALUES)),
        st.sampled_from(COMPARISONS).flatmap(lambda operator: of(operator, TEXT_VALUES, TEXT_VALUES)),
        of("in", TEXT_VALUES, TEXT_LITERALS, TEXT_LITERALS),
        of("in", NUMBER_VALUES, NUMBER_LITERALS, NUMBER_LITERALS, NUMBER_LITERALS),
        st.sampled_from(COMPARISONS).flatmap(lambda operator: of(operator, of("date", MOMENTS), DATE_LITERALS)),
        of("in", of("date", MOMENTS), DATE_LITERALS, DATE_LITERALS),
        of("like", of("date", MOMENTS), value="%-0_"),
        of("in", of("dayofweek", MOMENTS), *map(st.just, WEEKEND)),
        LIKES.flatmap(lambda pattern: of("like", st.one_of(TEXT_VALUES, field("tags[]")), value=pattern)),
        LIKES.flatmap(lambda pattern: of("ilike", st.one_of(TEXT_VALUES, field("tags[]")), value=pattern)),
        REGEXPS.flatmap(lambda pattern: of("regexp", st.one_of(TEXT_VALUES, field("tags[]")), value=pattern)),
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
        of("case", inner, inner),
        of("case", inner, inner, inner),
    ),
    max_leaves=6,
)


WORDS = """
    array_size( tags[] []
    AND OR NOT IN BETWEEN LIKE IS NULL TRUE CASE WHEN SELECT FROM INTERVAL DATE CAST AS lower coalesce hour sum explode
    date( is_weekend(
    ILIKE REGEXP RLIKE THEN ELSE END concat( substring( split_part( replace( levenshtein( jaro_winkler( greatest( least(
    round( sqrt( ln( r'a' '\\d' regexp(
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


def levenshtein(first: str, second: str) -> int:
    row = list(range(len(second) + 1))
    for at, letter in enumerate(first, 1):
        row, before = [at], row
        for place, other in enumerate(second, 1):
            row.append(min(before[place] + 1, row[place - 1] + 1, before[place - 1] + (letter != other)))
    return row[-1]


def jaro_winkler(first: str, second: str) -> Fraction:
    """By its definition: https://en.wikipedia.org/wiki/Jaro-Winkler_distance, with a threshold of 0.7."""
    reach = max(max(len(first), len(second)) // 2 - 1, 0)
    taken: list[int] = []
    matched = []
    for at, letter in enumerate(first):
        for other in range(max(at - reach, 0), min(at + reach + 1, len(second))):
            if other not in taken and second[other] == letter:
                taken.append(other)
                matched.append(letter)
                break
    if not matched:
        return Fraction(0)
    m = len(matched)
    t = sum(one != second[other] for one, other in zip(matched, sorted(taken), strict=True)) // 2
    jaro = (Fraction(m, len(first)) + Fraction(m, len(second)) + Fraction(m - t, m)) / 3
    same = 0
    while same < min(4, len(first), len(second)) and first[same] == second[same]:
        same += 1
    return jaro + same * (1 - jaro) / 10 if jaro > Fraction(7, 10) else jaro


def root(number: Fraction) -> Fraction | None:
    """The multiple of 10^-18 that is nearest to the root, by halving; the upper one of two."""
    if number < 0:
        return None
    wanted, low, high = 4 * number * 10**36, 0, 2 * (int(number) + 1) * 10**18 + 2
    while low < high:  # the least n with (2n + 1)² above four times the number
        middle = (low + high) // 2
        low, high = (low, middle) if (2 * middle + 1) ** 2 > wanted else (middle + 1, high)
    return Fraction(low, 10**18)


def logarithm(number: Fraction) -> Fraction | None:
    if number <= 0:
        return None
    wide = Context(prec=200)
    return half_to_even(Fraction(wide.ln(wide.divide(Decimal(number.numerator), Decimal(number.denominator)))))


def away_from_zero(number: Fraction, digits: int = 0) -> Fraction:
    scaled = abs(number) * Fraction(10) ** digits
    nearest = int(scaled) + (scaled - int(scaled) >= Fraction(1, 2))
    return (nearest if number > 0 else -nearest) / Fraction(10) ** digits


def substring(text: str, first: int, length: int | None = None) -> str:
    letters = range(1, len(text) + 1)
    start = first if first > 0 else len(text) + 1 + first
    return "".join(text[at - 1] for at in letters if at >= start and (length is None or at < start + length))


def split_part(text: str, delimiter: str, number: int) -> str:
    numbered = dict(enumerate(text.split(delimiter), 1))
    return numbered.get(number if number > 0 else len(numbered) + 1 + number, "")


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
    if operator == "case":
        for when, then in zip(operands[:-1:2], operands[1::2], strict=True):
            if value(when, row) is True:
                return value(then, row)
        return value(operands[-1], row) if len(operands) % 2 else None
    if operator in ("greatest", "least"):
        known = [found for operand in operands if (found := value(operand, row)) is not None]
        return (max if operator == "greatest" else min)(known, default=None)
    if operator == "date":
        return local_time(row, operands[0]).date().isoformat()
    if operator == "dayofweek":
        return Fraction(local_time(row, operands[0]).isoweekday() % 7 + 1)
    if operator in TIME_PARTS:
        return Fraction(getattr(local_time(row, operands[0]), operator))
    found = [value(operand, row) for operand in operands]
    if operands[0].is_array and operator in ("in", "like", "ilike", "regexp") and found[0] is not None:
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
        "concat": lambda: first + "".join(others),
        "substring": lambda: substring(first, *map(int, others)),
        "split_part": lambda: split_part(first, others[0], int(others[1])),
        "replace": lambda: others[1].join(first.split(others[0])),
        "levenshtein": lambda: Fraction(levenshtein(first, others[0])),
        "jaro_winkler": lambda: half_to_even(jaro_winkler(first, others[0]), 6),
        "round": lambda: away_from_zero(first, *map(int, others)),
        "sqrt": lambda: root(first),
        "ln": lambda: logarithm(first),
        "ilike": lambda: is_like(first.lower(), str(expression.value).lower()),
        "regexp": lambda: re.search(str(expression.value).replace("$", r"\Z"), first) is not None,
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
