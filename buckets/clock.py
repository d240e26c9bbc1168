"""The time of day, and since when the machine has run."""

import time
from pathlib import Path


def epoch_ms() -> int:
    """Now, in ms since the epoch."""
    return time.time_ns() // 1_000_000


def machine_start() -> str:
    """Return a text that names this start of the machine; empty where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
