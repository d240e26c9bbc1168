"""What a job tells of the times of its events: once, when it first has it; the counts go on in its metrics."""

from collections.abc import Callable

from buckets.engine.stages.accounting import BatchAccount
from buckets.events.schema import EventTime
from buckets.events.times_seen import clock_lines, misfit, wrong_unit


class TimeNotes:
    """Tells of times in another unit than the declared in the first batch, and of clocks that are not clear."""

    def __init__(self, declared: EventTime, say: Callable[[str], None]) -> None:
        """Tell nothing yet.

        Args:
            declared: the time of the event schema, as its file has it.
            say: told a line.
        """
        self._declared, self._say = declared, say
        self._is_checked, self._told = False, set[str]()

    def take(self, account: BatchAccount) -> None:
        """Look at a batch, before it is written."""
        counts = account.facts.times
        if not self._is_checked and counts:
            self._is_checked = True
            span = (account.arrived[0].first_ms, account.arrived[-1].last_ms) if account.arrived else None
            fault = misfit(counts, self._declared) or (wrong_unit(counts, *span, self._declared) if span else None)
            if fault is not None:
                self._say(f"batch {account.batch_id}: {fault}")
        for kind, line in clock_lines(counts, self._declared):
            if kind not in self._told:
                self._told.add(kind)
                self._say(f"batch {account.batch_id}: {line}")
