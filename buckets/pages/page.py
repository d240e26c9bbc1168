"""Templates into pages: self-contained HTML, in which every value is escaped; and the axes of charts."""

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import count
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, Undefined
from markupsafe import Markup

from buckets.clock import epoch_ms
from buckets.duration import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from buckets.moment import day_text, exact_time_text, minute_text, time_text
from buckets.printable import visible
from buckets.version import versions_text


def render(template: str, **values: Any) -> str:
    """Return a page of a template in this package, which says below when it was made and by which versions.

    Each value is escaped where it is shown; one that the template names and that is not given is an error.
    """
    made = {"made_at": time_text(epoch_ms()), "made_by": versions_text()}
    return templates().get_template(template).render(**values, **made)


@cache
def templates(*folders: str) -> Environment:
    """Return what reads the templates of this package and of other folders, or a text, and how values are put in."""
    loader = ChoiceLoader([PackageLoader("buckets", folder) for folder in (*folders, "pages")])
    return Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, finalize=_shown, trim_blocks=True, lstrip_blocks=True
    )


def _shown(value: Any) -> Any:
    """Return a value that is put into a page, a text without invisible characters.

    A method is none, as that of a dict is in place of its entry `keys`.
    """
    if callable(value) and not isinstance(value, Undefined | Markup):
        message = f"a page shows {value!r}, which is neither text nor a number"
        raise TypeError(message)
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


_STEPS_MS = (
    *(step * power for power in (1, 10, 100) for step in (1, 2, 5)),
    *(step * unit for unit in (SECOND_MS, MINUTE_MS) for step in (1, 2, 5, 10, 15, 30)),
    *(step * HOUR_MS for step in (1, 2, 3, 6, 12)),
    *(step * DAY_MS for step in (1, 2, 5, 10, 30, 60, 150, 300)),
)


@dataclass(frozen=True)
class Mark:
    """A mark at an axis: where, and what it says."""

    at: float
    label: str


def round_values(low: Fraction, high: Fraction, most: int = 6, whole: bool = False) -> list[tuple[Fraction, str]]:
    """Return at most so many numbers from `low` to `high`, whole ones if asked, each with its text.

    They are multiples of 1, 2 or 5 times a power of ten; `high` is above `low`, and `most` at least 3.
    """
    power = 0
    while (high - low) * 10**power < most:
        power += 1
    steps = (Fraction(factor * 10**times, 10**power) for times in count() for factor in (1, 2, 5))
    step = next(size for size in steps if high // size - -(-low // size) < most and not (whole and size < 1))
    digits = 0
    while (step * 10**digits).denominator != 1:
        digits += 1
    values = [step * number for number in range(-(-low // step), high // step + 1)]
    return [(value, f"{Decimal(value.numerator) / value.denominator:,.{digits}f}") for value in values]


def round_times(first_ms: int, last_ms: int, most: int = 6) -> list[tuple[int, str]]:
    """Return at most so many round times from one to another, in milliseconds since 1970, each with its text.

    The day stands at the first of them and at the first of a day.
    """
    longest = _STEPS_MS[-1]
    steps = [*_STEPS_MS, *(longest * 10**power for power in range(1, 9))]
    step = next(size for size in steps if last_ms // size - -(-first_ms // size) < most)
    marks, day = [], -1
    for time_ms in range(-(-first_ms // step) * step, last_ms + 1, step):
        marks.append((time_ms, _label(time_ms, step, time_ms // DAY_MS != day)))
        day = time_ms // DAY_MS
    return marks


def _label(time_ms: int, step_ms: int, with_day: bool) -> str:
    if step_ms % DAY_MS == 0:
        return day_text(time_ms // DAY_MS)
    write = exact_time_text if step_ms % SECOND_MS else time_text if step_ms % MINUTE_MS else minute_text
    return write(time_ms)[len("2026-" if with_day else "2026-01-03 ") :]
