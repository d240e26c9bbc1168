"""How much of a delay is Spark's own? Queries that do nothing and the product, in turns, from topic to topic.

The producer keeps its own schedule, and each payment counts from the moment at which it was meant to be sent. What the
queries do that do nothing is in `floor_engine.py`; the product has ten rules, in one group (`ours-1`) or in ten.

    python bench/floor.py [--modes batch,state,ours-1,ours-10] [--rate 500] [--seconds 120] [--warm-up 120]
        [--base FOLDER]

The product runs with `profile: latency`; with `-throughput` behind it, as in `ours-1-throughput`, with the other one.
Without a warm-up the minutes of a run show what a job's first ones are like. With `--base`, a checkout of an older
commit that has been set up, `base-1` and `base-10` are its product, as it was by itself; the picture is what batches
spend their time on then, and everything is written as `floor_base`.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

from latency import DRAIN_S, consume_alerts, quantiles
from live_job import HISTORY_EVENTS, LiveJob, live_job, ten_rules
from matplotlib.axes import Axes
from measure import HERE, ROOT
from report import Goal, Report

OPTIONS = {
    "--modes": "batch,state,ours-1,ours-10",
    "--rate": "500",
    "--seconds": "120",
    "--warm-up": "120",
    "--base": "",
}
OF_SPARK = ("latestOffset", "walCommit", "queryPlanning", "commitOffsets")
STEPS = (*OF_SPARK[:3], "results", "results written", "else", OF_SPARK[3])
Phases = dict[str, float]  # By step, its median in ms over batches
TIMES_AS_LONG = 1.5


@contextmanager
def bare_query(live: LiveJob, mode: str) -> Iterator[None]:
    """A query that does nothing, running."""
    command = [sys.executable, str(HERE / "floor_engine.py"), str(live.conf), mode]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    with (
        live.conf.with_name("floor.log").open("w") as said,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True, env=environment, cwd=ROOT) as process,
    ):
        assert process.stdout is not None
        if process.stdout.readline().strip() != "started":
            sys.exit(f"{mode} did not start: {live.conf.with_name('floor.log').read_text()[-2000:]}")
        yield
        process.terminate()


@contextmanager
def product(live: LiveJob, root: Path) -> Iterator[list[dict[str, Any]]]:
    """The product, running, with a history that it has scored; yields its batches, complete at the end."""
    with live.engine(root) as engine:
        live.send_history()
        engine.wait_for(HISTORY_EVENTS)
        yield engine.batches


def phases_of(batches: list[dict[str, Any]]) -> Phases:
    """What batches in the second half of a run have spent their time on."""
    of_spark = [batch["durationMs"] for batch in batches if "durationMs" in batch]
    ours = [batch for batch in batches if "scored_s" in batch]
    if not of_spark or not ours:
        return {}
    of_spark, ours = of_spark[len(of_spark) // 2 :], ours[len(ours) // 2 :]
    steps = {name: median(float(each.get(name, 0)) for each in of_spark) for name in (*OF_SPARK, "triggerExecution")}
    steps["results"] = 1000 * median(each["scored_s"] for each in ours)
    steps["results written"] = 1000 * median(each["written_s"] for each in ours)
    whole = steps.pop("triggerExecution")
    return steps | {"else": max(0.0, whole - sum(steps.values()))}


def delays(mode: str, rate: int, warm_up_s: float, seconds: float, base: Path) -> tuple[list[list[float]], Phases]:
    """Run one mode; the delays of payments after the warm-up in ms, minute by minute, and the phases of batches."""
    is_ours, is_base, found = mode.startswith("ours"), mode.startswith("base"), list[tuple[int, int]]()
    profile = {} if is_base else {"profile": "throughput" if mode.endswith("-throughput") else "latency"}
    groups = int(mode.split("-")[1]) if is_ours or is_base else 1
    stopping = threading.Event()

    def take(alert: dict[str, Any]) -> None:
        found.append((alert["event_time" if is_ours or is_base else "at"], time.time_ns() // 1_000_000))

    with (
        live_job(ten_rules(groups), {}, **profile) as live,
        product(live, base if is_base else ROOT) if is_ours or is_base else bare_query(live, mode) as batches,
    ):
        consumer = threading.Thread(target=consume_alerts, args=(live, stopping, take), daemon=True)
        consumer.start()
        begin_ms = time.time_ns() // 1_000_000 + warm_up_s * 1000
        sent = int(live.producer(rate, warm_up_s + seconds).communicate()[0])
        ends_s = time.monotonic() + 60
        while len(found) < sent and time.monotonic() < ends_s:
            time.sleep(0.1)
        time.sleep(DRAIN_S)
        stopping.set()
        consumer.join()
    if len(found) < sent:
        sys.exit(f"{mode}: {sent - len(found):,} of {sent:,} payments did not come through")
    minutes: list[list[float]] = [[] for _ in range(max(1, round(seconds / 60)))]
    for due, came in found:
        if due >= begin_ms:
            minutes[min(int(due - begin_ms) // 60_000, len(minutes) - 1)].append(came - due)
    return minutes, phases_of(batches or [])


def main() -> None:
    """Measure."""
    report = Report("floor", __doc__, options=OPTIONS)
    base = report.option("--base")
    report.name = "floor_base" if base else report.name
    modes, rate = report.option("--modes").split(","), int(report.option("--rate"))
    seconds, warm_up_s = (
        (10.0, 10.0)
        if report.quick
        else (
            float(report.option("--seconds")),
            float(report.option("--warm-up")),
        )
    )
    runs: dict[str, list[dict[str, float]]] = defaultdict(list)
    by_minute: dict[str, list[list[dict[str, float]]]] = defaultdict(list)
    phases: dict[str, list[Phases]] = defaultdict(list)
    for _ in range(report.repeats):
        for mode in modes:
            minutes, of_batches = delays(mode, rate, warm_up_s, seconds, Path(base).resolve())
            phases[mode] += [of_batches] if of_batches else []
            runs[mode].append(quantiles([*chain(*minutes)]) | {"load": os.getloadavg()[0]})
            by_minute[mode].append([*map(quantiles, minutes)])
            report.console.print(f"  {mode}: {json.dumps(runs[mode][-1])}", highlight=False)
            for number, minute in enumerate(by_minute[mode][-1], 1) if len(minutes) > 2 else ():
                report.console.print(f"    minute {number}: {json.dumps(minute)}", highlight=False)
    found = {mode: {name: median(run[name] for run in of) for name in of[0]} for mode, of in runs.items()}
    report.found["by_minute"] = by_minute
    report.found["delay_ms"] = {mode: {"median": found[mode], "runs": of} for mode, of in runs.items()}
    names = [name for name in found[modes[0]] if name != "load"]
    rows = [(mode, *(f"{of[name]:,.0f}" for name in names)) for mode, of in found.items()]
    report.table(f"{rate} payments/s, ms from payment to alert", ("Query", *names), rows)
    for mode in modes:
        if mode.startswith("ours") and "batch" in found:
            for name in ("p50", "p99"):
                times = found[mode][name] / found["batch"][name]
                report.goal(Goal(f"{mode} against batch, {name}, times as long", times, at_most=TIMES_AS_LONG))

    steps = {mode: {step: median(run[step] for run in of) for step in STEPS} for mode, of in phases.items() if of}
    report.found["phases_ms"] = steps

    def draw(axes: Axes) -> None:
        if base:
            before = dict.fromkeys(steps, 0.0)
            for step in STEPS:
                widths = [of[step] for of in steps.values()]
                axes.barh([*steps], widths, left=[*before.values()], label=step)
                before = {mode: before[mode] + of[step] for mode, of in steps.items()}
            axes.invert_yaxis()
            axes.set(xlabel="ms", title=f"A batch at {rate} payments/s, medians of its steps")
            axes.legend(fontsize=7)
            return
        for name in ("p99", "p50"):
            axes.barh(modes, [found[mode][name] for mode in modes], label=name)
        axes.invert_yaxis()
        axes.set(xlabel="ms from payment to alert", title=f"Delay at {rate} payments/s")
        axes.legend()

    report.write(draw)


if __name__ == "__main__":
    main()
