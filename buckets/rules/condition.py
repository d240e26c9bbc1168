"""SQL over the fields of an event, as a rule's filter; and over its features too, as its condition and score.

    score: 40 + 10 * payments

A score is the number of an alert, fixed in its rule or computed as here. A computed score is rounded half-even to a
whole number and clamped to 0 to `LARGEST_SCORE`; NULL is 0.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from pydantic import BeforeValidator, PlainSerializer, PlainValidator

from buckets.aggregates.aggregate import ValueKind
from buckets.arrays import Int64s
from buckets.errors import kind_and_line
from buckets.events.derived_fields import EXTREMES, extreme_columns, field_kinds, readable
from buckets.events.schema import EventSchema
from buckets.expressions.evaluation import computed, matching
from buckets.expressions.expression import COMPARISONS, THIS, Expression, ExpressionError, Kind, normalise, to_sql
from buckets.expressions.number_functions import Numbers
from buckets.expressions.wording import check_condition, check_score, in_words, value_in_words
from buckets.lists.index import NO_LISTS, ListIndex, Lists, ListsAt
from buckets.lists.keys import KeyForm
from buckets.numbers.fixed_point import INT64_MAX, INT64_MIN, half_to_even
from buckets.printable import one_line, short_line

LARGEST_SCORE: Final = 1_000_000_000
_WHOLE = re.compile(r"\s*[+-]?\d+\s*", re.ASCII)


@dataclass(frozen=True)
class SqlFilter:
    """A filter in SQL."""

    expression: Expression  # its one form
    text: str = field(compare=False)  # as written; not compared

    @property
    def names_this(self) -> bool:
        """Whether it compares events of a window with the event itself."""
        return any(name.startswith(THIS) for name in self.expression.fields())

    @property
    def lists(self) -> frozenset[str]:
        """The lists that it looks into."""
        return frozenset(name for name, _ in self.list_keys)

    @property
    def list_keys(self) -> frozenset[tuple[str, int]]:
        """The lists that it looks into, each with the number of parts of a key."""
        return frozenset((str(test.value), len(test.key_parts)) for test in self.expression.list_tests())

    def needed_fields(self, schema: EventSchema) -> list[str]:
        """Return the fields that its evaluation needs, each once: the named ones, and the time for lists."""
        times = [schema.event_time.field] if self.lists else []
        return list(dict.fromkeys([*self.expression.fields(), *times]))


def _parsed(text: str) -> Expression:
    from buckets.expressions.parser import parse_expression

    try:
        return parse_expression(text)
    except ExpressionError as error:
        raise ValueError(error.located(text)) from None


@lru_cache(maxsize=65_536)
def parse_sql_filter(text: str) -> SqlFilter:
    """Parse a condition in SQL; ValueError names the column of a fault."""
    return SqlFilter(normalise(_parsed(text)), text)


def one_form(where: SqlFilter) -> str:
    """Return a text on one line that is the same for all spellings of a filter."""
    return one_line(to_sql(where.expression))


def as_mapping(where: SqlFilter, schema: EventSchema) -> dict[str, dict[str, Any]] | None:
    """Return the filter as a mapping from field to `{operator: value}`; None if a mapping cannot express it.

    ValueError if its parts do not fit together.
    """
    _check(where.text, schema.model_dump_json())
    expression = where.expression
    mapping: dict[str, dict[str, Any]] = {}
    for part in expression.operands if expression.operator == "and" else (expression,):
        found = _simple_test(part)
        if found is None or found[1] in mapping.get(found[0], ()):
            return None
        mapping.setdefault(found[0], {})[found[1]] = found[2]
    return mapping


@lru_cache(maxsize=65_536)
def _check(text: str, schema_json: str) -> None:
    check_filter(parse_sql_filter(text), EventSchema.model_validate_json(schema_json))


def check_filter(where: SqlFilter, schema: EventSchema) -> None:
    """Check that a filter fits an event schema and can be evaluated; ValueError names the fault."""
    _check_sql(where.text, {}, schema, check_condition)
    _try_out(where, schema, lambda columns: matches_sql(where, columns, schema, _empty_lists(where)))


Check: TypeAlias = Callable[[Expression, Mapping[str, Kind]], None]


def _check_sql(text: str, others: Mapping[str, Kind], schema: EventSchema, check: Check) -> None:
    """Check that the kinds of its parts fit together; ValueError names the column of a fault.

    `others` are the kinds of names other than event fields.
    """
    expression = _parsed(text)
    kinds = {**kinds_in(schema), **others}
    try:
        _check_quotes(expression, text, kinds)
        check(expression, kinds)
    except ExpressionError as error:
        raise ValueError(error.located(text)) from None


def _check_quotes(expression: Expression, text: str, names: Collection[str]) -> None:
    """Refuse a field name in double quotes, which is a text to Spark and a field to other databases."""
    name = str(expression.value)
    if expression.operator == "text" and text[expression.at] == '"' and name in names:
        message = f"\"{name}\" in double quotes is a text; write `{name}` for the field, or '{name}' for the text"
        raise ExpressionError(message, expression.at)
    for operand in expression.operands[:1] if expression.operator == "lookup" else expression.operands:
        _check_quotes(operand, text, names)


def _empty_lists(where: SqlFilter) -> Lists:
    """Return empty lists for those that a condition looks into."""
    return {name: ListIndex.of({}, KeyForm(parts)) for name, parts in sorted(where.list_keys)}


def _try_out(where: SqlFilter, schema: EventSchema, evaluate: Callable[[dict[str, pa.Array]], object]) -> None:
    """Evaluate a condition on extreme events; ValueError if it fails, since that would stop a batch for good."""
    columns = extreme_columns(schema.attributes, schema.measures, schema.arrays)
    times_ms = [schema.event_time.earliest_ms, 0, 1, schema.event_time.latest_ms - 1]
    try:
        evaluate(columns | {schema.event_time.field: pa.array(times_ms)})
    except Exception as error:  # Any error must show here and not in a batch.
        message = f"{short_line(where.text)}: cannot be evaluated ({kind_and_line(error)}); write it in another way"
        raise ValueError(one_line(message)) from None


def _simple_test(part: Expression) -> tuple[str, str, Any] | None:
    """Return field, operator and operand of a condition that a mapping can express; None for others."""
    is_negated = part.operator == "not"
    test = part.operands[0] if is_negated else part
    if test.operator not in ("in", *COMPARISONS) or test.operands[0].operator != "field":
        return None
    first, *others = test.operands
    if not all(other.is_literal for other in others):
        return None
    values = [other.value if isinstance(other.value, bool) else str(other.value) for other in others]
    if test.operator == "in":
        return str(first.value), "not_in" if is_negated else "in", values
    return None if is_negated else (str(first.value), test.operator, values[0])


def kinds_in(schema: EventSchema) -> dict[str, Kind]:
    """Return the kinds of an event schema's fields in expressions."""
    return field_kinds(schema.attributes, schema.measures, schema.arrays, schema.event_time.field)


