"""Durations as people write them (`250ms`, `90s`, `5m`, `24h`, `30d`) and as the engine counts them: milliseconds."""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

MS_PER_UNIT = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
LONGEST_MS = 3660 * MS_PER_UNIT["d"]
_FORM = re.compile(r"(\d{1,15})(ms|s|m|h|d)", re.ASCII)


def parse_duration_ms(text: Any) -> int:
    """Read a duration such as `90s`.

    Args:
        text: digits and a unit, `ms | s | m | h | d`, with nothing between them.

    Returns:
        The duration in milliseconds, 0 to ten years.

    Raises:
        ValueError: not of that form, or longer than ten years.
    """
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


DurationMs = Annotated[
    int, BeforeValidator(parse_duration_ms), PlainSerializer(format_duration, return_type=str, when_used="json")
]
"""A pydantic field that is written as a duration, also in JSON, and read as milliseconds."""
