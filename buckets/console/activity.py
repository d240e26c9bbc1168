"""What a console does: requests with how long they took, streams that are open."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from buckets.clock import epoch_ms
from buckets.monitor.bounded import Histogram

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
