"""What an audit is doing: what it has counted since it started, kept in memory for those who ask."""

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from buckets.audit.writer import WrittenMessages
from buckets.clock import epoch_ms
from buckets.monitor.query_news import BATCH_BOUNDS_S, NEWS_EVERY_S, Histogram, QueryNews, QueryWatch


class AuditStatus:
    """The counts of an audit, and what its query says of itself."""

    def __init__(self) -> None:
        """Begin without any batch."""
        self._query = QueryWatch(QueryNews)
        self._started_ms = epoch_ms()
        self._counts = Counter({"batches": 0, "repeats": 0, "unreadable": 0, "outages": 0})
        self._messages: Counter[str] = Counter()
        self._duration = Histogram(BATCH_BOUNDS_S)
        self._last_batch: dict[str, int] | None = None
        self._closing = threading.Event()

    @contextlib.contextmanager
    def asking(self, query: Callable[[], QueryNews]) -> Iterator[None]:
        """Ask a query every two seconds what Spark says of it, as long as the `with` lasts."""
        self._query = QueryWatch(query)
        thread = threading.Thread(target=self._run, name="audit status", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._closing.set()
            thread.join()

    def on_batch(self, batch_id: int, written: WrittenMessages, duration_s: float) -> None:
        """Count a batch."""
        self._messages.update(written.messages)
        self._counts.update(batches=1, repeats=written.repeats, unreadable=written.unreadable)
        self._duration.add([(duration_s, 1)])
        self._last_batch = {"batch_id": batch_id, "written_ms": epoch_ms()}

    def on_outage(self) -> None:
        """Count that Kafka did not answer and is tried again."""
        self._counts["outages"] += 1

    def _run(self) -> None:
        while not self._closing.wait(NEWS_EVERY_S):
            self._query.look()

    @property
    def latest(self) -> dict[str, Any]:
        """The status of now, as plain data."""
        news = self._query.news
        return {
            "written_ms": epoch_ms(),
            "started_ms": self._started_ms,
            "ended_ms": epoch_ms() if self._closing.is_set() else None,
            "idle_ms": self._query.idle_ms,
            "lag": news.lag,
            "query": news.to_json(),
            "messages": dict(self._messages),
            "duration": self._duration.to_json(),
            "last_batch": self._last_batch,
        } | self._counts
