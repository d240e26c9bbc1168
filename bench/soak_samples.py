"""What a job holds at a moment of a soak, and what has changed from its beginning to its end."""

import os
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from buckets.monitor.processes import DRIVER, JVM, WORKERS, job_processes

BEGINNING, END = (0.1, 0.3), (0.8, 1.0)
"""Parts of all batches that are compared; before the first one everything warms up."""
MOST_GROWTH, SLACK = 1.1, 8.0
"""A measure is flat if it has grown by no more than a tenth, or by so little that it is a matter of the moment."""
MB = 1 << 20
RATES = "CPU ms a batch"
GROWING = ("of data", "cuts: KiB", "job.log: KiB")
"""Measures of what the job is there to write end so: a line a batch says how the stream was cut, for ever, and a line
every ten seconds that it goes on."""
SMALL = 2 * MB
"""Data files below are joined; of larger ones there are more, the more data there is."""


@dataclass(frozen=True)
class Sample:
    """What a job holds at a moment.

    Attributes:
        at_s: when, by the steady clock.
        batches: how many are done.
        levels: by measure, how much there is.
        cpu_s: by kind of process, the CPU time since its start.
    """

    at_s: float
    batches: int
    levels: dict[str, float]
    cpu_s: dict[str, float]


@dataclass(frozen=True)
class Change:
    """A measure at the beginning and at the end.

    Attributes:
        measure: what.
        first: its median over the beginning.
        last: its median over the end.
        judged: whether it has to be flat.
    """

    measure: str
    first: float
    last: float
    judged: bool

    @property
    def ratio(self) -> float:
        """How much it has grown; 1 for not at all."""
        return self.last / self.first if self.first else float("inf") if self.last else 1.0

    @property
    def flat(self) -> bool:
        """Whether it has not grown."""
        small = self.last - self.first <= SLACK and RATES not in self.measure
        return self.ratio <= MOST_GROWTH or small


def take_sample(folder: Path, driver: int, batches: int) -> Sample:
    """Look at the processes and folders of a job.

    Args:
        folder: its folder.
        driver: its process.
        batches: how many it has done.
    """
    levels: Counter[str] = Counter()
    cpu_s = dict.fromkeys((DRIVER, JVM, WORKERS), 0.0)
    for use in job_processes(driver):
        levels[f"{use.kind}: processes"] += 1
        levels[f"{use.kind}: descriptors"] += use.descriptors
        levels[f"{use.kind}: threads"] += use.threads
        levels[f"{use.kind}: MiB resident"] += use.resident_bytes / MB
        cpu_s[use.kind] += use.cpu_s
    for name in ("checkpoint/spark", "checkpoint/buckets", "audit-checkpoint", "tables", "tmp"):
        _look_into(folder / name, name, levels)
    levels["job.log: KiB"] = (folder / "job.log").stat().st_size / 1024
    return Sample(time.monotonic(), batches, dict(levels), cpu_s)


def _look_into(folder: Path, name: str, levels: Counter[str]) -> None:
    """Count the files of a folder and their sizes; of Delta tables, those of their logs apart."""
    # A walk passes over folders that are removed meanwhile.
    for path in (Path(parent, each) for parent, _, names in os.walk(folder) for each in names):
        part = "cuts" if path.parent.name == "cuts" else name
        try:
            size = path.stat().st_size
        except OSError:  # removed since it was listed
            continue
        if name != "tables":
            levels[f"{part}: files"] += 1
            levels[f"{part}: KiB"] += size / 1024
        elif "_delta_log" in path.parts:
            levels["tables: log files"] += 1
            levels["tables: log KiB"] += size / 1024
            levels["tables: commits kept"] += path.suffix == ".json"
        else:
            levels["tables: small files" if size < SMALL else "tables: large files of data"] += 1
            levels["tables: MiB of data"] += size / MB


def changes(samples: Sequence[Sample]) -> list[Change]:
    """What has changed from the beginning to the end."""
    batches = samples[-1].batches
    first, last = (
        [sample for sample in samples if start * batches <= sample.batches <= end * batches]
        for start, end in (BEGINNING, END)
    )
    found = []
    for measure in dict.fromkeys(name for sample in samples for name in sample.levels):
        begun, ended = (statistics.median(each.levels.get(measure, 0.0) for each in part) for part in (first, last))
        found.append(Change(measure, begun, ended, judged=not measure.endswith(GROWING)))
    for kind in (DRIVER, JVM, WORKERS):
        begun, ended = (_cpu_ms_a_batch(part, kind) for part in (first, last))
        found.append(Change(f"{kind}: {RATES}", begun, ended, judged=True))
    begun, ended = (sum(_cpu_ms_a_batch(part, kind) for kind in (DRIVER, JVM, WORKERS)) for part in (first, last))
    found.append(Change(f"all: {RATES}", begun, ended, judged=True))
    begun, ended = (_per_batch(part[0].at_s, part[-1].at_s, part) * 1000 for part in (first, last))
    found.append(Change("ms a batch (of the clock)", begun, ended, judged=False))
    return found


def _per_batch(start: float, end: float, part: Sequence[Sample]) -> float:
    return (end - start) / max(part[-1].batches - part[0].batches, 1)


def _cpu_ms_a_batch(part: Sequence[Sample], kind: str) -> float:
    return _per_batch(part[0].cpu_s[kind], part[-1].cpu_s[kind], part) * 1000
