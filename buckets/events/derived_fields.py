"""Derived fields: expressions in SQL over other fields of an event, typed once, and computed when events are read.

A number with digits after the point becomes a measure, anything else an attribute. Derived fields in an archive are
read, not recomputed. So, like any field, one that was declared later is null for earlier arrivals.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from buckets.errors import kind_and_line
from buckets.events.clock_times import Faults
from buckets.expressions.evaluation import computed
from buckets.expressions.expression import THIS, Expression, ExpressionError, Kind, fault, quoted_name, to_sql
from buckets.expressions.number_functions import Numbers, numbers
from buckets.numbers.fixed_point import INT64_MAX, INT64_MIN, format_scaled, to_scaled

EXTREMES: Final = 4  # The number of events on which an expression is tried
KINDS: Final[Mapping[str, Kind]] = {"string": "text", "long": "number", "boolean": "boolean"}
ARRAY_KINDS: Final[Mapping[str, Kind]] = {"string": "texts", "long": "numbers", "boolean": "booleans"}
"""By declared type, the kinds in expressions of attributes, and of arrays by the types of their elements."""
TYPES: Final[Mapping[Kind, str]] = {"text": "string", "boolean": "boolean"}
_ARROW: Final = {"string": pa.string(), "long": pa.int64(), "boolean": pa.bool_()}
_MOMENT = pa.timestamp("ms", "UTC")


def field_kinds(
    attributes: Mapping[str, str], measures: Iterable[str], arrays: Mapping[str, str], time: str
) -> dict[str, Kind]:
    """Return the kinds of event fields in expressions."""
    kinds = {name: KINDS[kind] for name, kind in attributes.items()} | dict.fromkeys(measures, KINDS["long"])
    return kinds | {name: ARRAY_KINDS[kind] for name, kind in arrays.items()} | {time: "time"}


def extreme_columns(
    attributes: Mapping[str, str], measures: Iterable[str], arrays: Mapping[str, str]
) -> dict[str, pa.Array]:
    """Return the fields of extreme events, without the time: attributes and arrays in their type, measures scaled."""
    longs = [None, INT64_MIN, 0, INT64_MAX]
    values: dict[str, list[Any]] = {"string": [None, "", "ß", "a"], "boolean": [None, True, False, None], "long": longs}
    columns = {name: pa.array(values[kind], _ARROW[kind]) for name, kind in attributes.items()}
    columns |= {name: pa.array(longs, pa.int64()) for name in measures}
    return columns | {
        name: pa.array([None, [], values[kind], values[kind][1:]], pa.list_(_ARROW[kind]))
        for name, kind in arrays.items()
    }


def readable(columns: Mapping[str, pa.Array], scales: Mapping[str, int], time: str) -> dict[str, pa.Array | Numbers]:
    """Return event fields as inputs of expressions; `scales` are the scales of numbers, and the time is in ms."""
    return {
        name: numbers(column, scales[name]) if name in scales else (column.cast(_MOMENT) if name == time else column)
        for name, column in columns.items()
    }


def _parsed(text: str) -> Expression:
    from buckets.expressions.parser import parse_expression  # Most schemas derive nothing

    return parse_expression(text)


def derived_type(text: str, kinds: Mapping[str, Kind], extremes: Mapping[str, pa.Array | Numbers]) -> str | int:
    """Return the type of the attribute that an expression gives, or the scale (above 0) of the measure.

    Raises:
        ValueError: it is not an expression over these fields, or not one that a field can be; says where in the text.
    """
    from buckets.expressions.wording import kind_of

    try:
        expression = _parsed(text)
        kind = kind_of(expression, kinds)
        if next(expression.list_tests(), None) is not None:
            raise fault(expression, "lists change, and a derived field does not; look into them in rules")
        if kind != "number" and kind not in TYPES:
            shown = to_sql(expression)
            raise fault(
                expression, f"a derived field is a text, a number, or true or false, and {shown} is none of these"
            )
    except ExpressionError as error:
        raise ValueError(error.located(text)) from None
    try:
        found = computed(expression, extremes, EXTREMES)
    except Exception as error:  # Any error must show here and not in a batch.
        message = f"cannot be evaluated ({kind_and_line(error)}); write it in another way"
        raise ValueError(message) from None
    return TYPES[kind] if not isinstance(found, Numbers) else found.scale or "long"


def named_in(text: str) -> set[str]:
    """Return the fields that an expression names; empty if the text is not an expression."""
    try:
        return set(_parsed(text).fields())
    except ExpressionError:
        return set()


def one_spelling(text: str) -> str:
    """Return a text that is the same for all spellings of an expression."""
    return to_sql(_parsed(text))


def derive(text: str, columns: Mapping[str, pa.Array | Numbers], rows: int) -> tuple[pa.Array, Faults]:
    """Compute a derived field as texts, booleans, or scaled integers, with faults by row."""
    found = computed(_parsed(text), columns, rows)
    if not isinstance(found, Numbers):
        return found, {}
    fits = np.asarray((found.scaled >= INT64_MIN) & (found.scaled <= INT64_MAX), np.bool_)
    faults: Faults = {}
    for row in np.flatnonzero(found.valid & ~fits).tolist():
        try:
            to_scaled(format_scaled(int(found.scaled[row]), found.scale), found.scale)
        except ValueError as error:  # It says why a text of the same digits does not fit
            faults[row] = str(error)
    is_known = found.valid & fits
    return pa.array(np.where(is_known, found.scaled, 0).astype(np.int64), mask=~is_known), faults


def renamed_sql(text: str, names: Mapping[str, str]) -> str:
    """Return an SQL expression with fields renamed by `names` (old to new), and nothing else changed."""
    found = sorted({field.at: str(field.value) for field in _fields(_parsed(text))}.items(), reverse=True)
    for at, name in found:
        if name.startswith(THIS):
            at, name = at + len(THIS), name.removeprefix(THIS)
        if name in names:
            length = len(name) + name.count("`") + 2 if text[at] == "`" else len(name)
            text = text[:at] + quoted_name(names[name]) + text[at + length :]
    return text


def _fields(expression: Expression) -> list[Expression]:
    if expression.operator == "field":
        return [expression]
    return [field for operand in expression.operands for field in _fields(operand)]
