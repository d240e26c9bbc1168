"""Units in which event times are counted, and which of them would fit where times are not plausible in the declared.

Numbers in a coarser unit than the declared one are times in 1970, and those in a finer one lie far ahead: seconds of
2025 are 21 January 1970 as milliseconds, and milliseconds of 2025 are the year 57,836 as seconds. Numbers of one
plausible moment in one unit are none in another, since units are a thousand times as long as the next.
"""

from typing import Final, Literal

from buckets.moment import parse_moment_ms, time_text

TimeUnit = Literal["ms", "s", "us", "ns", "iso8601"]
PER_SECOND: Final[dict[str, int]] = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
_PLAUSIBLE_MS = parse_moment_ms("1990-01-01"), parse_moment_ms("2100-01-01")
_1971_MS = parse_moment_ms("1971-01-01")


def fitting_unit(low_ms: int, high_ms: int, unit: str) -> str | None:
    """Return the unit in which numbers would be plausible times; None if there is none but the one they were read in.

    Args:
        low_ms: the least time that was read, in ms since the epoch.
        high_ms: the greatest.
        unit: the one in which they were read.
    """
    first_ms, end_ms = _PLAUSIBLE_MS
    for other, per_second in PER_SECOND.items():
        low_there_ms, high_there_ms = (_in_other(time_ms, unit, per_second) for time_ms in (low_ms, high_ms))
        if other != unit and first_ms <= low_there_ms <= high_there_ms < end_ms:
            return other
    return None


def unit_fault(low_ms: int, high_ms: int, times: int, unit: str) -> str | None:
    """Say that times are all in 1970 and would not be in another unit, and what to do; None if they are right.

    Args:
        low_ms: the least of them, in ms since the epoch.
        high_ms: the greatest.
        times: how many there are.
        unit: the one in which they were read.
    """
    fitting = fitting_unit(low_ms, high_ms, unit) if 0 <= low_ms <= high_ms < _1971_MS else None
    if fitting is None:
        return None
    begin, end = (time_text(_in_other(time_ms, unit, PER_SECOND[fitting])) for time_ms in (low_ms, high_ms))
    which, there = (
        f"all {times:,} times are",
        f"they are {begin}" if begin == end else f"they are from {begin} to {end}",
    )
    if times == 1:
        which, there = "the only time is", f"it is {begin}"
    return (
        f"{which} in 1970 with `unit: {unit}`, and with `unit: {fitting}` {there}; write `unit: {fitting}` in "
        "event_time, or `earliest: 1970-01-01` if they are right"
    )


def unit_hint(time_ms: int, unit: str) -> str:
    """Say in which unit a time that is absurd would be plausible; nothing if there is none.

    A number that stands where a text in ISO 8601 is wanted is given as if it were in ms.
    """
    fitting = fitting_unit(time_ms, time_ms, unit)
    if fitting is None:
        return ""
    return f"; with `unit: {fitting}` it is {time_text(_in_other(time_ms, unit, PER_SECOND[fitting]))}"


def _in_other(time_ms: int, unit: str, per_second: int) -> int:
    """Return what a time would be if its number were counted in another unit, in ms since the epoch."""
    return time_ms * PER_SECOND.get(unit, 1000) // per_second
