"""The short form of a rule: one aggregate over one window, compared with a number.

    aggregate: {function: sum, measure: amount}        features: {value: {function: sum, of: amount, window: 1h}}
    window: {length: 1h}                          is   when: value > 100
    limit: {operator: ">", value: 100}

One thing is different for a rule that was written so: its group has the filter of the rule, so that the timelines of
older checkpoints go on, and the kernel compares its value with the limit also where it has a filter.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, field_serializer, field_validator, model_validator

from buckets.aggregates.registry import AGGREGATES, ShortFunction
from buckets.duration import format_duration
from buckets.expressions.expression import Expression
from buckets.numbers.fixed_point import parse_decimal
from buckets.printable import capitalised
from buckets.rules.feature import Feature
from buckets.rules.sql_filter import SqlFilter
from buckets.rules.window import Window

Operator = Literal[">", ">=", "<", "<=", "=", "!="]
VALUE: Final = "value"
"""The name of the one feature."""
FIELDS: Final = ("aggregate", "window", "limit")
"""The fields of a rule that make up its short form."""
SHORT_LOCATIONS: Final[Mapping[tuple[str, ...], tuple[str, ...]]] = {
    ("when",): ("limit",),
    ("features", VALUE, "of"): ("aggregate", "measure"),
    ("features", VALUE, "window"): ("window",),
}
"""Where the short form has what other rules have among their features and in their condition."""
_COMPARISONS: Final[Mapping[str, str]] = {
    ">": "is above",
    ">=": "is at least",
    "<": "is below",
    "<=": "is at most",
    "=": "is exactly",
    "!=": "is not",
}
_LONGEST_LIMIT_DIGITS = 38


class Aggregation(BaseModel):
    """A function over a measure; a count needs no measure."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    function: ShortFunction
    measure: str | None = None

    @model_validator(mode="after")
    def _measure_where_needed(self) -> "Aggregation":
        if AGGREGATES[self.function].takes and self.measure is None:
            message = f"{self.function} needs a measure, as in {{function: {self.function}, measure: paymentAmount}}"
            raise ValueError(message)
        return self


class Limit(BaseModel):
    """The comparison that makes a value an alert."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    operator: Operator
    value: Decimal

    @field_validator("value", mode="before")
    @classmethod
    def _exact(cls, value: Any) -> Decimal:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            message = f"{value!r} is not a decimal number"
            raise ValueError(message)
        number = parse_decimal(str(value))
        exponent = number.as_tuple().exponent
        assert isinstance(exponent, int)
        if max(number.adjusted() + 1, 0) + max(-exponent, 0) > _LONGEST_LIMIT_DIGITS:
            message = f"{value} has more than {_LONGEST_LIMIT_DIGITS} digits"
            raise ValueError(message)
        return Decimal(format(number, "f"))

    @field_serializer("value")
    def _as_written(self, value: Decimal) -> str:
        return format(value, "f")


def feature_of(aggregation: Aggregation, window: Window) -> Feature:
    """Return the one feature of a rule in the short form; a count is of no field, whatever measure it names."""
    of = aggregation.measure if AGGREGATES[aggregation.function].takes else None
    return Feature(function=aggregation.function, of=of, window=window)


def condition_of(limit: Limit) -> SqlFilter:
    """Return the condition of a rule in the short form."""
    operands = (Expression("field", value=VALUE), Expression("number", value=limit.value))
    return SqlFilter(Expression(limit.operator, operands), f"{VALUE} {limit.operator} {limit.value:f}")


def phrase_of(feature: Feature) -> str:
    """Return what a rule in the short form computes, in English: `the sum of paymentAmount`."""
    return " ".join(part for part in (feature.aggregate.short_phrase, feature.of) if part)


def sentence_of(feature: Feature, limit: Limit, events: str = "", value: str = "") -> str:
    """Return a rule in the short form, or what an alert of it has found, in English.

    Args:
        feature: its one feature.
        limit: its limit.
        events: of which events the feature is, for the sentence of the rule.
        value: the value as it is shown, for the sentence of an alert.
    """
    over = f"over the last {format_duration(feature.window.length_ms)}"
    value = f" ({value})" if value else ""
    text = f"{phrase_of(feature)}{events} {over}{value} {_COMPARISONS[limit.operator]} {limit.value:,f}"
    return capitalised(text)
