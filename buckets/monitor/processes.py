"""What a job's processes hold: descriptors, threads, memory and CPU time of driver, JVM and Python workers.

Linux reports all of it in `/proc`. Elsewhere only the driver is measured, and `ps` lists the processes.
"""

import contextlib
import os
import resource
import subprocess
import threading
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

DRIVER, JVM, WORKERS = "driver", "JVM", "Python workers"
PROC = Path("/proc")
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_PPID, _UTIME, _STIME, _THREADS, _RSS = 1, 11, 12, 17, 21
"""Positions of fields in `/proc/PID/stat` after the process name."""


@dataclass(frozen=True)
class ProcessUse:
    """What a process of kind `DRIVER`, `JVM` or `WORKERS` holds at a moment; a limit of None means no limit.

    `cpu_s` is the CPU time since its start.
    """

    kind: str
    pid: int
    descriptors: int
    descriptor_limit: int | None
    threads: int
    resident_bytes: int
    cpu_s: float


def _stat(pid: int) -> list[str]:
    """Return a process's fields after its name, which may contain blanks and brackets."""
    return (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()


def _parents() -> dict[int, int]:
    parents: dict[int, int] = {}
    if PROC.joinpath("self", "stat").exists():
        for folder in PROC.iterdir():
            if folder.name.isdecimal():
                with contextlib.suppress(OSError):
                    parents[int(folder.name)] = int(_stat(int(folder.name))[_PPID])
        return parents
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=False).stdout
    return {int(pid): int(parent) for pid, parent in (line.split() for line in listed.splitlines())}


def by_kind(uses: Iterable[ProcessUse]) -> dict[str, dict[str, int]]:
    """Sum the resources of the processes of each kind, as plain data."""
    kinds: dict[str, dict[str, int]] = {}
    for use in uses:
        kind = kinds.setdefault(use.kind, dict.fromkeys(("processes", "descriptors", "threads", "resident_bytes"), 0))
        kind["processes"] += 1
        for name in ("descriptors", "threads", "resident_bytes"):
            kind[name] += getattr(use, name)
    return kinds


def process_tree(root: int) -> list[int]:
    """Return a process and all running descendants, parents before children."""
    children: dict[int, list[int]] = defaultdict(list)
    for pid, parent in _parents().items():
        children[parent].append(pid)
    tree = [root]
    for pid in tree:
        tree += children[pid]
    return tree


def job_processes(driver: int) -> list[ProcessUse]:
    """Measure a job's processes, skipping any that end meanwhile.

    If spark-submit started the driver, the JVM is the driver's parent.
    """
    if not PROC.joinpath("self", "stat").exists():
        return [_own_use()] if driver == os.getpid() else []
    uses = []
    for pid in process_tree(_root(driver)):
        with contextlib.suppress(OSError):
            uses.append(_use(pid, driver))
    return uses


def _root(driver: int) -> int:
    with contextlib.suppress(OSError):
        parent = int(_stat(driver)[_PPID])
        if _name(parent) == "java":
            return parent
    return driver


def _name(pid: int) -> str:
    return (PROC / str(pid) / "comm").read_text().strip()


def _kind(pid: int, driver: int) -> str:
    return DRIVER if pid == driver else JVM if _name(pid) == "java" else WORKERS


def _use(pid: int, driver: int) -> ProcessUse:
    stat, limits = _stat(pid), (PROC / str(pid) / "limits").read_text().partition("Max open files")[2].split()
    return ProcessUse(
        kind=_kind(pid, driver),
        pid=pid,
        descriptors=len(os.listdir(PROC / str(pid) / "fd")),
        descriptor_limit=int(limits[0]) if limits and limits[0] != "unlimited" else None,
        threads=int(stat[_THREADS]),
        resident_bytes=int(stat[_RSS]) * _PAGE_BYTES,
        cpu_s=(int(stat[_UTIME]) + int(stat[_STIME])) / _TICKS_A_SECOND,
    )


def _own_use() -> ProcessUse:
    """Measure this process without `/proc`."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = resource.getrusage(resource.RUSAGE_SELF)
    return ProcessUse(
        kind=DRIVER,
        pid=os.getpid(),
        descriptors=len(os.listdir("/dev/fd")),
        descriptor_limit=None if soft == resource.RLIM_INFINITY else soft,
        threads=threading.active_count(),
        resident_bytes=used.ru_maxrss,  # in bytes on macOS, where there is no /proc
        cpu_s=used.ru_utime + used.ru_stime,
    )


def proportional_bytes(driver: int) -> int | None:
    """Return the memory of a job's Python workers, counting shared pages once; None if unknown.

    Linux sums page by page, a few ms for a worker of a gigabyte, so call this only now and then.
    """
    if not PROC.joinpath("self", "smaps_rollup").exists():
        return None
    total_kib = 0
    for pid in process_tree(_root(driver)):
        with contextlib.suppress(OSError):
            if _kind(pid, driver) == WORKERS:
                lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()
                total_kib += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total_kib * 1024
