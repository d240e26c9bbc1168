"""What does a fraud team's job cost? Payments with ten fields, rules over 1, 5 and 13 groupings of them.

    python bench/team.py [--base COMMIT] [--groupings 1,5,13] [--batches 10000,100000,600000] [--checkpoint-ms 0]

With `--base` another commit takes turns with this one. A side's rate is the median over its batches after the first,
which has 100,000 payments and no state to find. CPU is that of driver, JVM and workers together.

Where there is `mvn`, so does a queue on Flink's heap that is built by hand for these rules (`flink_queue.py`). It has
no batches: it runs over the payments of the size that has the most, its rate is that of all after the first 100,000,
and it must raise the same alerts. `--checkpoint-ms` is the time between two of its checkpoints, 0 for none.
"""

import contextlib
import statistics
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import flink_queue
from compare import checked_out, compile_kernels, hash_of
from matplotlib.axes import Axes
from measure import HERE, ROOT, Batch, Batches, child, rate_text, read_batches
from report import Goal, Report
from team_data import Team, write_team

OURS = "this commit"
MEASURED_BATCHES = {10_000: 20, 100_000: 9, 600_000: 1}
QUICK = {"first_rows": 2_000, "batches": 2}
OF_FLINK = {(13, 100_000): 1.5, (13, 10_000): 1.0}
"""Our rate to reach, as a multiple of Flink's in the same run, by groupings and size of the batches."""
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


def flink_summary(team: Team, measured: Batch) -> dict[str, float]:
    """The numbers of a run of Flink's queue."""
    return {
        "rate": measured["events"] / measured["ms"] * 1000,
        "cpu_us": measured["cpu_s"] / measured["events"] / team.groupings * 1e6,
        "memory_gb": measured["rss_bytes"] / 1e9,
        "alerts": measured["alerts"],
    }


def main() -> None:
    """Measure."""
    options = {"--base": "", "--groupings": "1,5,13", "--batches": ",".join(map(str, MEASURED_BATCHES))}
    report = Report("team", __doc__, repeats=1, options=options | {"--checkpoint-ms": "0"})
    groupings, sizes = (list(map(int, report.option(name).split(","))) for name in ("groupings", "batches"))
    checkpoint_ms = int(report.option("--checkpoint-ms"))
    found: Batches = []
    report.found["runs"] = found
    with_flink = flink_queue.build()
    if not with_flink:
        report.console.print("no mvn here: nothing is compared with Flink")
    with contextlib.ExitStack() as stack:
        sides = {OURS: ROOT}
        if report.option("base"):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="buckets-team-")))
            base = stack.enter_context(checked_out("base", hash_of(report.option("base")), folder))
            compile_kernels(base)
            sides = {"base": base.tree} | sides
        for count in groupings:
            teams = [team_of(count, size, report.quick) for size in ([1_000] if report.quick else sizes)]
            most = max(teams, key=lambda team: team.batch_rows * team.batches)
            for team in teams:
                for repeat in range(report.repeats):
                    for side, root in sides.items():
                        with tempfile.TemporaryDirectory(prefix="buckets-bench-") as folder_name:
                            work = Path(folder_name)
                            batches = run(root, team, work)
                            note(report, found, side, team, repeat, summary(team, batches) | {"batches": batches})
                            if with_flink and team == most and side == OURS:
                                measured, alerts = flink_queue.run(team, work / "data", work, checkpoint_ms)
                                flink_queue.check(alerts, flink_queue.alerts_of(work))
                                kept = flink_summary(team, measured) | {"run": measured}
                                note(report, found, flink_queue.SIDE, team, repeat, kept)
    every = f"a checkpoint every {checkpoint_ms} ms" if checkpoint_ms else "no checkpoints"
    report.found["flink"] = {"checkpoint_ms": checkpoint_ms, "java": flink_queue.JAVA} if with_flink else None
    draw_up(report, found, [*sides, *[flink_queue.SIDE] * with_flink], f"; Flink takes {every}" if with_flink else "")


def team_of(groupings: int, size: int, quick: bool) -> Team:
    """The job with batches of that size."""
    return Team(groupings, size, **(QUICK if quick else {"batches": MEASURED_BATCHES.get(size, 2)}))


def note(report: Report, found: Batches, side: str, team: Team, repeat: int, measured: Batch) -> None:
    """Keep what a run measured, and say it."""
    found.append({"side": side, "groupings": team.groupings, "batch": team.batch_rows, "round": repeat} | measured)
    said = f"{rate_text(measured['rate'])} events/s, {measured['cpu_us']:.1f} us, {measured['memory_gb']:.1f} GB"
    report.console.print(
        f"  {team.groupings} groupings, {team.batch_rows:,} a batch, {side}: {said}, {measured['alerts']} alerts",
        highlight=False,
    )


def draw_up(report: Report, found: Batches, sides: Sequence[str], of_flink: str) -> None:
    """Print the table and the goals, and write everything.

    Args:
        report: of the benchmark.
        found: all runs.
        sides: in their order; Flink's is compared with every size of the batches.
        of_flink: what there is to say of it in the title.
    """
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
        if (count, size) in OF_FLINK and flink_queue.SIDE in sides:
            of = rates[OURS] / rates[flink_queue.SIDE]
            report.goal(Goal(f"{name}: events/s, of Flink's queue", of, OF_FLINK[count, size]))
        if (count, size) == (13, 100_000):
            report.goal(Goal(f"{name}: us of CPU a touch", costs[OURS], at_most=TOUCH_US))
            report.goal(Goal(f"{name}: GB of memory", memory[OURS], at_most=MEMORY_GB))
    header = [f"{side}, {what}" for what in ("events/s", "us a touch", "GB") for side in sides]
    report.table(f"A team's job{of_flink}", ("Groupings", "Batch", *header), rows)

    def draw(axes: Axes) -> None:
        for side in sides:
            rates = {
                f"{count} groupings{'' if side == flink_queue.SIDE else f', {size:,}'}: {side}": middle(
                    side, count, size, "rate"
                )
                for count, size in cases
            }
            axes.barh(list(rates), list(rates.values()), alpha=0.6)
        axes.invert_yaxis()
        axes.set(xlabel="events a second", title="A team's job, by groupings and size of the micro-batch")

    report.write(draw)


def median_of(found: Batches, side: str, groupings: int, size: int, name: str) -> float:
    """The median of a number over the rounds of a side; Flink's is that of its only size."""
    chosen = [
        each[name]
        for each in found
        if (each["side"], each["groupings"]) == (side, groupings)
        and (side == flink_queue.SIDE or each["batch"] == size)
    ]
    return statistics.median(chosen)


if __name__ == "__main__":
    sys.exit(main())
