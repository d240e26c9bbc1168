"""What does a fraud team's job cost? Payments with ten fields, rules over 1, 5 and 13 groupings of them.

    python bench/team.py [--base COMMIT] [--groupings 1,5,13] [--batches 10000,100000,600000]

With `--base` another commit takes turns with this one. A side's rate is the median over its batches after the first,
which has 100,000 payments and no state to find. CPU is that of driver, JVM and workers together.
"""

import contextlib
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path

from compare import checked_out, compile_kernels, hash_of
from matplotlib.axes import Axes
from measure import HERE, ROOT, Batches, child, rate_text, read_batches
from report import Goal, Report
from team_data import Team, write_team

MEASURED_BATCHES = {10_000: 20, 100_000: 9, 600_000: 1}
QUICK = {"first_rows": 2_000, "batches": 2}
RATES = {
    (1, 100_000): 200_000, (5, 100_000): 60_000, (13, 600_000): 25_000, (13, 100_000): 20_000, (13, 10_000): 9_000
}  # fmt: skip
"""Events a second to reach, by groupings and size of the batches: what a queue on Flink's heap does that was built by
hand for such rules, and more."""
TOUCH_US, MEMORY_GB = 4.0, 3.0
"""At most at 13 groupings with batches of 100,000: CPU of a payment and grouping, and memory."""


def run(root: Path, team: Team, work: Path) -> Batches:
    """Run one side once."""
    printed = child([str(HERE / "team_run.py"), str(write_team(team, work))], root=root)
    return read_batches(printed)


def summary(team: Team, batches: Batches) -> dict[str, float]:
    """The numbers of a run, from all batches but the first."""
    measured = batches[1:]
    events = sum(batch["events"] for batch in measured)
    return {
        "rate": statistics.median(batch["events"] / batch["ms"] * 1000 for batch in measured),
        "cpu_us": sum(batch["cpu_s"] for batch in measured) / events / team.groupings * 1e6,
        "memory_gb": sum(batches[-1]["memory"].values()) / 1e9,
        "alerts": sum(batch["alerts"] for batch in batches),
    }


def main() -> None:
    """Measure."""
    options = {"--base": "", "--groupings": "1,5,13", "--batches": ",".join(map(str, MEASURED_BATCHES))}
    report = Report("team", __doc__, repeats=1, options=options)
    groupings, sizes = (list(map(int, report.option(name).split(","))) for name in ("groupings", "batches"))
    found = report.found["runs"] = []
    with contextlib.ExitStack() as stack:
        sides = {"this commit": ROOT}
        if report.option("base"):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="buckets-team-")))
            base = stack.enter_context(checked_out("base", hash_of(report.option("base")), folder))
            compile_kernels(base)
            sides = {"base": base.tree} | sides
        for count in groupings:
            for size in [1_000] if report.quick else sizes:
                team = Team(count, size, **(QUICK if report.quick else {"batches": MEASURED_BATCHES.get(size, 2)}))
                for repeat in range(report.repeats):
                    for side, root in sides.items():
                        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="buckets-bench-")))
                        batches = run(root, team, work)
                        done = {"side": side, "groupings": count, "batch": size, "round": repeat}
                        done |= summary(team, batches) | {"batches": batches}
                        found.append(done)
                        said = (
                            f"{rate_text(done['rate'])} events/s, {done['cpu_us']:.1f} us, {done['memory_gb']:.1f} GB"
                        )
                        report.console.print(f"  {count} groupings, {size:,} a batch, {side}: {said}", highlight=False)
    middle = partial(median_of, found)
    rows, cases = [], list(dict.fromkeys((each["groupings"], each["batch"]) for each in found))
    for count, size in cases:
        rates, costs, memory = (
            {side: middle(side, count, size, name) for side in sides} for name in ("rate", "cpu_us", "memory_gb")
        )
        rows.append(
            [
                f"{count}",
                f"{size:,}",
                *(rate_text(rates[side]) for side in sides),
                *(f"{costs[side]:.1f}" for side in sides),
                *(f"{memory[side]:.1f}" for side in sides),
            ]
        )
        name = f"{count} groupings, {size:,} a batch"
        if (count, size) in RATES:
            report.goal(Goal(f"{name}: events/s", rates["this commit"], RATES[count, size]))
        if (count, size) == (13, 100_000):
            report.goal(Goal(f"{name}: us of CPU a touch", costs["this commit"], at_most=TOUCH_US))
            report.goal(Goal(f"{name}: GB of memory", memory["this commit"], at_most=MEMORY_GB))
    header = [f"{side}, {what}" for what in ("events/s", "us a touch", "GB") for side in sides]
    report.table("A team's job", ("Groupings", "Batch", *header), rows)

    def draw(axes: Axes) -> None:
        for side in sides:
            names = [f"{count} groupings, {size:,}" for count, size in cases]
            axes.barh([f"{name}: {side}" for name in names], [middle(side, *case, "rate") for case in cases], alpha=0.6)
        axes.invert_yaxis()
        axes.set(xlabel="events a second", title="A team's job, by groupings and size of the micro-batch")

    report.write(draw)


def median_of(found: Batches, side: str, groupings: int, size: int, name: str) -> float:
    """The median of a number over the rounds of a side."""
    chosen = [
        each[name] for each in found if (each["side"], each["groupings"], each["batch"]) == (side, groupings, size)
    ]
    return statistics.median(chosen)


if __name__ == "__main__":
    sys.exit(main())
