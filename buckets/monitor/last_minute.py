"""The batches of the last minute: how many events and alerts, how long batches took, how late results were.

The last hour of a job as charts show it.
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.duration import HOUR_MS, MINUTE_MS
from buckets.engine.stages.accounting import BatchAccount

SHARES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0}


def weighted_quantiles(
    values: npt.NDArray[np.int64], weights: npt.NDArray[np.float64], shares: Sequence[float]
) -> list[int]:
    """Return for each share the least value such that values up to it have at least that share of all weight.

    Complexity: O(n log n).

    Args:
        values: at least one.
        weights: for how many each value stands, above 0.
        shares: 0 to 1.
    """
    order = np.argsort(values)
    up_to = np.cumsum(weights[order])
    # The sum itself is rounded: a share that is met but for that is met.
    wanted = np.asarray(shares) * up_to[-1] * (1 - 1e-12)
    return [int(value) for value in values[order][np.searchsorted(up_to, wanted)]]


class DoneBatch(Protocol):
    """What is looked at of a finished batch."""

    @property
    def account(self) -> BatchAccount:
        """Its accounts."""

    @property
    def duration_s(self) -> float:
        """How long it took."""

    @property
    def phases_s(self) -> Mapping[str, float]:
        """How long its parts took, in seconds by their names."""

    @property
    def alerts(self) -> tuple[pa.Table, ...]:
        """Its alerts, or most of them."""

    @property
    def written_ms(self) -> int:
        """When its results had been written, in ms since the epoch."""


@dataclass(frozen=True)
class _Counted:
    """A batch of the last minute; latencies in ms, and for how many events each stands."""

    written_ms: int
    duration_s: float
    events: int
    alerts: int
    latencies_ms: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float64]


class LastMinute:
    """The batches that were written in the last minute."""

    def __init__(self) -> None:
        """Begin without any."""
        self._batches: deque[_Counted] = deque()
        self._began_ms: int | None = None

    def add(self, batch: DoneBatch) -> None:
        """Take a batch into account; they come in the order in which they were written."""
        account, samples = batch.account, batch.account.ingested
        latencies_ms = batch.written_ms - np.array([moment for moment, _ in samples], np.int64)
        weights = np.array([weight for _, weight in samples], np.float64)
        alerts = sum(group.alerts for group in account.groups)
        if self._began_ms is None:
            self._began_ms = batch.written_ms - round(batch.duration_s * 1000)
        counted = _Counted(batch.written_ms, batch.duration_s, account.events_in, alerts, latencies_ms, weights)
        self._batches.append(counted)

    def summary(self, now_ms: int) -> dict[str, Any]:
        """Return the minute that ends now, as plain data, and forget what is older.

        Rates are taken over the minute, or over the time since the first batch began where that is shorter.
        """
        batches = self._batches
        while batches and batches[0].written_ms <= now_ms - MINUTE_MS:
            batches.popleft()
        span_s = min(MINUTE_MS, max(now_ms - (self._began_ms or now_ms), 1)) / 1000
        events = sum(batch.events for batch in batches)
        return {
            "span_s": span_s,
            "batches": len(batches),
            "events": events,
            "alerts": sum(batch.alerts for batch in batches),
            "events_per_s": round(events / span_s, 1),
            "events_by_second": self._by_second(now_ms, math.ceil(span_s)),
            "batch_ms": named_quantiles(np.array([round(batch.duration_s * 1000) for batch in batches], np.int64)),
            "latency_ms": named_quantiles(
                np.concatenate([np.empty(0, np.int64), *(batch.latencies_ms for batch in batches)]),
                np.concatenate([np.empty(0), *(batch.weights for batch in batches)]),
            ),
        }

    def _by_second(self, now_ms: int, seconds: int) -> list[int]:
        """Return events of each of the latest seconds, oldest first."""
        counts = [0] * seconds
        for batch in self._batches:
            ago_s = (now_ms - batch.written_ms) // 1000
            if 0 <= ago_s < seconds:
                counts[-1 - ago_s] += batch.events
        return counts


def named_quantiles(
    values: npt.NDArray[np.int64], weights: npt.NDArray[np.float64] | None = None
) -> dict[str, int] | None:
    """Return the quantiles of `SHARES` by name, weighted or not; None of no values."""
    if not len(values):
        return None
    weights = np.ones(len(values)) if weights is None else weights
    return dict(zip(SHARES, weighted_quantiles(values, weights, list(SHARES.values())), strict=True))


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
