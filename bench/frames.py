"""Features of a batch DataFrame: `buckets.spark.features` beside Spark SQL's RANGE windows and `buckets.features`.

Payments of a team (`team_data.py`) at distinct times, with one rule a grouping; also with windows ten times as long, so
that they hold that many more payments. The three sides take turns in one
session with two cores, and the first turn of each number of groupings is not counted. Both sides of Spark write all
columns of the payments and those of the rules, to nowhere; the values are compared before that, as sums of each column.
CPU is of all processes.

    python bench/frames.py [--groupings 1,3,13] [--longer 1,10] [--held yes]

With `--held yes` Spark keeps six columns of the payments in memory, each rule has a sum and a count, and both sides of
Spark add up all values of the rules; there are up to three groupings then.
"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.axes import Axes
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from report import Goal, Report
from team_data import FIELDS, FUNCTIONS, GROUPINGS, PAYMENTS, SPAN_MS, START_MS, WINDOWS, payments, team_rules
from team_run import Cpu

import buckets
import buckets.spark as bs
from buckets.duration import parse_duration_ms

ROWS, PIECE = 1_000_000, 200_000
WANTED = {1: 3.0, 3: 6.0, 13: 10.0}  # How many, and how many times as fast as Spark SQL is wanted
SETTINGS = {
    "spark.driver.memory": "4g",
    "spark.sql.shuffle.partitions": "8",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
SCHEMA_OF = {
    is_held: bs.schema(
        {
            "event_id": "event_id",
            "event_time": {"field": "ts", "unit": "ms"},
            "attributes": dict.fromkeys(fields, "string"),
            "measures": {"amount": {"scale": 0}},
        }
    )
    for is_held, fields in ((False, FIELDS), (True, ("payer", "beneficiary", "merchant")))
}
SQL = {"sum": "sum(amount)", "count": "count(*)", "max": "max(amount)", "avg": "avg(amount)"}
HELD = {"payer": "24h", "beneficiary": "6h", "merchant": "1h"}
HELD_COLUMNS = ["event_id", "ts", *HELD, "amount"]
OPTIONS = {"--longer": "1,10", "--groupings": ",".join(map(str, WANTED)), "--held": "no"}
Sums = Sequence[Any]


def write_payments(path: Path, rows: int) -> None:
    """Write the payments, in the order of their time."""
    table = payments(rows)
    times = pa.array(START_MS + np.arange(rows) * (SPAN_MS // PAYMENTS))
    table = table.set_column(table.column_names.index("ts"), "ts", times)
    pq.write_table(table, path, row_group_size=100_000)


@dataclass(frozen=True)
class Size:
    """So many groupings, with windows so many times as long as the team's."""

    groupings: int
    longer: int
    is_held: bool = False  # Whether payments are in memory, with a sum and a count for each grouping

    @property
    def name(self) -> str:
        """What the table calls it."""
        longer = "" if self.longer == 1 else f", windows {self.longer} times as long"
        return f"{self.groupings} groupings{longer}{', held' if self.is_held else ''}"

    @property
    def rules(self) -> list[dict[str, Any]]:
        """The rules."""
        if self.is_held:
            return [self._held(*each) for each in list(HELD.items())[: self.groupings]]
        windows = (parse_duration_ms(window) * self.longer for window in WINDOWS)
        longer = ({"window": {"length": f"{window_ms}ms"}} for window_ms in windows)
        return [dict(rule) | window for rule, window in zip(team_rules(self.groupings), longer, strict=False)]

    def _held(self, field: str, window: str) -> dict[str, Any]:
        length = f"{parse_duration_ms(window) * self.longer}ms"
        features = {
            "sum": {"function": "sum", "of": "amount", "window": length},
            "count": {"function": "count", "window": length},
        }
        return {"rule_id": field, "group_by": [field], "features": features, "when": "count >= 1"}

    @property
    def values(self) -> list[tuple[str, str, Sequence[str], int]]:
        """Of each value its column, its function, the fields of its key and its window in ms."""
        if self.is_held:
            return [
                (f"{field}.{function}", function, [field], parse_duration_ms(window) * self.longer)
                for field, window in list(HELD.items())[: self.groupings]
                for function in ("sum", "count")
            ]
        return [
            (f"{function}-by-{'-'.join(fields)}.value", function, fields, parse_duration_ms(window) * self.longer)
            for fields, window, function in zip(GROUPINGS[: self.groupings], WINDOWS, FUNCTIONS, strict=False)
        ]


def ours(frame: DataFrame, size: Size) -> DataFrame:
    """`buckets.spark.features`."""
    return bs.features(frame, bs.rules(size.rules), SCHEMA_OF[size.is_held], order_by=["ts", "event_id"])


