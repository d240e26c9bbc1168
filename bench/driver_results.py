"""What goes through the driver, and how fast is it? A checkout before this one and this one, in turns.

    python bench/driver_results.py --before CHECKOUT [--rows 1000000] [--sizes 0.5,1,1.5,2,3] [--row-mb 8]

Four jobs over steady data, of which the second of two micro-batches counts: evaluations into Delta; evaluations into
topics; a rule with features of two groups; and few alerts, none of them large. `driver` is the CPU time of the
driver's Python for a micro-batch: it is what one process has to do, however many executors there are, so events divided
by it are where it saturates. Without `--before` this checkout is measured alone.

With `--sizes`, also: rows like those of the shards, collected, until the driver's JVM gives up, with
`spark.driver.memory` 4g.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
from matplotlib.axes import Axes
from measure import ROOT, child
from report import Report
from steady import Steady, write_steady

from buckets.config.job import load_job
from buckets.kafka.local_broker import LocalBroker, free_port
from buckets.kafka.topics import create_topics
from buckets.spark.session import start_session

CASES = ("alerts", "parts", "evaluations", "topics")
SCHEMA = {
    "name": "steady",
    "event_id": "event_id",
    "event_time": {"field": "ts", "unit": "ms"},
    "attributes": {"key": "string", "key_1": "string"},
    "measures": {"amount": {"scale": 0}},
}
SPANNING = {
    "rule_id": "spanning",
    "group_by": ["key"],
    "features": {
        "own": {"function": "sum", "of": "amount", "window": "1h"},
        "other": {"function": "count", "window": "1h", "group_by": ["key_1"]},
    },
    "when": "own > 1000000000 AND other > 5",
}


def rule(function: str) -> dict[str, Any]:
    """A rule that hardly ever fires."""
    return {
        "rule_id": function,
        "group_by": ["key"],
        "aggregate": {"function": function, "measure": "amount"},
        "window": {"length": "1h"},
        "limit": {"operator": ">", "value": "500000" if function == "max" else "1000000000000"},
    }


RULES = {
    "alerts": [rule(function) for function in ("sum", "max")],
    "parts": [SPANNING],
    "evaluations": [rule(function) for function in ("sum", "count", "avg", "min", "max")],
    "topics": [rule("sum")],
}


def write_job(case: str, data: Path, work: Path, kafka: str) -> Path:
    """Write the configuration of a case; its path."""
    output: dict[str, Any] = {"path": "tables", "evaluations": case == "evaluations"}
    if case == "topics":
        output = {"kind": "kafka", "evaluations": True}
    conf = {
        "source": {"kind": "parquet", "path": str(data), "arrival": "off", "max_files_per_trigger": 1},
        "schema": "schema.yaml",
        "rules": "rules.yaml",
        "checkpoint": "checkpoint",
        "output": output,
        "engine": {"shards": 8},
    } | ({"kafka": {"bootstrap_servers": kafka}} if kafka else {})
    for name, content in (("schema", SCHEMA), ("rules", {"rules": RULES[case]}), ("conf", conf)):
        (work / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return work / "conf.yaml"


def run_job(conf: Path) -> None:
    """Run a job, and print what its batches took."""
    from buckets.spark.prepared_job import Listener, job_session, prepare

    job, before_s = load_job(conf), time.process_time()

    def on_batch(report: Any) -> None:
        nonlocal before_s
        driver_s, before_s = time.process_time() - before_s, time.process_time()
        times = {"scored_s": report.scored_s, "written_s": report.written_s, "driver_s": driver_s}
        print(json.dumps({"events": report.account.events_in} | times), flush=True)

    prepare(job).query(job_session(job), Listener(on_batch)).run(None)


def measured(case: str, checkout: Path, data: Path) -> dict[str, float]:
    """What the second batch of a case took with a checkout."""
    with tempfile.TemporaryDirectory(prefix="buckets-bench-") as folder:
        work, broker = Path(folder), None
        if case == "topics":
            broker = LocalBroker(work / "broker", free_port())
            broker.start()
        try:
            conf = write_job(case, data, work, broker.kafka.bootstrap_servers if broker else "")
            if broker is not None:
                create_topics(broker.kafka, load_job(conf), 4)
            printed = child([str(Path(__file__).resolve()), "--job", str(conf)], root=checkout)
        finally:
            if broker is not None:
                broker.stop()
    batch: dict[str, float] = [json.loads(line) for line in printed.splitlines() if line.startswith("{")][1]
    return batch


def collect(size_gb: float, row_mb: int) -> None:
    """Bring so much to the driver, and print how long it took."""
    session = start_session("driver results", 2)
    rows = max(1, round(size_gb * 1000 / row_mb))
    payload = f"cast(repeat(cast(id % 10 as string), {row_mb * 1_000_000}) as binary) as payload"
    frame = session.range(0, rows, 1, 2).selectExpr(payload)
    begun_s = time.perf_counter()
    got = sum(len(row.payload) for row in frame.collect())
    print(f"{got} {time.perf_counter() - begun_s:.2f}")


def collected(report: Report, sizes: list[str]) -> None:
    """Measure how much the driver's JVM can be given."""
    found, rows = report.found.setdefault("collected", []), []
    for size in sizes:
        run = [sys.executable, __file__, "--one", size, report.option("--row-mb")]
        done = subprocess.run(run, capture_output=True, text=True, check=False)
        took_s = float(done.stdout.split()[1]) if done.returncode == 0 else None
        found.append({"gb": float(size), "took_s": took_s})
        rows.append([size, "the JVM gave up" if took_s is None else f"{took_s:.1f}"])
    report.table("Results on the driver", ("GB", "s"), rows)


