"""The time of day."""

import time


def epoch_ms() -> int:
    """Now, in ms since the epoch."""
    return time.time_ns() // 1_000_000
