"""The possible results of a condition on one row, if some values are known only by bounds or as several truths.

    recent > 5 * usual      with recent in 900..1,000 and usual in 100..150, is true, since 900 > 750

If one truth is returned, it holds for all exact values. If several are, the condition may still have only one, since
its parts are treated as independent. For known values the result is that of `evaluation`.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from buckets.expressions.evaluation import part_of_time
from buckets.expressions.expression import COMPARISONS, LIST_TESTS, PATTERN_TESTS, TIME_PARTS, Expression
from buckets.expressions.number_functions import (
    FASTEST_KMH,
    OF_NUMBERS,
    ZERO,
    Interval,
    absolute,
    add,
    constant,
    divide,
    multiply,
    negated,
    plain_text,
    point,
    remainder,
    rising,
    rounded,
    scaled_down,
    subtract,
)
from buckets.expressions.text_functions import CHANGED_TEXTS, COMPARED_TEXTS, compared_texts, match
from buckets.lists.index import ListsAt
from buckets.lists.keys import joined_text
from buckets.time_zone import local_ms

Truths = frozenset[bool | None]  # Possible truths of a condition: true, false, or NULL (unknown)


Element = int | str | bool | None
Value = Decimal | int | str | bool | Interval | Truths | list[Element] | None
"""A value of a row: a number, a time in ms since 1970, a text or a truth; what it may be; an array, which is known; or
None, which is NULL.
"""
Row = Mapping[str, Value]


class _Row(NamedTuple):
    """A row, and the lists at its time."""

    values: Row
    lists: ListsAt | None


_Found = Any
"""Possible results of an expression: an `Interval`, `Truths`, a frozenset of texts with None for NULL, an array, or
None if it is surely NULL.
"""
_MOST_TEXTS: Final = 256  # Combinations of texts to try
_UNKNOWN: Final[Truths] = frozenset([None])
_INFINITY: Final = Decimal("Infinity")
_ONLY: Final[dict[bool, Truths]] = {truth: frozenset([truth]) for truth in (False, True)}


def possible_truths(expression: Expression, row: Row, lists: ListsAt | None = None) -> Truths:
    """Return all possible truths, at least one, of a condition with checked kinds on one row; may include others.

    It surely holds on the row if the result is `{True}`, and surely does not if True is missing. Lists, at the time of
    the row, are only needed if the condition looks into one.

    Raises:
        ValueError: the bounds of a number are reversed, or a field has no possible truth.
    """
    try:
        return _truths(expression, _Row(row, lists))
    except _TooManyTextsError:
        return frozenset([True, False, None])


class _TooManyTextsError(Exception):
    """A condition depends on too many combinations of texts."""


def possible_number(expression: Expression, row: Row, lists: ListsAt | None = None) -> Interval | None:
    """Return the bounds of a value on one row; None if it is NULL, or not a number."""
    try:
        found = _value(expression, _Row(row, lists))
    except _TooManyTextsError:
        return Interval(-_INFINITY, _INFINITY, may_be_null=True)
    return found if isinstance(found, Interval) else None


def _value(expression: Expression, row: _Row) -> _Found:
    if expression.tests_elements:
        elements = row.values[str(expression.operands[0].value)]
        if isinstance(elements, list):
            return _any_element(expression, elements, row)
    return _BY_OPERATOR[expression.operator](expression, row)


def _truths(expression: Expression, row: _Row) -> Truths:
    found: Truths | None = _value(expression, row)
    return _UNKNOWN if found is None else found


def _field(expression: Expression, row: _Row) -> _Found:
    name = str(expression.value)
    found = _of_row(row.values[name])
    is_impossible = found.lower > found.upper if isinstance(found, Interval) else found == frozenset()
    if is_impossible:
        message = f"{name}: nothing is {row.values[name]}; bounds are a lower and an upper one, and truths at least one"
        raise ValueError(message)
    return found


def _of_row(value: Value) -> _Found:
    if isinstance(value, bool):
        return _ONLY[value]
    if isinstance(value, str):
        return frozenset([value])
    return point(value) if isinstance(value, Decimal | int) else value


# --- conditions -------------------------------------------------------------------------------------------------


def _any_element(test: Expression, elements: list[Element], row: _Row) -> Truths:
    name, found = str(test.operands[0].value), _ONLY[False]
    for element in elements:
        found = _joined("or", found, _truths(test, row._replace(values={name: element})))
    return found


def _junction(expression: Expression, row: _Row) -> Truths:
    truths = (_truths(operand, row) for operand in expression.operands)
    return functools.reduce(functools.partial(_joined, expression.operator), truths)


@functools.cache
def _joined(operator: str, first: Truths, second: Truths) -> Truths:
    """Return the possible results of AND or OR, from those of two conditions."""
    decides = operator == "or"
    return frozenset(
        decides if decides in pair else (None if None in pair else not decides)
        for pair in itertools.product(first, second)
    )


def _not(expression: Expression, row: _Row) -> Truths:
    return frozenset(None if truth is None else not truth for truth in _truths(expression.operands[0], row))


def _is_null(found: _Found) -> Truths:
    if isinstance(found, Interval):
        return _set_of(found.may_be_null, True, False)
    if isinstance(found, frozenset):
        return _set_of(None in found, found != _UNKNOWN, False)
    return _ONLY[found is None]


def _each(function: Callable[..., Any], *operands: frozenset[Any] | None) -> frozenset[Any] | None:
    """Return the possible results of a function from those of its operands; NULL for NULL."""
    known = [operand for operand in operands if operand is not None]
    if len(known) < len(operands):
        return None
    if math.prod(map(len, known)) > _MOST_TEXTS:
        raise _TooManyTextsError
    return frozenset(None if None in values else function(*values) for values in itertools.product(*known))


def _pattern(expression: Expression, row: _Row) -> _Found:
    operator, pattern = expression.operator, str(expression.value)
    return _each(lambda text: match(operator, pa.scalar(text), pattern).as_py(), _value(expression.operands[0], row))


def _membership(expression: Expression, row: _Row) -> Truths:
    first = _value(expression.operands[0], row)
    members: list[Any] = [member.value for member in expression.operands[1:]]
    if first is None:
        return _UNKNOWN
    if isinstance(first, Interval):
        is_within = any(first.lower <= each <= first.upper for each in members)
        return _set_of(is_within, not (first.is_exact and is_within), first.may_be_null)
    return frozenset(None if value is None else value in members for value in first)


def _list_test(expression: Expression, row: _Row) -> _Found:
    """Return the possible results of a list test on a key: texts, or known fields of the event."""
    lists, name = row.lists, str(expression.value)

    def look_up(*parts: str) -> bool | str | None:
        assert lists is not None
        keys = pa.array([parts[0] if len(parts) == 1 else joined_text(parts)], pa.string())
        if expression.operator == "in_list":
            return bool(lists.contain(name, len(parts), keys)[0].as_py())
        value: str | None = lists.values(name, len(parts), keys, str(expression.operands[1].value))[0].as_py()
        return value

    return _each(look_up, *(_key_part(part, row) for part in expression.key_parts))


def _key_part(expression: Expression, row: _Row) -> frozenset[Any] | None:
    found = _value(expression, row)
    if isinstance(found, Interval):
        return frozenset([plain_text(found.lower)])
    return _each(lambda part: str(part).lower() if isinstance(part, bool) else part, found)


def _comparison(expression: Expression, row: _Row) -> Truths:
    operator = expression.operator
    first, second = _value(expression.operands[0], row), _value(expression.operands[1], row)
    if first is None or second is None:
        return _UNKNOWN
    if isinstance(first, Interval):
        return _of_numbers(operator, first, second)
    return _each(COMPARISONS[operator], first, second) or _UNKNOWN


def _of_numbers(operator: str, first: Interval, second: Interval) -> Truths:
    may_be_null = first.may_be_null or second.may_be_null
    holds = COMPARISONS[operator]
    if operator in ("<", "<="):
        return _set_of(holds(first.lower, second.upper), not holds(first.upper, second.lower), may_be_null)
    if operator in (">", ">="):
        return _set_of(holds(first.upper, second.lower), not holds(first.lower, second.upper), may_be_null)
    may_be_equal = first.lower <= second.upper and second.lower <= first.upper
    may_differ = first.lower != second.upper or first.upper != second.lower
    may_be_true, may_be_false = (may_be_equal, may_differ) if operator == "=" else (may_differ, may_be_equal)
    return _set_of(may_be_true, may_be_false, may_be_null)


@functools.cache
def _set_of(may_be_true: bool, may_be_false: bool, may_be_null: bool) -> Truths:
    possible = ((True, may_be_true), (False, may_be_false), (None, may_be_null))
    return frozenset(truth for truth, may_be in possible if may_be)


# --- values -----------------------------------------------------------------------------------------------------


def _coalesce(expression: Expression, row: _Row) -> _Found:
    found: _Found = None
    for operand in expression.operands:
        found = _first_of(found, _value(operand, row))
        if True not in _is_null(found):
            break
    return found


def _first_of(first: _Found, other: _Found) -> _Found:
    """Return the possible results of `coalesce`: the other value where the first is NULL."""
    if first is None or other is None:
        return other if first is None else first
    if isinstance(first, Interval):
        return Interval(min(first.lower, other.lower), max(first.upper, other.upper), other.may_be_null)
    return (first - _UNKNOWN) | other


def _any_of(possible: Iterable[_Found]) -> _Found:
    """Return the possible results of a value that is one of several."""
    values = list(possible)
    known = [value for value in values if value is not None]
    if not known:
        return None
    is_null = len(known) < len(values)
    if isinstance(known[0], Interval):
        lower, upper = min(each.lower for each in known), max(each.upper for each in known)
        return Interval(lower, upper, is_null or any(each.may_be_null for each in known))
    return frozenset().union(*known, _UNKNOWN if is_null else ())


def _case(expression: Expression, row: _Row) -> _Found:
    possible = []
    for when, then in expression.cases:
        truths = _truths(when, row)
        if True in truths:
            possible.append(_value(then, row))
        if truths == _ONLY[True]:
            return _any_of(possible)
    return _any_of([*possible, _value(expression.otherwise[0], row) if expression.otherwise else None])


def _greatest(expression: Expression, row: _Row) -> _Found:
    known = [value for operand in expression.operands if (value := _value(operand, row)) is not None]
    if not known:
        return None
    is_greatest = expression.operator == "greatest"
    best: Callable[..., Any] = max if is_greatest else min
    if not isinstance(known[0], Interval):
        marked = [frozenset((text,) for text in texts) for texts in known]  # A mark around a NULL, which is passed over
        return _each(lambda *texts: best((text for (text,) in texts if text is not None), default=None), *marked)
    always = [number for number in known if not number.may_be_null]
    worst = (min if is_greatest else max)(known, key=lambda number: number.lower if is_greatest else number.upper)
    lower = best(number.lower for number in (always or [worst] if is_greatest else known))
    upper = best(number.upper for number in (known if is_greatest else always or [worst]))
    return Interval(lower, upper, not always)


def _text_function(expression: Expression, row: _Row) -> _Found:
    """Return the possible results of a function of texts and of literal values."""
    operator = expression.operator
    found = [_value(operand, row) for operand in expression.operands]
    written = [frozenset([int(value.lower)]) if isinstance(value, Interval) else value for value in found]
    if operator in CHANGED_TEXTS:
        return _each(lambda first, *others: CHANGED_TEXTS[operator](pa.scalar(first), *others).as_py(), *written)
    digits = COMPARED_TEXTS[operator][1]
    numbers = _each(lambda *texts: compared_texts(operator, *map(pa.scalar, texts)).as_py(), *written)
    return _hull(None if number is None else scaled_down(number, digits) for number in numbers or ())


def _hull(numbers: Iterable[Decimal | None]) -> _Found:
    return _any_of(None if number is None else point(number) for number in numbers)


def _computed(expression: Expression, row: _Row) -> _Found:
    """Return the possible results of a function that is NULL if an operand is."""
    operands = [_value(operand, row) for operand in expression.operands]
    return None if None in operands else _COMPUTE[expression.operator](*operands)


def _part_of_time(expression: Expression, row: _Row) -> _Found:
    operand = expression.operands[0]
    time = _value(operand, row)
    if time is None:
        return None
    zone = str(operand.value) if operand.operator == "zone" else "UTC"
    clock_ms = int(local_ms(np.array([int(time.lower)], np.int64), zone)[0])
    return _of_row(part_of_time(expression.operator, pa.scalar(clock_ms, pa.timestamp("ms"))).as_py())


def _geo_speed_kmh(*operands: Interval) -> Interval | None:
    if not all(operand.is_exact for operand in operands):
        return Interval(ZERO, FASTEST_KMH, may_be_null=True)
    speed = OF_NUMBERS["geo_speed_kmh"](*(constant(operand.lower) for operand in operands))
    if not speed.valid:
        return None
    exact = scaled_down(int(speed.scaled), speed.scale)
    return Interval(exact, exact, any(operand.may_be_null for operand in operands))


def _rounded(number: Interval, *digits: Interval) -> Interval | None:
    return rising(lambda each: rounded(each, *(int(places.lower) for places in digits)), number)


_COMPUTE: Final[dict[str, Callable[..., _Found]]] = {
    "+": add,
    "-": subtract,
    "*": multiply,
    "/": divide,
    "%": remainder,
    "abs": absolute,
    "array_size": lambda elements: point(len(elements)),
    "geo_speed_kmh": _geo_speed_kmh,
    "length": lambda texts: _hull(None if text is None else Decimal(len(text)) for text in texts),
    "ln": lambda number: rising(OF_NUMBERS["ln"], number, -_INFINITY),
    "negate": negated,
    "ratio": divide,
    "round": _rounded,
    "sqrt": lambda number: rising(OF_NUMBERS["sqrt"], number, ZERO),
    "zscore": lambda x, mean, deviation: divide(subtract(x, mean), deviation),
}
"""The results of operators and functions on operands that are not surely NULL."""
_BY_OPERATOR: Final[dict[str, Callable[[Expression, _Row], _Found]]] = {
    **dict.fromkeys(("text", "number", "boolean"), lambda expression, row: _of_row(expression.value)),
    "field": _field,
    **dict.fromkeys(("and", "or"), _junction),
    "not": _not,
    "is_null": lambda expression, row: _is_null(_value(expression.operands[0], row)),
    **dict.fromkeys(PATTERN_TESTS, _pattern),
    "in": _membership,
    **dict.fromkeys(LIST_TESTS, _list_test),
    **dict.fromkeys(COMPARISONS, _comparison),
    **dict.fromkeys(_COMPUTE, _computed),
    "coalesce": _coalesce,
    "case": _case,
    **dict.fromkeys(("greatest", "least"), _greatest),
    **dict.fromkeys((*CHANGED_TEXTS, *COMPARED_TEXTS), _text_function),
    "zone": lambda expression, row: _value(expression.operands[0], row),
    **dict.fromkeys(TIME_PARTS, _part_of_time),
}
