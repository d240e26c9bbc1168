"""What is computed of each period of a window, such as the count of each day, for features of these values."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal

import numpy as np
from pydantic import (
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)

from buckets.aggregates.registry import AGGREGATES
from buckets.arrays import Int64s
from buckets.duration import DAY_MS, DurationMs, format_duration
from buckets.time_zone import check_zone, longest_days_ms, period_starts_ms
from buckets.validation import Checked

UTC: Final = "UTC"
MOST_PERIODS: Final = 1_000  # So many periods a window may hold
_ODD_OFFSETS_MS: Final = 2 * 366 * DAY_MS  # Since 1972 clocks of all zones differ from UTC by whole minutes


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
        """How long what they are counted in is: a day of 24 hours, or a period."""
        return DAY_MS if self.are_days else self.every_ms

    @property
    def every_text(self) -> str:
        """How long one is, as it is written: `1d`, `6h`."""
        return f"{self.every_ms // DAY_MS}d" if self.are_days else format_duration(self.every_ms)

    @property
    def unit(self) -> str:
        """What they are called in a sentence: `days in Europe/Berlin`, `periods of 7d in UTC`, `periods of 1h`."""
        zone = f" in {self.zone}" if self.are_days else ""
        return f"days{zone}" if self.every_ms == DAY_MS else f"periods of {self.every_text}{zone}"

    @property
    def text(self) -> str:
        """Return it as a brief text: `sum(amount) over days in Europe/Berlin`."""
        return f"{self.function}({self.of or ''}) over {self.unit}"

    def length_fault(self, length_ms: int) -> str | None:
        """Return why a window of a length holds no whole number of them; None where it does."""
        whole, rest = divmod(length_ms, self.every_ms)
        every, window = self.every_text, f"a window of {format_duration(length_ms)}"
        if rest:
            return f"{window} does not hold a whole number of periods of {every}; write a multiple of {every}"
        return None if whole <= MOST_PERIODS else f"{window} has more than {MOST_PERIODS:,} periods of {every}"

    def reach_ms(self, length_ms: int) -> int:
        """Return how long before its event a window of a length begins at most."""
        steps = length_ms // self.step_ms + 1
        return (longest_days_ms(self.zone, steps) if self.are_days else steps * self.step_ms) - 1

    def begin_ms(self, times_ms: Int64s, before_ms: int = 0) -> Int64s:
        """Return when the days or steps begin that lie so long, in whole ones, before those of times."""
        back = before_ms // self.step_ms
        if not self.are_days:
            return (times_ms // self.step_ms - back) * self.step_ms
        starts_ms = period_starts_ms("day", self.zone)
        begun = np.searchsorted(starts_ms, times_ms, side="right") - 1
        return starts_ms[np.maximum(begun - back, 0)]

    def unaligned_ms(self, widths_ms: Iterable[int]) -> int | None:
        """Return the first width of buckets that may hold events of two of them, since 1972; None for none."""
        starts_ms = np.array([self.every_ms])
        if self.are_days:
            starts_ms = period_starts_ms("day", self.zone)
            starts_ms = starts_ms[starts_ms >= _ODD_OFFSETS_MS]
        return next((width_ms for width_ms in widths_ms if (starts_ms % width_ms).any()), None)
