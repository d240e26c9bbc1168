"""Events a second of the whole streaming query, beside a bare prototype of the same path, on the same data.

Steady data, one window of an hour, five aggregates, micro-batches of 600,000 rows, Parquet in unless said otherwise.

- `ours, alerts`: the product's main job as it is; alerts and accounts go to Delta tables.
- `ours, alerts, from JSON`: the same over the same events as lines of JSON, their amounts as numbers.
- `ours, evaluations`: the same query with a row for every event and rule, to a sink that throws the rows away.
- `prototype`: four aggregates over five windows, everything put out as one row an event, to a sink that throws it away;
  no policies, no ids, no rules, no dead letters, no accounts.
"""

import json
import statistics
import tempfile
from pathlib import Path

from matplotlib.axes import Axes
from measure import DATA, HERE, WARM_UP_BATCHES, Run, Runs, alternate, child, median_rates
from report import Report, bars
from sides import ours, prototype
from steady import Steady, write_json, write_steady
from trial import FILES_PER_BATCH, Trial

STEADY = (Steady(10_000, 10), Steady(1_000, 100))
ALERTS, JSON, EVALUATIONS = "ours, alerts", "ours, alerts, from JSON", "ours, evaluations"
PROTOTYPE = "prototype"
GOAL = 0.7


def measured(report: Report, data: Path) -> Runs:
    """All runs over one data set, alternately."""
    sides = [
        ours(ALERTS, Trial(str(data), sink="alerts")),
        ours(JSON, Trial(str(write_json(data)), sink="alerts", kind="json")),
        ours(EVALUATIONS, Trial(str(data), sink="evaluations")),
    ]
    if report.prototype:
        sides.insert(0, prototype(PROTOTYPE, report.prototype, data, "all"))
    return alternate(sides, report.repeats, report.console)


def batch_ms(runs: list[Run]) -> dict[str, float]:
    """Where the milliseconds of a batch of the main job go: medians over all batches after the warm-up."""
    batches = [batch for run in runs for batch in run.batches[WARM_UP_BATCHES:]]

    def median(value) -> float:
        return round(statistics.median(value(batch) for batch in batches), 1)

    return {
        "whole batch": median(lambda b: b["ms"]),
        "scoring: read, fan-out, shuffle, windows, state": median(lambda b: b["scored_s"] * 1000),
        "Delta tables": median(lambda b: b["written_s"] * 1000),
        "planning": median(lambda b: b["duration_ms"]["queryPlanning"]),
        "offset and commit logs": median(lambda b: b["duration_ms"]["walCommit"] + b["duration_ms"]["commitOffsets"]),
    }


def python_us(data: Path) -> dict[str, float]:
    """Where the microseconds of an event go inside Python, by `phases.py`."""
    with tempfile.TemporaryDirectory(prefix="buckets-bench-") as work:
        return json.loads(child([str(HERE / "phases.py"), str(data), str(FILES_PER_BATCH), work]))["us_per_event"]


def main() -> None:
    """Measure."""
    report = Report("throughput", __doc__)
    every: Runs = {}
    for steady in STEADY:
        data = write_steady(report.sized(steady), DATA)
        runs = measured(report, data)
        title = f"{steady.events_in_window} in the window"
        rates = report.rates(title, runs, within=data.name)
        inside = {"batch_ms": batch_ms(runs[ALERTS]), "python_us_per_event": python_us(data)}
        report.console.print_json(data=inside)
        ratios = {side: each / rates[PROTOTYPE] for side, each in rates.items()} if PROTOTYPE in rates else {}
        report.found[data.name] |= {"ratios": ratios, **inside}
        for side in (ALERTS, EVALUATIONS):
            report.ratio(f"{title}: {side}, of the prototype", side, PROTOTYPE, runs, GOAL)
        every |= {f"{side}, {title}": done for side, done in runs.items()}

    def draw(axes: Axes) -> None:
        bars(axes, median_rates(every), every, "Events a second, micro-batches of 600,000 rows")

    report.write(draw)


if __name__ == "__main__":
    main()
