"""What does a small batch ask of an object store? Requests to a server of S3, and the time of a batch beside a disk.

    python bench/store_requests.py

Batches of 100 payments with alerts, one grouping, two tasks, tables in Delta; the first twenty are not counted. The
server is versitygw on this machine, so that a request takes well below a millisecond: of a store far away each of those
that follow each other takes its time there besides.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import yaml
from matplotlib.axes import Axes
from measure import HERE, ROOT
from report import Report
from restart import RULE, SCHEMA, Data
from team_data import write_job

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.stores.server import Store, in_environment, object_store

BATCHES, LEFT_OUT, ROWS, KEYS = 60, 20, 100, 5_000
LINE = re.compile(r"\| (GET|HEAD|PUT|POST|DELETE) \| /bench/?(\S*)")
BUCKET = "bench"


def made(folder: Path, in_store: bool) -> Data:
    """A job with its files, on a disk or in the store."""
    folder.mkdir()
    data = Data(folder)
    write_job(data.work, SCHEMA, [RULE | {"limit": {"operator": ">", "value": "10"}}])
    if in_store:
        conf = yaml.safe_load(data.conf.read_text(encoding="utf-8"))
        conf |= {"checkpoint": f"s3://{BUCKET}/checkpoint", "output": {"path": f"s3://{BUCKET}/tables"}}
        data.conf.write_text(yaml.safe_dump(conf), encoding="utf-8")
    keys = np.random.default_rng(1)
    for _ in range(BATCHES):
        data.add(keys.integers(0, KEYS, ROWS))
    return data


def run(data: Data) -> None:
    """Run the job to its end."""
    command = [sys.executable, str(HERE / "team_run.py"), str(data.conf)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=True)


def median_batch_s(commits: Path) -> float:
    """The median time between the ends of batches, by when Spark has written that they have ended."""
    ends = sorted(path.stat().st_mtime for path in commits.glob("[0-9]*"))
    return float(np.median(np.diff(ends[LEFT_OUT:])))


def asked(store: Store, log: Path) -> Counter[tuple[str, str]]:
    """The requests of all counted batches, by method and by whose they are; lists have no path in the log."""
    counts: Counter[tuple[str, str]] = Counter()
    batch = -1
    for line in log.read_text(encoding="utf-8").splitlines():
        found = LINE.search(line)
        if found is None:
            continue
        method, path = found.groups()
        if method == "PUT" and re.fullmatch(r"checkpoint/spark/commits/\d+", path):
            batch += 1
        if LEFT_OUT <= batch < BATCHES - 1:
            whose = "list" if not path else "Spark" if path.startswith("checkpoint/spark/") else "besides"
            counts[method, whose] += 1
    return counts


def main() -> None:
    """Count, and take the time."""
    report = Report("store_requests", __doc__, repeats=1)
    with tempfile.TemporaryDirectory(prefix="buckets-store-") as name:
        work = Path(name)
        on_disk = made(work / "disk", in_store=False)
        run(on_disk)
        disk_s = median_batch_s(on_disk.work / "checkpoint" / "spark" / "commits")
        with object_store(work / "store") as store, in_environment(store):
            store.bucket(BUCKET)
            run(made(work / "remote", in_store=True))
            store_s = median_batch_s(store.folder / BUCKET / "checkpoint" / "spark" / "commits")
            counts = asked(store, work / "store" / "log")
    batches = BATCHES - 1 - LEFT_OUT
    kinds = ("GET", "HEAD", "PUT", "POST", "DELETE")
    of = {kind: {whose: counts[kind, whose] / batches for whose in ("Spark", "list", "besides")} for kind in kinds}
    report.found |= {"a_batch": of, "batch_s": {"disk": disk_s, "store": store_s}}
    rows = [(kind, *(f"{each[whose]:.1f}" for whose in ("Spark", "list", "besides"))) for kind, each in of.items()]
    report.table(
        f"Requests of a batch, {batches} batches", ("Requests", "Spark's own", "lists of all", "besides"), rows
    )
    rows = [("disk", f"{disk_s * 1000:.0f}"), ("store", f"{store_s * 1000:.0f}")]
    report.table("Time of a batch", ("Where", "Median, ms"), rows)

    def draw(axes: Axes) -> None:
        bottom = np.zeros(len(kinds))
        for whose in ("Spark", "list", "besides"):
            heights = np.array([of[kind][whose] for kind in kinds])
            axes.bar(kinds, heights, bottom=bottom, label=whose)
            bottom += heights
        axes.set(ylabel="a batch", title="Requests of a batch of 100 payments")
        axes.legend()

    report.write(draw)


if __name__ == "__main__":
    main()