def matches_sql(
    where: SqlFilter, columns: Mapping[str, pa.Array], schema: EventSchema, lists: Lists = NO_LISTS
) -> pa.BooleanArray:
    """Return which rows pass the filter; takes the inputs of `filter.matches`, or shared readable columns."""
    read = columns if isinstance(columns, ReadableColumns) else ReadableColumns(columns, schema)
    at = ListsAt(lists, read.columns[schema.event_time.field].to_numpy()) if where.lists else None
    return matching(where.expression, read, len(next(iter(read.columns.values()))), at)


class ReadableColumns(dict[str, "pa.Array | Numbers"]):
    """Fields of events as expressions take them, each made of its column when a filter first asks for it.

    Attributes:
        columns: as for `filter.matches`.
    """

    def __init__(self, columns: Mapping[str, pa.Array], schema: EventSchema) -> None:
        """Make nothing yet."""
        super().__init__()
        self.columns, self._schema = columns, schema

    def __missing__(self, name: str) -> "pa.Array | Numbers":
        """Make a field."""
        self |= readable_columns([name], self.columns, self._schema)
        return self[name]


def readable_columns(
    names: Iterable[str], columns: Mapping[str, pa.Array], schema: EventSchema
) -> dict[str, pa.Array | Numbers]:
    """Convert some columns, as for `filter.matches`, to inputs of expressions."""
    return readable({name: columns[name] for name in set(names)}, schema.scales, schema.event_time.field)


FeatureColumn: TypeAlias = "Numbers | pa.BooleanArray | pa.StringArray"
"""The values of a feature at some events: numbers, truths or texts."""


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
    """Return a condition in English, in its written order; `words` replace names in it."""
    return in_words(_parsed(when.text), words)


def condition_fields(when: SqlFilter, features: Collection[str]) -> list[str]:
    """Return the event fields that a condition names, each once; its other names are features."""
    return [name for name in dict.fromkeys(when.expression.fields()) if name not in features]


def check_condition_fits(when: SqlFilter, features: Mapping[str, ValueKind], schema: EventSchema) -> None:
    """Check that a condition fits the event schema and the features, and can be evaluated, else ValueError.

    Features are given by name, each with the kind of its values.
    """
    _check_fits(when, features, schema, check_condition, lambda *given: holds(when, *given))


