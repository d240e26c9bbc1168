"""The filter of a rule: a condition that must be true of an event, not false, nor unknown because of a null.

    where: {paymentType: CRD, country: [FR, DE], paymentAmount: {">": "100"}}
    where: paymentType = 'CRD' AND (country IN ('FR', 'DE') OR paymentAmount > 100)

Two spellings of one filter are equal. SQL that a mapping can express becomes that mapping, given the event schema.

Filters of features may refer to the window's own event: `amount > 2 * this.amount`, `country <> this.country`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache, reduce
from typing import Annotated, Any

import pyarrow as pa
from pydantic import BeforeValidator, PlainSerializer

from buckets.events.derived_fields import renamed_sql
from buckets.events.schema import EventSchema
from buckets.expressions.expression import THIS, Expression, conjuncts, to_sql
from buckets.lists.index import NO_LISTS, Lists
from buckets.numbers.fixed_point import INT64_MAX, INT64_MIN, finite_decimal, format_scaled, parse_decimal, to_scaled
from buckets.printable import quoted, value_text
from buckets.rules.condition import SqlFilter, as_mapping, check_filter, matches_sql, one_form, parse_sql_filter

_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_OPERATORS = ("=", "!=", "in", "not_in", ">", ">=", "<", "<=")
_ORDER = (">", ">=", "<", "<=")


@dataclass(frozen=True, order=True)
class Condition:
    """One test of one field; operands are text, sorted, since their order has no meaning."""

    field: str
    operator: str
    operands: tuple[str, ...]


Filter = tuple[Condition, ...] | SqlFilter


def _text(value: Any, field: str) -> str:
    if isinstance(value, str | int | float):
        return value_text(value)
    raise _fault(field, f"{value!r} is not a value; write a string, a number, true or false")


def _fault(field: Any, reason: str) -> ValueError:
    return ValueError(f"where.{field}: {reason}")


_OF_THIS = re.compile(re.escape(THIS) + r"[A-Za-z_]\w*")


def parse_filter(written: Any) -> Filter:
    """Parse a filter as written by people; ValueError if it is neither such a mapping nor a condition in SQL."""
    if isinstance(written, str):
        return parse_sql_filter(written)
    if not isinstance(written, dict):
        message = "must be a mapping from field to value, values or {operator: value}, or a condition in SQL"
        raise ValueError(message)
    conditions: list[Condition] = []
    for field, test in written.items():
        tests = test if isinstance(test, dict) else {"in" if isinstance(test, list) else "=": test}
        if not tests:
            raise _fault(field, "has no test; write a value, a list of values or {operator: value}")
        for operator, operand in tests.items():
            if operator not in _OPERATORS:
                raise _fault(field, f"unknown operator {operator!r}; use one of {' '.join(_OPERATORS)}")
            listed = operator in ("in", "not_in")
            if listed != isinstance(operand, list) or operand == []:
                raise _fault(field, f"{operator} takes {'a list of values' if listed else 'one value'}")
            operands = {_text(value, field) for value in operand} if listed else {_text(operand, field)}
            named = next((text for text in operands if _OF_THIS.fullmatch(text)), None)
            if named is not None:
                raise _fault(field, f"{named!r} is a text here; name the event itself in SQL: {field} = {named}")
            condition = _canonical(str(field), operator, operands)
            if any((each.field, each.operator) == (condition.field, condition.operator) for each in conditions):
                raise _fault(field, f"two tests amount to one operator, {condition.operator}; write one of them")
            conditions.append(condition)
    return tuple(sorted(conditions))


def _canonical(field: str, operator: str, operands: set[str]) -> Condition:
    """Return the canonical form of a condition: a list of one value is equality, bounds have no trailing zeros."""
    if len(operands) == 1:
        operator = {"in": "=", "not_in": "!="}.get(operator, operator)
    if operator in _ORDER:
        (bound,) = operands
        try:
            written = format(parse_decimal(bound), "f")
        except ValueError as error:
            raise _fault(field, str(error)) from None
        operands = {written.rstrip("0").rstrip(".") if "." in written else written}
    return Condition(field, operator, tuple(sorted(operands)))


def write_filter(where: Filter) -> dict[str, dict[str, str | list[str]]] | str:
    """Return the filter in the form that `parse_filter` reads; SQL stays as written."""
    if isinstance(where, SqlFilter):
        return where.text
    written: dict[str, dict[str, str | list[str]]] = {}
    for condition in where:
        listed = condition.operator in ("in", "not_in")
        operand = list(condition.operands) if listed else condition.operands[0]
        written.setdefault(condition.field, {})[condition.operator] = operand
    return written


def renamed_written(written: Mapping[str, Any] | str, names: Mapping[str, str]) -> Mapping[str, Any] | str:
    """Return a filter in its written form, with fields renamed by `names` (old to new)."""
    if isinstance(written, str):
        return renamed_sql(written, names)
    return {names.get(field, field): test for field, test in written.items()}


FilterField = Annotated[Filter, BeforeValidator(parse_filter), PlainSerializer(write_filter)]
"""A filter as a field of a model: read and written as people write it."""


def describe_filter(where: Filter) -> str:
    """Return the filter in English: `paymentType is CRD and paymentAmount > 100`; SQL stays SQL, in its normal form.

    No filter gives an empty text. Anything but a plain word is quoted, so that different filters never read alike.
    """
    if isinstance(where, SqlFilter):
        return one_form(where)
    verbs = {"=": "is", "!=": "is not", "in": "is one of", "not_in": "is none of"}
    parts = [
        f"{quoted(c.field)} {verbs.get(c.operator, c.operator)} {', '.join(map(quoted, c.operands))}" for c in where
    ]
    return " and ".join(parts)


def renamed_filter(where: Filter, names: Mapping[str, str]) -> Filter:
    """Return a filter with fields renamed by `names` (old to new)."""
    return parse_filter(renamed_written(write_filter(where), names)) if names else where


def filter_identity(where: Filter) -> Any:
    """Return the identity of a filter, as JSON."""
    return one_form(where) if isinstance(where, SqlFilter) else write_filter(where)


def filter_fields(where: Filter) -> list[str]:
    """Return the fields that a filter names, each once."""
    names = where.expression.fields() if isinstance(where, SqlFilter) else (condition.field for condition in where)
    return list(dict.fromkeys(names))


def canonical_filter(where: Filter, schema: EventSchema) -> Filter:
    """Return the filter with operands in the canonical form of their fields' types: `100` for `100.00` and `1e2`.

    SQL that a mapping can express becomes that mapping. ValueError says what does not fit the event schema, or that two
    tests amount to one operator.
    """
    if isinstance(where, SqlFilter):
        if where.names_this:
            return where
        mapping = as_mapping(where, schema)
        try:
            return where if mapping is None else canonical_filter(parse_filter(mapping), schema)
        except ValueError:  # such as an amount with too many digits, which SQL compares as unequal
            return where
    written: dict[str, dict[str, Any]] = {}
    for condition in where:
        operands = sorted({_canonical_operand(condition, text, schema) for text in condition.operands})
        is_alone = [each.field for each in where].count(condition.field) == 1
        if condition.operator == "!=" and schema.attributes.get(condition.field) == "boolean" and is_alone:
            # Anything but true is false.
            written[condition.field] = {"=": "false" if operands == ["true"] else "true"}
            continue
        listed = condition.operator in ("in", "not_in")
        written.setdefault(condition.field, {})[condition.operator] = operands if listed else operands[0]
    return parse_filter(written)


def _canonical_operand(condition: Condition, text: str, schema: EventSchema) -> str:
    """Return an operand in the form of its field's type; ValueError if it does not fit, or the field is unknown."""
    field = condition.field
    if field in schema.measures:
        scale = schema.measures[field].scale
        try:
            written = format_scaled(to_scaled(text, scale), scale)
        except ValueError as error:
            raise _fault(field, str(error)) from None
        return written.rstrip("0").rstrip(".") if "." in written else written
    kind = schema.attributes.get(field)
    if field in schema.arrays:
        raise _fault(field, f"is an array; write a condition in SQL, as in where: {field} IN ('X')")
    if kind is None:
        raise _fault(field, f"no such attribute or measure in event schema {schema.name!r}")
    if kind == "long":
        if _INTEGER.fullmatch(text) is None or not INT64_MIN <= int(text) <= INT64_MAX:
            raise _fault(field, f"{text!r} is not a 64-bit integer")
        return str(int(text))
    if condition.operator in _ORDER:
        raise _fault(field, f"{condition.operator} needs a number, and {field} is a {kind}")
    if kind == "boolean" and text not in ("true", "false"):
        raise _fault(field, f"{text!r} is neither true nor false")
    return text


