"""Times as text, for people and for programs."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buckets.moment import brief_time_text, exact_time_text, iso_text, minute_text, moment_ms, time_text

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("time_ms", "shown"),
    [
        (0, "1970-01-01 00:00:00.000"),
        (-1, "1969-12-31 23:59:59.999"),
        (1_700_000_000_007, "2023-11-14 22:13:20.007"),
        (moment_ms(datetime(1, 1, 1, tzinfo=UTC)), "0001-01-01 00:00:00.000"),
    ],
)
def test_a_time_is_shown_to_the_second_or_to_the_millisecond(time_ms, shown):
    assert exact_time_text(time_ms) == shown
    assert time_text(time_ms) == shown[:19]
    assert minute_text(time_ms) == shown[:16]
    assert brief_time_text(time_ms) == (shown[:16] if shown[17:19] == "00" else shown[:19])
    assert iso_text(time_ms) == shown.replace(" ", "T") + "Z"


@pytest.mark.parametrize("time_ms", [10**15, -(10**15), 2**63 - 1, -(2**63)])
def test_a_time_that_no_calendar_has_is_shown_in_milliseconds(time_ms):
    assert time_text(time_ms) == exact_time_text(time_ms) == iso_text(time_ms) == f"{time_ms} ms"


@given(st.datetimes(timezones=st.just(UTC)).filter(lambda moment: moment.year < 9999))
def test_a_time_in_iso_8601_is_read_as_the_same_time(moment):
    time_ms = moment_ms(moment)
    assert datetime.fromisoformat(iso_text(time_ms)) == EPOCH + timedelta(milliseconds=time_ms)
