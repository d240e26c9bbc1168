"""How many rows of history a batch takes in, so that it takes no more than half as long again as usual.

Some batches take none, and say what is usual. By what the others take beside that, the number of rows grows or shrinks.
"""

from collections import deque
from statistics import median
from typing import Final

FIRST_ROWS: Final = 500
MOST_ROWS: Final = 200_000
EVERY: Final = 8
"""Each eighth batch takes no history."""
KEPT: Final = 9
SHORT, LONG = 1.25, 1.5
"""Where a batch takes less than the one as long as usual, it may take in more; where more than the other, less."""


class FillPace:
    """The pace of a job's fills."""

    def __init__(self) -> None:
        """Begin with nothing known."""
        self._usual_s: deque[float] = deque(maxlen=KEPT)
        self._rows = FIRST_ROWS
        self._batches = 0

    def rows(self) -> int:
        """Return how many rows the next batch takes; 0: none."""
        self._batches += 1
        if self._batches % EVERY == 1 or len(self._usual_s) < 3:
            return 0
        return self._rows

    def took(self, rows: int, duration_s: float) -> None:
        """Note how long a batch took that was told to take so many rows, until its results were written."""
        if not rows:
            self._usual_s.append(duration_s)
            return
        usual_s = median(self._usual_s)
        if duration_s < SHORT * usual_s:
            self._rows = min(self._rows * 3 // 2, MOST_ROWS)
        elif duration_s > LONG * usual_s:
            self._rows = max(self._rows // 2, 1)
