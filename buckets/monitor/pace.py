"""Whether a job keeps up with its input, judged by how its delay and lag change, not by their size.

A slow job and one that cannot keep up look alike at any moment: the results of both are seconds late. Over time they
differ: the delay of the slow one stays constant, the other's grows without bound. If a job processes `done` of `come`
events a second, each second adds `1 - done / come` seconds to the delay, and `come - done` messages to the lag.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.arrays import Int64s
from buckets.duration import HOUR_MS, MINUTE_MS, SECOND_MS
from buckets.engine.stages.accounting import BatchAccount

Float64s = npt.NDArray[np.float64]
SHARES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0}


def weighted_quantiles(values: Int64s, weights: Float64s, shares: Sequence[float]) -> list[int]:
    """Return, for each share from 0 to 1, the least value up to which values have that share of the total weight.

    There is at least one value, and every weight is above 0. Complexity: O(n log n).
    """
    order = np.argsort(values)
    up_to = np.cumsum(weights[order])
    # The sum is rounded: a share that is reached up to rounding counts as reached.
    wanted = np.asarray(shares) * up_to[-1] * (1 - 1e-12)
    return [int(value) for value in values[order][np.searchsorted(up_to, wanted)]]


@dataclass(frozen=True)
class BatchReport:
    """A finished batch."""

    account: BatchAccount  # its accounts
    scored_s: float  # the time from its rules to its results
    written_s: float  # the time of the sink
    # its alerts in payloads, one per shard and group, of up to `scored_batch.SMALL_BYTES`
    alerts: tuple[pa.Table, ...]
    written_ms: int  # when its results had been written, in ms since the epoch

    @property
    def duration_s(self) -> float:
        """The duration of the batch."""
        return self.scored_s + self.written_s

    def latencies_ms(self) -> tuple[Int64s, Float64s]:
        """Return the delays in ms with which sampled events were written, and how many events each stands for."""
        samples = self.account.ingested
        came_ms = np.array([came_ms for came_ms, _ in samples], np.int64)
        return self.written_ms - came_ms, np.array([weight for _, weight in samples], np.float64)


class _Written(NamedTuple):
    """What the last minute keeps of a batch: as little as possible, since the garbage collector visits it all."""

    written_ms: int
    duration_s: float
    events: int
    alerts: int
    late_ms: Int64s
    weights: Float64s


class LastMinute:
    """The batches that were written in the last minute."""

    def __init__(self) -> None:
        self._batches: deque[_Written] = deque()
        self._began_ms: int | None = None

    def add(self, batch: BatchReport) -> None:
        """Add a batch; batches are added in the order in which they were written."""
        if self._began_ms is None:
            self._began_ms = batch.written_ms - round(batch.duration_s * 1000)
        alerts = sum(group.alerts for group in batch.account.groups)
        kept = (batch.written_ms, batch.duration_s, batch.account.events_in, alerts, *batch.latencies_ms())
        self._batches.append(_Written(*kept))

    def summary(self, now_ms: int) -> dict[str, Any]:
        """Summarise the minute that ends now as plain data, and drop older batches.

        Rates are averages over the minute, or over the time since the first batch began if that is shorter.
        """
        batches = self._batches
        while batches and batches[0].written_ms <= now_ms - MINUTE_MS:
            batches.popleft()
        span_s = min(MINUTE_MS, max(now_ms - (self._began_ms or now_ms), 1)) / 1000
        events = sum(batch.events for batch in batches)
        by_second = [0] * math.ceil(span_s)  # Oldest first
        for batch in batches:
            ago_s = (now_ms - batch.written_ms) // 1000
            if 0 <= ago_s < len(by_second):
                by_second[-1 - ago_s] += batch.events
        return {
            "span_s": span_s,
            "batches": len(batches),
            "events": events,
            "alerts": sum(batch.alerts for batch in batches),
            "events_per_s": round(events / span_s, 1),
            "events_by_second": by_second,
            "batch_ms": named_quantiles(np.array([round(batch.duration_s * 1000) for batch in batches], np.int64)),
            "latency_ms": named_quantiles(
                np.concatenate([np.empty(0, np.int64), *(batch.late_ms for batch in batches)]),
                np.concatenate([np.empty(0), *(batch.weights for batch in batches)]),
            ),
        }


def named_quantiles(values: Int64s, weights: Float64s | None = None) -> dict[str, int] | None:
    """Return the quantiles of `SHARES` by name, weighted or not; None if there are no values."""
    if not len(values):
        return None
    weights = np.ones(len(values)) if weights is None else weights
    return dict(zip(SHARES, weighted_quantiles(values, weights, list(SHARES.values())), strict=True))


RECORDED_EVERY_S = 30


class LiveSample(NamedTuple):
    """What a job did at a moment; unknown values are None."""

    time_s: int
    events_per_s: float
    alerts_per_s: float
    delay_p50_ms: int | None
    delay_p99_ms: int | None
    batch_ms: int | None
    lag: int | None


def sample_of(minute: dict[str, Any], lag: int | None, now_ms: int) -> LiveSample:
    """Return a sample for charts from the summary of a minute."""
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
    """Return the last hour recorded in a status, oldest first."""
    return [LiveSample(*sample) for sample in status.get("hour", ())]


def as_columns(samples: Sequence[LiveSample]) -> dict[str, list[Any]]:
    """Return samples by column, as charts take them."""
    columns = zip(*samples, strict=True) if samples else [[] for _ in LiveSample._fields]
    return {name: list(column) for name, column in zip(LiveSample._fields, columns, strict=True)}


class LastHour:
    """One sample per half minute, for at most an hour."""

    def __init__(self, before: Sequence[LiveSample] = ()) -> None:
        """Continue from the samples kept by the job's last run."""
        self._samples = deque(before)

    def add(self, sample: LiveSample) -> None:
        """Add a sample, replacing an earlier one of the same half minute, and drop those older than an hour."""
        if self._samples and self._samples[-1].time_s // RECORDED_EVERY_S == sample.time_s // RECORDED_EVERY_S:
            self._samples.pop()
        self._samples.append(sample)
        while self._samples[0].time_s < sample.time_s - HOUR_MS // 1000:
            self._samples.popleft()

    def to_json(self) -> list[list[Any]]:
        """Return the samples in the form that a status keeps."""
        return [list(sample) for sample in self._samples]


