"""What the kernel computes over a window: the codes of its operations, of which aggregates are made.

Those up to MAX follow from the sums and the extremes of cells, and the kernel compares them with limits itself. Those
from FIRST on look at single events, and from COUNT_DISTINCT on at all events of the window.
"""

SUM, COUNT, AVG, MIN, MAX, FIRST, FIRST_TIME, PREVIOUS, PREVIOUS_TIME, COUNT_DISTINCT = range(10)
PERCENTILE, MEDIAN, MODE = range(10, 13)
