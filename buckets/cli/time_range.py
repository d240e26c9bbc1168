"""The options `--from` and `--to`: a range of event times."""

from datetime import datetime
from typing import Annotated

import typer

from buckets.errors import BucketsError
from buckets.moment import TimeRange, moment_ms

From = Annotated[
    str | None, typer.Option("--from", help="The first event time, as in 2026-01-03 or 2026-01-03T10:00Z.")
]
To = Annotated[str | None, typer.Option("--to", help="The first event time that does not count any more.")]


def range_ms(begin: str | None, end: str | None) -> TimeRange:
    """Return the event times that two options name.

    Raises:
        BucketsError: one is no moment, or nothing is in between.
    """
    from_ms, to_ms = _moment_ms("--from", begin), _moment_ms("--to", end)
    if from_ms is not None and to_ms is not None and from_ms >= to_ms:
        message = f"--from {begin} is not before --to {end}; no event is in between"
        raise BucketsError(message)
    return TimeRange(from_ms, to_ms)


def _moment_ms(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return moment_ms(datetime.fromisoformat(text))
    except ValueError:
        message = f"{option}: {text!r} is no moment; write a day or a time in UTC, as in 2026-01-03 or 2026-01-03T10:00"
        raise BucketsError(message) from None