State = Literal["unknown", "keeps up", "slow", "falls behind", "catches up"]
SLOW_MS = 5_000  # The delay from which a job that keeps up is called slow
_MOMENT_MS, _MOST = 3 * SECOND_MS, 100
"""Batches within this time are merged into one moment, and this many moments are kept: five minutes or more."""
_FEWEST_OF_GROWTH, _FEWEST, _SHORTEST_MS = 3, 8, 20 * SECOND_MS
"""Nothing is said of fewer moments or a shorter time; growth is recognised sooner than constancy."""
_LIKELY_ENOUGH = ((1.0, 1.0), (0.5, 1.65), (0.0, 3.0))
"""Relative growth of a trend, and how significant it must then be, in standard deviations: three doubling values
suffice, or many that grow little."""
_LEAST_SLOPE = 0.05  # A job that falls behind leaves at least a twentieth of its input undone
_BUSY = 0.7  # A job that is idle for more than the rest of its time has capacity left, so it is not behind
_BACKLOG_S = 60  # A lag of this many seconds of work that does not shrink is not being worked off


class Moment(NamedTuple):
    """A few seconds of a job, or one longer batch: events, time at work, delay and lag."""

    time_ms: int
    events: int
    batches: int
    busy_ms: int
    delay_ms: int | None
    lag: int | None


@dataclass(frozen=True)
class Pace:
    """How a job keeps up with its input."""

    state: State = "unknown"  # `slow` keeps up too, with a constant delay of `SLOW_MS` or more
    delay_ms: int | None = None  # the current delay of results; None if the source has no arrival times
    batch_ms: int = 0  # the duration of a batch
    busy: float = 0.0  # the share of time in which a batch was running
    done_per_s: float = 0.0  # events processed per second
    come_per_s: float | None = None  # events arriving per second; None if unknown


class RecentMoments:
    """The latest moments of a job."""

    def __init__(self) -> None:
        self._moments: deque[Moment] = deque(maxlen=_MOST)

    def add(self, batch: BatchReport, lag: int | None) -> None:
        """Add a batch with the lag after it; batches within a few seconds form one moment."""
        late_ms, weights = batch.latencies_ms()
        delay_ms = weighted_quantiles(late_ms, weights, [0.5])[0] if len(late_ms) else None
        moment = Moment(batch.written_ms, batch.account.events_in, 1, round(batch.duration_s * 1000), delay_ms, lag)
        before = self._moments[-1] if self._moments else None
        if before is not None and before.time_ms // _MOMENT_MS == moment.time_ms // _MOMENT_MS:
            self._moments[-1] = moment._replace(
                events=before.events + moment.events,
                batches=before.batches + 1,
                busy_ms=before.busy_ms + moment.busy_ms,
                delay_ms=before.delay_ms if delay_ms is None else delay_ms,
            )
        else:
            self._moments.append(moment)

    def latest(self) -> list[Moment]:
        """Return the moments, oldest first."""
        return list(self._moments)


