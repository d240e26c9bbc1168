"""Where the entries of a list come from while a job runs: a file, a table, or a topic."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from buckets.checkpoint.topic_position import TopicPosition
from buckets.lists.base import ListBase
from buckets.lists.entry import Entry


@dataclass
class ListRead:
    """What a feed has found since it was last asked.

    Attributes:
        whole: the whole list, of a feed that reads it so; None where nothing has changed.
        changes: of a feed that reads changes.
        faults: what could not be read, each in one line; the list stays as it is.
        position: how far a topic has been read; None for feeds without positions.
    """

    whole: ListBase | None = None
    changes: Mapping[str, Entry | None] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    position: TopicPosition | None = None


class ListFeed(Protocol):
    """Follows a list."""

    @property
    def origin(self) -> str:
        """What is followed, in words; a position counts for this origin only."""

    @property
    def fault(self) -> str | None:
        """Why the list cannot be followed at the moment, in one line; None while it is followed."""

    def start(self, position: TopicPosition | None) -> None:
        """Begin to follow, from the position up to which it has been read; None: from the beginning.

        Raises:
            BucketsError: the list cannot be read.
        """

    def read(self) -> ListRead:
        """What is new; the first time, the whole list or what has changed since the position.

        Raises:
            BucketsError: the list could not be followed for longer than the patience allows.
        """

    def stop(self) -> None:
        """Stop following."""
