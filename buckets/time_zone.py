"""Time zones on whole columns: converts between instants and local times.

Offsets are those of Python's `zoneinfo`, which follows the rule at the end of a zone's file; Arrow stops at the last
change that the file lists, usually in 2037. The changes of a year are found once: the offsets at the beginnings of its
days are compared, and between two that differ, the second of the change is searched. A year at the ends of Python's
calendar, where it cannot compute all hours, borrows the changes of the year 400 years away, whose calendar is the same.
"""

from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache, lru_cache
from itertools import pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo, available_timezones

import numpy as np

from buckets.arrays import Flags, Int64s
from buckets.printable import short_line

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_S = 86_400
_HOUR_MS = 3_600_000
_CYCLE_YEARS, _CYCLE_S = 400, 146_097 * _DAY_S  # After so many years the calendar repeats itself, weekdays included


class _Changes(NamedTuple):
    """Changes of an offset: the second since the epoch of each, and the offset before the first and after each, s."""

    at_s: Int64s
    offsets_s: Int64s


@cache
def _zones() -> frozenset[str]:
    return frozenset(available_timezones())


def is_zone(name: str) -> bool:
    """Return whether a name, such as Europe/Berlin, is a time zone."""
    return name in _zones()


def check_zone(name: str) -> str:
    """Return the name of a time zone; ValueError if it is unknown."""
    if not is_zone(name):
        message = f"there is no time zone {short_line(repr(name))}; write one such as Europe/Berlin or UTC"
        raise ValueError(message)
    return name


def local_ms(times_ms: Int64s, zone: str) -> Int64s:
    """Convert instants to local times of a zone, in ms since 1970-01-01T00:00 local time."""
    if not len(times_ms):
        return times_ms
    changes = _changes(times_ms, zone)
    after = np.searchsorted(changes.at_s * 1000, times_ms, side="right")
    return times_ms + changes.offsets_s[after] * 1000


def instants_ms(clock_ms: Int64s, zone: str) -> tuple[Int64s, Flags, Flags]:
    """Convert local times of a zone, as `local_ms` returns them, to instants.

    A time that occurs twice is taken as the first one, and a skipped one is read as if clocks had not been put forward
    yet, as Python does (PEP 495).

    Returns:
        The instants, which local times occur twice, and which were skipped.
    """
    if not len(clock_ms):
        none = np.zeros(0, np.bool_)
        return clock_ms, none, none
    changes = _changes(clock_ms, zone)
    before, after = (changes.at_s + offsets for offsets in (changes.offsets_s[:-1], changes.offsets_s[1:]))
    ends_ms, starts_ms = np.maximum(before, after) * 1000, np.minimum(before, after) * 1000
    rank = np.searchsorted(ends_ms, clock_ms, side="right")
    near = np.minimum(rank, max(0, len(ends_ms) - 1))
    if len(ends_ms):
        odd = (rank < len(ends_ms)) & (clock_ms >= starts_ms[near])
        forward = (after > before)[near]
    else:
        odd = forward = np.zeros(len(clock_ms), np.bool_)
    return clock_ms - changes.offsets_s[rank] * 1000, odd & ~forward, odd & forward


LONGEST_PERIODS_MS = {"day": 26 * _HOUR_MS, "week": (7 * 24 + 2) * _HOUR_MS, "month": (31 * 24 + 2) * _HOUR_MS}
"""How long a period of a zone's calendar is at the most, in which clocks are put back by up to two hours."""
_KNOWN_DAYS = "1899-01-01", "2201-01-01"  # A year around what event schemas accept if they say nothing else


