"""Memory of `buckets.spark.features` over a few and over many payments with as many keys: of all processes together.

Each side is a process of its own with two cores, whose memory is sampled as shares of the pages that several processes
map. Payments of a team (`team_data.py`), a million a day, with one rule a grouping; all columns go to nowhere. Java's
heap is small, since it becomes as large as it may before anything is collected.

    python bench/frames_memory.py [--rows 2000000,20000000] [--groupings 3]
"""

import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from frames import SETTINGS, Size, ours, written
from matplotlib.axes import Axes
from measure import HERE
from memory import shared_out
from pyspark.sql import SparkSession
from report import Goal, Report
from team_data import PAYMENTS, SPAN_MS, START_MS, payments

MB = 1 << 20
MOST_TIMES = 1.3
EVERY_S = 0.5


def write_days(path: Path, rows: int) -> None:
    """Write payments at distinct times, the same ones every day under other ids."""
    table = payments(PAYMENTS)
    times_ms, ids = START_MS + np.arange(PAYMENTS) * (SPAN_MS // PAYMENTS), table["event_id"].cast(pa.string())
    with pq.ParquetWriter(path, table.schema) as writer:
        for day in range(-(-rows // PAYMENTS)):
            at = table.column_names.index("ts")
            of_day = table.set_column(at, table.field("ts"), pa.array(times_ms + day * SPAN_MS).cast(table["ts"].type))
            named = pc.binary_join_element_wise(pa.scalar(f"{day}"), ids, "-").cast(table["event_id"].type)
            of_day = of_day.set_column(table.column_names.index("event_id"), table.field("event_id"), named)
            writer.write_table(of_day.slice(0, rows - day * PAYMENTS), row_group_size=100_000)


def compute(path: Path, groupings: int) -> None:
    """Compute all features of a file, in a process of its own."""
    builder = SparkSession.builder.master("local[2]")
    for name, value in (SETTINGS | {"spark.driver.memory": "1g"}).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    written(ours(spark.read.parquet(str(path)), Size(groupings, 1)))
    spark.stop()


def peak_mb(path: Path, groupings: int) -> tuple[dict[str, float], float]:
    """Return the most memory of each kind of process, and of all at once, and how long it took in s."""
    began_s = time.monotonic()
    command = [sys.executable, str(HERE / "frames_memory.py"), "compute", str(path), str(groupings)]
    with subprocess.Popen(command, env=os.environ | {"PYSPARK_PYTHON": sys.executable}) as run:
        peaks: dict[str, float] = {}
        while run.poll() is None:
            found = shared_out(run.pid)
            for kind, size in (found | {"all": sum(found.values())}).items():
                peaks[kind] = max(peaks.get(kind, 0.0), size / MB)
            threading.Event().wait(EVERY_S)
    if run.returncode:
        sys.exit(f"{path.name} failed")
    return peaks, time.monotonic() - began_s


def main() -> None:
    """Measure."""
    options = {"--rows": "2000000,20000000", "--groupings": "3"}
    report = Report("frames_memory", __doc__, repeats=1, options=options)
    sizes = [20_000, 40_000] if report.quick else [int(rows) for rows in report.option("--rows").split(",")]
    found: dict[int, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="buckets-bench-") as folder:
        for rows in sizes:
            path = Path(folder) / f"{rows}.parquet"
            write_days(path, rows)
            found[rows], took_s = peak_mb(path, int(report.option("--groupings")))
            report.console.print(f"  {rows:,} payments: {took_s:.0f} s", highlight=False)
            report.found[str(rows)] = {"peak_mb": found[rows], "took_s": took_s}
            path.unlink()
    kinds = [*found[sizes[0]]]
    rows_shown = [(f"{rows:,}", *(f"{peaks[kind]:,.0f}" for kind in kinds)) for rows, peaks in found.items()]
    report.table("Most memory, MB", ("Payments", *kinds), rows_shown)
    times = found[sizes[-1]]["all"] / found[sizes[0]]["all"]
    report.goal(Goal(f"{sizes[-1]:,} payments, times the memory of {sizes[0]:,}", times, at_most=MOST_TIMES))

    def draw(axes: Axes) -> None:
        axes.bar([f"{rows:,}" for rows in found], [peaks["all"] for peaks in found.values()])
        axes.set(xlabel="payments", ylabel="MB at most", title="Memory of all processes")

    report.write(draw)


if __name__ == "__main__":
    if sys.argv[1:2] == ["compute"]:
        compute(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
