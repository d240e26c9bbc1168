"""What a job will soon run out of: descriptors of a process, threads and memory of the machine or its container."""

import contextlib
from collections.abc import Iterable
from pathlib import Path

from buckets.monitor.processes import PROC, ProcessUse

NEAR = 0.8
"""Somebody is told when so much of what there is has been taken."""
LITTLE_MEMORY = 0.05
"""Somebody is told when less than this part of the memory is left."""
GIB = 1 << 30
_CGROUP = Path("/sys/fs/cgroup")


def shortages(uses: Iterable[ProcessUse]) -> list[str]:
    """Say what processes will soon run out of, a line each with what to do; empty if all is well or nothing known."""
    lines = [_descriptors(use, use.descriptor_limit) for use in uses if use.descriptor_limit is not None]
    return [line for line in (*lines, _threads(), _memory()) if line is not None]


def _descriptors(use: ProcessUse, limit: int) -> str | None:
    if use.descriptors < NEAR * limit:
        return None
    return (
        f"descriptors run out: {use.kind}, process {use.pid}, has {use.descriptors:,} open and may have {limit:,}; "
        "start the job with a higher limit (`ulimit -n`, LimitNOFILE of systemd), and report it if they grow with time"
    )


def _threads() -> str | None:
    taken, limit = _number(_CGROUP / "pids.current"), _number(_CGROUP / "pids.max")
    if taken is None or limit is None or taken < NEAR * limit:
        return None
    return f"threads run out: this container has {taken:,} and may have {limit:,}; raise its limit of processes"


def _memory() -> str | None:
    for left, total, whose in (_of_container(), _of_machine()):
        if left is not None and total and left < LITTLE_MEMORY * total:
            return (
                f"memory runs out: {left / GIB:.1f} of {total / GIB:.1f} GiB of this {whose} are left; give the job "
                "more, or less to spark.driver.memory, state.log and state.cache"
            )
    return None


def _of_container() -> tuple[int | None, int | None, str]:
    """Return how much is left of a container's memory, pages of files aside, and how much it has."""
    limit, taken = _number(_CGROUP / "memory.max"), _number(_CGROUP / "memory.current")
    if limit is None or taken is None:
        return None, None, "container"
    files = _field(_CGROUP / "memory.stat", "inactive_file") or 0
    return limit - taken + files, limit, "container"


def _of_machine() -> tuple[int | None, int | None, str]:
    left, total = (_field(PROC / "meminfo", name) for name in ("MemAvailable:", "MemTotal:"))
    return left and left * 1024, total and total * 1024, "machine"


def _number(path: Path) -> int | None:
    """Read the number that a file holds; None where there is no file, or it says `max`."""
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text())
    return None


def _field(path: Path, name: str) -> int | None:
    """Read the number after a name in a file of names and numbers; None where there is none."""
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            fields = line.split()
            if fields[0] == name:
                return int(fields[1])
    return None
