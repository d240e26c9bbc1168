"""The reference algorithm on Spark: events in a map by time, and for each new event a scan of all of them.

    python bench/reference_algorithm.py literal|once DATA FIRST_ROWS SECONDS WORK
    python bench/reference_algorithm.py --check

The algorithm is that of the articles on custom window processing and dynamic rules: a `MapState` from time to the
events of that time; each event is put into it, every window of the event is computed by a loop over all entries, and
what is older than the longest window is removed. Here there is one window of an hour with five aggregates.

- `literal`: every event iterates over the map state itself.
- `once`: the map is read once for each key and micro-batch, into arrays; every event scans these, at numpy's speed.
  What is new and what is too old is written and removed after the last event of the micro-batch.

The first `FIRST_ROWS` events are stored, but no window of theirs is computed, so that windows are full when measuring
begins.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from peer import WINDOW_MS, Event, run, session, small_run, stream
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessor, StatefulProcessorHandle
from trial import LIMITS

RESULT = "ts long, key string, sum long, count long, avg double, min long, max long"
LARGEST = LIMITS["max"][1]
FEWER_CALLS = {"spark.sql.execution.arrow.transformWithStateInPySpark.maxStateRecordsPerBatch": 10_000}
"""More entries of a map state in a message than by default: fewer round trips for a scan."""


def result(event: Row, total: int, count: int, least: int, greatest: int) -> Row:
    """A row of `RESULT`."""
    mean = total / count
    return Row(ts=event.ts, key=event.key, sum=total, count=count, avg=mean, min=least, max=greatest)


class Scan(StatefulProcessor):
    """Evaluates the events of a key one by one, each by a scan of the map state."""

    def __init__(self, first_rows: int, alerts_only: bool) -> None:
        """Set up.

        Args:
            first_rows: so many events are stored only.
            alerts_only: whether only events come out whose maximum is above the limit.
        """
        self.first_rows = first_rows
        self.alerts_only = alerts_only

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the map state: time to the amounts of the events of that time."""
        self.kept: MapState = handle.getMapState("events", "time long", "amounts array<long>")

    def close(self) -> None:
        """There is nothing to close."""

    def put(self, time: int, amount: int) -> None:
        """Add an event to the set of its time."""
        there = self.kept.getValue((time,))
        self.kept.updateValue((time,), ([*there[0], amount] if there else [amount],))

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Store, scan, remove: event by event."""
        for event in sorted(rows, key=lambda row: row.off):
            self.put(event.ts, event.amount)
            if event.off < self.first_rows:
                continue
            edge, too_old = event.ts - WINDOW_MS, []
            total, count, least, greatest = 0, 0, event.amount, event.amount
            for (time,), (amounts,) in self.kept.iterator():
                if time < edge:
                    too_old.append(time)
                elif time <= event.ts:
                    for amount in amounts:
                        total += amount
                        count += 1
                        least = min(least, amount)
                        greatest = max(greatest, amount)
            for time in too_old:
                self.kept.removeKey((time,))
            if greatest > LARGEST or not self.alerts_only:
                yield result(event, total, count, least, greatest)


class ScanOnce(Scan):
    """The same with the map read once for a key and micro-batch."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Read, scan event by event, write."""
        events = sorted(rows, key=lambda row: row.off)
        stored = [(time, amount) for (time,), (amounts,) in self.kept.iterator() for amount in amounts]
        before = len(stored)
        stored += [(event.ts, event.amount) for event in events]
        times, amounts = np.array(stored, np.int64).T.copy()
        for end, event in enumerate(events, start=before + 1):
            if event.off < self.first_rows:
                continue
            arrived = times[:end]
            inside = amounts[:end][(arrived >= event.ts - WINDOW_MS) & (arrived <= event.ts)]
            total, count, greatest = int(inside.sum()), len(inside), int(inside.max())
            if greatest > LARGEST or not self.alerts_only:
                yield result(event, total, count, int(inside.min()), greatest)
        edge = int(times.max()) - WINDOW_MS
        changed: dict[int, list[int]] = {event.ts: [] for event in events if event.ts >= edge}
        for time, amount in stored:
            if time in changed:
                changed[time].append(amount)
        for time, amounts_at in changed.items():
            self.kept.updateValue((time,), (amounts_at,))
        for time in set(times[:before][times[:before] < edge].tolist()):
            self.kept.removeKey((time,))


def evaluated(frame: DataFrame, processor: Scan) -> DataFrame:
    """The query."""
    return frame.groupBy("key").transformWithState(processor, RESULT, "update", "none")


def expected(events: list[Event]) -> set[tuple]:
    """What comes out for all events, by a plain loop over all that arrived no later."""
    found = set()
    for index, (ts, key, _) in enumerate(events):
        inside = [a for t, k, a in events[: index + 1] if k == key and ts - WINDOW_MS <= t <= ts]
        found.add((ts, key, sum(inside), len(inside), sum(inside) / len(inside), min(inside), max(inside)))
    return found


def check() -> None:
    """Compare both ways with a plain loop."""
    for processor in (Scan(0, False), ScanOnce(0, False)):
        events, rows = small_run("check", lambda frame, each=processor: evaluated(frame, each))
        assert len(rows) == len(events), f"{type(processor).__name__}: {len(rows)} results for {len(events)} events"
        assert {tuple(row) for row in rows} == expected(events), f"{type(processor).__name__} is wrong"
        print(f"{type(processor).__name__}: {len(rows)} results as by a plain loop")


def main() -> None:
    """Check, or run and print what was measured."""
    if sys.argv[1:] == ["--check"]:
        check()
        return
    way, data, first_rows, seconds, work = sys.argv[1:]
    processor = {"literal": Scan, "once": ScanOnce}[way](int(first_rows), alerts_only=True)
    run(evaluated(stream(session("reference", FEWER_CALLS), Path(data)), processor), Path(work), float(seconds))


if __name__ == "__main__":
    main()
