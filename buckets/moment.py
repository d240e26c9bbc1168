"""Moments as people write them, in ISO 8601, and as the engine counts them: milliseconds since the epoch."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, PlainSerializer

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TimeRange(NamedTuple):
    """A half-open range of event times, in ms since the epoch; None for an open end."""

    from_ms: int | None = None
    until_ms: int | None = None

    def has(self, time_ms: int) -> bool:
        """Return whether a time is one of them."""
        is_begun = self.from_ms is None or time_ms >= self.from_ms
        return is_begun and (self.until_ms is None or time_ms < self.until_ms)


ANY_TIME = TimeRange()


def in_utc(moment: datetime) -> datetime:
    """Convert a moment to UTC, which is assumed without a zone; ValueError before the year 1 or after 9999."""
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        message = f"{moment.isoformat()} lies outside the years 1 to 9999 in UTC"
        raise ValueError(message) from None


def moment_ms(moment: datetime) -> int:
    """Return a moment, read as in `in_utc`, in milliseconds since the epoch, rounded up."""
    return -((_EPOCH - in_utc(moment)) // timedelta(milliseconds=1))


def parse_moment_ms(text: str) -> int:
    """Parse a moment in ISO 8601 into ms since the epoch, as `moment_ms` does; ValueError if it is not one."""
    try:
        return moment_ms(datetime.fromisoformat(text.strip()))
    except ValueError:
        message = f"{text!r} is not a time; write a day or a time in UTC, as in 2026-01-03 or 2026-01-03T10:00"
        raise ValueError(message) from None


def moment_text(moment: datetime) -> str:
    """Write a moment in UTC in ISO 8601."""
    return moment.isoformat().replace("+00:00", "Z")


def _written(time_ms: int, between: str, precision: str) -> str:
    """Write a time in UTC, or in milliseconds if it is beyond the calendar."""
    try:
        moment = _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return f"{time_ms} ms"
    return moment.replace(tzinfo=None).isoformat(between, precision)


# Times for people, to the second, the millisecond and the minute
time_text: Callable[[int], str] = partial(_written, between=" ", precision="seconds")
exact_time_text: Callable[[int], str] = partial(_written, between=" ", precision="milliseconds")
minute_text: Callable[[int], str] = partial(_written, between=" ", precision="minutes")


def short_time_text(time_ms: int) -> str:
    """Return a time for people, as `exact_time_text`, without milliseconds where it has none."""
    return exact_time_text(time_ms).removesuffix(".000")


def brief_time_text(time_ms: int) -> str:
    """Return a time for people, as `time_text`, without seconds where it has none."""
    return time_text(time_ms).removesuffix(":00")


def iso_text(time_ms: int) -> str:
    """Return a time for programs, in ISO 8601 and UTC to the millisecond; one beyond the calendar as `time_text`."""
    text = _written(time_ms, "T", "milliseconds")
    return text if text.endswith("ms") else f"{text}Z"


def day_text(days: int) -> str:
    """Return a day for people, by the number of days since 1970."""
    try:
        return f"{date(1970, 1, 1) + timedelta(days=days)}"
    except OverflowError:
        return f"day {days}"


Moment = Annotated[datetime, AfterValidator(in_utc), PlainSerializer(moment_text, return_type=str, when_used="json")]
"""A pydantic field in UTC that is written as ISO 8601, also in JSON; without a zone it is in UTC."""