def filter_condition(where: Filter, schema: EventSchema | None) -> Expression:
    """Return a filter as an expression in its normal form; no filter is true.

    Without an event schema a field is a number if all its operands are.
    """
    if isinstance(where, SqlFilter):
        return where.expression
    tests = [_test(test, schema) for test in where]
    if len(tests) > 1:
        return Expression("and", tuple(tests))
    return tests[0] if tests else Expression("boolean", value=True)


def _test(test: Condition, schema: EventSchema | None) -> Expression:
    kind = "text" if None in map(finite_decimal, test.operands) else "number"
    if schema is not None:
        attribute = schema.attributes.get(test.field)
        kind = "boolean" if attribute == "boolean" else "text"
        kind = "number" if test.field in schema.measures or attribute == "long" else kind
    values: list[str | bool | Decimal] = list(test.operands)
    if kind != "text":
        values = [Decimal(text) if kind == "number" else text == "true" for text in test.operands]
    operands = (Expression("field", value=test.field), *(Expression(kind, value=value) for value in values))
    if test.operator == "not_in":
        return Expression("not", (Expression("in", operands),))
    return Expression(test.operator, operands)


def filter_lists(where: Filter) -> frozenset[str]:
    """Return the lists that a filter looks into."""
    return where.lists if isinstance(where, SqlFilter) else frozenset()


