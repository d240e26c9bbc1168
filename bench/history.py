"""How long do questions about the past take, on an archive of 20,000,000 payments? And a backtest in plain Spark SQL?

Payments of the generator go through `buckets run` into an archive, once (`history_job.py`); then each command is run as
a user runs it, a process each time: `explain` of alerts and of events without one, `replay`, `backtest`, `features`.
The same rules as window functions of Spark SQL (`history_sql.py`) read the same Delta table on both cores; start of the
JVM, warm-up and planning of the first day do not count for SQL, start-up counts for ours. Sides take turns; the first
round is not measured. The alerts of all three - job, backtest, SQL - have to be the same, event by event.

`--only` measures some of them; `--work` is a folder that is used again if it holds such a job. With `--master` replay,
backtest and features are measured in Spark too.
"""

import json
import os
import shutil
import statistics
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable, QueryBuilder
from history_job import RULES, buckets, make_job, run
from matplotlib.axes import Axes
from measure import DATA, HERE
from report import Goal, Report

PARTS = ("explain", "replay", "backtest", "features", "sql")
EXPLAINED = 5
"""So many alerts are explained, and as many events that raised none."""
QUICK_EVENTS = 100_000
Alerts = dict[str, set[str]]
"""By rule, the ids of events."""


def query(table: Path, sql: str) -> list[dict[str, Any]]:
    """Rows of a Delta table, which is called `rows`."""
    found = QueryBuilder().register("rows", DeltaTable(table)).execute(sql).read_all()
    return pa.table(found).to_pylist()


def by_rule(rows: Iterable[dict[str, Any]], event_id: str) -> Alerts:
    """Alerts by rule."""
    found: Alerts = {rule["id"]: set() for rule in RULES}
    for row in rows:
        found[row["rule_id"]].add(row[event_id])
    return found


