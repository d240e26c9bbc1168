"""Whether a job keeps up with what comes: told by how its delay and its lag change, not by how large they are.

A slow job and one that cannot keep up look alike at a moment: results are seconds late in both. Over time they do not:
the delay of a slow one stays, and that of one that gets less done than comes grows without end. If it gets `done` of
`come` events a second, each second adds `1 - done / come` seconds to the delay, and `come - done` messages to the lag.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median, quantiles
from typing import Any, Literal, NamedTuple

import numpy as np

from buckets.duration import MINUTE_MS, SECOND_MS
from buckets.monitor.last_minute import DoneBatch, weighted_quantiles

State = Literal["unknown", "keeps up", "slow", "falls behind", "catches up"]
SLOW_MS = 5_000
"""From which delay on a job that keeps up is called slow."""
_WINDOW_MS, _FEWEST_OF_WINDOW, _MOST = 5 * MINUTE_MS, 12, 300
_FEWEST, _SHORTEST_MS = 8, 20 * SECOND_MS
"""With fewer moments, or over less time, nothing is said."""
_LEAST_SLOPE = 0.05
"""Of the events that come so many are not done at least, where a job falls behind."""
_BUSY = 0.7
"""A job that has nothing to do for more than the rest of its time could do more, so it is not behind."""
_BACKLOG_S = 60
"""A lag of so many seconds of work that does not get less is one that the job does not work off."""


class Moment(NamedTuple):
    """About a second of a job, or a longer batch: its events, how long batches took, how late and how far behind."""

    time_ms: int
    events: int
    batches: int
    busy_ms: int
    delay_ms: int | None
    lag: int | None


@dataclass(frozen=True)
class Pace:
    """How a job keeps up with what comes.

    Attributes:
        state: `slow` keeps up too, with a delay of `SLOW_MS` or more that stays.
        delay_ms: how late results are now; None where the source does not say when events came.
        batch_ms: how long a batch takes.
        busy: the share of the time in which a batch was at work.
        done_per_s: events that are done a second.
        come_per_s: those that come; None where that does not follow.
    """

    state: State = "unknown"
    delay_ms: int | None = None
    batch_ms: int = 0
    busy: float = 0.0
    done_per_s: float = 0.0
    come_per_s: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the same as plain data."""
        return asdict(self)


class RecentMoments:
    """The latest moments of a job, of five minutes or of its last batches where these take longer."""

    def __init__(self) -> None:
        """Begin without any."""
        self._moments: deque[Moment] = deque(maxlen=_MOST)

    def add(self, batch: DoneBatch, lag: int | None) -> None:
        """Take a batch into account, with the lag after it; batches of one second are one moment."""
        samples = batch.account.ingested
        delay_ms = None
        if samples:
            late_ms = batch.written_ms - np.array([came_ms for came_ms, _ in samples], np.int64)
            (delay_ms,) = weighted_quantiles(late_ms, np.array([weight for _, weight in samples], np.float64), [0.5])
        moment = Moment(batch.written_ms, batch.account.events_in, 1, round(batch.duration_s * 1000), delay_ms, lag)
        before = self._moments[-1] if self._moments else None
        if before is not None and before.time_ms // SECOND_MS == moment.time_ms // SECOND_MS:
            self._moments[-1] = moment._replace(
                events=before.events + moment.events,
                batches=before.batches + 1,
                busy_ms=before.busy_ms + moment.busy_ms,
                delay_ms=before.delay_ms if delay_ms is None else delay_ms,
            )
        else:
            self._moments.append(moment)

    def latest(self) -> list[Moment]:
        """Return those by which the pace is told, oldest first."""
        moments = list(self._moments)
        from_ms = moments[-1].time_ms - _WINDOW_MS if moments else 0
        in_window = sum(moment.time_ms >= from_ms for moment in moments)
        return moments[-max(in_window, _FEWEST_OF_WINDOW) :]


def pace_of(moments: Sequence[Moment]) -> Pace:
    """Return how a job keeps up.

    Args:
        moments: the latest, oldest first.
    """
    span_ms = moments[-1].time_ms - moments[0].time_ms if moments else 0
    if len(moments) < _FEWEST or span_ms < _SHORTEST_MS:
        return Pace()
    since = moments[1:]
    busy = min(sum(moment.busy_ms for moment in since) / span_ms, 1.0)
    done_per_s = sum(moment.events for moment in since) / span_ms * 1000
    batch_ms = round(sum(moment.busy_ms for moment in since) / sum(moment.batches for moment in since))
    delay, lag = (_trend(moments, what) for what in (lambda at: at.delay_ms, lambda at: at.lag))
    come_per_s: float | None = None
    state: State = "keeps up"
    if lag is not None and lag.shrinks(done_per_s):
        state, come_per_s = "catches up", max(done_per_s + lag.slope * 1000, 0.0)
    elif busy >= _BUSY and lag is not None and (lag.grows(done_per_s) or lag.now > _BACKLOG_S * done_per_s > 0):
        state, come_per_s = "falls behind", done_per_s + max(lag.slope, 0.0) * 1000
    elif busy >= _BUSY and delay is not None and delay.grows(SECOND_MS):
        state, come_per_s = "falls behind", done_per_s / (1 - delay.slope) if delay.slope < 1 else None
    elif delay is not None and delay.now >= SLOW_MS:
        state = "catches up" if delay.shrinks(SECOND_MS) else "slow"
    elif delay is None and lag is None:
        state = "unknown"
    return Pace(state, None if delay is None else round(delay.now), batch_ms, busy, done_per_s, come_per_s)


class _Trend(NamedTuple):
    """The first, the second and the last third of some values, and the change of their medians per ms."""

    first: list[int]
    second: list[int]
    last: list[int]
    slope: float

    @property
    def now(self) -> float:
        return median(self.last)

    def grows(self, of_a_second: float) -> bool:
        """Return whether they grow from third to third, by more than they scatter, and faster than by chance.

        Args:
            of_a_second: what is a second of them; they have to grow by one in all, and by a twentieth in each second.
        """
        first, second, last = (quantiles(part, n=4, method="inclusive") for part in self[:3])
        steady = median(self.first) < second[1] < self.now and first[2] < last[0]
        return (
            steady and self.now - median(self.first) >= of_a_second and self.slope >= _LEAST_SLOPE * of_a_second / 1000
        )

    def shrinks(self, of_a_second: float) -> bool:
        """Return whether they get less, as `grows`."""
        return _Trend(self.last, self.second, self.first, -self.slope).grows(of_a_second)


def _trend(moments: Sequence[Moment], what: Callable[[Moment], int | None]) -> _Trend | None:
    """Return how a value changes over moments; None where too few of them have it."""
    known = [(moment.time_ms, value) for moment in moments if (value := what(moment)) is not None]
    if len(known) < _FEWEST:
        return None
    third = len(known) // 3
    parts = known[:third], known[third:-third], known[-third:]
    first, second, last = ([value for _, value in part] for part in parts)
    apart_ms = median(time_ms for time_ms, _ in parts[2]) - median(time_ms for time_ms, _ in parts[0])
    return _Trend(first, second, last, (median(last) - median(first)) / max(apart_ms, 1))
