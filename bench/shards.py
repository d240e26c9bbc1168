"""What do shards cost, and what do cores gain? The job of `team.py` with other numbers of shards and of tasks.

    python bench/shards.py [--shards 2,4,8,16,32,64] [--tasks 1,2] [--batches 10000,100000] [--groupings 5]

A job has as many tasks a batch as there are partitions, and each has its share of the shards. CPU is that of driver,
JVM and workers together, after the first batch.
"""

import tempfile
from pathlib import Path

import yaml
from matplotlib.axes import Axes
from measure import HERE, ROOT, child, read_batches
from report import Report
from team import summary
from team_data import Team, write_team

BATCHES = {10_000: 12, 100_000: 4}


def main() -> None:
    """Measure."""
    options = {"--shards": "2,4,8,16,32,64", "--tasks": "1,2", "--batches": "10000,100000", "--groupings": "5"}
    report = Report("shards", __doc__, repeats=1, options=options)
    shards, tasks, sizes = (
        list(map(int, report.option(name).split(","))) for name in ("--shards", "--tasks", "--batches")
    )
    groupings = int(report.option("--groupings"))
    found = report.found["runs"] = []
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="buckets-shards-") as folder:
            team = Team(groupings, size, BATCHES.get(size, 4), first_rows=size)
            conf = write_team(team, Path(folder))
            written = yaml.safe_load(conf.read_text(encoding="utf-8"))
            for many in tasks:
                for count in (count for count in shards if count >= many):
                    run = Path(folder) / f"run-{many}-{count}.yaml"
                    changed = {"engine": {"shards": count}, "partitions": many, "checkpoint": f"cp-{many}-{count}"}
                    changed["output"] = {**written["output"], "path": f"out-{many}-{count}"}
                    run.write_text(yaml.safe_dump({**written, **changed}), encoding="utf-8")
                    batches = read_batches(child([str(HERE / "team_run.py"), str(run)], root=ROOT))
                    numbers = {name: round(value, 3) for name, value in summary(team, batches).items()}
                    found.append({"batch": size, "tasks": many, "shards": count, **numbers})
                    print(found[-1], flush=True)

    def draw(axes: Axes) -> None:
        for size, many in dict.fromkeys((run["batch"], run["tasks"]) for run in found):
            chosen = [run for run in found if (run["batch"], run["tasks"]) == (size, many)]
            costs = [run["cpu_us"] for run in chosen]
            axes.plot([run["shards"] for run in chosen], costs, marker="o", label=f"{size:,} a batch, {many} tasks")
        axes.set(xscale="log", yscale="log", xlabel="shards", ylabel="us of CPU a touch", title="What shards cost")
        axes.legend()

    header = ("Batch", "Tasks", "Shards", "events/s", "us a touch", "GB")
    names = ("batch", "tasks", "shards", "rate", "cpu_us", "memory_gb")
    report.table("Shards", header, [[f"{run[name]:,}" for name in names] for run in found])
    report.write(draw)


if __name__ == "__main__":
    main()