@cache
def period_starts_ms(period: str, zone: str) -> Int64s:
    """Return when days, weeks (from Monday) or months begin on the clocks of a zone, from 1899 to 2201: int64, sorted.

    A period whose midnight clocks skip begins when they go on, and one whose midnight they show twice with the first.
    ValueError if one is longer than `LONGEST_PERIODS_MS`.
    """
    days: Int64s = np.arange(*_KNOWN_DAYS, dtype="datetime64[D]").astype(np.int64)
    if period == "week":
        days = days[(days + 3) % 7 == 0]  # 1970-01-01 was a Thursday
    if period == "month":
        days = days[days.astype("datetime64[D]") == days.astype("datetime64[D]").astype("datetime64[M]")]
    starts_ms, _, _ = instants_ms(days * _DAY_S * 1000, zone)
    starts_ms = np.unique(starts_ms)
    if np.diff(starts_ms).max() > LONGEST_PERIODS_MS[period]:
        message = f"a {period} of {zone} is longer than {LONGEST_PERIODS_MS[period] // _HOUR_MS} hours"
        raise ValueError(message)
    starts_ms.flags.writeable = False
    return starts_ms


@cache
def longest_days_ms(zone: str, days: int) -> int:
    """Return the greatest length of this many consecutive days in a zone, in ms."""
    starts_ms = period_starts_ms("day", zone)
    return int((starts_ms[days:] - starts_ms[:-days]).max())


def _changes(times_ms: Int64s, zone: str) -> _Changes:
    """Return the changes of a zone in the years of some times and in the adjacent years."""
    days = times_ms.astype("datetime64[ms]").astype("datetime64[D]")
    # A day to each side: the same time may be in another year on the clock.
    years = np.unique(np.concatenate([np.unique(days + step).astype("datetime64[Y]") for step in (-1, 0, 1)]))
    found = [_changes_of_year(zone, year) for year in (years.astype(np.int64) + 1970).tolist()]
    at_s, offsets_s = [found[0].at_s], [found[0].offsets_s]
    for year, (of_last, of_year) in zip(years[1:], pairwise(found), strict=True):
        if of_last.offsets_s[-1] != of_year.offsets_s[0]:  # in years between them, which nobody has asked for
            at_s.append(np.array([year.astype("datetime64[s]").astype(np.int64)]))
            offsets_s.append(of_year.offsets_s[:1])
        at_s.append(of_year.at_s)
        offsets_s.append(of_year.offsets_s[1:])
    return _Changes(np.concatenate(at_s), np.concatenate(offsets_s))


@lru_cache(maxsize=20_000)
def _changes_of_year(zone: str, year: int) -> _Changes:
    # 401 to 9598: a day before and after each second of these is in a year that Python has.
    cycles = (401 - year + _CYCLE_YEARS - 1) // _CYCLE_YEARS if year < 401 else -max(0, (year - 9200) // _CYCLE_YEARS)
    year += cycles * _CYCLE_YEARS
    clock = ZoneInfo(zone)
    starts = [(datetime(each, 1, 1, tzinfo=UTC) - _EPOCH).days * _DAY_S for each in (year, year + 1)]
    at_s = list(range(starts[0], starts[1] + 1, _DAY_S))
    offsets = [_offset_s(clock, second) for second in at_s]
    changes: list[tuple[int, int]] = []
    for index, (first, then) in enumerate(pairwise(offsets)):
        if first != then:
            changes += _changes_between(clock, (at_s[index], first), (at_s[index + 1], then))
    moved_s = np.array([second for second, _ in changes], np.int64) - cycles * _CYCLE_S
    return _Changes(moved_s, np.array([offsets[0], *(offset for _, offset in changes)], np.int64))


def _changes_between(clock: tzinfo, first: tuple[int, int], last: tuple[int, int]) -> list[tuple[int, int]]:
    """Return the changes after one second and up to another, whose known offsets differ."""
    (start_s, _), (end_s, after) = first, last
    if end_s - start_s == 1:
        return [(end_s, after)]
    middle_s = (start_s + end_s) // 2
    middle = middle_s, _offset_s(clock, middle_s)
    halves = [(first, middle), (middle, last)]
    return [change for one, other in halves if one[1] != other[1] for change in _changes_between(clock, one, other)]


def _offset_s(clock: tzinfo, second: int) -> int:
    offset = (_EPOCH + timedelta(seconds=second)).astimezone(clock).utcoffset()
    assert offset is not None
    return round(offset.total_seconds())
