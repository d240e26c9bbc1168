"""What a condition may come to: whatever the exact values are, what comes out of them is among it."""

import itertools
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.expressions.certainty import possible_number, possible_truths
from buckets.expressions.evaluation import matching
from buckets.expressions.expression import Expression, normalise
from buckets.expressions.number_functions import Interval, scaled_down
from buckets.expressions.parser import parse_expression
from buckets.expressions.wording import check_condition
from tests.core.conditions import (
    ARRAY_ROW,
    CENTS,
    CONDITIONS,
    LONGS,
    NUMBER_VALUES,
    SCALES,
    TEXTS,
    TIMES,
    columns_of,
    value,
)
from tests.laws import examples

INFINITY = Decimal("Infinity")
POINTS = 4


def between(lower: Decimal | int, upper: Decimal | int, may_be_null: bool = False) -> Interval:
    return Interval(Decimal(lower), Decimal(upper), may_be_null)


def as_decimal(scaled: int, name: str) -> Decimal:
    return Decimal(scaled).scaleb(-SCALES[name])


@st.composite
def numbers_between(draw, name):
    """A value of a row, and numbers that it may stand for."""
    scaled = LONGS if name == "account" else CENTS
    kind = draw(st.sampled_from(["exact", "null", "narrow", "wide", "open"]))
    if kind == "null":
        return None, [None] * POINTS
    lower = draw(scaled)
    if kind == "exact":
        number = as_decimal(lower, name)
        return draw(st.sampled_from([number, between(number, number)])), [number] * POINTS
    upper = min(lower + draw(st.integers(0, 3)), 2**63 - 1) if kind == "narrow" else draw(scaled)
    lower, upper = min(lower, upper), max(lower, upper)
    inside = st.one_of(st.just(lower), st.just(upper), st.integers(lower, upper)).map(
        lambda each: as_decimal(each, name)
    )
    may_be_null = draw(st.booleans())
    points = [draw(st.none() | inside if may_be_null else inside) for _ in range(POINTS)]
    bounds = [as_decimal(lower, name), as_decimal(upper, name)]
    if kind == "open":
        end = draw(st.sampled_from([0, 1]))
        bounds[end] = INFINITY if end else -INFINITY
    return between(*bounds, may_be_null), points


@st.composite
def truths(draw):
    known = draw(st.sampled_from([None, True, False]))
    possible = draw(st.frozensets(st.sampled_from([None, True, False]), min_size=1) | st.just(frozenset([known])))
    points = [draw(st.sampled_from(sorted(possible, key=str))) for _ in range(POINTS)]
    return (points[0] if len(possible) == 1 and draw(st.booleans()) else possible), points


@st.composite
def uncertain_rows(draw):
    """A row with bounds, and rows of exact values inside them."""
    known = {"kind": draw(st.none() | TEXTS), "country code": draw(st.none() | TEXTS), "at": draw(TIMES)}
    known |= {name: draw(elements) for name, elements in ARRAY_ROW.items()}
    drawn = {
        "account": draw(numbers_between("account")),
        "amount": draw(numbers_between("amount")),
        "vip": draw(truths()),
    }
    row = known | {name: found for name, (found, _) in drawn.items()}
    return row, [known | {name: points[n] for name, (_, points) in drawn.items()} for n in range(POINTS)]


def engine_truths(expression: Expression, rows: list[dict[str, Any]]) -> list[bool | None]:
    columns, is_null = columns_of(rows), Expression("is_null", (expression,))
    holds, unknown = (matching(each, columns, len(rows)).to_pylist() for each in (expression, is_null))
    return [None if nothing else true for true, nothing in zip(holds, unknown, strict=True)]


@pytest.mark.slow
@settings(max_examples=examples(1000))
@given(CONDITIONS, uncertain_rows())
def test_what_comes_out_of_exact_values_is_among_what_may_come_out_of_their_bounds(expression, drawn):
    row, rows = drawn
    possible = possible_truths(expression, row)
    found = engine_truths(expression, rows)
    assert found == [value(expression, each) for each in rows]
    assert set(found) <= possible
    assert set(found) <= possible_truths(normalise(expression), row)


