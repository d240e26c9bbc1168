"""What does it cost to append to a Delta table that has been appended to often? CPU and files at 10 to 10,000 commits.

    python bench/appends.py

Both sides append the same rows, 20 alerts, to a table of alerts, each with the number of its batch. The library side
opens the table for every append and lets the library commit. The kept side is what a job does: the table stays open;
after every 64 appends small files are joined and a checkpoint of the log is written, whose cost is part of its own. The
library's table gets its first commits from the kept side, without joins, with a checkpoint after every 100 commits, as
the library writes them. Versions are kept for a day, so nothing expires.
"""

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from matplotlib.axes import Axes
from report import Goal, Report

from buckets.delta.kept_table import KeptTable, append_new
from buckets.delta.upkeep import APPENDS, Upkeep
from buckets.outputs import columns
from buckets.spark.scored_batch import in_microseconds

COMMITS = (10, 1_000, 10_000)
MEASURED = 64
"""Appends whose CPU is averaged at each number of commits."""
BEFORE, AFTER = "a table opened for each append", "a table kept open and short"
LIBRARY_CHECKPOINT = 100
Append = Callable[[int], None]


def rows_of(number: int) -> pa.Table:
    """Twenty alerts of a batch."""
    schema = in_microseconds(columns.output_columns(2)[columns.ALERTS])
    rows = [
        {
            "alert_id": f"alert-{number}-{row}",
            "rule_id": "spike",
            "event_id": f"e{number}-{row}",
            "key": '{"payer":"p"}',
        }
        for row in range(20)
    ]
    known = [{name: value for name, value in row.items() if name in schema.names} for row in rows]
    return pa.Table.from_pylist(known, schema=schema)


def cpu_ms(append: Append, first: int) -> float:
    """Return the CPU of one append, as an average."""
    started_s = time.process_time()
    for number in range(first, first + MEASURED):
        append(number)
    return (time.process_time() - started_s) / MEASURED * 1000


def counts(path: Path) -> dict[str, int]:
    """Return the files that a reader opens, all files of rows, and those of the log."""
    return {
        "files of the table": len(DeltaTable(path).file_uris()),
        "files of rows on disk": len(list(path.glob("*.parquet"))),
        "files of the log": len(list((path / "_delta_log").iterdir())),
    }


def library_side(path: Path, marks: tuple[int, ...]) -> dict[int, dict[str, float]]:
    """Measure the library, at each number of commits."""

    def append(number: int) -> None:
        append_new(
            DeltaTable(path),
            "job",
            lambda last: None if last is not None and last >= number else (number, rows_of(number)),
        )

    found: dict[int, dict[str, float]] = {}
    number = 0
    for mark in marks:
        kept = KeptTable(path, "job")
        while number < mark:
            kept.append(number, partial(rows_of, number))
            number += 1
            if number % LIBRARY_CHECKPOINT == 0:
                DeltaTable(path).create_checkpoint()
        found[mark] = {"cpu_ms": cpu_ms(append, number), **counts(path)}
        number += MEASURED
    return found


def kept_side(path: Path, marks: tuple[int, ...]) -> dict[int, dict[str, float]]:
    """Measure a table that is kept, at each number of commits, with all that looks after it."""
    kept, upkeep = KeptTable(path, "job"), Upkeep([path])
    upkeep.prepare(path)

    def append(number: int) -> None:
        kept.append(number, lambda: rows_of(number))
        upkeep.appended(path)
        if number % APPENDS == 0:
            with upkeep.running():
                pass

    found: dict[int, dict[str, float]] = {}
    number = 0
    for mark in marks:
        while number < mark:
            append(number)
            number += 1
        found[mark] = {"cpu_ms": cpu_ms(append, number), **counts(path)}
        number += MEASURED
    return found


def main() -> None:
    """Measure."""
    report = Report("appends", __doc__, repeats=1)
    marks = COMMITS[:1] if report.quick else COMMITS
    with tempfile.TemporaryDirectory(prefix="buckets-appends-") as folder:
        sides = {}
        for name, measure in ((BEFORE, library_side), (AFTER, kept_side)):
            path = Path(folder) / str(len(sides))
            DeltaTable.create(path, in_microseconds(columns.output_columns(2)[columns.ALERTS]))
            sides[name] = measure(path, marks)
    report.found["sides"] = sides
    lines = [
        [name, f"{mark:,}", f"{found['cpu_ms']:.1f}", *(f"{count:,.0f}" for count in list(found.values())[1:])]
        for name, side in sides.items()
        for mark, found in side.items()
    ]
    titles = (
        "Side",
        "Commits",
        "ms of CPU an append",
        "Files of the table",
        "Files of rows on disk",
        "Files of the log",
    )
    report.table("Appends of 20 alerts", titles, lines)
    after = sides[AFTER]
    report.goal(
        Goal(
            "an append at the most commits, by one at the fewest",
            after[marks[-1]]["cpu_ms"] / after[marks[0]]["cpu_ms"],
            at_most=1.5,
        )
    )

    def draw(axes: Axes) -> None:
        for name, side in sides.items():
            axes.plot(list(side), [found["cpu_ms"] for found in side.values()], "o-", label=name)
        axes.set(xscale="log", yscale="log", xlabel="commits before", ylabel="ms of CPU an append")
        axes.set_title("Appends of 20 alerts to a Delta table")
        axes.legend()

    report.write(draw)


if __name__ == "__main__":
    main()
