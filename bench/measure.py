"""Measuring: what a machine is, a benchmark process, its rate, and runs of several sides one after another.

Sides take turns, each run in a process of its own, so that a machine that gets slower meets all of them alike. A run's
rate is the median over its batches after the warm-up, in events a second.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
DATA = HERE / "data"
LIBRARIES = ("pyspark", "deltalake", "numba", "numpy", "pyarrow")
WARM_UP_BATCHES = 2
POLL_S = 1.0
LONGEST_RUN_S = 900.0

Batch = dict[str, Any]
Batches = list[Batch]


@dataclass(frozen=True)
class Side:
    """One thing that is measured.

    Attributes:
        name: what it is called in tables.
        run: runs it once, in a folder of its own, and gives its batches: at least `events` and `ms` of each.
    """

    name: str
    run: Callable[[Path], Batches]


@dataclass(frozen=True)
class Run:
    """A run that is done."""

    rate: float
    load_before: float
    batches: Batches


Runs = dict[str, list[Run]]


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


def child(
    command: Sequence[str], each_second: Callable[[int], None] = lambda process_id: None, root: Path = ROOT
) -> str:
    """Run a benchmark process.

    Args:
        command: a script and its arguments, for this Python.
        each_second: called with the process id once a second while it runs.
        root: the checkout whose product is measured.

    Returns:
        What it printed. If it fails, or takes longer than `LONGEST_RUN_S`, this process ends.
    """
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(root)}
    with tempfile.TemporaryFile("w+") as printed, tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen([sys.executable, *command], stdout=printed, stderr=said, env=environment, cwd=root)
        ends_s = time.monotonic() + LONGEST_RUN_S
        try:
            while process.poll() is None and time.monotonic() < ends_s:
                each_second(process.pid)
                time.sleep(POLL_S)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        if process.returncode:
            said.seek(0)
            sys.exit(f"{' '.join(command)} failed ({process.returncode}):\n{said.read()[-3000:]}")
        printed.seek(0)
        return printed.read()


def read_batches(printed: str) -> Batches:
    """The batches that a benchmark process printed, a line of JSON each."""
    return [json.loads(line) for line in printed.splitlines()]


def rate(batches: Batches) -> float:
    """Events a second: the median over the batches after the warm-up."""
    return statistics.median(batch["events"] / batch["ms"] * 1000 for batch in batches[WARM_UP_BATCHES:])


def rate_text(rate: float) -> str:
    """A rate to read."""
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"


def run_once(side: Side, console: Console) -> Run:
    """Run one side, in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="buckets-bench-") as work:
        load = os.getloadavg()[0]
        batches = side.run(Path(work))
    done = Run(rate(batches), load, batches)
    console.print(f"  {side.name}: {rate_text(done.rate)} events/s (load before: {load:.1f})", highlight=False)
    return done


def alternate(sides: Sequence[Side], repeats: int, console: Console) -> Runs:
    """Run all sides, one after another, and that `repeats` times."""
    runs: Runs = {}
    for repeat in range(repeats):
        console.print(f"round {repeat + 1} of {repeats}", highlight=False)
        for side in sides:
            runs.setdefault(side.name, []).append(run_once(side, console))
    return runs


def median_rates(runs: Mapping[str, Sequence[Run]]) -> dict[str, float]:
    """The median rate of each side."""
    return {side: statistics.median(run.rate for run in done) for side, done in runs.items()}
