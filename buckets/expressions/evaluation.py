"""Evaluates expressions on columns, exactly, in SQL's three-valued logic.

`number_functions` computes with the numbers, `text_functions` with the texts.
"""

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial, reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.arrays import Flags
from buckets.expressions.expression import LIST_TESTS, PATTERN_TESTS, TIME_PARTS, Expression
from buckets.expressions.number_functions import (
    OF_NUMBERS,
    Numbers,
    compared,
    constant,
    first_where,
    greatest,
    numbers,
    on_grid,
    rounded,
    texts_of,
)
from buckets.expressions.text_functions import CHANGED_TEXTS, COMPARED_TEXTS, compared_texts, match
from buckets.list_columns import rows_of_elements
from buckets.lists.index import ListsAt
from buckets.lists.keys import joined
from buckets.numbers.fixed_point import INT64_MAX, INT64_MIN
from buckets.time_zone import local_ms

_COMPARE: Final = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
"""Arrow compares texts by their bytes in UTF-8, whose order is that of their code points."""


def matching(
    expression: Expression, columns: Mapping[str, Any], rows: int, lists: ListsAt | None = None
) -> pa.BooleanArray:
    """Return the rows on which a condition with checked kinds is true, and not unknown.

    Columns are Arrow arrays of texts, booleans or timestamps, `Numbers`, or lists of texts, booleans or whole numbers.
    Lists, as of the rows, are only needed if the condition looks into one.
    """
    found = _Evaluation(columns, rows, lists).value(expression)
    if isinstance(found, pa.Scalar):
        return pa.array(np.full(rows, found.as_py() is True))
    return found.fill_null(False) if found.null_count else found


def computed(
    expression: Expression, columns: Mapping[str, Any], rows: int, lists: ListsAt | None = None
) -> pa.Array | Numbers:
    """Return the value of an expression on each row; arguments as for `matching`.

    Texts and conditions are returned as Arrow arrays, NULL where they are unknown.
    """
    found = _Evaluation(columns, rows, lists).value(expression)
    if isinstance(found, Numbers):
        spread = (np.broadcast_to(each, (rows,)) for each in (found.scaled, found.valid))
        return Numbers(next(spread), found.scale, found.largest, next(spread))
    return pa.array([found.as_py()] * rows, found.type) if isinstance(found, pa.Scalar) else found


class _Evaluation:
    def __init__(self, columns: Mapping[str, Any], rows: int, lists: ListsAt | None) -> None:
        self._columns, self._rows, self._lists = columns, rows, lists

    def value(self, expression: Expression) -> Any:
        """Return the value of any expression: `Numbers`, or an Arrow array or scalar; an unknown condition is NULL."""
        operator, operands = expression.operator, expression.operands
        if operator == "field":
            return self._columns[str(expression.value)]
        if operator == "number":
            assert isinstance(expression.value, Decimal)
            return constant(expression.value)
        if operator in ("boolean", "text"):
            return pa.scalar(expression.value, pa.bool_() if operator == "boolean" else pa.string())
        if expression.tests_elements and isinstance(self._columns[str(operands[0].value)], pa.ListArray):
            return self._any_element(expression)
        if operator in ("and", "or"):
            return reduce(pc.and_kleene if operator == "and" else pc.or_kleene, map(self.value, operands))
        if operator in _OF_VALUES:
            return _OF_VALUES[operator](*map(self.value, operands))
        if operator in CHANGED_TEXTS:
            return self._changed(expression)
        if operator in PATTERN_TESTS:
            return match(operator, self.value(operands[0]), str(expression.value))
        if operator == "zone":
            return _on_clock(self.value(operands[0]), str(expression.value))
        if operator == "round":
            return rounded(self.value(operands[0]), *(int(str(digits.value)) for digits in operands[1:]))
        if operator == "case":
            return self._case(expression)
        if operator == "is_null":
            return self._is_null(operands[0])
        if operator == "in":
            return self._membership(expression)
        if operator in LIST_TESTS:
            return self._looked_up(expression)
        return self._comparison(expression)

    def _any_element(self, test: Expression) -> pa.BooleanArray:
        """Return the OR of a test over the elements of an array, in three-valued logic; false for an empty array."""
        name = str(test.operands[0].value)
        lists, elements = self._columns[name], self._columns[name].flatten()
        rows, is_number = rows_of_elements(lists), pa.types.is_integer(elements.type)
        lists_at = None if self._lists is None else self._lists.take(rows)
        columns = {name: _from_arrow(elements) if is_number else elements}
        found = _Evaluation(columns, len(elements), lists_at).value(test)
        is_true, is_unknown = np.zeros((2, self._rows), np.bool_)
        is_true[rows[found.fill_null(False).to_numpy(zero_copy_only=False)]] = True
        is_unknown[rows[found.is_null().to_numpy(zero_copy_only=False)]] = True
        is_missing = lists.is_null().to_numpy(zero_copy_only=False)
        return pa.array(is_true, mask=(is_unknown & ~is_true) | is_missing)

    def _changed(self, expression: Expression) -> Any:
        """Return the texts that a function makes; operands after the first are literals, except for concat."""
        first, *others = expression.operands
        if expression.operator == "concat":
            return CHANGED_TEXTS["concat"](*map(self.value, expression.operands))
        written = [int(str(other.value)) if other.operator == "number" else str(other.value) for other in others]
        return CHANGED_TEXTS[expression.operator](self.value(first), *written)

    def _case(self, expression: Expression) -> Any:
        conditions = [self.value(when) for when, _ in expression.cases]
        found = [self.value(then) for _, then in expression.cases]
        last = [self.value(other) for other in expression.otherwise]
        if isinstance(found[0], Numbers):
            chosen = [_is_true(condition) for condition in conditions]
            return first_where([*chosen, *(np.asarray(True) for _ in last)], [*found, *last])
        chosen_value = last[0] if last else pa.scalar(None, found[0].type)
        for condition, value in zip(reversed(conditions), reversed(found), strict=True):
            chosen_value = pc.if_else(pc.fill_null(condition, False), value, chosen_value)
        return chosen_value

    def _looked_up(self, test: Expression) -> Any:
        """Return whether a list contains keys, or its values for them."""
        assert self._lists is not None
        name, parts, key = str(test.value), len(test.key_parts), self._key(test.operands[0])
        if test.operator == "in_list":
            return self._lists.contain(name, parts, key)
        return self._lists.values(name, parts, key, str(test.operands[1].value))

    def _key(self, expression: Expression) -> pa.Array:
        """Return list keys as texts, one per row."""
        if expression.operator == "tuple":
            return joined([self._key(part) for part in expression.operands])
        found = self.value(expression)
        if isinstance(found, Numbers):
            return texts_of(found)
        if isinstance(found, pa.Scalar):
            return pa.array([found.as_py()] * self._rows, pa.string())
        return found.cast(pa.string())

    def _is_null(self, operand: Expression) -> Any:
        found = self.value(operand)
        if isinstance(found, Numbers):
            return pa.array(np.broadcast_to(~found.valid, (self._rows,)))
        return pa.scalar(not found.is_valid) if isinstance(found, pa.Scalar) else found.is_null()

    def _comparison(self, expression: Expression) -> Any:
        first, second = map(self.value, expression.operands)
        if isinstance(first, Numbers):
            return self._nullable(compared(expression.operator, first, second), first.valid & second.valid)
        return _COMPARE[expression.operator](first, second)

    def _membership(self, expression: Expression) -> Any:
        first, members = self.value(expression.operands[0]), expression.operands[1:]
        if isinstance(first, Numbers):
            wanted = on_grid(members, first.scale)
            if first.scaled.dtype == np.int64:
                found = np.isin(
                    first.scaled, np.array([each for each in wanted if INT64_MIN <= each <= INT64_MAX], np.int64)
                )
            else:
                members_of = set(wanted)
                found = np.array([number in members_of for number in first.scaled.ravel()]).reshape(first.scaled.shape)
            return self._nullable(found, first.valid)
        if isinstance(first, pa.Scalar):
            first = pa.array([first.as_py()] * self._rows, first.type)
        found = pc.is_in(first, value_set=pa.array([member.value for member in members], first.type))
        return pc.if_else(first.is_valid(), found, pa.scalar(None, pa.bool_()))

    def _nullable(self, values: Any, valid: Flags) -> pa.BooleanArray:
        """Return booleans with NULL where they are not valid."""
        spread = self._spread(np.asarray(values, np.bool_))
        return pa.array(spread) if valid.all() else pa.array(spread, mask=~self._spread(valid))

    def _spread(self, flags: Flags) -> Flags:
        return flags if flags.shape == (self._rows,) else np.broadcast_to(flags, (self._rows,))


