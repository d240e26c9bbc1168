"""A backtest of an archive on a standalone cluster: CPU and time with one worker of a core, and with three.

The archive is that of `history.py`. Sides take turns; the first round is not measured. CPU is all that the machine
spends meanwhile, so nothing else may run on it: processes that end with a session take theirs along. A machine with
fewer cores than workers shows by CPU alone whether more workers cost more.

    python bench/cluster.py [--events 10000000] [--work bench/data/history]
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from history_job import make_job
from matplotlib.axes import Axes
from measure import DATA, ROOT
from report import Goal, Report

from tests.cluster.standalone import StandaloneCluster

WORKERS = (1, 3)
MOST_TIMES = 1.1


def spent_s() -> float:
    """What the cores of this machine have done so far, in s."""
    user, nice, system, _, _, irq, softirq, *_ = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def backtest(work: Path, *more: str) -> dict[str, Any]:
    """Run a backtest of the job in a folder, and return its report."""
    command = [str(Path(sys.executable).with_name("buckets")), "backtest", str(work / "rules.yaml")]
    command += ["--conf", str(work / "conf.yaml"), "--json", "-", *more]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if ended.returncode:
        sys.exit(f"{' '.join(command)}: {ended.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def on_cluster(work: Path, workers: int) -> tuple[dict[str, Any], float, float]:
    """Return the report of a backtest on so many workers, how long it took in s, and its CPU in s."""
    folder = Path(tempfile.mkdtemp(prefix="buckets-bench-"))
    with StandaloneCluster(folder) as cluster:
        for _ in range(workers):
            cluster.add_worker("2g")
        began_s, before_s = time.monotonic(), spent_s()
        found = backtest(work, "--master", cluster.url)
        took_s, cpu_s = time.monotonic() - began_s, spent_s() - before_s
    shutil.rmtree(folder, ignore_errors=True)
    return found, took_s, cpu_s


def main() -> None:
    """Measure."""
    options = {"--events": "10000000", "--payers": "20000", "--work": str(DATA / "history")}
    report = Report("cluster", __doc__, repeats=1, options=options)
    events = 100_000 if report.quick else int(report.option("--events"))
    work = Path(report.option("--work") + ("-quick" if report.quick else ""))
    report.found["job"] = make_job(work, events, int(report.option("--payers")), report.console)
    began_s, before_s = time.monotonic(), spent_s()
    alone = backtest(work)
    report.found["one process"] = {"s": time.monotonic() - began_s, "cpu_s": spent_s() - before_s}
    runs: dict[int, list[tuple[float, float]]] = {workers: [] for workers in WORKERS}
    for turn in range(report.repeats + 1):
        for workers, of_side in runs.items():
            found, took_s, cpu_s = on_cluster(work, workers)
            if found != alone:
                sys.exit(f"{workers} workers have found something else than one process")
            of_side.append((took_s, cpu_s))
            report.console.print(
                f"  turn {turn}, {workers} workers: {took_s:.1f} s, {cpu_s:.0f} s CPU", highlight=False
            )
    seconds = {workers: median(took_s for took_s, _ in of_side[1:]) for workers, of_side in runs.items()}
    cpu = {workers: median(cpu_s for _, cpu_s in of_side[1:]) for workers, of_side in runs.items()}
    report.found |= {"events": events, "seconds": seconds, "cpu_s": cpu, "runs": runs}
    rows = [(str(workers), f"{seconds[workers]:.1f}", f"{cpu[workers]:.0f}") for workers in WORKERS]
    one = report.found["one process"]
    rows.insert(0, ("none, one process", f"{one['s']:.1f}", f"{one['cpu_s']:.0f}"))
    report.table(f"Backtest of {events:,} payments", ("Workers", "s", "s CPU"), rows)
    few, many = WORKERS
    report.goal(Goal(f"CPU of {many} workers, times that of {few}", cpu[many] / cpu[few], at_most=MOST_TIMES))

    def draw(axes: Axes) -> None:
        axes.bar([str(workers) for workers in WORKERS], [*cpu.values()])
        axes.set(xlabel="workers", ylabel="s of CPU", title=f"Backtest of {events:,} payments")

    report.write(draw)


if __name__ == "__main__":
    main()
