"""The peer of `team.py`: a queue with running totals for each key on Flink's heap, built by hand.

`flink/TeamQueue.java` is the job; `mvn` brings Flink's jars. Flink runs in one Java process with as many
slots as there are cores, reuses objects, and sends from task to task only the key, id, time and amount that a rule
needs, which write themselves. It takes no checkpoints unless it is asked to; its alerts go to a file. Its collector is
the one with which it takes the least CPU.
"""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.csv as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from measure import DATA, HERE, LONGEST_RUN_S, Batch
from team_data import FIELDS, FUNCTIONS, GROUPINGS, LIMITS, WINDOWS, Team, rule_id

from buckets.duration import parse_duration_ms

SIDE = "flink queue, heap"
MAIN = "TeamQueue"
JAVA = ("-Xms3g", "-Xmx3g", "-XX:+UseParallelGC")
BUILT = DATA / "flink"
Alerts = Counter[tuple[str, str]]
"""How often there is an alert of a rule and an event."""


def build() -> bool:
    """Compile the job and bring Flink; whether there is a `mvn` to do it."""
    maven = shutil.which("mvn")
    if maven:
        command = [maven, "--quiet", "--batch-mode", "--file", str(HERE / "flink" / "pom.xml"), "process-classes"]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"Flink's queue could not be built:\n{done.stdout[-3000:]}")
    return maven is not None


def _rules(groupings: int) -> list[str]:
    """The rules over so many of the groupings, as the job takes them."""
    chosen = list(zip(GROUPINGS, WINDOWS, FUNCTIONS, LIMITS, strict=True))[:groupings]
    return [
        f"{rule_id(function, fields)};{function};{parse_duration_ms(window)};{limit};"
        + ",".join(str(FIELDS.index(field)) for field in fields)
        for fields, window, function, limit in chosen
    ]


def _write_payments(data: Path, target: Path) -> None:
    """Write the payments of all micro-batches into one file, in the order in which they arrive."""
    options = pc.WriteOptions(include_header=False, quoting_style="none")
    with target.open("wb") as file:
        for path in sorted(data.glob("*.parquet")):
            pc.write_csv(pq.read_table(path, columns=["event_id", "ts", "amount", *FIELDS]), file, options)


def run(team: Team, data: Path, work: Path, checkpoint_ms: int) -> tuple[Batch, Alerts]:
    """Run the job over payments that `team_data` wrote.

    Args:
        team: the rules, and how many payments come before those that are measured.
        data: the folder of the payments.
        work: a folder for what the job reads and writes.
        checkpoint_ms: time between two checkpoints; 0 for none.

    Returns:
        What it measured, and its alerts.
    """
    payments, alerts = work / "payments.csv", work / "alerts.csv"
    _write_payments(data, payments)
    arguments = [payments, team.first_rows, alerts, checkpoint_ms, os.cpu_count(), *_rules(team.groupings)]
    classes = f"{BUILT / 'classes'}{os.pathsep}{BUILT / 'lib' / '*'}"
    command = ["java", *JAVA, "-cp", classes, MAIN, *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=LONGEST_RUN_S)
    if done.returncode:
        sys.exit(f"{SIDE} failed ({done.returncode}):\n{done.stderr[-3000:]}")
    lines = [line.split(",") for line in alerts.read_text().splitlines()]
    found = Counter((rule, event) for rule, event, _ in lines)
    return json.loads(done.stdout) | {"alerts": len(lines), "checkpoint_ms": checkpoint_ms}, found


def alerts_of(work: Path) -> Alerts:
    """The alerts that the product wrote."""
    found = DeltaTable(work / "tables" / "alerts").to_pyarrow_table(columns=["rule_id", "event_id"]).to_pydict()
    return Counter(zip(found["rule_id"], found["event_id"], strict=True))


def check(flink: Alerts, ours: Alerts) -> None:
    """Fail where the job and the product do not have the same alerts."""
    if flink != ours:
        lines = [f"{SIDE} has {flink.total()} alerts and the product {ours.total()}"]
        lines += [f"only Flink: {each}" for each in sorted(flink - ours)[:5]]
        lines += [f"only the product: {each}" for each in sorted(ours - flink)[:5]]
        raise AssertionError("\n".join(lines))
