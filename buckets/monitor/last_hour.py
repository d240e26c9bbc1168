"""The last hour of a job as charts show it: what its status told of the last minute, at moments."""

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from buckets.duration import HOUR_MS

RECORDED_EVERY_S = 30


class LiveSample(NamedTuple):
    """What a job did at a moment; None of what it does not say."""

    time_s: int
    events_per_s: float
    alerts_per_s: float
    delay_p50_ms: int | None
    delay_p99_ms: int | None
    batch_ms: int | None
    lag: int | None


def sample_of(minute: dict[str, Any], lag: int | None, now_ms: int) -> LiveSample:
    """Return what is shown of a last minute."""
    delay, batch = minute["latency_ms"] or {}, minute["batch_ms"] or {}
    return LiveSample(
        time_s=now_ms // 1000,
        events_per_s=minute["events_per_s"],
        alerts_per_s=round(minute["alerts"] / minute["span_s"], 3),
        delay_p50_ms=delay.get("p50"),
        delay_p99_ms=delay.get("p99"),
        batch_ms=batch.get("p50"),
        lag=lag,
    )


def recorded_hour(status: dict[str, Any]) -> list[LiveSample]:
    """Return what a status has kept of its last hour, oldest first; what another release has kept is left out."""
    hour = status.get("hour")
    return [LiveSample(*sample) for sample in hour if _is_sample(sample)] if isinstance(hour, list) else []


def as_columns(samples: Sequence[LiveSample]) -> dict[str, list[Any]]:
    """Return samples by column, as charts take them."""
    columns = zip(*samples, strict=True) if samples else [[] for _ in LiveSample._fields]
    return {name: list(column) for name, column in zip(LiveSample._fields, columns, strict=True)}


def _is_sample(values: Any) -> bool:
    return (
        isinstance(values, list)
        and len(values) == len(LiveSample._fields)
        and isinstance(values[0], int)
        and all(value is None or isinstance(value, int | float) for value in values)
    )


class LastHour:
    """A sample every half minute, for at most an hour."""

    def __init__(self, before: Sequence[LiveSample] = ()) -> None:
        """Go on from what the job's last run has kept."""
        self._samples = deque(before)

    def add(self, sample: LiveSample) -> None:
        """Keep a sample, in place of an earlier one of the same half minute; forget those of more than an hour ago."""
        if self._samples and self._samples[-1].time_s // RECORDED_EVERY_S == sample.time_s // RECORDED_EVERY_S:
            self._samples.pop()
        self._samples.append(sample)
        while self._samples[0].time_s < sample.time_s - HOUR_MS // 1000:
            self._samples.popleft()

    def to_json(self) -> list[list[Any]]:
        """Return the samples as a status keeps them."""
        return [list(sample) for sample in self._samples]
