"""Counts rows that are not events, or that some rule cannot evaluate: how many per reason, and where the first is.

Every reader of events reports such rows in the form of `BadRows.text`:

    23 of 50,128 rows are not events: 20 of "is not valid UTF-8", first at day.csv:17; 3 of "amount: 'a' is not a
    decimal number", first at day.csv:99
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from buckets.errors import BucketsError
from buckets.printable import counted, one_line, quoted

_MOST_SHOWN = 5
_MOST_KINDS = 1000
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*(?:'|$)|"(?:[^"\\]|\\.)*(?:"|$)""")
_NUMBER = re.compile(r"\d+")
_BEFORE_VERB = re.compile(r"^(.*?: )?.*?\b(?=(?:is|has|holds|lies)\b)")


@dataclass
class BadReason:
    """Rows that are bad for one reason."""

    reason: str  # of the first of them, with the value that it names
    rows: int  # how many there are
    source: str  # where the first is: its file or topic
    position: int  # its line, row or offset there

    @property
    def text(self) -> str:
        """The reason, how often, and where it is first, in words."""
        return one_line(f'{self.rows:,} of "{self.reason}", first at {self.source}:{self.position}')


@dataclass
class BadRows:
    """Counts bad rows."""

    rows: int = 0  # how many rows there are, good and bad
    unread: int = 0  # how many of them are not events
    bad: int = 0  # how many are bad, including those that only some rule cannot evaluate
    rounded: Counter[str] = field(default_factory=Counter)  # by measure, how many values of good ones were rounded
    _kinds: dict[str, BadReason] = field(default_factory=dict)

    def take(self, rows: int, unread: int, bad: Iterable[tuple[str, int, str]]) -> None:
        """Count rows, those that are not events, and bad ones: source, position and reason of each, in order."""
        self.rows += rows
        self.unread += unread
        for source, position, reason in bad:
            self.bad += 1
            kind = _kind(reason) if len(self._kinds) < _MOST_KINDS else ""
            self._kinds.setdefault(kind, BadReason(reason, 0, source, position)).rows += 1

    @property
    def reasons(self) -> list[BadReason]:
        """The reasons, the most frequent first."""
        return sorted(self._kinds.values(), key=lambda reason: -reason.rows)

    @property
    def text(self) -> str:
        """How many rows are bad, and why, in one sentence."""
        verb = "is not an event" if self.bad == 1 else "are not events"
        verb += "" if self.bad == self.unread else ", or cannot be evaluated by some rule"
        shown = [reason.text for reason in self.reasons[:_MOST_SHOWN]]
        more = len(self._kinds) - len(shown)
        shown += [f"and {more:,} more reasons"] if more else []
        return f"{self.bad:,} of {self.rows:,} rows {verb}: {'; '.join(shown)}"

    @property
    def lines(self) -> Iterator[str]:
        """Report the bad rows with their reasons, and the number of rounded values, as lines of text."""
        if self.bad:
            yield self.text
        if self.rounded:
            measures = ", ".join(f"{count:,} of {quoted(name)}" for name, count in self.rounded.items())
            values = counted(self.rounded.total(), "value")
            yield f"{values} rounded half-even to the scale of the measure: {measures}"

    def as_json(self) -> list[dict[str, Any]]:
        """Return the reasons as values for JSON."""
        return [vars(reason) for reason in self.reasons]

    def check(self, origin: str) -> None:
        """Refuse a source if less than half of its rows are events: figures from the rest would be meaningless."""
        if 2 * self.unread > self.rows:
            message = f"{origin}: less than half can be read: {self.text}; correct the rows or the event schema"
            raise BucketsError(message)


def bad_source(path: object, reason: str) -> BucketsError:
    """Return an error about a source of events as a whole."""
    return BucketsError(f"events {path}: {reason}")


def _kind(reason: str) -> str:
    """Return a reason without the value that it quotes: `amount: is not text` for `amount: 'x' is not text`."""
    return _NUMBER.sub("0", _BEFORE_VERB.sub(r"\1", _QUOTED.sub("", reason), count=1))
