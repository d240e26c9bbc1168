"""The conditions of a rule as expressions: its filters in one form, and what is shown of a condition."""

from decimal import Decimal, InvalidOperation

from buckets.events.schema import EventSchema
from buckets.expressions.expression import COMPARISONS, Expression
from buckets.expressions.sql_text import to_sql
from buckets.lint.logic import conjuncts
from buckets.printable import one_line, short_line
from buckets.rules.filter import Condition, Filter
from buckets.rules.sql_filter import SqlFilter


def filter_condition(where: Filter, schema: EventSchema | None) -> Expression:
    """Return a filter as an expression in its one form; that of no filter is true."""
    if isinstance(where, SqlFilter):
        return where.expression
    tests = [_test(condition, schema) for condition in where]
    if not tests:
        return Expression("boolean", value=True)
    return tests[0] if len(tests) == 1 else Expression("and", tuple(tests))


def _test(condition: Condition, schema: EventSchema | None) -> Expression:
    name = Expression("field", value=condition.field)
    is_number = _is_number(condition, schema)
    is_boolean = schema is not None and schema.attributes.get(condition.field) == "boolean"
    values = [_literal(text, is_number, is_boolean) for text in condition.operands]
    if condition.operator in COMPARISONS:
        return Expression(condition.operator, (name, values[0]))
    members = Expression("in", (name, *values))
    return members if condition.operator == "in" else Expression("not", (members,))


def _is_number(condition: Condition, schema: EventSchema | None) -> bool:
    """Return whether a field is a number; without an event schema, whether all that it is compared with are."""
    if schema is not None:
        return condition.field in schema.measures or schema.attributes.get(condition.field) == "long"
    return all(map(_reads_as_number, condition.operands))


def _reads_as_number(text: str) -> bool:
    try:
        return Decimal(text).is_finite()
    except InvalidOperation:
        return False


def _literal(text: str, is_number: bool, is_boolean: bool) -> Expression:
    if is_boolean:
        return Expression("boolean", value=text == "true")
    return Expression("number", value=Decimal(text)) if is_number else Expression("text", value=text)


def parts_of(condition: Expression) -> tuple[Expression, ...]:
    """Return the parts that a condition joins by AND, or by OR; itself where it joins none."""
    return condition.operands if condition.operator == "or" else tuple(conjuncts(condition))


def shown(condition: Expression) -> str:
    """Write a condition as SQL, in a line that is not long."""
    return short_line(one_line(to_sql(condition)))
