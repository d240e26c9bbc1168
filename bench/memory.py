"""Resident memory of a process and all that it started, by kind, sampled while it runs."""

import statistics
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

PAGE_BYTES = 4096
JVM, DRIVER, WORKERS = "JVM", "Python driver", "Python workers"


def _parents() -> dict[int, list[int]]:
    """The children of every process."""
    children: dict[int, list[int]] = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children[int(fields[1])].append(int(stat.parent.name))
    return children


def descendants(root: int) -> list[int]:
    """A process and all that it started, as far as they run."""
    children, found = _parents(), [root]
    for process_id in found:
        found += children[process_id]
    return found


def _kind(process_id: int, root: int) -> str:
    if process_id == root:
        return DRIVER
    return JVM if "java" in Path(f"/proc/{process_id}/comm").read_text() else WORKERS


def shared_out(root: int) -> dict[str, int]:
    """Resident bytes of a process and its descendants by kind; a page that several of them map counts once in all."""
    found = dict.fromkeys((JVM, DRIVER, WORKERS), 0)
    for process_id in descendants(root):
        try:
            lines = Path(f"/proc/{process_id}/smaps_rollup").read_text().splitlines()
            found[_kind(process_id, root)] += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        except OSError:
            continue
    return {kind: kibibytes * 1024 for kind, kibibytes in found.items()}


@dataclass
class Memory:
    """Samples of one run.

    Attributes:
        samples: of each second, when it was (seconds since the epoch) and the bytes of each kind.
    """

    samples: list[tuple[float, dict[str, int]]] = field(default_factory=list)

    def sample(self, root: int) -> None:
        """Take a sample of a process and its descendants."""
        found = dict.fromkeys((JVM, DRIVER, WORKERS), 0)
        for process_id in descendants(root):
            try:
                pages = int(Path(f"/proc/{process_id}/statm").read_text().split()[1])
                found[_kind(process_id, root)] += pages * PAGE_BYTES
            except OSError:
                continue
        self.samples.append((time.time(), found))

    def thirds(self, start_s: float, end_s: float) -> dict[str, list[float]]:
        """The median bytes of each kind, and of all, in each third of a stretch of time."""
        inside = [(at_s, found) for at_s, found in self.samples if start_s <= at_s < end_s]
        step_s = (end_s - start_s) / 3
        medians: dict[str, list[float]] = {}
        for kind in (JVM, DRIVER, WORKERS, "all"):
            parts: list[list[int]] = [[], [], []]
            for at_s, found in inside:
                amount = sum(found.values()) if kind == "all" else found[kind]
                parts[min(int((at_s - start_s) / step_s), 2)].append(amount)
            medians[kind] = [statistics.median(part) for part in parts]
        return medians
