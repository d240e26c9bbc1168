"""How fast are many keys with few events? 200,000 keys with five events each in a window of an hour.

A million events an hour, in micro-batches of 600,000 rows, with five aggregates. Thrown away beside the prototype's
`alerts`; the main job with Delta tables beside the prototype's `all`.
"""

from measure import DATA, alternate
from report import Report, bars
from sides import ours, prototype
from steady import Steady, write_steady
from trial import Trial

STEADY = Steady(keys=200_000, events_in_window=5, files=10)
THROWN_AWAY, DELTA = "ours, thrown away", "ours, main job into Delta"
PROTOTYPE_ALERTS, PROTOTYPE_ALL = "prototype, alerts", "prototype, all"
GOAL = 0.9
PAST = 1.0


def main() -> None:
    """Measure."""
    report = Report("many_keys", __doc__)
    data = write_steady(report.sized(STEADY), DATA)
    sides = [ours(THROWN_AWAY, Trial(str(data)))]
    if report.prototype:
        sides.append(prototype(PROTOTYPE_ALERTS, report.prototype, data, "alerts"))
    sides.append(ours(DELTA, Trial(str(data), sink="alerts")))
    if report.prototype:
        sides.append(prototype(PROTOTYPE_ALL, report.prototype, data, "all"))
    runs = alternate(sides, report.repeats, report.console)
    rates = report.rates("200,000 keys", runs)
    for side, of in ((THROWN_AWAY, PROTOTYPE_ALERTS), (DELTA, PROTOTYPE_ALL)):
        report.ratio(f"{side}, of: {of}", side, of, runs, GOAL)
        report.ratio(f"{side}, past: {of}", side, of, runs, PAST)
    report.write(lambda axes: bars(axes, rates, runs, "200,000 keys, five events of each in an hour"))


if __name__ == "__main__":
    main()
