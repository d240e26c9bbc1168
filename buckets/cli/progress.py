"""The progress of a command: a line that is renewed on a terminal, and elsewhere a plain line now and then."""

import time
from collections import Counter
from collections.abc import Sequence
from typing import Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.status import Status

from buckets.cli.console import Terminal
from buckets.engine.stages.accounting import BatchAccount
from buckets.errors import Outage
from buckets.rules.revision import Refusal

STARTING = "Starting Spark…"
LINE_EVERY_S = 10.0  # How often progress is a line of its own in a file or a journal


class StatusLine:
    """A status line that is renewed in place on a terminal, between lines that stay; a context manager."""

    def __init__(self, console: Terminal, beginning: str = STARTING) -> None:
        """Show progress on a console; until the first batch is scored, a beginning."""
        self._console = console
        self._status = Status(beginning, console=console)
        self._shown_s = -LINE_EVERY_S
        self.facts: dict[str, int] = {}

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()

    def say(self, line: str) -> None:
        """Print a line that stays."""
        self._console.tell(line, facts=self.facts)

    def warn(self, line: str) -> None:
        """Print a line that stays, of something that somebody may have to do something about."""
        self._console.tell(line, "warning", self.facts)

    def show(self, line: str) -> None:
        """Show how far it is; what is not a terminal gets the first line, and then one every ten seconds."""
        if self._console.is_terminal:
            self._status.update(line)
        elif time.monotonic() - self._shown_s >= LINE_EVERY_S:
            self._shown_s = time.monotonic()
            self.say(line)

    def on_phase(self, line: str) -> None:
        """Show what is done next."""
        if self._console.is_terminal:
            self._status.update(f"{line}…")
        else:
            self.say(line)

    def on_interrupt(self) -> None:
        """Say that a query ends after this batch."""
        self.say("stopping after the batch that is running…")

    def on_outage(self, outage: Outage) -> None:
        """Say that Kafka or a store does not answer."""
        self.warn(f"{outage.message}; trying again")


class BatchProgress(StatusLine):
    """The progress of a query: its batch, events and alerts so far, events a second."""

    def __init__(self, console: Terminal, beginning: str = STARTING) -> None:
        super().__init__(console, beginning)
        self.events = 0
        self.malformed = 0
        self.rounded = Counter[str]()
        self.alerts = 0
        self.busy_s = 0.0

    def on_batch(self, account: BatchAccount, duration_s: float) -> None:
        """Take a batch into account by its accounts, and how long it took."""
        self.events += account.events_in
        self.malformed += account.malformed
        self.rounded.update(account.facts.rounded)
        self.alerts += sum(group.alerts for group in account.groups)
        self.busy_s += duration_s
        self.facts = {"batch": account.batch_id, "ruleset_version": account.ruleset_version}
        self.show(
            f"batch {account.batch_id}: {self.events:,} events, {self.alerts:,} alerts, "
            f"{account.events_in / duration_s:,.0f} events/s"
        )

    def on_refused(self, refusals: Sequence[Refusal]) -> None:
        """Say which changes of the rules are not made."""
        for refusal in refusals:
            self.warn(f"a change of the rules is not made ({refusal.origin}): {refusal.reason}")


def progress_bar(console: Terminal) -> Progress:
    """Return a bar for work whose size is known; what is not a terminal gets none."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal)
