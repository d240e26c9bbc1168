"""Durations as people write and say them (`250ms`, `24h`, `2 h 5 min`) and as the engine counts them: milliseconds."""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000
MS_PER_UNIT = {"ms": 1, "s": SECOND_MS, "m": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS}
LONGEST_MS = 3660 * DAY_MS
_SPOKEN_UNITS = (("d", DAY_MS), ("h", HOUR_MS), ("min", MINUTE_MS), ("s", SECOND_MS), ("ms", 1))
_FORM = re.compile(r"(\d{1,15})(ms|s|m|h|d)", re.ASCII)


def parse_duration_ms(text: Any) -> int:
    """Parse a duration such as `90s`, digits and a unit, into milliseconds, 0 to ten years; ValueError otherwise."""
    match = _FORM.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        message = f"{text!r} is not a duration; write digits and a unit, as in 250ms, 90s, 5m, 24h or 30d"
        raise ValueError(message)
    milliseconds = int(match[1]) * MS_PER_UNIT[match[2]]
    if milliseconds > LONGEST_MS:
        message = f"{text!r} is longer than the limit of {format_duration(LONGEST_MS)}"
        raise ValueError(message)
    return milliseconds


def format_duration(milliseconds: int) -> str:
    """Write a duration with the largest unit that divides it: 86,400,000 is `24h` below two days, then days."""
    for unit in ("d", "h", "m", "s"):
        size = MS_PER_UNIT[unit]
        if milliseconds and milliseconds % size == 0 and not (unit == "d" and milliseconds < 2 * size):
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms"


def rounded_duration(milliseconds: int) -> str:
    """Write a duration of at least a millisecond in its largest unit, rounded: `3 h`."""
    unit, size_ms = next((unit, size_ms) for unit, size_ms in _SPOKEN_UNITS if milliseconds >= size_ms)
    return f"{(milliseconds + size_ms // 2) // size_ms:,} {unit}"


def spoken_duration(milliseconds: float) -> str:
    """Write a duration to the second, in its two largest units: `2 h 5 min`; less than a second as a fraction."""
    left, parts = abs(round(milliseconds / SECOND_MS)) * SECOND_MS, []
    for unit, size_ms in _SPOKEN_UNITS[:-1]:
        count, left = divmod(left, size_ms)
        if count:
            parts.append(f"{count:,} {unit}")
    text = " ".join(parts[:2])
    return f"{'-' if milliseconds < 0 else ''}{text}" if text else f"{milliseconds / SECOND_MS:.3g} s"


DurationMs = Annotated[int, BeforeValidator(parse_duration_ms), PlainSerializer(format_duration, return_type=str)]
"""A pydantic field that is written as a duration and read as milliseconds."""
