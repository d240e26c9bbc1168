"""The chart of a window: where its events, its running sum, its limit and its marks are drawn."""

from fractions import Fraction
from typing import Any

from buckets.history.explain.explanation import Explanation, FeatureThen, WindowArrival
from buckets.moment import exact_time_text
from buckets.pages.axis import Mark, round_times, round_values

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _BOTTOM = 1000, 240, 80, 20, 30
"""Of a chart, in units of its drawing; what is left of, right of and below the events."""


def window_chart(feature: FeatureThen, explanation: Explanation) -> dict[str, Any]:
    """Place the events of a window in its chart: over time, by value, or in one row where they have none."""
    heights = list(map(_height, feature.entries))
    sums = [(entry.time_ms, float(entry.so_far)) for entry in feature.entries if entry.so_far is not None]
    has_numbers = feature.unit is not None or bool(sums)
    limit = _limit(explanation) if feature.name == "value" and has_numbers else None
    levels = [0.0, *heights, *(level for _, level in sums), *([limit] if limit is not None else [])]
    low, high = min(levels), max(levels)
    span_ms = max(feature.end_ms - feature.start_ms, 1)

    def x(time_ms: int) -> float:
        return round(_LEFT + (time_ms - feature.start_ms) / span_ms * (_WIDTH - _LEFT - _RIGHT), 1)

    def y(value: float) -> float:
        return round(30 + (high - value) / ((high - low) or 1) * (_HEIGHT - _BOTTOM - 40), 1)

    marks = round_values(Fraction(low), Fraction(high)) if has_numbers and high > low else []
    steps, before = [(feature.start_ms, 0.0)] if sums else [], 0.0
    for time_ms, level in sums:
        steps += [(time_ms, before), (time_ms, level)]
        before = level

    return {
        "width": _WIDTH,
        "height": _HEIGHT,
        "time_marks": [Mark(x(time_ms), text) for time_ms, text in round_times(feature.start_ms, feature.end_ms)],
        "value_marks": [Mark(y(float(value)), text) for value, text in marks],
        "unit": feature.unit or ("events" if sums else ""),
        "sums": " ".join(f"{x(time_ms)},{y(level)}" for time_ms, level in steps),
        "left": x(feature.start_ms),
        "right": x(feature.end_ms),
        "zero": y(0.0),
        "reset": None if feature.reset_ms is None else x(feature.reset_ms),
        "limit": None if limit is None else {"y": y(limit), "text": f"limit {limit:,g}"},
        "events": [
            {"x": x(entry.time_ms), "y": y(height), "title": _title(entry), "kind": _kind(entry)}
            for entry, height in zip(feature.entries, heights, strict=True)
        ],
    }


def _height(entry: WindowArrival) -> float:
    """Say how high an event is drawn; the chart alone is not exact."""
    try:
        return float(entry.value or 1)
    except ValueError:
        return 1.0


def _limit(explanation: Explanation) -> float | None:
    if explanation.rule is None or explanation.rule.written.get("limit") is None:
        return None
    return float(explanation.rule.written["limit"]["value"])


def _kind(entry: WindowArrival) -> str:
    if not entry.counts:
        return "out"
    return f"{'late' if entry.fate == 'late' else 'in'}{' own' if 'the event itself' in entry.note else ''}"


def _title(entry: WindowArrival) -> str:
    value = f", {entry.value}" if entry.value else ""
    note = f" ({entry.note})" if entry.note else ""
    return f"{entry.event_id}, {exact_time_text(entry.time_ms)}{value}{note}, arrived in batch {entry.batch_id}"
