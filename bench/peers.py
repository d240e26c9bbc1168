"""How does the product compare with what else computes such windows on Spark, and with published numbers for Flink?

The same steady data on all sides, N = 10 to 10,000 events of a key in the window of an hour, five aggregates.

- `ours`: micro-batches of 600,000 rows, alerts only and thrown away; an exact answer for each event.
- `the reference algorithm`, by `reference_algorithm.py`: also exact for each event. Its windows are full when measuring
  begins.
- `hopping windows`, by `hopping.py`: Spark's own, as exact as the hop is short; an answer for each window and
  micro-batch, however many events came into it. They start empty, which is in their favour.

The slow sides get smaller micro-batches, each a few seconds of work, and stop when their time is up. Each peer is first
compared with a plain loop. `--at 10,100` measures at some N only and keeps what was measured before at the others; the
sides of one N are always measured in one run. Ten windows and 200,000 keys are taken from the results of those
benchmarks, if there are any.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from measure import DATA, HERE, Batches, Run, Runs, Side, alternate, child, rate_text, read_batches
from published import COLUMNS, FLINK, MANY_KEYS, TEN_WINDOWS, best
from report import RESULTS, Goal, Report
from sides import ours
from steady import Steady, write_steady
from trial import Trial

IN_WINDOW = (10, 100, 1_000, 10_000)
EVENTS_AN_HOUR = 100_000
SECONDS = 15
"""How long a peer goes on after its first micro-batch, at least."""
FILES = 12
OURS = "ours"
REFERENCE_ROWS = {
    "literal": (5_000, 2_000, 150, 30),
    "once": (100_000, 100_000, 100_000, 25_000),
}
"""Rows of a micro-batch for each N."""
WAYS = {"literal": "the reference algorithm on Spark", "once": "the same, state read once a batch"}
HOP_ROWS = {
    "5 minutes": (100_000, 300_000, 300_000, 300_000),
    "1 minute": (10_000, 20_000, 50_000, 100_000),
    "10 seconds": (1_000, 1_000, 5_000, 10_000),
    "1 second": (100, 100, 200, 300),
}
OTHER_RESULTS = {TEN_WINDOWS: ("many_windows", "ours, ten windows"), MANY_KEYS: ("many_keys", "ours, thrown away")}


def side_name(what: str, in_window: int) -> str:
    """The name of a side at one N."""
    return f"{what}, N = {in_window:,}"


def peer(name: str, script: str, before: Sequence[str], after: Sequence[str], steady: Steady) -> Side:
    """A peer as a side, with its arguments before and after the data."""

    def run(work: Path) -> Batches:
        data = write_steady(steady, DATA)
        printed = child([str(HERE / script), *before, str(data), *after, str(work)])
        return read_batches(printed)

    return Side(name, run)


def sides_at(index: int, report: Report) -> list[Side]:
    """All sides at the N of that index."""
    in_window = IN_WINDOW[index]
    steady = Steady(EVENTS_AN_HOUR // in_window, in_window)
    found = [ours(side_name(OURS, in_window), Trial(str(write_steady(report.sized(steady), DATA))))]
    seconds = "1" if report.quick else str(SECONDS)

    def cut(rows: int, first_rows: int) -> Steady:
        return Steady(steady.keys, in_window, files=FILES, rows_per_file=rows, first_rows=first_rows)

    for way, rows in REFERENCE_ROWS.items():
        data = cut(rows[index] // 20 + 1 if report.quick else rows[index], EVENTS_AN_HOUR)
        arguments = [str(data.first_rows), seconds]
        found.append(peer(side_name(WAYS[way], in_window), "reference_algorithm.py", [way], arguments, data))
    for hop, rows in HOP_ROWS.items():
        data = cut(rows[index] // 20 if report.quick else rows[index], 0)
        found.append(peer(side_name(f"hopping windows, {hop}", in_window), "hopping.py", [hop], [seconds], data))
    return found


def measured_before(in_windows: Iterable[int]) -> Runs:
    """The runs at some N that the results hold already."""
    path = RESULTS / "peers.json"
    found = json.loads(path.read_text(encoding="utf-8"))["runs"] if path.exists() else {}
    endings = tuple(side_name("", n) for n in in_windows)
    return {side: [Run(**run) for run in done] for side, done in found.items() if side.endswith(endings)}


def ours_elsewhere(report: Report) -> dict[str, float]:
    """Our rates from the results of other benchmarks."""
    found = {}
    for column, (name, side) in OTHER_RESULTS.items():
        path = RESULTS / f"{name}.json"
        if path.exists():
            found[column] = json.loads(path.read_text(encoding="utf-8"))["rates"][side]
        else:
            report.console.print(f"no {path.name} yet: its column stays empty")
    return found


def rows_per_batch() -> dict[str, dict[str, int]]:
    """How large the peers' micro-batches are, by N; ours have 600,000 rows."""
    peers = {WAYS[way]: rows for way, rows in REFERENCE_ROWS.items()}
    peers |= {f"hopping windows, {hop}": rows for hop, rows in HOP_ROWS.items()}
    return {what: {f"N = {n:,}": each for n, each in zip(IN_WINDOW, rows, strict=True)} for what, rows in peers.items()}


