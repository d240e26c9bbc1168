"""Small drawings in tables: numbers of days as bars, and a share with the interval that holds it."""

from collections.abc import Sequence
from typing import Any

from buckets.numbers.figures import short_percent_text
from buckets.verdicts.share_interval import ShareInterval

_WIDTH, _HEIGHT = 90, 22


def bars(numbers: Sequence[int]) -> list[dict[str, float]]:
    """Return numbers as bars, the greatest as the highest; none if all are zero."""
    most = max(numbers, default=0)
    if not most:
        return []
    step = _WIDTH / len(numbers)
    heights = [max(number / most * _HEIGHT, 1.0 if number else 0.0) for number in numbers]
    return [
        {
            "x": round(at * step, 2),
            "y": round(_HEIGHT - high, 2),
            "width": round(step * 0.8, 2),
            "height": round(high, 2),
        }
        for at, high in enumerate(heights)
        if high
    ]


def _bar(**sides: float) -> dict[str, float]:
    return {name: round(side, 2) for name, side in sides.items()}


def interval(share: ShareInterval | None) -> dict[str, Any] | None:
    """Return a share as text and as a drawing; None of none."""
    if share is None:
        return None
    return {
        "text": short_percent_text(share.share),
        "range": f"{short_percent_text(share.low)} to {short_percent_text(share.high)}",
        "from": round(share.low * _WIDTH, 1),
        "width": round((share.high - share.low) * _WIDTH, 1),
        "at": round(share.share * _WIDTH, 1),
    }
