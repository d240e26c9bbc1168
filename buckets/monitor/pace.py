"""Whether a job keeps up with what comes: from how its delay and its lag change, not from how large they are.

A slow job and one that cannot keep up look alike at a moment: results are seconds late in both. Over time they do not:
the delay of a slow one stays, and that of one that gets less done than comes grows without end. If it gets `done` of
`come` events a second, each second adds `1 - done / come` seconds to the delay, and `come - done` messages to the lag.
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
    """Return for each share, 0 to 1, the least value such that values up to it have at least that share of all weight.

    There is at least one value, and each stands for a number above 0, its weight. Complexity: O(n log n).
    """
    order = np.argsort(values)
    up_to = np.cumsum(weights[order])
    # The sum itself is rounded: a share that is met but for that is met.
    wanted = np.asarray(shares) * up_to[-1] * (1 - 1e-12)
    return [int(value) for value in values[order][np.searchsorted(up_to, wanted)]]


@dataclass(frozen=True)
class BatchReport:
    """A batch that is done."""

    account: BatchAccount  # its accounts
    scored_s: float  # how long it took from its rules to its results
    written_s: float  # how long the sink took
    # its alerts, without those of a shard and group that are more than `scored_batch.SMALL_BYTES`
    alerts: tuple[pa.Table, ...]
    written_ms: int  # when its results had been written, in ms since the epoch

    @property
    def duration_s(self) -> float:
        """How long the batch took."""
        return self.scored_s + self.written_s

    def latencies_ms(self) -> tuple[Int64s, Float64s]:
        """Return how late samples of its events were written, in ms, and for how many events each stands."""
        samples = self.account.ingested
        came_ms = np.array([came_ms for came_ms, _ in samples], np.int64)
        return self.written_ms - came_ms, np.array([weight for _, weight in samples], np.float64)


class _Written(NamedTuple):
    """What the last minute keeps of a batch: no more than it counts, as the garbage collector looks at all of it."""

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
        """Take a batch into account; they come in the order in which they were written."""
        if self._began_ms is None:
            self._began_ms = batch.written_ms - round(batch.duration_s * 1000)
        alerts = sum(group.alerts for group in batch.account.groups)
        kept = (batch.written_ms, batch.duration_s, batch.account.events_in, alerts, *batch.latencies_ms())
        self._batches.append(_Written(*kept))

    def summary(self, now_ms: int) -> dict[str, Any]:
        """Return the minute that ends now, as plain data, and forget what is older.

        Rates are taken over the minute, or over the time since the first batch began where that is shorter.
        """
        batches = self._batches
        while batches and batches[0].written_ms <= now_ms - MINUTE_MS:
            batches.popleft()
        span_s = min(MINUTE_MS, max(now_ms - (self._began_ms or now_ms), 1)) / 1000
        events = sum(batch.events for batch in batches)
        by_second = [0] * math.ceil(span_s)  # The oldest first
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
    """Return what a status has kept of its last hour, oldest first."""
    return [LiveSample(*sample) for sample in status.get("hour", ())]


def as_columns(samples: Sequence[LiveSample]) -> dict[str, list[Any]]:
    """Return samples by column, as charts take them."""
    columns = zip(*samples, strict=True) if samples else [[] for _ in LiveSample._fields]
    return {name: list(column) for name, column in zip(LiveSample._fields, columns, strict=True)}


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


State = Literal["unknown", "keeps up", "slow", "falls behind", "catches up"]
SLOW_MS = 5_000  # From which delay on a job that keeps up is called slow
_MOMENT_MS, _MOST = 3 * SECOND_MS, 100
"""Batches are put together to moments of so long, and so many of them are kept: five minutes, or more batches."""
_FEWEST_OF_GROWTH, _FEWEST, _SHORTEST_MS = 3, 8, 20 * SECOND_MS
"""With fewer moments, or over less time, nothing is said: what grows is seen sooner than what stays."""
_LIKELY_ENOUGH = ((1.0, 1.0), (0.5, 1.65), (0.0, 3.0))
"""How much a trend adds to where it begins, and how likely it must be then, in standard deviations of chance:
three values that double are enough, and many that grow little."""
_LEAST_SLOPE = 0.05  # Where a job falls behind, a twentieth of what comes is not done at least
_BUSY = 0.7  # A job that has nothing to do for more than the rest of its time could do more, so it is not behind
_BACKLOG_S = 60  # A lag of so many seconds of work that does not get less is one that the job does not work off


class Moment(NamedTuple):
    """A few seconds of a job, or a longer batch: its events, how long batches took, how late and how far behind."""

    time_ms: int
    events: int
    batches: int
    busy_ms: int
    delay_ms: int | None
    lag: int | None


@dataclass(frozen=True)
class Pace:
    """How a job keeps up with what comes."""

    state: State = "unknown"  # `slow` keeps up too, with a delay of `SLOW_MS` or more that stays
    delay_ms: int | None = None  # how late results are now; None where the source does not say when events came
    batch_ms: int = 0  # how long a batch takes
    busy: float = 0.0  # the share of the time in which a batch was at work
    done_per_s: float = 0.0  # events that are done a second
    come_per_s: float | None = None  # those that come; None where that does not follow


class RecentMoments:
    """The latest moments of a job."""

    def __init__(self) -> None:
        self._moments: deque[Moment] = deque(maxlen=_MOST)

    def add(self, batch: BatchReport, lag: int | None) -> None:
        """Take a batch into account, with the lag after it; batches of a few seconds are one moment."""
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
        """Return them, oldest first."""
        return list(self._moments)


def pace_of(moments: Sequence[Moment]) -> Pace:
    """Return how a job keeps up.

    Only while one batch follows the other can a job fall behind, so the trend is looked for since it last had nothing
    to do, without the batch with which that ended, whose delay was still to come.
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
    """Return the index of the moment since which one batch follows the other; one past the end if none does."""
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

    `first` and `now` are about where they begin and end; `slope` is per ms, the median of those of all pairs (Theil and
    Sen); `likely` says how unlikely chance makes it, in standard deviations (Mann and Kendall).
    """

    first: float
    now: float
    slope: float
    likely: float

    def grows(self, of_a_second: float) -> bool:
        """Return whether they grow, not by chance, by `of_a_second` in all and by a twentieth of it in each second."""
        growth = self.now - self.first
        needed = next(likely for share, likely in _LIKELY_ENOUGH if growth >= share * max(self.first, 0.0) or not share)
        is_enough = growth >= of_a_second and self.slope >= _LEAST_SLOPE * of_a_second / SECOND_MS
        return is_enough and self.likely >= needed

    def falls(self, of_a_second: float) -> bool:
        """Return whether they get less, as `grows`."""
        return _Trend(self.now, self.first, -self.slope, -self.likely).grows(of_a_second)


def _trend(moments: Sequence[Moment], what: Callable[[Moment], int | None]) -> _Trend | None:
    """Return how a value changes over moments; None where too few of them have it."""
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
