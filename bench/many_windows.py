"""What do more windows cost? Ten that end at no common time, against the longest of them alone.

Sum, average and count over each window, on one key field. The longest window, of a day, holds 2,000 events of each of
500 keys. Micro-batches of 600,000 rows, alerts only and thrown away.
"""

from measure import DATA, alternate
from report import Report, bars
from sides import ours
from steady import Steady, write_steady
from trial import Trial

WINDOWS = ("7m", "13m", "31m", "61m", "127m", "217m", "373m", "677m", "17h", "24h")
FUNCTIONS = ("sum", "avg", "count")
STEADY = Steady(keys=500, events_in_window=2_000, window="24h")
ONE, TEN = "ours, one window", "ours, ten windows"
GOAL = 0.5


def main() -> None:
    """Measure."""
    report = Report("many_windows", __doc__)
    data = str(write_steady(report.sized(STEADY), DATA))
    sides = [ours(ONE, Trial(data, FUNCTIONS, WINDOWS[-1:])), ours(TEN, Trial(data, FUNCTIONS, WINDOWS))]
    runs = alternate(sides, report.repeats, report.console)
    rates = report.rates("Ten windows", runs)
    report.ratio("ten windows, of one", TEN, ONE, runs, GOAL)
    report.write(lambda axes: bars(axes, rates, runs, "Ten windows of three aggregates, and one"))


if __name__ == "__main__":
    main()
