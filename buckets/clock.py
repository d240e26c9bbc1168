"""The current time, and the identity of the machine's boot."""

import time
from pathlib import Path


def epoch_ms() -> int:
    """Now, in ms since the epoch."""
    return time.time_ns() // 1_000_000


def machine_start() -> str:
    """Return an id of this boot of the machine; empty if the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