def part_of_time(operator: str, time: Any) -> Any:
    """Return a part of Arrow timestamps: a number (weekdays from 1 for Sunday, as in Spark), or the ISO 8601 date."""
    if operator == "date":
        return pc.cast(pc.cast(time, pa.date32()), pa.string())
    if operator == "dayofweek":
        return pc.day_of_week(time, count_from_zero=False, week_start=7)
    return pc.call_function(operator, [time])


def _part_of_times(operator: str, times: Any) -> Any:
    part = part_of_time(operator, times)
    return part if operator == "date" else _from_arrow(part)


def _on_clock(times: pa.TimestampArray, zone: str) -> pa.TimestampArray:
    """Return the local times of a zone at instants in ms, as timestamps without a zone."""
    instants_ms = pc.cast(times, pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    missing = times.is_null().to_numpy(zero_copy_only=False)
    return pa.array(local_ms(instants_ms, zone), mask=missing).cast(pa.timestamp("ms"))


def _is_true(condition: Any) -> Flags:
    if isinstance(condition, pa.Scalar):
        return np.asarray(condition.as_py() is True)
    return np.asarray(condition.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)


def _from_arrow(column: Any, scale: int = 0) -> Numbers:
    if isinstance(column, pa.Scalar):
        return Numbers(np.asarray(column.as_py() or 0), scale, INT64_MAX, np.asarray(column.is_valid))
    return numbers(column.cast(pa.int64()), scale)


def _compared_texts(name: str, first: Any, second: Any) -> Numbers:
    return _from_arrow(compared_texts(name, first, second), COMPARED_TEXTS[name][1])


def _coalesce(*found: Any) -> Any:
    if isinstance(found[0], Numbers):
        return first_where([number.valid for number in found], found)
    return pc.coalesce(*found)


def _greatest(operator: str, *found: Any) -> Any:
    if isinstance(found[0], Numbers):
        return greatest(found, least=operator == "least")
    return (pc.max_element_wise if operator == "greatest" else pc.min_element_wise)(*found)


_OF_VALUES: Final[dict[str, Callable[..., Any]]] = {
    **OF_NUMBERS,
    **{name: partial(_compared_texts, name) for name in COMPARED_TEXTS},
    **{part: partial(_part_of_times, part) for part in TIME_PARTS},
    **{name: partial(_greatest, name) for name in ("greatest", "least")},
    "array_size": lambda arrays: _from_arrow(pc.list_value_length(arrays)),
    "coalesce": _coalesce,
    "length": lambda texts: _from_arrow(pc.utf8_length(texts)),
    "not": pc.invert,
}
"""The results of operators and functions on the values of their operands, whatever expressions these are."""
