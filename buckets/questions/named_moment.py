"""Moments that people name in a field."""

from buckets.errors import BucketsError
from buckets.moment import TimeRange, parse_moment_ms


def named_moment_ms(name: str, text: str) -> int | None:
    """Return the moment in a field with a name; None where the field is empty.

    Raises:
        BucketsError: it is no moment.
    """
    try:
        return parse_moment_ms(text) if text else None
    except ValueError as error:
        message = f"{name}: {error}"
        raise BucketsError(message) from None


def named_times(begin: str, end: str) -> TimeRange:
    """Return the event times between the fields `from` and `to`, either of which may be empty.

    Raises:
        BucketsError: one is no moment.
    """
    return TimeRange(named_moment_ms("from", begin), named_moment_ms("to", end))