def needed_fields(where: Filter, schema: EventSchema) -> list[str]:
    """Return the fields that the evaluation of a filter needs, each once."""
    return where.needed_fields(schema) if isinstance(where, SqlFilter) else filter_fields(where)


def matches(
    where: Filter, columns: dict[str, pa.Array], schema: EventSchema, lists: Lists = NO_LISTS
) -> pa.BooleanArray | None:
    """Return which rows pass the filter, as booleans; None if there is no filter.

    Columns are given by field: attributes in their type, measures as scaled int64, and the event time in ms.
    """
    if not where:
        return None
    sql = where if isinstance(where, SqlFilter) else SqlFilter(filter_condition(where, schema), "")
    return matches_sql(sql, columns, schema, lists)


def names_this(where: Filter | None) -> bool:
    """Return whether a filter refers to the event whose window it is."""
    return isinstance(where, SqlFilter) and where.names_this


def field_of(name: str) -> str:
    """Return the field that a name refers to, of this event or of one in its window."""
    return name.removeprefix(THIS)


def window_fields(where: SqlFilter) -> list[str]:
    """Return the fields of events in the window that a filter names, each once."""
    return [name for name in dict.fromkeys(where.expression.fields()) if not name.startswith(THIS)]


@lru_cache(maxsize=4_096)
def split_filter(where: Filter) -> tuple[Filter, SqlFilter | None]:
    """Split a filter into the part on an event alone, and the part that relates it to this event, None if empty."""
    if not isinstance(where, SqlFilter) or not where.names_this:
        return where, None
    parts = conjuncts(where.expression)
    with_this = [part for part in parts if any(name.startswith(THIS) for name in part.fields())]
    alone = [part for part in parts if part not in with_this]
    return _all_of(alone) or (), _all_of(with_this)


def _all_of(parts: list[Expression]) -> SqlFilter | None:
    if not parts:
        return None
    joined = reduce(lambda one, other: Expression("and", (one, other)), parts)
    return SqlFilter(joined, to_sql(joined))


def with_this(schema: EventSchema) -> EventSchema:
    """Return an event schema with each attribute and measure twice, once as a field of this event."""
    attributes = {THIS + name: kind for name, kind in schema.attributes.items()}
    measures = {THIS + name: measure for name, measure in schema.measures.items()}
    update = {"attributes": {**schema.attributes, **attributes}, "measures": {**schema.measures, **measures}}
    return schema.model_copy(update=update)


def check_this_filter(where: SqlFilter, schema: EventSchema) -> None:
    """Check that such a filter fits the event schema and can be evaluated; ValueError names the fault."""
    both, time = with_this(schema), schema.event_time.field
    beside = split_filter(where)[1]
    assert beside is not None
    for name in where.expression.fields():
        message = ""
        if name == time and time not in beside.expression.fields():
            continue  # That part concerns the event alone.
        if field_of(name) == time:
            message = (
                f"{name} does not stand beside `this`; a test of {time} by itself may be joined by AND, as in "
                f"hour({time}) < 6 AND amount > this.amount"
            )
        elif field_of(name) not in schema.attributes and field_of(name) not in schema.measures:
            message = f"{name}: no such attribute or measure in event schema {schema.name!r}"
        if message:
            raise ValueError(message)
    check_filter(where, both)