def pace_of(moments: Sequence[Moment]) -> Pace:
    """Judge how a job keeps up.

    A job can fall behind only while batches follow each other without a pause. So the trend covers the time since the
    job was last idle, without the batch that ended the idle time, which had no delay yet.
    """
    busy = moments[_first_at_work(moments) :]
    at_work = busy[1:]
    delay, lag = (_trend(at_work, what) for what in (lambda at: at.delay_ms, lambda at: at.lag))
    pace = _figures(at_work)
    done_per_s = pace.done_per_s
    if _span_ms(at_work) >= _SHORTEST_MS and len(at_work) >= _FEWEST_OF_GROWTH:
        if lag is not None and lag.falls(done_per_s):
            return replace(pace, state="catches up", come_per_s=max(done_per_s + lag.slope * 1000, 0.0))
        if lag is not None and lag.grows(done_per_s):
            return replace(pace, state="falls behind", come_per_s=done_per_s + lag.slope * 1000)
        if delay is not None and delay.grows(SECOND_MS):
            come_per_s = done_per_s / (1 - delay.slope) if delay.slope < 1 else None
            return replace(pace, state="falls behind", come_per_s=come_per_s)
        if delay is not None and delay.falls(SECOND_MS):
            return replace(pace, state="catches up")
    if len(at_work) >= _FEWEST and lag is not None and lag.now > _BACKLOG_S * done_per_s > 0:
        return replace(pace, state="falls behind", come_per_s=done_per_s)
    pace = _figures(moments[-_FEWEST:])
    if len(moments) < _FEWEST or _span_ms(moments) < _SHORTEST_MS or 0 < len(busy) <= _FEWEST_OF_GROWTH:
        return Pace()
    if pace.delay_ms is None and lag is None:
        return Pace()
    return replace(pace, state="slow" if (pace.delay_ms or 0) >= SLOW_MS else "keeps up")


def _span_ms(moments: Sequence[Moment]) -> int:
    return moments[-1].time_ms - moments[0].time_ms if moments else 0


def _first_at_work(moments: Sequence[Moment]) -> int:
    """Return the index of the first moment since which batches follow without a pause; one past the end if none."""
    first = len(moments)
    for index in range(len(moments) - 1, 0, -1):
        since_ms = moments[index].time_ms - moments[index - 1].time_ms
        if moments[index].busy_ms < _BUSY * since_ms:
            break
        first = index
    return first


def _figures(moments: Sequence[Moment]) -> Pace:
    since, span_ms = moments[1:], max(_span_ms(moments), 1)
    busy_ms = sum(moment.busy_ms for moment in since)
    delays_ms = [moment.delay_ms for moment in moments[-_FEWEST_OF_GROWTH:] if moment.delay_ms is not None]
    return Pace(
        delay_ms=round(median(delays_ms)) if delays_ms else None,
        batch_ms=round(busy_ms / max(sum(moment.batches for moment in since), 1)),
        busy=min(busy_ms / span_ms, 1.0),
        done_per_s=sum(moment.events for moment in since) / span_ms * 1000,
    )


class _Trend(NamedTuple):
    """How values change over time.

    `first` and `now` approximate the values at the ends; `slope` is per ms, the median over all pairs (Theil and Sen);
    `likely` is the significance in standard deviations (Mann and Kendall).
    """

    first: float
    now: float
    slope: float
    likely: float

    def grows(self, of_a_second: float) -> bool:
        """Return whether values grow significantly, by `of_a_second` in total and a twentieth of it per second."""
        growth = self.now - self.first
        needed = next(likely for share, likely in _LIKELY_ENOUGH if growth >= share * max(self.first, 0.0) or not share)
        is_enough = growth >= of_a_second and self.slope >= _LEAST_SLOPE * of_a_second / SECOND_MS
        return is_enough and self.likely >= needed

    def falls(self, of_a_second: float) -> bool:
        """Return whether values fall, by the criteria of `grows`."""
        return _Trend(self.now, self.first, -self.slope, -self.likely).grows(of_a_second)


def _trend(moments: Sequence[Moment], what: Callable[[Moment], int | None]) -> _Trend | None:
    """Return the trend of a value over moments; None if too few moments have it."""
    known = [(moment.time_ms, value) for moment in moments if (value := what(moment)) is not None]
    count = len(known)
    if count < _FEWEST_OF_GROWTH:
        return None
    times_ms, values = np.array(known, np.float64).T
    earlier, later = np.triu_indices(count, 1)
    changes = values[later] - values[earlier]
    slope = float(np.median(changes / np.maximum(times_ms[later] - times_ms[earlier], 1)))
    rises = float(np.sign(changes).sum())
    deviation = (count * (count - 1) * (2 * count + 5) / 18) ** 0.5
    middle, half_ms = float(np.median(values)), (times_ms[-1] - times_ms[0]) / 2
    likely = (rises - np.sign(rises)) / deviation
    return _Trend(middle - slope * half_ms, middle + slope * half_ms, slope, float(likely))
