"""The least value that at least `p` per cent of all do not exceed: `{function: percentile, of: paymentAmount, p: 95}`.

`p` is a number above 0 and up to 100 with at most two digits after the point.
"""

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from functools import partial
from math import ceil

from buckets.aggregates.aggregate import Aggregate
from buckets.aggregates.component import Component
from buckets.aggregates.operation import PERCENTILE
from buckets.aggregates.single_event import SingleEvent


class _Percentile(SingleEvent):
    needs_p = True

    def __init__(self, p: Decimal) -> None:
        component = Component(PERCENTILE, "value", parameter=int(p * 100))
        super().__init__(f"the {_ordinal(p)} percentile of", component, partial(_pick, p))

    def of_p(self, p: Decimal) -> Aggregate:
        return _Percentile(p)


def _ordinal(p: Decimal) -> str:
    """Return a number as in `the 95th`."""
    number = format(p, "f")
    number = number.rstrip("0").rstrip(".") if "." in number else number
    if "." in number or number[-2:] in ("11", "12", "13"):
        return f"{number}th"
    return number + {"1": "st", "2": "nd", "3": "rd"}.get(number[-1], "th")


def _pick(p: Decimal, values: Sequence[int]) -> int:
    return sorted(values)[max(ceil(Fraction(p) * len(values) / 100), 1) - 1]


AGGREGATE = _Percentile(Decimal(50))
