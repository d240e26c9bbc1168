"""The last hour of a job, as its status has told it while the console ran: a sample a second, in memory."""

import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from buckets.clock import epoch_ms
from buckets.errors import BucketsError
from buckets.monitor.live import read_live

EVERY_S = 1.0
_KEPT = 3600


class LiveSample(NamedTuple):
    """What a job did at a moment; None of what it does not say."""

    time_s: int
    events_per_s: float
    alerts_per_s: float
    delay_p50_ms: int | None
    delay_p99_ms: int | None
    batch_ms: int | None
    lag: int | None


class Sampler:
    """Takes a sample each second; closing ends it."""

    def __init__(self, checkpoint: Path, every_s: float = EVERY_S) -> None:
        """Look at the status of a checkpoint's job; nothing is taken from the job."""
        self._checkpoint, self._every_s = checkpoint, every_s
        self._samples: deque[LiveSample] = deque(maxlen=_KEPT)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="samples of the job", daemon=True)

    def start(self) -> None:
        """Begin to take samples."""
        self._thread.start()

    def close(self) -> None:
        """Take no more."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()

    def since(self, time_s: int = 0) -> list[LiveSample]:
        """Return the samples later than a second, oldest first."""
        return [sample for sample in tuple(self._samples) if sample.time_s > time_s]

    def _run(self) -> None:
        while not self._closing.wait(self._every_s):
            try:
                live = read_live(self._checkpoint)
            except BucketsError:  # pages say it
                continue
            now_ms = epoch_ms()
            if live is not None and live.state(now_ms) == "running":
                sample = sample_of(live.data, now_ms)
                if not self._samples or sample.time_s > self._samples[-1].time_s:
                    self._samples.append(sample)


def sample_of(data: dict[str, Any], now_ms: int) -> LiveSample:
    """Return what a status says of its last minute."""
    minute = data["minute"]
    delay, batch = minute["latency_ms"] or {}, minute["batch_ms"] or {}
    return LiveSample(
        time_s=now_ms // 1000,
        events_per_s=minute["events_per_s"],
        alerts_per_s=round(minute["alerts"] / minute["span_s"], 3),
        delay_p50_ms=delay.get("p50"),
        delay_p99_ms=delay.get("p99"),
        batch_ms=batch.get("p50"),
        lag=data["lag"],
    )


def as_columns(samples: Sequence[LiveSample]) -> dict[str, list[Any]]:
    """Return samples by column, as charts take them."""
    columns = zip(*samples, strict=True) if samples else [[] for _ in LiveSample._fields]
    return {name: list(column) for name, column in zip(LiveSample._fields, columns, strict=True)}