def _check_fits(
    when: SqlFilter,
    features: Mapping[str, ValueKind],
    schema: EventSchema,
    check: Check,
    evaluate: Callable[..., object],
) -> None:
    """Check that an expression fits these fields and features; `evaluate` gets the arguments of `holds`."""
    _check_sql(when.text, {**features}, schema, check)
    for test in when.expression.list_tests():
        feature = next((name for name in test.operands[0].fields() if name in features), None)
        if feature is not None:
            message = f"the key of list {test.value} is a field of the event, and {feature} is a feature"
            raise ValueError(message)
    extremes: dict[str, FeatureColumn] = {}
    for name, kind in features.items():
        if kind != "number":
            extremes[name] = pa.array([None, "", "ß", "a"] if kind == "text" else [None, True, False, True])
            continue
        # Averages and variances have more digits than any measure, and exceed 64 bits.
        scaled = np.array([0, INT64_MIN * 10**30, 0, INT64_MAX * 10**30], object)
        extremes[name] = Numbers(scaled, 30, 2**63 * 10**30, np.array([False, True, True, True]))
    named, lists = condition_fields(when, features), _empty_lists(when)

    def tried(columns: Mapping[str, pa.Array]) -> object:
        at = ListsAt(lists, columns[schema.event_time.field].to_numpy())
        return evaluate({name: columns[name] for name in named}, extremes, schema, EXTREMES, at)

    _try_out(when, schema, tried)


def holds(
    when: SqlFilter,
    fields: Mapping[str, pa.Array],
    features: Mapping[str, FeatureColumn],
    schema: EventSchema,
    events: int,
    lists: ListsAt | None = None,
) -> pa.BooleanArray:
    """Return which of `events` events meet a condition over features and fields.

    Fields are attributes in their type, measures as scaled int64, and the event time in ms. Lists, as of the events,
    are only needed if the condition looks into one.
    """
    read = readable_columns(fields, fields, schema)
    return matching(when.expression, {**read, **features}, events, lists)


@dataclass(frozen=True)
class SqlScore(SqlFilter):
    """A score in SQL; its expression is a number."""


@lru_cache(maxsize=65_536)
def parse_score(text: str) -> SqlScore:
    """Parse a score in SQL; ValueError names the column of a fault."""
    return SqlScore(_parsed(text), text)


def _read_score(written: Any) -> int | SqlScore:
    if isinstance(written, SqlScore):
        return written
    if isinstance(written, str) and not _WHOLE.fullmatch(written):
        return parse_score(written)
    is_whole = isinstance(written, str | int | float) and not isinstance(written, bool) and float(written) % 1 == 0
    if not is_whole or not 0 <= int(written) <= LARGEST_SCORE:
        message = (
            f"{short_line(repr(written))} is not a score; write a whole number from 0 to {LARGEST_SCORE:,}, or SQL over"
            " features and fields, as in 40 + 10 * payments"
        )
        raise ValueError(message)
    return int(written)


Score = Annotated[
    int | SqlScore,
    PlainValidator(_read_score),
    PlainSerializer(lambda score: score.text if isinstance(score, SqlScore) else score, return_type=int | str),
]
"""A score as a field of a model: read and written as people write it."""


def score_words(score: int | SqlScore, words: Mapping[str, str] | None = None) -> str:
    """Return a score in English; `words` replace names in it."""
    return value_in_words(score.expression, words) if isinstance(score, SqlScore) else f"{score:,}"


def check_score_fits(score: SqlScore, features: Mapping[str, ValueKind], schema: EventSchema) -> None:
    """Check that a score fits the event schema and the features, as `check_condition_fits` does."""
    _check_fits(score, features, schema, check_score, lambda *given: scores(score, *given))


def scores(
    score: SqlScore,
    fields: Mapping[str, pa.Array],
    features: Mapping[str, FeatureColumn],
    schema: EventSchema,
    events: int,
    lists: ListsAt | None = None,
) -> Int64s:
    """Return the score of each of `events` events; arguments as for `holds`."""
    found = computed(score.expression, {**readable_columns(fields, fields, schema), **features}, events, lists)
    assert isinstance(found, Numbers)
    known = zip(found.scaled.tolist(), found.valid.tolist(), strict=True)
    return np.array([whole_score(each, 10**found.scale) if is_known else 0 for each, is_known in known], np.int64)


def whole_score(dividend: int, divisor: int) -> int:
    """Return the whole score for a fraction."""
    return min(max(half_to_even(dividend, divisor), 0), LARGEST_SCORE)
