"""Conditions that differ only in the numbers that they compare with: all of them are evaluated at once.

`recent > 100 AND payments >= 3` and `recent > 250 AND payments >= 5` have one template; of its two holes the first is
filled with 100 and 250, the second with 3 and 5.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from buckets.expressions.decimals import Numbers, constant, sized
from buckets.expressions.expression import COMPARISONS, Expression
from buckets.rules.sql_filter import SqlFilter


@dataclass(frozen=True)
class Template:
    """Conditions over the same features and fields at the same events.

    Attributes:
        choice: the number of the choice of their rules.
        condition: with a field that no event has in place of each number that is compared.
        rules: the numbers of the rules.
        bounds: by the names of these fields, the numbers, one for each rule.
    """

    choice: int
    condition: SqlFilter
    rules: tuple[int, ...]
    bounds: dict[str, Numbers]


def with_holes(expression: Expression, numbers: list[Decimal]) -> Expression:
    """Return a condition with a hole in place of each number that is compared; the numbers are appended in order."""
    operands = expression.operands
    if expression.operator in ("and", "or", "not"):
        return Expression(expression.operator, tuple(with_holes(operand, numbers) for operand in operands))
    if expression.operator not in COMPARISONS:
        return expression
    holed = []
    for operand in operands:
        if isinstance(operand.value, Decimal):
            holed.append(Expression("field", value=hole(len(numbers))))
            numbers.append(operand.value)
        else:
            holed.append(operand)
    return Expression(expression.operator, tuple(holed))


def hole(index: int) -> str:
    """Return the name of a hole, which no field and no feature has."""
    return f"\0{index}"


def column_of(values: Sequence[Decimal]) -> Numbers:
    """Return numbers of any scales as one column."""
    constants = [constant(value) for value in values]
    scale = max(number.scale for number in constants)
    scaled = [int(number.scaled) * 10 ** (scale - number.scale) for number in constants]
    largest = max(map(abs, scaled))
    return Numbers(sized(scaled, largest), scale, largest, np.ones(len(scaled), np.bool_))
