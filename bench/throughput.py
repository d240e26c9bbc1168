"""Events a second of the whole streaming query, beside a bare prototype of the same path, on the same data.

    python bench/throughput.py [--repeats 3] [--prototype PATH]

Steady data, one window of an hour, five aggregates, micro-batches of 600,000 rows, Parquet in. Runs alternate, each in
a process of its own; the first two batches of a run are warm-up, and a run's rate is the median of the others.

- `ours, alerts`: the product's main job as it is; alerts and accounts go to Delta tables.
- `ours, evaluations`: the same query with a row for every event and rule, to a sink that throws the rows away.
- `prototype`: four aggregates over five windows, everything put out as one row an event, to a sink that throws it away;
  no policies, no ids, no rules, no dead letters, no accounts.
"""

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.table import Table
from steady import Steady, write_steady

HERE = Path(__file__).resolve().parent
PROTOTYPE = HERE.parent.parent / "shared" / "prototype" / "prototype.py"
FILES_PER_BATCH = 2
WARM_UP_BATCHES = 2
SHARDS = 8
DATA = (Steady(10_000, 10, 12, 300_000), Steady(1_000, 100, 12, 300_000))
LIBRARIES = ("pyspark", "delta-spark", "numba", "numpy", "pyarrow")
GOAL = 0.7


def machine() -> dict[str, object]:
    """What the numbers were measured on."""
    model = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), "")
    return {
        "cpu": model.partition(":")[2].strip(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "python": platform.python_version(),
        "java": subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr.split("\n")[0],
        **{library: version(library) for library in LIBRARIES},
    }


def run(command: list[str]) -> str:
    """Run a benchmark process; its output."""
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(HERE.parent)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    return done.stdout


def prototype_run(script: Path, data: Path, work: Path) -> list[dict[str, object]]:
    """Batches of the prototype: their events and milliseconds."""
    arguments = [str(data), str(SHARDS), "pipe", "all", str(FILES_PER_BATCH), str(work / "prototype")]
    lines = re.findall(r"^R \S+ (\d+) (\d+) (\d+) ", run([sys.executable, str(script), *arguments]), re.MULTILINE)
    return [{"batch": int(batch), "events": int(events), "ms": int(ms)} for batch, events, ms in lines]


def our_run(emit: str, data: Path, work: Path) -> list[dict[str, object]]:
    """Batches of the product's query."""
    arguments = [str(data), str(FILES_PER_BATCH), emit, str(work / emit)]
    return [json.loads(line) for line in run([sys.executable, str(HERE / "ours.py"), *arguments]).splitlines()]


def rate(batches: list[dict]) -> float:
    """Events a second: the median over batches behind the warm-up."""
    return statistics.median(batch["events"] / batch["ms"] * 1000 for batch in batches[WARM_UP_BATCHES:])


def measure(data: Path, prototype: Path, repeats: int, console: Console) -> dict[str, list[dict]]:
    """All runs over one data set, alternately."""
    runs: dict[str, list[dict]] = {}
    for repeat in range(repeats):
        with tempfile.TemporaryDirectory(prefix="buckets-bench-") as work:
            sides = {
                "prototype": lambda work=work: prototype_run(prototype, data, Path(work)),
                "ours, alerts": lambda work=work: our_run("alerts", data, Path(work)),
                "ours, evaluations": lambda work=work: our_run("evaluations", data, Path(work)),
            }
            if not prototype.exists():
                del sides["prototype"]
            for side, measured in sides.items():
                load = os.getloadavg()[0]
                batches = measured()
                runs.setdefault(side, []).append({"rate": rate(batches), "load_before": load, "batches": batches})
                console.print(f"run {repeat + 1}, {data.name}: {side}: {rate(batches):,.0f} events/s (load {load:.1f})")
    return runs


def phases_of_batch(runs: list[dict]) -> dict[str, float]:
    """Where the milliseconds of a batch of the main job go: medians over all batches behind the warm-up."""
    batches = [batch for each in runs for batch in each["batches"][WARM_UP_BATCHES:]]

    def median(value) -> float:
        return round(statistics.median(value(batch) for batch in batches), 1)

    return {
        "whole batch": median(lambda b: b["ms"]),
        "scoring: read, fan-out, shuffle, windows, state": median(lambda b: b["scored_s"] * 1000),
        "of it: state operator, busiest of two tasks at least": median(lambda b: b["state_update_ms"] / 2),
        "of it: state commit": median(lambda b: b["state_commit_ms"]),
        "Delta tables": median(lambda b: b["written_s"] * 1000),
        "planning": median(lambda b: b["duration_ms"]["queryPlanning"]),
        "offset and commit logs": median(lambda b: b["duration_ms"]["walCommit"] + b["duration_ms"]["commitOffsets"]),
    }


def main() -> None:
    """Measure, print a table, and write the numbers down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="runs of each side on each data set (default 3)")
    parser.add_argument("--prototype", type=Path, default=PROTOTYPE, help="the prototype's script")
    options = parser.parse_args()
    console = Console()
    results: dict[str, object] = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine()}
    table = Table(title="Events a second, micro-batches of 600,000 rows", title_justify="left")
    for name in ("Data", "Side", "Median", "Runs", "Of the prototype"):
        table.add_column(name, justify="left" if name in ("Data", "Side") else "right")
    for steady in DATA:
        data = write_steady(steady, HERE / "data")
        runs = measure(data, options.prototype, options.repeats, console)
        rates = {side: statistics.median(each["rate"] for each in done) for side, done in runs.items()}
        ratios = {side: each / rates["prototype"] for side, each in rates.items()} if "prototype" in rates else {}
        inside = json.loads(
            run([sys.executable, str(HERE / "phases.py"), str(data), str(FILES_PER_BATCH), tempfile.mkdtemp()])
        )
        results[steady.name] = {
            "rates": rates,
            "ratios": ratios,
            "batch_ms": phases_of_batch(runs["ours, alerts"]),
            "python_us_per_event": inside["us_per_event"],
            "runs": runs,
        }
        for side, median in rates.items():
            each = ", ".join(f"{done['rate']:,.0f}" for done in runs[side])
            table.add_row(steady.name, side, f"{median:,.0f}", each, f"{ratios[side]:.2f}" if ratios else "")
        console.print_json(data={"batch_ms": phases_of_batch(runs["ours, alerts"]), **inside})
    console.print(table)
    if not options.prototype.exists():
        console.print(f"no prototype at {options.prototype}: nothing to compare with; goal is {GOAL} of it")
    target = HERE / "results" / "throughput.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(results, indent=1), encoding="utf-8")
    console.print(f"written to {target}")


if __name__ == "__main__":
    main()
