"""What does one busy key cost? A key with half of all events, against keys that all have as many.

1,000 keys and 100,000 events an hour on both sides, five aggregates over a window of an hour, micro-batches of 600,000
rows, alerts only and thrown away. A key's events are evaluated one after another, by one task: the busy key's task gets
about three quarters of the work where the other data set gives each of two tasks a half.
"""

from measure import DATA, alternate
from report import Report, bars
from sides import ours
from steady import Steady, write_steady
from trial import Trial

UNIFORM = Steady(keys=1_000, events_in_window=100)
SKEWED = Steady(keys=999, events_in_window=50, busy_events_in_window=999 * 50)
EVEN, BUSY = "ours, all keys alike", "ours, one key with half of the events"
GOAL = 0.8


def main() -> None:
    """Measure."""
    report = Report("skew", __doc__)
    data = {name: write_steady(report.sized(steady), DATA) for name, steady in ((EVEN, UNIFORM), (BUSY, SKEWED))}
    sides = [ours(name, Trial(str(folder))) for name, folder in data.items()]
    runs = alternate(sides, report.repeats, report.console)
    rates = report.rates("Skew", runs)
    report.ratio("one busy key, of all keys alike", BUSY, EVEN, runs, GOAL)
    report.write(lambda axes: bars(axes, rates, runs, "One key with half of the events"))


if __name__ == "__main__":
    main()