def main() -> None:
    """Measure."""
    report = Report("peers", __doc__, repeats=1, options={"--at": ",".join(map(str, IN_WINDOW))})
    for script in ("reference_algorithm.py", "hopping.py"):
        report.console.print(child([str(HERE / script), "--check"]).strip())
    chosen = [100] if report.quick else [int(n) for n in report.option("--at").split(",")]
    runs: Runs = {} if report.quick else measured_before(n for n in IN_WINDOW if n not in chosen)
    for in_window in chosen:
        runs |= alternate(sides_at(IN_WINDOW.index(in_window), report), report.repeats, report.console)
    rates = report.rates("Peers", runs)
    of_side: dict[str, dict[str, float]] = {}
    for what in (OURS, *WAYS.values(), *(f"hopping windows, {hop}" for hop in HOP_ROWS)):
        of_side[what] = {f"N = {n:,}": rates[side_name(what, n)] for n in IN_WINDOW if side_name(what, n) in rates}
    of_side[OURS] |= ours_elsewhere(report)
    report.found |= {"table": of_side, "published, measured elsewhere": FLINK, "rows_per_batch": rows_per_batch()}
    rows = [
        (what, *(rate_text(at[column]) if column in at else "" for column in COLUMNS)) for what, at in of_side.items()
    ]
    rows += [(f"{what} *", *(f"{at[column]:,}" for column in COLUMNS)) for what, at in FLINK.items()]
    report.table("Events a second (* published, measured elsewhere on this kind of machine)", ("", *COLUMNS), rows)
    for column, rate in of_side[OURS].items():
        report.goal(Goal(f"ours, of the best published for Flink: {column}", rate / best(column), at_least=1))
    report.write(lambda axes: draw(axes, of_side))


def draw(axes: Axes, of_side: dict[str, dict[str, float]]) -> None:
    """Rates by N, both on logarithmic scales."""
    at_n = [f"N = {n:,}" for n in IN_WINDOW]
    for what, style in [*((what, "o-") for what in of_side), *((what, "x:") for what in FLINK)]:
        rates = of_side.get(what) or FLINK[what]
        points = [(n, rates[column]) for n, column in zip(IN_WINDOW, at_n, strict=True) if column in rates]
        label = f"{what} (published)" if what in FLINK else what
        axes.plot(*zip(*points, strict=True), style, label=label, linewidth=3 if what == OURS else 1.2)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("N, events of a key in the window of an hour")
    axes.set_ylabel("events a second")
    axes.set_title("Five aggregates over a window of an hour")
    axes.legend(fontsize="x-small", loc="center left", bbox_to_anchor=(1.0, 0.5))


if __name__ == "__main__":
    main()
