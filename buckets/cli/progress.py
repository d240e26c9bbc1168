"""The progress of a query on the terminal: its batch, events and alerts so far, events a second."""

import time
from types import TracebackType
from typing import TYPE_CHECKING

from rich.status import Status

from buckets.cli.console import Terminal
from buckets.engine.stages.accounting import BatchAccount

if TYPE_CHECKING:
    from buckets.spark.query import BatchReport


LINE_EVERY_S = 10.0
"""How often progress is a line of its own in a file or a journal."""


class ProgressLine:
    """A line of progress: renewed in place on a terminal; elsewhere the first one, and then one every ten seconds."""

    def __init__(self, console: Terminal, status: Status) -> None:
        """Show it on a console.

        Args:
            console: the console.
            status: what is renewed on a terminal.
        """
        self._console = console
        self._status = status
        self._said_s = -LINE_EVERY_S

    def show(self, line: str) -> None:
        """Show how far it is."""
        if self._console.is_terminal:
            self._status.update(line)
        elif time.monotonic() - self._said_s >= LINE_EVERY_S:
            self._said_s = time.monotonic()
            self._console.say(line)


class BatchProgress:
    """A status line that each batch refreshes; if the output is not a terminal, a plain line now and then."""

    def __init__(self, console: Terminal, beginning: str = "Starting Spark…") -> None:
        """Show progress on a console.

        Args:
            console: the console.
            beginning: what is shown until the first batch is scored.
        """
        self._console = console
        self._status = Status(beginning, console=console)
        self._line = ProgressLine(console, self._status)
        self.events = 0
        self.malformed = 0
        self.alerts = 0
        self.busy_s = 0.0

    def __enter__(self) -> "BatchProgress":
        """Begin to show."""
        self._started_s = time.perf_counter()
        if self._console.is_terminal:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop showing."""
        self._status.stop()

    def on_phase(self, line: str) -> None:
        """Show what the query does before its first batch."""
        if self._console.is_terminal:
            self._status.update(f"{line}…")
        else:
            self._console.say(line)

    def on_interrupt(self) -> None:
        """Say that the query ends after this batch."""
        self._console.print("stopping after the batch that is running…")

    def on_batch(self, report: "BatchReport") -> None:
        """Take a finished batch into account."""
        self.on_scored(report.account, report.duration_s)

    def on_scored(self, account: BatchAccount, duration_s: float) -> None:
        """Take a batch into account by its accounts, and how long it took."""
        self.events += account.events_in
        self.malformed += account.malformed
        self.alerts += sum(group.alerts for group in account.groups)
        self.busy_s += duration_s
        self._line.show(
            f"batch {account.batch_id}: {self.events:,} events, {self.alerts:,} alerts, "
            f"{account.events_in / duration_s:,.0f} events/s"
        )