def main() -> None:
    """Measure."""
    options = {"--before": "", "--rows": "1000000", "--cases": ",".join(CASES), "--sizes": "", "--row-mb": "8"}
    report = Report("driver_results", __doc__, repeats=1, options=options)
    before, rows = report.option("--before"), 20_000 if report.quick else int(report.option("--rows"))
    sides = ({"before": Path(before).resolve()} if before else {}) | {"now": ROOT}
    found: dict[str, dict[str, list[dict[str, float]]]] = report.found.setdefault("cases", {})
    with tempfile.TemporaryDirectory(prefix="buckets-bench-data-") as folder:
        for case in report.option("--cases").split(","):
            share = 5 if case == "topics" else 1
            steady = Steady(10_000, 100, files=2, rows_per_file=rows // share, groupings=2)
            data = write_steady(steady, Path(folder))
            for repeat in range(report.repeats):
                for side in sorted(sides, reverse=bool(repeat % 2)):
                    found.setdefault(case, {}).setdefault(side, []).append(measured(case, sides[side], data))
                    print(case, side, found[case][side][-1], flush=True)
    lines = []
    for case, of_sides in found.items():
        for side, runs in of_sides.items():
            events = runs[0]["events"]
            scored_s, written_s, driver_s = (
                statistics.median(run[name] for run in runs) for name in ("scored_s", "written_s", "driver_s")
            )
            times = [f"{scored_s:.2f}", f"{written_s:.2f}", f"{driver_s:.2f}", f"{events / driver_s:,.0f}"]
            lines.append([f"{case}, {side}", f"{events:,.0f}", *times])
    columns = ("", "events", "scored, s", "written, s", "driver, s of CPU", "events/s of one driver")
    report.table("The second micro-batch", columns, lines)
    if report.option("--sizes"):
        collected(report, report.option("--sizes").split(","))

    def draw(axes: Axes) -> None:
        axes.barh([line[0] for line in lines], [float(line[4]) for line in lines])
        axes.set(xlabel="CPU of the driver's Python for a micro-batch, s", title="What goes through the driver")

    report.write(draw)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        try:
            collect(float(sys.argv[2]), int(sys.argv[3]))
        except Exception as error:
            sys.exit(str(error)[:300])
    elif sys.argv[1:2] == ["--job"]:
        run_job(Path(sys.argv[2]))
    else:
        main()
