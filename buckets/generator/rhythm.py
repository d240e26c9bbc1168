"""When people pay: little at night, most around noon and after work; more on Saturdays, less on Sundays."""

import numpy as np

from buckets.duration import HOUR_MS
from buckets.generator.transactions import Integers

_WEEKDAY = (4, 2, 1, 1, 1, 3, 10, 28, 42, 45, 50, 62, 84, 78, 58, 54, 62, 86, 98, 80, 54, 34, 18, 9)
_WEEKEND = (9, 6, 3, 2, 1, 1, 3, 8, 20, 44, 70, 88, 92, 84, 78, 74, 70, 66, 62, 56, 46, 34, 24, 15)
_WEIGHT_BY_DAY = (0.95, 0.95, 1.0, 1.0, 1.15, 1.2, 0.75)
"""Monday first."""
_WEEKDAY_OF_EPOCH = 3


def draw_times_ms(rng: np.random.Generator, count: int, start_ms: int, end_ms: int) -> Integers:
    """Draw event times in `[start_ms, end_ms)`, which is whole hours, in no order."""
    knots_ms = np.arange(start_ms, end_ms + 1, HOUR_MS)
    hours = knots_ms[:-1] // HOUR_MS
    weekday = (hours // 24 + _WEEKDAY_OF_EPOCH) % 7
    profile = np.where(weekday >= 5, np.array(_WEEKEND)[hours % 24], np.array(_WEEKDAY)[hours % 24])
    cumulative = np.concatenate([[0.0], np.cumsum(profile * np.array(_WEIGHT_BY_DAY)[weekday])])
    drawn = rng.random(count) * cumulative[-1]
    hour = np.searchsorted(cumulative, drawn, side="right") - 1
    time_ms: Integers = knots_ms[hour] + rng.integers(0, HOUR_MS, count)
    return time_ms
