"""The standard deviation of a sample: the root of its variance, at 6 more digits than the field has."""

import math
from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from fractions import Fraction

from buckets.aggregates.aggregate import Own, Values
from buckets.aggregates.component import Component, Computed
from buckets.aggregates.plain import ENOUGH_DIGITS, CountedEvents, PlainValue
from buckets.aggregates.variance import Spread, plain_variance, spread

_DIGITS = 6


class _StandardDeviation(Spread):
    phrase = "the standard deviation of"

    def finalize(self, computed: Mapping[Component, Computed], own: Own) -> Values:
        return spread(computed, _root, own.scale + _DIGITS)

    def plain(self, events: CountedEvents, scale: int) -> PlainValue:
        variance = plain_variance(events, scale)
        if not isinstance(variance.exact, Fraction):
            return variance
        with localcontext(Context(prec=ENOUGH_DIGITS)):
            root = (Decimal(variance.exact.numerator) / Decimal(variance.exact.denominator)).sqrt()
            shown = root.quantize(Decimal(1).scaleb(-scale - _DIGITS), ROUND_HALF_UP)
        return PlainValue(Fraction(shown), shown)


def _root(above: int, below: int) -> int:
    """Return the root of a quotient, times `10**_DIGITS`, to the nearest integer."""
    return (math.isqrt(4 * above * 10 ** (2 * _DIGITS) // below) + 1) // 2


AGGREGATE = _StandardDeviation()
