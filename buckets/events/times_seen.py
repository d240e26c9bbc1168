"""What the times of many events show together: a unit that cannot be right, and clocks that do not say it all.

Of a file it is told while it is read; a job counts it for each batch, and tells it when it first has it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import pyarrow as pa

from buckets.errors import BucketsError
from buckets.events.arrivals import field_column
from buckets.events.conversion import COUNTED, MISFITS, SKIPPED, TIMES, TWICE, WITHOUT_ZONE, event_times
from buckets.events.schema import EventSchema, EventTime
from buckets.events.time_units import unit_fault

UNCLEAR: Final = (WITHOUT_ZONE, TWICE, SKIPPED)
"""Kinds of times that a clock alone does not make clear."""
_OF_ZONE: Final[dict[str, str]] = {
    TWICE: "lie in an hour that clocks of {zone} show twice, and are taken for the first",
    SKIPPED: "lie in an hour that clocks of {zone} skip, and are read as if these had not been put forward",
}


def clock_lines(counts: Mapping[str, int], declared: EventTime) -> Iterator[tuple[str, str]]:
    """Yield kinds of times that are not clear, each with what is told of them; of some that is nothing.

    Args:
        counts: of times, as `EventTimes.counts` counts them.
        declared: the time of the event schema.
    """
    for kind in UNCLEAR:
        if not counts.get(kind):
            continue
        many = f"{counts[kind]:,} of {counts[TIMES]:,} times"
        if kind in _OF_ZONE:
            yield kind, f"{many} {_OF_ZONE[kind].format(zone=declared.zone)}"
        elif declared.zone is None:
            remedy = "write `zone: Europe/Berlin` or another in event_time, or `zone: UTC`"
            yield kind, f"{many} have no time zone and are read as UTC; {remedy}"


def wrong_unit(counts: Mapping[str, int], low_ms: int, high_ms: int, declared: EventTime) -> str | None:
    """Say that times are in another unit than the declared; None if they are not, or `earliest` says they are right.

    Args:
        counts: of these times, as `EventTimes.counts` counts them.
        low_ms: the least of them, in ms since the epoch.
        high_ms: the greatest.
        declared: the time of the event schema.
    """
    if declared.has_earliest or not counts.get(COUNTED):
        return None
    return unit_fault(low_ms, high_ms, counts[COUNTED], declared.unit)


def misfit(counts: Mapping[str, int], declared: EventTime) -> str | None:
    """Say that half of the times or more are absurd and in another unit would not be; None if they are not."""
    for unit, name in MISFITS.items():
        times = counts.get(name, 0)
        if times and times >= counts[TIMES]:
            return (
                f"{times:,} of {counts[TIMES] + times:,} times are outside {declared.limits} with `unit: "
                f"{declared.unit}`, and would not be with `unit: {unit}`; write `unit: {unit}` in event_time"
            )
    return None


class TimesSeen:
    """The times of arrivals of one origin."""

    def __init__(self, schema: EventSchema, origin: str) -> None:
        """Begin with none.

        Args:
            schema: the event schema.
            origin: where they come from.
        """
        self._declared, self._origin = schema.event_time, origin
        self._column = field_column(schema.field_names.index(schema.event_time.field))
        self._counts, self._is_checked = Counter[str](), False

    def take(self, rows: pa.RecordBatch) -> None:
        """Look at the times of arrivals; of numbers only at the first, for all of a file are in one unit.

        Raises:
            BucketsError: these are all in 1970, and in another unit would not be.
        """
        written = rows.column(self._column)
        is_number = self._declared.unit != "iso8601" and not pa.types.is_temporal(written.type)
        if is_number and self._is_checked:
            return
        times = event_times(written, self._declared)
        good = written.is_valid().to_numpy(zero_copy_only=False)
        good[list(times.faults)] = False
        counts = times.counts(good)
        self._counts += counts
        if counts[COUNTED]:
            self._is_checked, seen_ms = True, times.ms[good]
            fault = wrong_unit(counts, int(seen_ms.min()), int(seen_ms.max()), self._declared)
            if fault is not None:
                message = f"{self._origin}: {fault}"
                raise BucketsError(message)

    @property
    def lines(self) -> list[str]:
        """What is told of them."""
        return [line for _, line in clock_lines(self._counts, self._declared)]


def told(
    arrivals: Iterable[pa.RecordBatch], schema: EventSchema, origin: str, say: Callable[[str], None]
) -> Iterator[pa.RecordBatch]:
    """Pass on arrivals, and tell at their end what is to be known of their times.

    Args:
        arrivals: in the form of `events.arrivals`.
        schema: the event schema.
        origin: where they come from.
        say: told a line of each kind of times without a zone.

    Raises:
        BucketsError: as `TimesSeen.take`.
    """
    seen = TimesSeen(schema, origin)
    for rows in arrivals:
        seen.take(rows)
        yield rows
    for line in seen.lines:
        say(f"{origin}: {line}")
