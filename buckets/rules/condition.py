"""The condition of a rule: SQL over its features and the fields of the event. An event where it is true is an alert."""

from collections.abc import Collection, Mapping
from typing import Annotated, Any, TypeAlias

import numpy as np
import pyarrow as pa
from pydantic import BeforeValidator, PlainSerializer

from buckets.events.schema import EventSchema
from buckets.expressions.evaluation import matching
from buckets.expressions.expression import Kind
from buckets.expressions.number_functions import Numbers
from buckets.lists.index import ListsAt
from buckets.numbers.fixed_point import INT64_MAX, INT64_MIN
from buckets.rules.sql_filter import (
    EXTREMES,
    SqlFilter,
    check_sql,
    empty_lists,
    parse_sql_filter,
    readable_columns,
    try_out,
)

FeatureColumn: TypeAlias = "Numbers | pa.BooleanArray"
"""A feature at some events: a number or, of a boolean one, true or false."""


def _parse(written: Any) -> SqlFilter:
    if not isinstance(written, str):
        message = "must be a condition in SQL, as in `recent > 5 * usual`"
        raise ValueError(message)
    return parse_sql_filter(written)


ConditionField = Annotated[
    SqlFilter, BeforeValidator(_parse), PlainSerializer(lambda condition: condition.text, return_type=str)
]
"""A condition as a field of a model: read and written as people write it."""


def condition_words(when: SqlFilter, words: Mapping[str, str] | None = None) -> str:
    """Return a condition in English, in the order in which it was written; `words` stand for names in it."""
    from buckets.expressions.parser import parse_expression
    from buckets.expressions.wording import in_words

    return in_words(parse_expression(when.text), words)


def condition_fields(when: SqlFilter, features: Collection[str]) -> list[str]:
    """Return the fields of the event that a condition names, each once; the others are features."""
    return [name for name in dict.fromkeys(when.expression.fields()) if name not in features]


def check_condition_fits(when: SqlFilter, features: Mapping[str, bool], schema: EventSchema) -> None:
    """See that a condition fits the event schema and the features, and can be evaluated; ValueError says what does not.

    Features are given by name, each with whether it is true or false, and no number.
    """
    kinds: dict[str, Kind] = {name: "boolean" if is_boolean else "number" for name, is_boolean in features.items()}
    check_sql(when.text, kinds, schema)
    for test in when.expression.list_tests():
        feature = next((name for name in test.operands[0].fields() if name in features), None)
        if feature is not None:
            message = f"the key of list {test.value} is a field of the event, and {feature} is a feature"
            raise ValueError(message)
    extremes: dict[str, FeatureColumn] = {}
    for name, is_boolean in features.items():
        if is_boolean:
            extremes[name] = pa.array([None, True, False, True])
            continue
        # Averages and variances have more digits than any measure, and pass 64 bits.
        scaled = np.array([0, INT64_MIN * 10**30, 0, INT64_MAX * 10**30], object)
        extremes[name] = Numbers(scaled, 30, 2**63 * 10**30, np.array([False, True, True, True]))
    named, lists = condition_fields(when, features), empty_lists(when)

    def evaluate(columns: Mapping[str, pa.Array]) -> pa.BooleanArray:
        at = ListsAt(lists, columns[schema.event_time.field].to_numpy())
        return holds(when, {name: columns[name] for name in named}, extremes, schema, EXTREMES, at)

    try_out(when, schema, evaluate)


def holds(
    when: SqlFilter,
    fields: Mapping[str, pa.Array],
    features: Mapping[str, FeatureColumn],
    schema: EventSchema,
    events: int,
    lists: ListsAt | None = None,
) -> pa.BooleanArray:
    """Return the events, of so many, for which a condition over features and fields is true.

    Fields are attributes in their type, measures as scaled int64, and the event time in ms. Lists, as they are at the
    events, are only needed where the condition looks into one.
    """
    read = readable_columns(fields, fields, schema)
    return matching(when.expression, {**read, **features}, events, lists)
