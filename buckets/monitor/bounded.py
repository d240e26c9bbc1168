"""Counts that stay small however long a job runs: counters with a bounded number of names, and histograms."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

OTHER = "other"
"""Under this name everything is counted for which there was no room."""


class BoundedCounts:
    """Counts by name and kind, for at most so many names: those that came first; all others are `OTHER`."""

    def __init__(self, most: int) -> None:
        """Begin with nothing; `most` is how many names there may be."""
        self._most = most
        self._counts: dict[str, dict[str, int]] = {}

    def add(self, name: str, counts: Mapping[str, int]) -> None:
        """Count something under a name."""
        is_known = name in self._counts or len(self._counts) < self._most
        under = self._counts.setdefault(name if is_known else OTHER, {})
        for kind, count in counts.items():
            under[kind] = under.get(kind, 0) + count

    def to_json(self) -> dict[str, dict[str, int]]:
        """Return the counts by name and kind."""
        return {name: dict(counts) for name, counts in self._counts.items()}


class Histogram:
    """How often values lay between bounds, and their sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """Begin with nothing; a value counts for the first bound that it does not exceed."""
        self._bounds = tuple(bounds)
        self._counts = [0.0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, values: Iterable[tuple[float, float]]) -> None:
        """Count values, each with how many it stands for."""
        for value, weight in values:
            self._counts[bisect_left(self._bounds, value)] += weight
            self._sum += value * weight

    def to_json(self) -> dict[str, Any]:
        """Return bounds, the count of each bound and of what lies beyond all, and the sum of the values."""
        return {"bounds": list(self._bounds), "counts": list(self._counts), "sum": self._sum}
