"""What does a small batch do to files? Those opened, synced and renamed in the checkpoint and the tables, by strace.

    python bench/file_calls.py

Batches of 100 payments with alerts, one grouping, two tasks, tables in Delta; the first twenty are not counted. What is
Spark's own lies in its folder of the checkpoint.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from measure import HERE, ROOT
from report import Goal, Report
from restart import RULE, SCHEMA, Data
from team_data import write_job

BATCHES, LEFT_OUT, ROWS, KEYS = 60, 20, 100, 5_000
CALLS = "open,openat,creat,rename,renameat,renameat2,fsync,fdatasync"
ENDS_BATCH = re.compile(r"rename\w*\(.*/spark/commits/\d+\"")
WANTED = {"written": 8, "synced": 3, "renamed": 6, "log read": 2}


def calls_of(lines: list[str], work: Path) -> Iterator[tuple[str, bool]]:
    """Yield what each call does that succeeds on a file of the job, and whether it is Spark's own."""
    for line in lines:
        found = re.search(re.escape(str(work)) + r'/([^"> ]*)', line)
        if found is None or "= -1 " in line:
            continue
        is_sparks = found[1].startswith("checkpoint/spark/")
        call = line.split(None, 1)[1]
        if call.startswith(("open", "creat")):
            is_written = re.search("O_WRONLY|O_RDWR|O_CREAT|^creat", call) is not None
            yield ("written" if is_written else "log read" if "_delta_log" in found[1] else "read"), is_sparks
        elif call.startswith("rename"):
            yield "renamed", is_sparks
        elif call.startswith(("fsync", "fdatasync")):
            yield "synced", is_sparks


def main() -> None:
    """Count."""
    report = Report("file_calls", __doc__, repeats=1)
    if shutil.which("strace") is None:
        sys.exit("strace is missing; install it: apt-get install strace")
    with tempfile.TemporaryDirectory(prefix="buckets-files-") as folder:
        data = Data(Path(folder))
        write_job(data.work, SCHEMA, [RULE | {"limit": {"operator": ">", "value": "10"}}])
        keys = np.random.default_rng(1)
        for _ in range(BATCHES):
            data.add(keys.integers(0, KEYS, ROWS))
        trace = data.work / "trace"
        command = ["strace", "-f", "-y", "-qq", "-e", f"trace={CALLS}", "-o", str(trace)]
        command += [sys.executable, str(HERE / "team_run.py"), str(data.conf)]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=True)
        lines = trace.read_text(encoding="utf-8", errors="replace").splitlines()
        ends = [number for number, line in enumerate(lines) if ENDS_BATCH.search(line)]
        counts = Counter(calls_of(lines[ends[LEFT_OUT] : ends[-1]], data.work))
        batches = len(ends) - 1 - LEFT_OUT
    kinds = ("written", "synced", "renamed", "read", "log read")
    of = {kind: {is_sparks: counts[kind, is_sparks] / batches for is_sparks in (True, False)} for kind in kinds}
    report.found["a_batch"] = {kind: {"spark": each[True], "ours": each[False]} for kind, each in of.items()}
    rows = [(kind, f"{each[True]:.1f}", f"{each[False]:.1f}") for kind, each in of.items()]
    report.table(f"Files of a batch, {batches} batches", ("Files", "Spark's own", "besides"), rows)
    for kind, most in WANTED.items():
        report.goal(Goal(f"{kind} besides Spark's own, a batch", of[kind][False], at_most=most))

    def draw(axes: Axes) -> None:
        sparks, ours = [of[kind][True] for kind in kinds], [of[kind][False] for kind in kinds]
        axes.bar(kinds, ours, label="besides")
        axes.bar(kinds, sparks, bottom=ours, label="Spark's own", color="tab:gray")
        axes.set(ylabel="a batch", title="Files of a batch of 100 payments")
        axes.legend()

    report.write(draw)


if __name__ == "__main__":
    main()
