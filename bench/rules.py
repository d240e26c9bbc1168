"""What do more rules cost that differ in their limits alone? 1 to 10,000 of them, over 1, 5 and 20 groupings.

The sum of one key's events over an hour, 500 keys with 2,000 events in an hour each, in each grouping. Micro-batches of
600,000 rows, alerts only and thrown away; none fires.
"""

from dataclasses import replace
from itertools import product

from measure import DATA, alternate
from report import Report, bars
from sides import ours
from steady import Steady, write_steady
from trial import Trial

COUNTS = (1, 10, 100, 1_000, 10_000)
GROUPINGS = (1, 5, 20)
STEADY = Steady(keys=500, events_in_window=2_000, window="1h", files=6)
GOAL = 1 / 1.2


def _name(count: int, groupings: int) -> str:
    over = f" over {groupings} groupings" if groupings > 1 else ""
    return f"ours, {count:,} rule{'s' if count > 1 else ''}{over}"


def main() -> None:
    """Measure."""
    report = Report("rules", __doc__)
    sides = []
    for groupings, count in product(GROUPINGS, COUNTS):
        if count >= groupings:
            data = str(write_steady(report.sized(replace(STEADY, groupings=groupings)), DATA))
            sides.append(ours(_name(count, groupings), Trial(data, ("sum",), limits=count, groupings=groupings)))
    runs = alternate(sides, report.repeats, report.console)
    rates = report.rates("Rules that differ in their limits alone", runs)
    report.ratio("1,000 rules, of one", _name(1_000, 1), _name(1, 1), runs, GOAL)
    report.write(lambda axes: bars(axes, rates, runs, "Rules that differ in their limits alone"))


if __name__ == "__main__":
    main()
