"""Asks a query now and then how it is, and remembers when it last had nothing to do."""

import time
from collections.abc import Callable

from buckets.clock import epoch_ms
from buckets.monitor.query_news import QueryNews

NEWS_EVERY_S = 2.0


class QueryWatch:
    """What a query has said of itself.

    Attributes:
        news: what it said last.
        idle_ms: when its source last had nothing new, in ms since the epoch; None before.
    """

    def __init__(self, ask: Callable[[], QueryNews]) -> None:
        """Ask nothing yet."""
        self.news = QueryNews()
        self.idle_ms: int | None = None
        self._ask = ask
        self._until_s = 0.0

    def look(self) -> None:
        """Ask, unless that was a moment ago."""
        if time.monotonic() < self._until_s:
            return
        try:
            self.news = self._ask()
        except Exception:  # Whoever is asked may be away, for instance between two starts of a query.
            self.news = QueryNews()
        if self.news.is_idle:
            self.idle_ms = epoch_ms()
        self._until_s = time.monotonic() + NEWS_EVERY_S