class Bench:
    """What is measured, and what was found so far."""

    def __init__(self, report: Report, work: Path) -> None:
        """Measure the job in a folder."""
        self.report, self.work, self.conf = report, work, work / "conf.yaml"
        self.rows: int = query(self._archive, "select count(*) as n from rows")[0]["n"]
        self.seconds: dict[str, list[float]] = {}
        self.memory_mb: dict[str, float] = {}
        self.load: dict[str, list[float]] = {}
        self.different: dict[str, int] = {}
        self.out, self.master = work / "out", report.option("--master")
        self.live = by_rule(query(work / "tables" / "alerts", "select rule_id, event_id from rows"), "event_id")

    @property
    def _archive(self) -> Path:
        return self.work / "archive" / "arrivals"

    def time(self, name: str, *arguments: object) -> str:
        """Run a command and take down how long it took; what it printed."""
        load = os.getloadavg()[0]
        ran = buckets(*arguments)
        self.seconds.setdefault(name, []).append(ran.seconds)
        self.memory_mb[name] = max(self.memory_mb.get(name, 0), ran.memory_mb)
        self.load.setdefault(name, []).append(load)
        self.report.console.print(f"  {name}: {ran.seconds:,.1f} s (load before: {load:.1f})", highlight=False)
        return ran.printed

    def explain(self) -> None:
        """Explain alerts, spread over the stream, and the events after them."""
        alerts = query(
            self.work / "tables" / "alerts", "select alert_id, position, rule_id from rows order by position"
        )
        for alert in alerts[:: max(1, len(alerts) // EXPLAINED)][:EXPLAINED]:
            self.time("explain an alert", "explain", self.conf, alert["alert_id"], "--json")
        fired = set().union(*self.live.values())
        step = max(1, self.rows // EXPLAINED)
        wanted = ", ".join(str(number) for number in range(step // 2, self.rows, step))
        sql = f'select "transactionId" as id from rows where _arrival in ({wanted})'
        for row in query(self._archive, sql):
            if row["id"] not in fired:
                asked = ("--event", row["id"], "--rule", RULES[2]["id"], "--json")
                self.time("explain an event", "explain", self.conf, *asked)

    def question(self, name: str, *arguments: object) -> None:
        """Time a question of the archive, in one process and where `--master` says."""
        self.time(name, name, *arguments)
        if self.master:
            self.time(f"{name}, {self.master}", name, *arguments, "--master", self.master)

    def replay(self) -> None:
        """Score everything once more; the command fails where something differs."""
        self.question("replay", self.conf)

    def backtest(self) -> None:
        """The rules of the job on all that has arrived."""
        file = self.out / "backtest.json"
        self.question("backtest", self.work / "rules.yaml", "--conf", self.conf, "--json", file)
        rules = json.loads(file.read_text(encoding="utf-8"))["rules"]
        overlaps = {rule["rule_id"]: rule["overlap"] for rule in rules}
        self.different["backtest"] = sum(
            overlap[part]["events"] for overlap in overlaps.values() for part in ("only_old", "only_new")
        )
        for rule_id, overlap in overlaps.items():
            if overlap["both"]["events"] != len(self.live[rule_id]):
                sys.exit(
                    f"backtest: {rule_id} shares {overlap['both']['events']} events, not {len(self.live[rule_id])}"
                )

    def features(self) -> None:
        """The values of all rules at all events."""
        file = self.out / "features.parquet"
        self.question("features", self.work / "rules.yaml", "--conf", self.conf, "--out", file, "--overwrite")
        columns = {rule["id"]: f"{rule['id']}.fired" for rule in RULES}
        table = ds.dataset(file)
        fired = {
            rule_id: set(table.to_table(["event_id"], filter=ds.field((column,)))["event_id"].to_pylist())
            for rule_id, column in columns.items()
        }
        self.different["features"] = differences(self.live, fired)

    def sql(self) -> None:
        """The same rules in SQL."""
        out = self.out / "sql"
        shutil.rmtree(out, ignore_errors=True)
        load = os.getloadavg()[0]
        script = [sys.executable, str(HERE / "history_sql.py"), str(self._archive), str(out), "1"]
        found = json.loads(run(script).printed.splitlines()[-1])
        for by, seconds in found.items():
            self.seconds.setdefault(f"SQL, by {by}", []).append(seconds)
        self.seconds.setdefault("SQL", []).append(sum(found.values()))
        self.load.setdefault("SQL", []).append(load)
        self.report.console.print(f"  SQL: {sum(found.values()):,.1f} s (load before: {load:.1f})", highlight=False)
        rows = [row for folder in sorted(out.iterdir()) for row in ds.dataset(folder).to_table().to_pylist()]
        self.different["SQL"] = differences(self.live, by_rule(rows, "transactionId"))

    def forget(self) -> None:
        """What has been measured so far was the warm-up."""
        for found in (self.seconds, self.load):
            found.clear()


def differences(one: Alerts, other: Alerts) -> int:
    """How many pairs of rule and event are in one and not in the other."""
    return sum(len(one[rule_id] ^ other[rule_id]) for rule_id in one)


def main() -> None:
    """Measure."""
    options = {"--events": "20000000", "--payers": "20000", "--work": str(DATA / "history"), "--only": ",".join(PARTS)}
    options["--master"] = ""
    report = Report("history", __doc__, repeats=2, options=options)
    events = QUICK_EVENTS if report.quick else int(report.option("--events"))
    work = Path(report.option("--work") + ("-quick" if report.quick else ""))
    report.found["job"] = make_job(work, events, int(report.option("--payers")), report.console)
    bench = Bench(report, work)
    bench.out.mkdir(exist_ok=True)
    sides: list[Callable[[], None]] = [getattr(bench, part) for part in report.option("--only").split(",")]
    for repeat in range(report.repeats + (not report.quick)):
        report.console.print(f"round {repeat} of {report.repeats}", highlight=False)
        for side in sides:
            side()
        if repeat == 0 and not report.quick:
            bench.forget()
    found = {name: statistics.median(each) for name, each in bench.seconds.items()}
    report.found |= {
        "events": bench.rows,
        "alerts": {rule_id: len(ids) for rule_id, ids in bench.live.items()},
        "seconds": bench.seconds,
        "median_seconds": found,
        "memory_mb": bench.memory_mb,
        "load_before": bench.load,
        "different_alerts": bench.different,
    }
    rows = [
        (
            name,
            f"{seconds:,.1f}",
            f"{bench.rows / seconds:,.0f}",
            f"{bench.memory_mb[name]:,.0f}" if name in bench.memory_mb else "",
        )
        for name, seconds in found.items()
    ]
    report.table(f"{bench.rows:,} payments", ("", "s", "payments/s", "MB of a process"), rows)
    _goals(report, bench, found)
    report.write(lambda axes: draw(axes, found))


def _goals(report: Report, bench: Bench, found: dict[str, float]) -> None:
    if "SQL" in found and "backtest" in found:
        report.goal(Goal("backtest, times as fast as SQL", found["SQL"] / found["backtest"], at_least=5))
    for side, count in bench.different.items():
        report.goal(Goal(f"alerts of {side} that are not those of the job, or lack", count, at_most=0))
    for name in ("explain an alert", "explain an event"):
        if name in bench.seconds:
            report.goal(Goal(f"{name}, the slowest, s", max(bench.seconds[name]), at_most=3))
    if "replay" in found:
        ran_s = report.found["job"]["seconds"]["run"]
        report.goal(Goal("replay, times as fast as `run` was", ran_s / found["replay"], at_least=1))


def draw(axes: Axes, found: dict[str, float]) -> None:
    """A bar for each."""
    names = [name for name in found if not name.startswith("SQL, by")]
    axes.barh(names, [found[name] for name in names])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("seconds, median")
    axes.set_title("Questions about an archive")


if __name__ == "__main__":
    main()
