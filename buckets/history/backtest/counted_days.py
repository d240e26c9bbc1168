"""How many days figures per day are divided by.

One wild date makes a range of decades of a month, and then there is hardly an alert a day. So only those days (UTC)
count that have at least a twentieth of the events of a usual day: the day of the middle event, if all events stand in
a row by how many events their day has. Of the first and the last of them counts what lies in the range.
"""

from fractions import Fraction

import numpy as np
import numpy.typing as npt

from buckets.duration import DAY_MS

_LEAST_SHARE = 20
"""A day counts with one event of so many of a usual day."""


class CountedDays:
    """Counts the events of each day."""

    def __init__(self) -> None:
        """Begin without events."""
        self._days: dict[int, tuple[int, int, int]] = {}

    def take(self, times_ms: npt.NDArray[np.int64]) -> None:
        """Take the times of events into account, in ms since the epoch."""
        ordered = np.sort(times_ms)
        days, first = np.unique(ordered // DAY_MS, return_index=True)
        ends = np.append(first, len(ordered))[1:]
        for day, begin, end in zip(days.tolist(), first.tolist(), ends.tolist(), strict=True):
            first_ms, last_ms = int(ordered[begin]), int(ordered[end - 1])
            count, least_ms, most_ms = self._days.get(day, (0, first_ms, last_ms))
            self._days[day] = (count + end - begin, min(least_ms, first_ms), max(most_ms, last_ms))

    def length(self, begin_ms: int | None, end_ms: int | None) -> Fraction:
        """Return how many days count, once all events of the range have been taken; there is at least one event.

        Args:
            begin_ms: where the range begins; None for the first event of a day that counts.
            end_ms: where it ends; None for just after the last one.
        """
        counts = np.sort(np.array([count for count, _, _ in self._days.values()], np.int64))
        middle = np.searchsorted(np.cumsum(counts), counts.sum() / 2)
        least = int(counts[middle]) / _LEAST_SHARE
        counted = {day: taken for day, taken in self._days.items() if taken[0] >= least}
        begin_ms = min(taken[1] for taken in counted.values()) if begin_ms is None else begin_ms
        end_ms = max(taken[2] for taken in counted.values()) + 1 if end_ms is None else end_ms
        spans = ((max(begin_ms, day * DAY_MS), min(end_ms, (day + 1) * DAY_MS)) for day in counted)
        return Fraction(sum(end - begin for begin, end in spans), DAY_MS)
