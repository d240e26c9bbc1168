"""A share of a sample, and between what limits the true share lies."""

from dataclasses import dataclass
from math import sqrt

_Z = 1.959963984540054
"""So many standard deviations on both sides of the mean hold 95 % of a normal distribution."""


@dataclass(frozen=True)
class ShareInterval:
    """A share, as a number from 0 to 1.

    Attributes:
        share: that of the sample.
        low: the lower end of the interval that holds the true share with 95 % confidence.
        high: its upper end.
    """

    share: float
    low: float
    high: float


def wilson(hits: int, count: int) -> ShareInterval | None:
    """Return the share of hits, with Wilson's interval; None of nothing.

    Source: E. B. Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22 (1927). Unlike
    the usual one it stays within 0 and 1, and says something of few hits, and of none.
    """
    if not count:
        return None
    share, squared = hits / count, _Z * _Z
    centre = (hits + squared / 2) / (count + squared)
    half = _Z / (count + squared) * sqrt(hits * (count - hits) / count + squared / 4)
    # At the ends only rounding keeps the sum from being exact.
    low = 0.0 if hits == 0 else max(0.0, centre - half)
    high = 1.0 if hits == count else min(1.0, centre + half)
    return ShareInterval(share, low, high)
