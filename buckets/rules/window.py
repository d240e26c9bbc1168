"""Windows, and periods of windows, for features over one value per period, such as the count of each day."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal

import numpy as np
from pydantic import (
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)

from buckets.aggregates.registry import AGGREGATES
from buckets.arrays import Int64s
from buckets.duration import DAY_MS, DurationMs, format_duration
from buckets.printable import counted
from buckets.time_zone import LONGEST_PERIODS_MS, check_zone, longest_days_ms, period_starts_ms
from buckets.validation import Checked

UTC: Final = "UTC"
MOST_PERIODS: Final = 1_000  # The most periods in a window
MOST_LAST: Final = 1_000_000  # The most last events in a window
_ODD_OFFSETS_MS: Final = 2 * 366 * DAY_MS  # Since 1972 clocks of all zones differ from UTC by whole minutes
_TOO_SHORT: Final[Mapping[str, str]] = {
    "length_ms": "a window is at least 1ms long",
    "offset_ms": "an offset is at least 1ms; leave it out for a window that ends with its event",
    "session_ms": "the events of a session may be at least 1ms apart",
}
"""By the durations of a window, the message for an invalid one."""


class Periods(Checked):
    """What is computed of each period, and which periods these are.

    Attributes:
        function: the aggregate over a period.
        of: the field that it is of; None for a count.
        every_ms: how long a period is: whole days of a zone, or steps that begin with multiples of their length in UTC.
        zone: by whose clocks days begin.
    """

    model_config = ConfigDict(populate_by_name=True)

    function: Literal["avg", "count", "max", "min", "sum"]
    of: str | None = None
    every_ms: DurationMs = Field(alias="every")
    zone: str = UTC

    _is_known = field_validator("zone", mode="after")(check_zone)

    @model_validator(mode="before")
    @classmethod
    def _only_of_periods(cls, value: Any) -> Any:
        beside = [name for name in ("where", "window", "group_by") if isinstance(value, Mapping) and name in value]
        if beside:
            message = (
                f"what is computed of each period has no `{beside[0]}`; write that beside `of`, as in "
                "{function: avg, of: {function: count, every: 1d}, window: 30d, where: amount > 5}"
            )
            raise ValueError(message)
        return value

    def _faults(self) -> Iterator[str]:
        takes = bool(AGGREGATES[self.function].takes)
        if takes and self.of is None:
            yield f"{self.function} of each period needs a field, as in {{function: sum, of: amount, every: 1d}}"
        if self.of is not None and not takes:
            yield f"{self.function} of each period is of no field; leave out its `of`"
        if self.every_ms <= 0:
            yield "a period is at least 1ms long"
        if not self.are_days and self.zone != UTC:
            yield "`zone` goes with periods of whole days, as in {every: 1d, zone: Europe/Berlin}"
        if self.are_days:
            period_starts_ms("day", self.zone)

    @field_serializer("every_ms")
    def _as_written(self, value: int) -> str:
        return self.every_text

    @model_serializer(mode="wrap")
    def _what_is_said(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        return {name: value for name, value in written.items() if value is not None and (name, value) != ("zone", UTC)}

    @property
    def are_days(self) -> bool:
        """Whether they are whole days of the zone."""
        return self.every_ms % DAY_MS == 0

    @property
    def step_ms(self) -> int:
        """The length of the unit in which they are counted: a day of 24 hours, or a period."""
        return DAY_MS if self.are_days else self.every_ms

    @property
    def every_text(self) -> str:
        """The length of one as written: `1d`, `6h`."""
        return f"{self.every_ms // DAY_MS}d" if self.are_days else format_duration(self.every_ms)

    @property
    def unit(self) -> str:
        """Their name in a sentence: `days in Europe/Berlin`, `periods of 7d in UTC`, `periods of 1h`."""
        zone = f" in {self.zone}" if self.are_days else ""
        return f"days{zone}" if self.every_ms == DAY_MS else f"periods of {self.every_text}{zone}"

    @property
    def text(self) -> str:
        """Return a short text: `sum(amount) over days in Europe/Berlin`."""
        return f"{self.function}({self.of or ''}) over {self.unit}"

    def length_fault(self, length_ms: int) -> str | None:
        """Return why a window of this length is not a whole number of periods; None if it is."""
        whole, rest = divmod(length_ms, self.every_ms)
        every, window = self.every_text, f"a window of {format_duration(length_ms)}"
        if rest:
            return f"{window} does not hold a whole number of periods of {every}; write a multiple of {every}"
        return None if whole <= MOST_PERIODS else f"{window} has more than {MOST_PERIODS:,} periods of {every}"

    def reach_ms(self, length_ms: int) -> int:
        """Return the longest time from the beginning of a window of this length to its event."""
        steps = length_ms // self.step_ms + 1
        return (longest_days_ms(self.zone, steps) if self.are_days else steps * self.step_ms) - 1

    def begin_ms(self, times_ms: Int64s, before_ms: int = 0) -> Int64s:
        """Return when the days or steps begin that lie `before_ms`, in whole ones, before those of the times."""
        back = before_ms // self.step_ms
        if not self.are_days:
            return (times_ms // self.step_ms - back) * self.step_ms
        starts_ms = period_starts_ms("day", self.zone)
        begun = np.searchsorted(starts_ms, times_ms, side="right") - 1
        return starts_ms[np.maximum(begun - back, 0)]

    def unaligned_ms(self, widths_ms: Iterable[int]) -> int | None:
        """Return the first width whose buckets may hold events of two periods, since 1972; None if none do."""
        starts_ms = np.array([self.every_ms])
        if self.are_days:
            starts_ms = period_starts_ms("day", self.zone)
            starts_ms = starts_ms[starts_ms >= _ODD_OFFSETS_MS]
        return next((width_ms for width_ms in widths_ms if (starts_ms % width_ms).any()), None)


class Window(Checked):
    """How far a window reaches back from its event, whether it holds an event exactly that old, and where it ends.

    Attributes:
        length_ms: how long it is; of one that begins with a period of the calendar, how long that is at the most.
        this: the period of the calendar with which it begins; None for one of a length.
        zone: by whose clocks.
        left: whether it holds an event at its very beginning.
        exclude: `current` for one without its own event; None for one that holds it.
        offset_ms: how long before its event it ends, and holds an event of that very time; 0 for none.
        last: how many events it holds at most, its last ones that the feature counts, by time and arrival; 0 for any
            number. Its length is written `within` then.
        session_ms: of one that holds the events of a session, how far apart two that follow each other may be; 0 for
            others. Its length is written `within` then.
    """

    model_config = ConfigDict(populate_by_name=True)

    length_ms: DurationMs = Field(alias="length")
    this: Literal["day", "week", "month"] | None = None
    zone: str = UTC
    left: Literal["closed", "open"] = "closed"
    exclude: Literal["current"] | None = None
    offset_ms: DurationMs = Field(alias="offset", default=0)
    last: int = Field(default=0, ge=1, le=MOST_LAST)
    session_ms: DurationMs = Field(alias="session", default=0)

    @model_validator(mode="before")
    @classmethod
    def _length_of_last_events(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or not {"last", "session", "within"} & data.keys():
            return data
        of_last, of_session = ({name, "within"} for name in ("last", "session"))
        if data.keys() - {"exclude"} not in (of_last, of_session) or isinstance(data.get("last"), bool):
            message = (
                "a window of the last events or of a session has `last`, how many, or `session`, how far apart they "
                "may be, `within`, up to which age they count, and at most `exclude` beside them; write {last: 10, "
                "within: 30d} or {session: 30m, within: 24h}"
            )
            raise ValueError(message)
        return {"length": data["within"], **{name: data[name] for name in data.keys() - {"within"}}}

    @model_validator(mode="before")
    @classmethod
    def _length_of_a_period(cls, value: Any) -> Any:
        if not isinstance(value, Mapping) or value.get("this") is None:
            if isinstance(value, Mapping) and "zone" in value:
                message = "`zone` goes with `this`, as in {this: day, zone: Europe/Berlin}"
                raise ValueError(message)
            return value
        beside = next((name for name in ("length", "length_ms", "left", "offset", "offset_ms") if name in value), None)
        if beside is not None:
            message = f"a window that begins with this {value['this']} has no `{beside}`; leave it out"
            raise ValueError(message)
        return {**value, "length": f"{LONGEST_PERIODS_MS.get(value['this'], 1)}ms"}

    _is_known = field_validator("zone", mode="after")(check_zone)

    @field_validator(*_TOO_SHORT, mode="after")
    @classmethod
    def _longer_than_nothing(cls, value: int, info: ValidationInfo) -> int:
        if value <= 0:
            raise ValueError(_TOO_SHORT[info.field_name or ""])
        return value

    def _faults(self) -> Iterator[str]:
        if self.exclude is not None and self.offset_ms:
            yield "a window with an `offset` ends before its event, and never holds it; leave out `exclude`"
        if self.this is not None:
            period_starts_ms(self.this, self.zone)

    @model_serializer(mode="wrap")
    def _what_is_said(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        without = {"this", "zone"} if self.this is None else {"length_ms", "length", "left"}
        without |= {"exclude"} if self.exclude is None else set()
        without |= set() if self.offset_ms else {"offset_ms", "offset"}
        without |= set() if self.last else {"last"}
        without |= set() if self.session_ms else {"session_ms", "session"}
        written: dict[str, Any] = write(self)
        if self.last or self.session_ms:
            without |= {"length_ms", "length", "left"}
            written["within"] = format_duration(self.length_ms)
        return {name: value for name, value in written.items() if name not in without}

    @property
    def holds_its_event(self) -> bool:
        """Whether its own event is in it."""
        return self.exclude is None and not self.offset_ms

    @property
    def is_plain(self) -> bool:
        """Whether it has a length alone, and ends with its event."""
        return self.holds_its_event and self.this is None and not self.needs_raw_events

    @property
    def needs_raw_events(self) -> bool:
        """Whether single events define its beginning, so that it has to lie in the tail."""
        return bool(self.last or self.session_ms)

    @property
    def calendar(self) -> tuple[str, str] | None:
        """The calendar period and the zone that define its beginning; None if they do not."""
        return None if self.this is None else (self.this, self.zone)

    @property
    def period_steps(self) -> tuple[int, int, int]:
        """For whole periods: how many days or steps it holds, how many make a period, and how long a step is."""
        return 0, 0, 0

    @property
    def begins_ms(self) -> int:
        """How long before its event it begins."""
        return self.offset_ms + self.length_ms

    @property
    def reach_ms(self) -> int:
        """How much older than its event an event in the window may be."""
        return self.begins_ms - (self.left == "open")

    def starts_ms(self, times_ms: Int64s) -> Int64s:
        """Return the beginnings of the windows of events at these times: int64 `(events,)`."""
        if self.this is None:
            return times_ms - self.begins_ms
        starts_ms = period_starts_ms(self.this, self.zone)
        known_ms = starts_ms[np.maximum(np.searchsorted(starts_ms, times_ms, side="right") - 1, 0)]
        return np.where(known_ms <= times_ms, np.maximum(known_ms, times_ms - self.reach_ms), times_ms - self.reach_ms)

    def ends_ms(self, times_ms: Int64s) -> Int64s:
        """Return the last included times of the windows of events at these times: int64 `(events,)`."""
        return times_ms - self.offset_ms

    def counted_borders_ms(self, time_ms: int, others_ms: Int64s) -> list[int]:
        """Return the borders of its periods, of a window of such; nothing for others."""
        return []

    @property
    def text(self) -> str:
        """Return a short text: `30d`, `30d before`, `24h until 7d before`, `this day in Europe/Berlin`."""
        length = format_duration(self.length_ms) if self.this is None else f"this {self.this} in {self.zone}"
        length = f"last {self.last} within {length}" if self.last else length
        length = f"session {format_duration(self.session_ms)} within {length}" if self.session_ms else length
        if self.offset_ms:
            return f"{length} until {format_duration(self.offset_ms)} before"
        return length if self.exclude is None else f"{length} before"

    def words_over(self, things: str) -> str:
        """Return it as part of a sentence about events or alerts."""
        return self.words.replace("event", things.removesuffix("s"))

    @property
    def words(self) -> str:
        """Return it as part of a sentence: `the last 30d`, `the last 30d before the event`, `this month in UTC`."""
        length = format_duration(self.length_ms)
        if self.session_ms:
            length = f"{length}, as far as events are up to {format_duration(self.session_ms)} apart"
        if self.last:
            length = f"{'event' if self.last == 1 else counted(self.last, 'event')} within {length}"
        if self.offset_ms:
            return f"the {length} until {format_duration(self.offset_ms)} before the event"
        over = f"the last {length}" if self.this is None else f"this {self.this} in {self.zone}"
        return over if self.exclude is None else f"{over} before the event"


class PeriodsWindow(Window):
    """The whole periods before the one in which the event lies; what is written of it is its length."""

    periods: Periods

    @property
    def calendar(self) -> tuple[str, str] | None:
        """The zone's days; None for steps of a fixed length."""
        return ("day", self.periods.zone) if self.periods.are_days else None

    @property
    def period_steps(self) -> tuple[int, int, int]:
        """How many days or steps it holds, how many make a period, and how long a step is, 0 for days."""
        step_ms = self.periods.step_ms
        return self.length_ms // step_ms, self.periods.every_ms // step_ms, 0 if self.periods.are_days else step_ms

    @property
    def holds_its_event(self) -> bool:
        """It ends before its event."""
        return False

    @property
    def begins_ms(self) -> int:
        """How long before its event it begins, at most."""
        return self.periods.reach_ms(self.length_ms)

    def starts_ms(self, times_ms: Int64s) -> Int64s:
        """Return the beginnings of the windows of events at these times: int64 `(events,)`."""
        return self.periods.begin_ms(times_ms, self.length_ms)

    def ends_ms(self, times_ms: Int64s) -> Int64s:
        """Return the last millisecond before the periods of events at these times: int64 `(events,)`."""
        return self.periods.begin_ms(times_ms) - 1

    def counted_borders_ms(self, time_ms: int, others_ms: Int64s) -> list[int]:
        """Return the beginnings of its periods, from that of the first of some events, and the last one's end."""
        before_ms, at = range(self.length_ms, -1, -self.periods.every_ms), np.array([time_ms])
        borders_ms = [int(self.periods.begin_ms(at, each_ms)[0]) for each_ms in before_ms]
        first_ms = int(others_ms.min()) if len(others_ms) else borders_ms[-1]
        return borders_ms[bisect_right(borders_ms, first_ms) - 1 :]

    @property
    def text(self) -> str:
        """Return a short text: `30d before this day in Europe/Berlin`, `24h before this period of 1h`."""
        zone = self.periods.zone if self.periods.are_days else None
        own = f"day in {zone}" if zone else f"period of {self.periods.every_text}"
        return f"{format_duration(self.length_ms)} before this {own}"

    @property
    def words(self) -> str:
        """Return it as part of a sentence."""
        return f"the {self.text}"
