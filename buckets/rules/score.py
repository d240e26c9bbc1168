"""The score of an alert: a number that its rule states, or computes of its features and the fields of the event.

    score: 40 + 10 * payments

What is computed is rounded to a whole number, half to even, and kept between 0 and `LARGEST_SCORE`; NULL is 0.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Final

import numpy as np
import pyarrow as pa
from pydantic import PlainSerializer, PlainValidator

from buckets.aggregates.aggregate import ValueKind
from buckets.arrays import Int64s
from buckets.events.schema import EventSchema
from buckets.expressions.evaluation import computed
from buckets.expressions.expression import ExpressionError
from buckets.expressions.number_functions import Numbers
from buckets.expressions.wording import check_score, value_in_words
from buckets.lists.index import ListsAt
from buckets.numbers.fixed_point import half_to_even
from buckets.printable import short_line
from buckets.rules.condition import FeatureColumn, SqlFilter, check_fits, readable_columns

LARGEST_SCORE: Final = 1_000_000_000
_WHOLE = re.compile(r"\s*[+-]?\d+\s*", re.ASCII)


@dataclass(frozen=True)
class SqlScore(SqlFilter):
    """A score that is written in SQL; its expression is a number."""


@lru_cache(maxsize=65_536)
def parse_score(text: str) -> SqlScore:
    """Read a score in SQL; ValueError says at which column it cannot be read."""
    from buckets.expressions.parser import parse_expression

    try:
        return SqlScore(parse_expression(text), text)
    except ExpressionError as error:
        raise ValueError(error.located(text)) from None


def _read(written: Any) -> int | SqlScore:
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
    PlainValidator(_read),
    PlainSerializer(lambda score: score.text if isinstance(score, SqlScore) else score, return_type=int | str),
]
"""A score as a field of a model: read and written as people write it."""


def score_words(score: int | SqlScore, words: Mapping[str, str] | None = None) -> str:
    """Return a score in English; `words` stand for names in it."""
    return value_in_words(score.expression, words) if isinstance(score, SqlScore) else f"{score:,}"


def check_score_fits(score: SqlScore, features: Mapping[str, ValueKind], schema: EventSchema) -> None:
    """See that a score fits the event schema and the features, as `check_condition_fits` does for a condition."""
    check_fits(score, features, schema, check_score, lambda *given: scores(score, *given))


def scores(
    score: SqlScore,
    fields: Mapping[str, pa.Array],
    features: Mapping[str, FeatureColumn],
    schema: EventSchema,
    events: int,
    lists: ListsAt | None = None,
) -> Int64s:
    """Return the score of so many events; takes what `condition.holds` takes."""
    found = computed(score.expression, {**readable_columns(fields, fields, schema), **features}, events, lists)
    assert isinstance(found, Numbers)
    known = zip(found.scaled.tolist(), found.valid.tolist(), strict=True)
    return np.array([whole_score(each, 10**found.scale) if is_known else 0 for each, is_known in known], np.int64)


def whole_score(dividend: int, divisor: int) -> int:
    """Return the score that a number comes to, which is given as a fraction."""
    return min(max(half_to_even(dividend, divisor), 0), LARGEST_SCORE)
