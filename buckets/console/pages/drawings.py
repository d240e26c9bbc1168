"""Small drawings in tables: numbers of days as bars, and a share with the interval that holds it."""

from collections.abc import Mapping, Sequence
from typing import Any

from buckets.numbers.fixed_point import short_percent_text
from buckets.pages.page import round_times
from buckets.verdicts.verdict import ShareInterval

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


_LEFT, _TOP, _WIDE, _HIGH = 40, 16, 480, 150
"""Of the chart of a sweep, in units of its drawing: what is left of and above its columns, and these together."""


def sweep_chart(answer: Mapping[str, Any]) -> dict[str, Any] | None:
    """Place the variants of a sweep of one number: alerts as columns, precision and recall as lines; None of others."""
    variants = answer["variants"]
    if len(answer["sweeps"]) != 1 or len(variants) < 2:
        return None
    most = max(max(variant["alerts"] for variant in variants), 1)
    step = _WIDE / len(variants)
    columns, lines = [], {"precision": list[str](), "recall": list[str]()}
    for at, variant in enumerate(variants):
        x, height = _LEFT + (at + 0.5) * step, variant["alerts"] / most * _HIGH
        label = "; ".join(str(value) for value in variant["values"].values())
        column = _bar(x=x, left=x - step * 0.35, y=_TOP + _HIGH - height, width=step * 0.7, height=height)
        columns.append({**column, "alerts": variant["alerts"], "label": label, "is_now": variant["as_written"]})
        for name, points in lines.items():
            if variant.get(name) is not None:
                points.append(f"{x:.1f},{_TOP + _HIGH * (1 - variant[name]):.1f}")
    return {
        "columns": columns,
        "lines": {name: " ".join(points) for name, points in lines.items() if len(points) > 1},
        "width": _LEFT + _WIDE + 20,
        "height": _TOP + _HIGH + 24,
        "floor": _TOP + _HIGH,
        "parameter": answer["sweeps"][0]["parameter"],
    }


_LINE_LEFT, _LINE_RIGHT, _LINE_TOP, _LINE_HIGH, _WINDOW_HIGH = 80, 980, 20, 140, 20
"""Of a timeline: between which places time runs, how high events are drawn, and how high each window."""


def timeline(events: Sequence[Mapping[str, Any]], windows: Sequence[tuple[str, int, int]]) -> dict[str, Any]:
    """Place events over time, the value of each as its height, and windows below them as bars."""
    times = [event["time_ms"] for event in events]
    first, last = min([*times, *(start for _, start, _ in windows)]), max(times)
    most = max([event["value"] for event in events] + [0.0]) or 1.0
    floor = _LINE_TOP + _LINE_HIGH

    def x(time_ms: int) -> float:
        share: float = (time_ms - first) / max(last - first, 1)
        return round(_LINE_LEFT + share * (_LINE_RIGHT - _LINE_LEFT), 1)

    bars_of_windows = [
        {"left": x(start), "width": max(x(end) - x(start), 2.0), "y": floor + 34 + at * _WINDOW_HIGH, "label": label}
        for at, (label, start, end) in enumerate(windows)
    ]
    return {
        "events": [
            {"x": x(event["time_ms"]), "y": round(floor - max(event["value"], 0.0) / most * _LINE_HIGH, 1)}
            for event in events
        ],
        "times": [{"at": x(time_ms), "label": label} for time_ms, label in round_times(first, last)],
        "windows": bars_of_windows,
        "most": f"{most:,.2f}",
        "floor": floor,
        "height": floor + 40 + len(windows) * _WINDOW_HIGH,
    }
