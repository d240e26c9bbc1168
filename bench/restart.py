"""What does a restart cost with a large state? 10,000,000 keys with an event each, then small batches of some of them.

    python bench/restart.py [--keys 10000000]

The job runs twice on one checkpoint. The first run takes in all keys, in batches of 500,000, and then small batches;
the second run has the same sort of small batches alone, and its workers remember nothing. A small batch has 10,000
payments of random keys, so nearly every key is cold: neither in the log nor in memory. After some to warm up, each
comes twice, and finds all its keys in the log the second time. What that takes less is what a cold key costs.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.axes import Axes
from measure import HERE, Batches, child, read_batches
from memory import Memory
from report import Report
from team_data import write_job

KEYS, KEYS_IN_BATCH = 10_000_000, 500_000
SMALL_BATCHES, SMALL_ROWS = 6, 10_000
START_MS = 1_700_000_000_000
SCHEMA = {
    "name": "many",
    "event_id": "id",
    "event_time": {"field": "at", "unit": "ms"},
    "attributes": {"payer": "string"},
    "measures": {"amount": {"scale": 2}},
}
RULE = {
    "rule_id": "sum-by-payer",
    "group_by": ["payer"],
    "aggregate": {"function": "sum", "measure": "amount"},
    "window": {"length": "30d"},
    "limit": {"operator": ">", "value": "1000000"},
}
MB = 2**20


class Data:
    """The job's folder, and its files one after the other."""

    def __init__(self, work: Path) -> None:
        """Write the configuration."""
        (work / "data").mkdir()
        self.conf = write_job(work, SCHEMA, [RULE])
        self.work, self.files, self.rows, self.begun_s = work, 0, 0, time.time() - 1_000

    def add(self, keys: np.ndarray) -> None:
        """Add a file: a payment of each key, a millisecond apart."""
        numbers = np.arange(self.rows, self.rows + len(keys))
        table = pa.table(
            {
                "id": pa.array(np.char.add("e", numbers.astype("U"))),
                "at": pa.array(START_MS + numbers),
                "payer": pa.array(np.char.add("payer-", keys.astype("U"))),
                "amount": pa.array(["12.50"] * len(keys)),
                "off": pa.array(numbers),
            }
        )
        path = self.work / "data" / f"{self.files:05d}.parquet"
        pq.write_table(table, path)
        os.utime(path, (self.begun_s + self.files, self.begun_s + self.files))
        self.files, self.rows = self.files + 1, self.rows + len(keys)


def small_batches(keys: int, seed: int) -> Iterator[np.ndarray]:
    """Random keys for each small batch."""
    random = np.random.default_rng(seed)
    return (random.integers(0, keys, SMALL_ROWS) for _ in range(SMALL_BATCHES))


def run(conf: Path) -> tuple[Batches, dict[str, int]]:
    """Run the job to the end of its files: its batches, and the most memory of each kind of process in bytes."""
    memory = Memory()
    printed = child([str(HERE / "team_run.py"), str(conf)], memory.sample)
    most = {kind: max(found[kind] for _, found in memory.samples) for kind in memory.samples[0][1]}
    return read_batches(printed), most


def on_disk(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> None:
    """Measure."""
    report = Report("restart", __doc__, repeats=1, options={"--keys": str(KEYS)})
    keys = 20_000 if report.quick else int(report.option("keys"))
    with tempfile.TemporaryDirectory(prefix="buckets-restart-") as folder:
        data = Data(Path(folder))
        for first in range(0, keys, KEYS_IN_BATCH):
            data.add(np.arange(first, min(first + KEYS_IN_BATCH, keys)))
        filled = data.files
        for chosen in small_batches(keys, 0):
            data.add(chosen)
        for chosen in small_batches(keys, 1):
            data.add(chosen)
            data.add(chosen)
        before, memory_before = run(data.conf)
        disk = on_disk(data.work / "checkpoint")
        for chosen in small_batches(keys, 2):
            data.add(chosen)
        after, memory_after = run(data.conf)
    stretches = {
        "all keys, in large batches": before[:filled],
        "small batches, cold keys": before[filled + SMALL_BATCHES :: 2],
        "each of them again, hot keys": before[filled + SMALL_BATCHES + 1 :: 2],
        "first after the restart": after[:1],
        "those after it": after[1:],
    }
    report.found["runs"] = {"before": before, "after": after, "disk_bytes": disk}
    report.found["memory_bytes"] = {"before": memory_before, "after": memory_after}
    rows = []
    for name, batches in stretches.items():
        events = sum(batch["events"] for batch in batches)
        sums = {what: sum(batch[what] for batch in batches) for what in ("cpu_s", "put_bytes", "moved_bytes")}
        middle_ms = statistics.median(batch["ms"] for batch in batches)
        costs = [f"{sums['cpu_s'] / events * 1e6:.1f}", *(f"{sums[what] / events:,.0f}" for what in list(sums)[1:])]
        rows.append([name, f"{events // len(batches):,}", f"{middle_ms:,.0f}", *costs])
    report.table(
        f"{keys:,} keys; {disk / MB:,.0f} MB in the checkpoint",
        ("Batches", "Payments each", "ms", "us of CPU a payment", "bytes put a payment", "bytes moved a payment"),
        rows,
    )
    memory = [[kind, f"{memory_before[kind] / MB:,.0f}", f"{memory_after[kind] / MB:,.0f}"] for kind in memory_before]
    report.table("Most memory, MB", ("Process", "first run", "after the restart"), memory)

    def draw(axes: Axes) -> None:
        axes.barh([row[0] for row in rows], [float(row[3]) for row in rows])
        axes.invert_yaxis()
        axes.set(xlabel="us of CPU a payment", title=f"A restart with {keys:,} keys")

    report.write(draw)


if __name__ == "__main__":
    main()