def literal_of(number: Fraction) -> Expression:
    digits = next(each for each in itertools.count() if 10**each % number.denominator == 0)
    return Expression("number", value=scaled_down(number.numerator * 10**digits // number.denominator, digits))


@settings(max_examples=examples(1000))
@given(NUMBER_VALUES, uncertain_rows())
def test_what_a_number_comes_to_lies_between_the_bounds_of_what_it_may_come_to(expression, drawn):
    row, rows = drawn
    for number in (value(expression, each) for each in rows):
        if number is None:
            assert True in possible_truths(Expression("is_null", (expression,)), row)
            continue
        assert False in possible_truths(Expression("is_null", (expression,)), row)
        for operator in ("=", "<=", ">=", "in"):
            assert True in possible_truths(Expression(operator, (expression, literal_of(number))), row)
        for operator in ("!=", "<", ">"):
            assert False in possible_truths(Expression(operator, (literal_of(number), expression)), row)


@settings(max_examples=examples(500))
@given(CONDITIONS, uncertain_rows())
def test_of_exact_values_comes_out_what_evaluation_finds(expression, drawn):
    for row, truth in zip(drawn[1], engine_truths(expression, drawn[1]), strict=True):
        assert possible_truths(expression, row) == {truth}


WHEN = {"recent": "number", "usual": "number", "payments": "number", "first": "boolean", "vip": "boolean"}


@pytest.mark.parametrize(
    ("text", "possible"),
    [
        ("recent > 5 * usual", [True]),
        ("recent > 6.5 * usual", [True, False]),
        ("recent > 10 * usual", [False]),
        ("recent > 5 * usual AND payments >= 10", [True, None]),
        ("recent > 5 * usual AND payments >= 13", [False, None]),
        ("recent > 5 * usual OR payments >= 13", [True]),
        ("recent < usual AND payments >= 10", [False]),
        ("coalesce(payments, 11) >= 10", [True]),
        ("coalesce(payments, 9) >= 10", [True, False]),
        ("payments IS NULL", [True, False]),
        ("recent IS NOT NULL", [True]),
        ("recent / usual BETWEEN 6 AND 10", [True]),
        ("ratio(recent, usual) >= 6.000000000000000001", [True, False]),
        ("usual / (recent - 950) > 0 OR TRUE", [True]),
        ("usual / (recent - 950) > 0", [True, False, None]),
        ("usual / (recent - 900) >= 1", [True, None]),
        ("usual / (recent - 1000) <= -1", [True, None]),
        ("-usual / (recent - 900) <= -1", [True, None]),
        ("payments / 0 > 1", [None]),
        ("zscore(recent, 300, usual) >= 4", [True]),
        ("zscore(recent, usual, 0) IS NULL", [True]),
        ("recent % 7 <= 7", [True]),
        ("recent % 7 >= 0", [True]),
        ("usual % recent > 150", [False]),
        ("abs(usual - 120) <= 30", [True]),
        ("abs(recent - 990) > 50", [True, False]),
        ("abs(-recent) = abs(recent)", [True, False]),
        ("recent IN (1, 2, 1000.01)", [False]),
        ("recent IN (1, 950)", [True, False]),
        ("recent NOT IN (1, 2)", [True]),
        ("recent = recent", [True, False]),
        ("first", [True, False]),
        ("first OR NOT vip", [True, False]),
        ("first AND NOT vip", [False]),
        ("first = vip", [True, False]),
        ("first IS NULL", [False]),
        ("coalesce(first, vip) IN (TRUE, FALSE)", [True]),
        ("geo_speed_kmh(0, 0, 0, 1, 3600) > 111", [True]),
        ("geo_speed_kmh(0, 0, 0, 1, recent) >= 0", [True, None]),
        ("geo_speed_kmh(0, 0, 0, 1, payments) > 999999999.999", [False, None]),
        ("geo_speed_kmh(0, 0, 0, 181, 1) > 1", [None]),
    ],
)
def test_examples(text, possible):
    row = {
        "recent": between(900, 1000),
        "usual": between(Decimal("100.00"), Decimal("150.00")),
        "payments": between(12, 12, may_be_null=True),
        "first": frozenset([True, False]),
        "vip": True,
    }
    expression = parse_expression(text)
    check_condition(expression, WHEN)
    assert possible_truths(expression, row) == set(possible)


def test_numbers_of_any_length_stay_exact():
    nines = " * ".join(["9" * 38] * 40)
    row = {"a": between(Decimal("9" * 38), Decimal("9" * 38)), "b": between(Decimal("-1E-50"), Decimal("1E-50"))}
    for text, possible in [
        (f"({nines}) * ({nines}) * ({nines}) + 1 > a * ({nines})", [True]),
        (f"a * ({nines}) * ({nines}) + b > a * ({nines}) * ({nines})", [True, False]),
        (f"geo_speed_kmh(0, 0, 0, 1, ({nines}) * ({nines}) * ({nines})) = 0", [True]),
        (f"-abs(({nines}) * ({nines})) % 7 = -(({nines}) * ({nines}) % 7)", [True]),
        ("abs(-a - b) >= 99999999999999999999999999999999999998", [True]),
    ]:
        assert possible_truths(parse_expression(text), row) == set(possible)


def test_a_text_that_a_case_makes_may_be_one_of_several():
    row = {"recent": between(1, 10), "kind": "a", "other": None}
    case = "CASE WHEN recent > {} THEN kind WHEN recent < 0 THEN 'never' ELSE 'b' END"
    for text, possible in [
        (f"{case.format(5)} IN ('a', 'b')", [True]),
        (f"{case.format(5)} = 'a'", [True, False]),
        (f"{case.format(0)} = 'a'", [True]),
        (f"upper({case.format(5)}) ILIKE '%A'", [True, False]),
        (f"length({case.format(5)} || 'x') = 2", [True]),
        (f"{case.format(5)} || other = 'a'", [None]),
        (f"greatest({case.format(5)}, 'b', other) = 'b'", [True]),
        (f"levenshtein({case.format(5)}, 'a') <= 1", [True]),
        ("CASE WHEN recent > 5 THEN 1 END > 0", [True, None]),
        ("round(sqrt(recent), 1) BETWEEN 1 AND 3.2", [True]),
        ("ln(recent) >= 0 AND sqrt(recent - 1) IS NOT NULL", [True]),
        ("sqrt(recent - 2) >= 0", [True, None]),
        ("least(recent, 0) = 0 AND greatest(recent, 20) = 20", [True]),
    ]:
        assert possible_truths(parse_expression(text), row) == set(possible), text
    many = " || ".join(case.format(limit) for limit in (1, 2, 3, 4, 5, 6, 7, 8, 9))
    assert possible_truths(parse_expression(f"{many} = 'x'"), row) == {True, False, None}
    assert possible_number(parse_expression(f"length({many})"), row) == between(-INFINITY, INFINITY, True)


@pytest.mark.parametrize("value", [between(2, 1), frozenset()])
def test_bounds_that_nothing_lies_between_are_refused(value, as_worded):
    with pytest.raises(ValueError, check=as_worded):
        possible_truths(parse_expression("flag IS NULL"), {"flag": value})
