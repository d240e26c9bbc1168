"""Time zones on columns: the same as Python's `zoneinfo` at each instant and each time of a clock, to the year 9999."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.time_zone import instants_ms, is_zone, local_ms
from tests.laws import examples

ZONES = [
    "UTC",
    "Europe/Berlin",
    "Europe/London",
    "Europe/Dublin",  # whose winter is a deviation from its summer
    "America/New_York",
    "America/Sao_Paulo",  # without summer time since 2019
    "America/Santiago",
    "America/Nuuk",  # changes on the evening before
    "America/St_Johns",
    "Africa/Casablanca",  # changes at Ramadan, until 2087
    "Africa/Monrovia",  # -0:44:30 until 1972
    "Asia/Gaza",
    "Asia/Kathmandu",
    "Pacific/Apia",  # which skipped 30 December 2011
    "Pacific/Chatham",
    "Australia/Sydney",
    "Australia/Lord_Howe",  # half an hour of summer time
    "Antarctica/Troll",  # two hours
]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_S = 86_400
FIRST_S, LAST_S = -62_135_596_800 + 2 * DAY_S, 253_402_300_799 - 2 * DAY_S
SECONDS = st.lists(st.one_of(st.integers(FIRST_S, LAST_S), st.integers(-3 * 10**9, 8 * 10**9)), min_size=1, max_size=40)


def changes_of(zone: str, year: int) -> list[int]:
    """Return the seconds around which a zone's offset changes in a year, each to the hour."""
    start = int((datetime(year, 1, 1, tzinfo=UTC) - EPOCH).total_seconds())
    hours = range(start, start + 366 * DAY_S, 3600)
    offsets = [(EPOCH + timedelta(seconds=hour)).astimezone(ZoneInfo(zone)).utcoffset() for hour in hours]
    return [then for then, one, other in zip(hours[1:], offsets, offsets[1:], strict=False) if one != other]


def on_clock(second: int, zone: str) -> int:
    offset = (EPOCH + timedelta(seconds=second)).astimezone(ZoneInfo(zone)).utcoffset()
    return second * 1000 + offset // timedelta(milliseconds=1)


def at_clock(second: int, zone: str) -> tuple[int, bool, bool]:
    clock = datetime(1970, 1, 1) + timedelta(seconds=second)  # noqa: DTZ001 - what a clock shows
    first, then = (clock.replace(tzinfo=ZoneInfo(zone), fold=fold).utcoffset() for fold in (0, 1))
    return second * 1000 - first // timedelta(milliseconds=1), then < first, then > first


def check(seconds: list[int], zone: str) -> None:
    times_ms = np.array(seconds, np.int64) * 1000
    assert local_ms(times_ms, zone).tolist() == [on_clock(second, zone) for second in seconds]
    columns = (column.tolist() for column in instants_ms(times_ms, zone))
    assert list(zip(*columns, strict=True)) == [at_clock(second, zone) for second in seconds]


@settings(max_examples=examples(100))
@given(st.sampled_from(ZONES), SECONDS)
def test_clocks_and_instants_are_those_of_zoneinfo(zone, seconds):
    check(seconds, zone)


@pytest.mark.parametrize("zone", ZONES)
def test_around_each_change_of_each_century_too(zone):
    changes = [
        change for year in (1946, 1996, 2011, 2025, 2037, 2038, 2086, 2199, 9998) for change in changes_of(zone, year)
    ]
    local = [on_clock(change, zone) // 1000 for change in changes]
    steps = [sign * step for step in (0, 1, 1799, 1800, 3599, 3600, 3601, 7200, DAY_S) for sign in (1, -1)]
    check([second + step for second in [0, *changes, *local] for step in steps], zone)


def test_milliseconds_stay():
    change_ms = 1_774_746_000_000  # 29 March 2026, 01:00 UTC
    clock = local_ms(np.array([change_ms - 1, change_ms, change_ms + 1]), "Europe/Berlin")
    assert (clock - change_ms).tolist() == [3_599_999, 7_200_000, 7_200_001]
    times, twice, skipped = instants_ms(clock, "Europe/Berlin")
    assert times.tolist() == [change_ms - 1, change_ms, change_ms + 1]
    assert not twice.any()
    assert not skipped.any()


def test_the_first_and_the_last_instant_of_the_calendar_have_a_clock():
    ends = np.array([FIRST_S - 2 * DAY_S, LAST_S + 2 * DAY_S]) * 1000
    assert (local_ms(ends, "Asia/Tokyo") - ends).tolist() == [33_539_000, 32_400_000]
    assert not len(local_ms(np.zeros(0, np.int64), "Asia/Tokyo"))


@pytest.mark.parametrize("name", ["Europe/Berlim", "../../etc/passwd", "posixrules", "+01:00", ""])
def test_other_names_are_no_zones(name):
    assert not is_zone(name)


def test_zones_have_names():
    assert all(map(is_zone, ZONES))
