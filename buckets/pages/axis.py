"""What stands beside the axes of a chart: round numbers, and round times in UTC."""

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from itertools import count

_SECOND_MS, _MINUTE_MS, _HOUR_MS, _DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000
_STEPS_MS = (
    *(step * power for power in (1, 10, 100) for step in (1, 2, 5)),
    *(step * unit for unit in (_SECOND_MS, _MINUTE_MS) for step in (1, 2, 5, 10, 15, 30)),
    *(step * _HOUR_MS for step in (1, 2, 3, 6, 12)),
    *(step * _DAY_MS for step in (1, 2, 5, 10, 30, 60, 150, 300)),
)


@dataclass(frozen=True)
class Mark:
    """A mark at an axis: where, and what it says."""

    at: float
    label: str


def round_values(low: Fraction, high: Fraction, most: int = 6, whole: bool = False) -> list[tuple[Fraction, str]]:
    """Return round numbers between two, multiples of 1, 2 or 5 times a power of ten, each with its text.

    Args:
        low: the least number that may be there.
        high: the largest one, above it.
        most: how many there are at most, from 3 on.
        whole: whether they are whole numbers.
    """
    power = 0
    while (high - low) * 10**power < most:
        power += 1
    steps = (Fraction(factor * 10**times, 10**power) for times in count() for factor in (1, 2, 5))
    step = next(each for each in steps if high // each - -(-low // each) < most and not (whole and each < 1))
    digits = 0
    while (step * 10**digits).denominator != 1:
        digits += 1
    values = [step * number for number in range(-(-low // step), high // step + 1)]
    return [(each, f"{Decimal(each.numerator) / each.denominator:,.{digits}f}") for each in values]


def round_times(first_ms: int, last_ms: int, most: int = 6) -> list[tuple[int, str]]:
    """Return round times between two, in milliseconds since 1970, each with its text.

    The day stands at the first of them and at the first of a day.

    Args:
        first_ms: the earliest time that may be there.
        last_ms: the latest one, not before.
        most: how many there are at most.
    """
    longest = _STEPS_MS[-1]
    steps = [*_STEPS_MS, *(longest * 10**power for power in range(1, 9))]
    step = next(each for each in steps if last_ms // each - -(-first_ms // each) < most)
    found, day = [], -1
    for number in range(-(-first_ms // step), last_ms // step + 1):
        time_ms = number * step
        found.append((time_ms, _time_text(time_ms, step, time_ms // _DAY_MS != day)))
        day = time_ms // _DAY_MS
    return found


def _time_text(time_ms: int, step_ms: int, with_day: bool) -> str:
    moment = datetime.fromtimestamp(time_ms // _SECOND_MS, UTC)
    if step_ms % _DAY_MS == 0:
        return f"{moment:%Y-%m-%d}"
    text = f"{moment:%H:%M}" if step_ms % _MINUTE_MS == 0 else f"{moment:%H:%M:%S}"
    if step_ms % _SECOND_MS:
        text = f"{text}.{time_ms % _SECOND_MS:03d}"
    return f"{moment:%m-%d} {text}" if with_day else text