def spark_sql(frame: DataFrame, size: Size) -> DataFrame:
    """Window functions over the same."""
    for name, function, fields, window_ms in size.values:
        within = f"RANGE BETWEEN {window_ms} PRECEDING AND CURRENT ROW"
        over = f"OVER (PARTITION BY {', '.join(fields)} ORDER BY ts {within})"
        frame = frame.selectExpr("*", f"{SQL[function]} {over} AS `{name}`")
    return frame


def sums_of(scored: DataFrame, size: Size) -> Sums:
    """The sums of the values of rules, but for averages, of which SQL has doubles."""
    names = [name for name, function, *_ in size.values if function != "avg"]
    return tuple(scored.agg(*(F.sum(F.col(f"`{name}`").cast("decimal(38,0)")) for name in names)).first() or ())


def one_process(path: Path, size: Size) -> None:
    """`buckets.features`, piece by piece, in this process."""
    evaluator = buckets.Evaluator(bs.rules(size.rules), SCHEMA_OF[size.is_held])
    columns = HELD_COLUMNS if size.is_held else None
    for piece in pq.ParquetFile(path).iter_batches(PIECE, columns=columns):
        evaluator.features(pa.Table.from_batches([piece]))


def written(frame: DataFrame) -> None:
    """Compute all columns of all rows."""
    frame.write.format("noop").mode("overwrite").save()


def main() -> None:
    """Measure."""
    report = Report("frames", __doc__, options=OPTIONS)
    is_held = report.option("--held") == "yes"
    chosen = [[int(each) for each in report.option(name).split(",")] for name in ("--groupings", "--longer")]
    folder = Path(tempfile.mkdtemp())
    rows = 20_000 if report.quick else ROWS
    path = folder / "payments.parquet"
    write_payments(path, rows)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    frame = builder.getOrCreate().read.parquet(str(path))
    if is_held:
        frame = frame.select(*HELD_COLUMNS).persist()
        frame.count()
    found = report.found.setdefault("groupings", {})
    for size in (Size(groupings, longer, is_held) for longer in chosen[1] for groupings in chosen[0]):
        wanted = WANTED[size.groupings]
        sums = [sums_of(side(frame, size), size) for side in (ours, spark_sql)]
        if sums[0] != sums[1]:
            message = f"values differ: {sums}"
            raise AssertionError(message)
        ended: Callable[[DataFrame], object] = partial(sums_of, size=size) if is_held else written
        sides: dict[str, Callable[[], object]] = {
            "ours": partial(lambda size, ended: ended(ours(frame, size)), size, ended),
            "spark sql": partial(lambda size, ended: ended(spark_sql(frame, size)), size, ended),
            "one process": partial(one_process, path, size),
        }
        runs: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
        for turn in range(report.repeats + 1):
            for name, run in sides.items():
                # Of one process alone its own: workers of Spark that end meanwhile take theirs out of the sum.
                spent = time.process_time if name == "one process" else lambda: Cpu.now().all_s
                began_s, spent_s = time.monotonic(), spent()
                run()
                runs[name].append((time.monotonic() - began_s, spent() - spent_s))
            text = ", ".join(f"{name} {runs[name][-1][0]:.1f} s ({runs[name][-1][1]:.0f} s CPU)" for name in sides)
            report.console.print(f"  {size.name}, turn {turn}: {text}", highlight=False)
        median_s = {name: median(wall for wall, _ in of_side[1:]) for name, of_side in runs.items()}
        median_cpu_s = {name: median(cpu for _, cpu in of_side[1:]) for name, of_side in runs.items()}
        found[size.name] = {"rows": rows, "median_s": median_s, "median_cpu_s": median_cpu_s, "runs": runs}
        times = median_s["spark sql"] / median_s["ours"]
        report.goal(Goal(f"{size.name}, times as fast as Spark SQL", times, at_least=wanted))
        if median_cpu_s["one process"]:
            times = median_cpu_s["ours"] / median_cpu_s["one process"]
            report.goal(Goal(f"{size.name}, times the CPU of one process", times, at_most=3.0))
    shutil.rmtree(folder)

    def draw(axes: Axes) -> None:
        for name, color in (("ours", "C0"), ("spark sql", "C1"), ("one process", "C2")):
            for longer, line in zip(chosen[1], ("-", "--", ":"), strict=False):
                sizes = [Size(groupings, longer, is_held) for groupings in chosen[0]]
                seconds = [found[size.name]["median_s"][name] for size in sizes]
                label = name if longer == 1 else f"{name}, windows {longer} times as long"
                axes.plot([str(size.groupings) for size in sizes], seconds, color + line, marker="o", label=label)
        axes.set(xlabel="groupings", ylabel=f"seconds for {rows:,} payments", ylim=(0, None))
        axes.legend()

    report.write(draw)


if __name__ == "__main__":
    main()
