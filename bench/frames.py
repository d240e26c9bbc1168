"""Features of a batch DataFrame: `buckets.spark.features` beside Spark SQL's RANGE windows and `buckets.features`.

Payments of a week with distinct times, 13 fields of text, each a grouping with a sum and a count over half an hour to
three days. The three sides take turns in one session with two cores; the values of the first two are compared as sums
of each column. CPU is of all processes. The first turn of each number of groupings is not counted.
"""

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from matplotlib.axes import Axes
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from report import Goal, Report
from team_run import Cpu

import buckets
import buckets.spark as bs

KEYS = (20_000, 5_000, 500, 50_000, 1_000, 200, 10_000, 2_000, 100, 30_000, 800, 3_000, 40_000)
MINUTES = (1440, 360, 60, 720, 180, 120, 1440, 2880, 30, 480, 240, 300, 4320)
ROWS, PIECE, WEEK_MS = 1_000_000, 200_000, 7 * 86_400_000
GROUPINGS = {1: 3.0, 3: 6.0, 13: 10.0}  # How many, and how many times as fast as Spark SQL is wanted
SETTINGS = {
    "spark.driver.memory": "4g",
    "spark.sql.shuffle.partitions": "8",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
SCHEMA = bs.schema(
    {
        "event_id": "id",
        "event_time": {"field": "at", "unit": "ms"},
        "attributes": {f"k{number}": "string" for number in range(len(KEYS))},
        "measures": {"cents": {"scale": 0}},
    }
)
Sums = Sequence[Any]


def rules(groupings: int) -> tuple[buckets.Rule, ...]:
    """A rule for each grouping."""
    return bs.rules(
        [
            {
                "rule_id": f"r{number}",
                "group_by": [f"k{number}"],
                "features": {
                    "sum": {"function": "sum", "of": "cents", "window": f"{minutes}m"},
                    "n": {"function": "count", "window": f"{minutes}m"},
                },
                "when": "n > 1000000000",
            }
            for number, minutes in enumerate(MINUTES[:groupings])
        ]
    )


def write_payments(path: Path, rows: int) -> None:
    """Write the payments, in the order of their time."""
    random = np.random.default_rng(1)
    at = 1_700_000_000_000 + np.arange(rows) * (WEEK_MS // rows)
    columns = {"id": pa.array([f"e{row}" for row in range(rows)]), "at": pa.array(at)}
    columns["cents"] = pa.array(random.integers(1, 50_000, rows))
    for number, keys in enumerate(KEYS):
        names = pa.array([f"key{key:06d}" for key in range(keys)])
        columns[f"k{number}"] = names.take(pa.array(random.integers(0, keys, rows)))
    pq.write_table(pa.table(columns), path, row_group_size=100_000)


def sums_of(scored: DataFrame, columns: Sequence[str]) -> Sums:
    """The sum of each column, which computes them all."""
    return tuple(scored.agg(*(F.sum(F.col(f"`{name}`").cast("decimal(38,0)")) for name in columns)).first() or ())


def ours(frame: DataFrame, groupings: int) -> Sums:
    """`buckets.spark.features`."""
    scored = bs.features(frame, rules(groupings), SCHEMA, order_by=["at", "id"])
    return sums_of(scored, [f"r{number}.{name}" for number in range(groupings) for name in ("sum", "n")])


def spark_sql(frame: DataFrame, groupings: int) -> Sums:
    """Window functions over the same."""
    names = []
    for number, minutes in enumerate(MINUTES[:groupings]):
        within = f"RANGE BETWEEN {minutes * 60_000} PRECEDING AND CURRENT ROW"
        over = f"OVER (PARTITION BY k{number} ORDER BY at {within})"
        frame = frame.selectExpr("*", f"sum(cents) {over} AS s{number}", f"count(*) {over} AS n{number}")
        names += [f"s{number}", f"n{number}"]
    return sums_of(frame, names)


def one_process(path: Path, groupings: int) -> Sums:
    """`buckets.features`, piece by piece, in this process."""
    evaluator, sums = buckets.Evaluator(rules(groupings), SCHEMA), [0] * (2 * groupings)
    names = [f"r{number}.{name}" for number in range(groupings) for name in ("sum", "n")]
    for piece in pq.ParquetFile(path).iter_batches(PIECE):
        scored = evaluator.features(pa.Table.from_batches([piece]))
        sums = [total + int(pc.sum(scored[name]).as_py()) for total, name in zip(sums, names, strict=True)]
    return tuple(sums)


def main() -> None:
    """Measure."""
    report = Report("frames", __doc__)
    folder = Path(tempfile.mkdtemp())
    rows = 20_000 if report.quick else ROWS
    path = folder / "payments.parquet"
    write_payments(path, rows)
    builder = SparkSession.builder.master("local[2]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    frame = builder.getOrCreate().read.parquet(str(path))
    found = report.found.setdefault("groupings", {})
    for groupings, wanted in GROUPINGS.items():
        sides: dict[str, Callable[[], Sums]] = {
            "ours": lambda groupings=groupings: ours(frame, groupings),
            "spark sql": lambda groupings=groupings: spark_sql(frame, groupings),
            "one process": lambda groupings=groupings: one_process(path, groupings),
        }
        runs: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
        for turn in range(report.repeats + 1):
            sums = {}
            for name, run in sides.items():
                began_s, spent_s = time.monotonic(), Cpu.now().all_s
                sums[name] = run()
                runs[name].append((time.monotonic() - began_s, Cpu.now().all_s - spent_s))
            if len(set(map(tuple, sums.values()))) > 1:
                message = f"values differ: {sums}"
                raise AssertionError(message)
            text = ", ".join(f"{name} {runs[name][-1][0]:.1f} s ({runs[name][-1][1]:.0f} s CPU)" for name in sides)
            report.console.print(f"  {groupings} groupings, turn {turn}: {text}", highlight=False)
        median_s = {name: median(wall for wall, _ in of_side[1:]) for name, of_side in runs.items()}
        median_cpu_s = {name: median(cpu for _, cpu in of_side[1:]) for name, of_side in runs.items()}
        found[groupings] = {"rows": rows, "median_s": median_s, "median_cpu_s": median_cpu_s, "runs": runs}
        times = median_s["spark sql"] / median_s["ours"]
        report.goal(Goal(f"{groupings} groupings, times as fast as Spark SQL", times, at_least=wanted))
        if median_cpu_s["one process"]:
            times = median_cpu_s["ours"] / median_cpu_s["one process"]
            report.goal(Goal(f"{groupings} groupings, times the CPU of one process", times, at_most=3.0))
    shutil.rmtree(folder)

    def draw(axes: Axes) -> None:
        for name in ("ours", "spark sql", "one process"):
            axes.plot([*found], [each["median_s"][name] for each in found.values()], marker="o", label=name)
        axes.set_xlabel("groupings")
        axes.set_ylabel(f"seconds for {rows:,} payments")
        axes.legend()

    report.write(draw)


if __name__ == "__main__":
    main()
