"""Does the rate depend on how long a window is? Windows of five minutes to thirty days over the same thirty days.

1,000 keys with 3,600 events each in 30 days, five aggregates over one window, micro-batches of 600,000 rows, alerts
only and thrown away.
"""

from matplotlib.axes import Axes
from measure import DATA, alternate
from report import Goal, Report
from sides import ours
from steady import Steady, write_steady
from trial import FIVE, Trial

WINDOWS = ("5m", "1h", "1d", "7d", "30d")
STEADY = Steady(keys=1_000, events_in_window=3_600, window="30d")
SLOWEST_OF_FASTEST = 0.8


def main() -> None:
    """Measure."""
    report = Report("length", __doc__)
    data = str(write_steady(report.sized(STEADY), DATA))
    sides = [ours(f"ours, window of {window}", Trial(data, FIVE, (window,))) for window in WINDOWS]
    runs = alternate(sides, report.repeats, report.console)
    rates = report.rates("Length of the window", runs)
    slowest, fastest = min(rates.values()), max(rates.values())
    report.goal(Goal("slowest of the windows, of the fastest", slowest / fastest, at_least=SLOWEST_OF_FASTEST))

    def draw(axes: Axes) -> None:
        axes.plot(WINDOWS, [rates[side.name] for side in sides], "o-")
        for window, side in zip(WINDOWS, sides, strict=True):
            axes.plot([window] * report.repeats, [run.rate for run in runs[side.name]], "k.", markersize=5)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("length of the window")
        axes.set_ylabel("events a second")
        axes.set_title("The rate, by the length of the window, over thirty days of events")

    report.write(draw)


if __name__ == "__main__":
    main()
