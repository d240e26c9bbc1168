"""What the times of many events show together: a unit that cannot be right, and clocks that do not say it all.

Of a file it is told while it is read; a job counts it for each batch, and tells it when it first has it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import pyarrow as pa

from buckets.errors import BucketsError
from buckets.events.arrivals import field_column
from buckets.events.conversion import SKIPPED, TIMES, TWICE, WITHOUT_ZONE, event_times
from buckets.events.schema import EventSchema, EventTime
from buckets.events.time_units import unit_fault

_CLOCK: Final[dict[str, str]] = {
    TWICE: "{many} are of an hour that clocks of {zone} show twice, and are taken for the first",
    SKIPPED: "{many} are of an hour that clocks of {zone} skip, and are read as if they had not been put forward",
}


def check_unit(declared: EventTime, low_ms: int, high_ms: int, times: int) -> str | None:
    """Say that times are in another unit than the declared; None if they are not, or the schema means 1970.

    Args:
        declared: the time of the event schema.
        low_ms: the least of them, in ms since the epoch.
        high_ms: the greatest.
        times: how many there are.
    """
    return None if declared.has_earliest else unit_fault(low_ms, high_ms, times, declared.unit)


def clock_lines(counts: Mapping[str, int], declared: EventTime) -> Iterator[tuple[str, str]]:
    """Yield what is to be told of times without a zone, by what it is about."""
    if counts.get(WITHOUT_ZONE) and declared.zone is None:
        many = f"{counts[WITHOUT_ZONE]:,} of {counts[TIMES]:,} times"
        zone = "`zone: Europe/Berlin` or another in event_time, or `zone: UTC`"
        yield WITHOUT_ZONE, f"{many} have no time zone and are read as UTC; write {zone}"
    for kind, line in _CLOCK.items():
        if counts.get(kind):
            many = f"{counts[kind]:,} of {counts[TIMES]:,} times"
            yield kind, line.format(many=many, zone=declared.zone)


def told(
    arrivals: Iterable[pa.RecordBatch], schema: EventSchema, origin: str, say: Callable[[str], None]
) -> Iterator[pa.RecordBatch]:
    """Pass on arrivals, and tell at their end what is to be known of their times.

    Args:
        arrivals: in the form of `arrivals`.
        schema: the event schema.
        origin: where they come from.
        say: told a line of each kind of times without a zone.

    Raises:
        BucketsError: the times of the first piece are all in 1970, and in another unit would not be.
    """
    declared, column = schema.event_time, field_column(schema.field_names.index(schema.event_time.field))
    counts, is_checked = Counter[str](), False
    for rows in arrivals:
        written = rows.column(column)
        is_number = declared.unit != "iso8601" and not pa.types.is_temporal(written.type)
        if not (is_number and is_checked):
            times = event_times(written, declared)
            good = written.is_valid().to_numpy(zero_copy_only=False)
            good[list(times.faults)] = False
            counts += times.counts(good)
            if times.is_counted and good.any():
                is_checked = True
                seen_ms = times.ms[good]
                fault = check_unit(declared, int(seen_ms.min()), int(seen_ms.max()), len(seen_ms))
                if fault is not None:
                    message = f"{origin}: {fault}"
                    raise BucketsError(message)
        yield rows
    for _, line in clock_lines(counts, declared):
        say(f"{origin}: {line}")
