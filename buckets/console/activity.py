"""What a console does itself: requests and their times, open streams, and the last hour of the job."""

import threading
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from buckets.clock import epoch_ms
from buckets.errors import BucketsError
from buckets.monitor.live import read_live
from buckets.monitor.pace import LiveSample, recorded_hour, sample_of
from buckets.monitor.query_news import Histogram

EVERY_S = 1.0
_KEPT = 3600


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
            if live is None:
                continue
            if not self._samples:
                self._samples.extend(recorded_hour(live.data))
            now_ms = epoch_ms()
            if live.state(now_ms) == "running":
                sample = sample_of(live.data["minute"], live.data["lag"], now_ms)
                if not self._samples or sample.time_s > self._samples[-1].time_s:
                    self._samples.append(sample)


_BOUNDS_S: Final = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


class Activity:
    """Counts, from the start on; threads may count at the same time."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._started_ms = epoch_ms()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: dict[str, Histogram] = {}
        self._streams: Counter[str] = Counter()
        self._lock = threading.Lock()

    def note(self, page: str, code: int, seconds: float) -> None:
        """Count a request of a page, with the status of its answer and how long that took, in s."""
        with self._lock:
            self._requests[page, code] += 1
            self._seconds.setdefault(page, Histogram(_BOUNDS_S)).add([(seconds, 1)])

    @contextmanager
    def streaming(self, person: str) -> Iterator[None]:
        """Count a stream of a person while it is open."""
        self._add_stream(person, 1)
        try:
            yield
        finally:
            self._add_stream(person, -1)

    def _add_stream(self, person: str, number: int) -> None:
        with self._lock:
            self._streams[person] += number
            if not self._streams[person]:
                del self._streams[person]

    def streams(self, person: str) -> tuple[int, int]:
        """Return how many streams are open, and how many of them are a person's."""
        with self._lock:
            return self._streams.total(), self._streams[person]

    def status(self) -> dict[str, Any]:
        """Return all counts, as metrics read them."""
        with self._lock:
            return {
                "started_ms": self._started_ms,
                "requests": dict(self._requests),
                "seconds": {page: counted.to_json() for page, counted in self._seconds.items()},
                "streams": self._streams.total(),
            }
