"""A fill: the history of a group, on its way from the archive into timelines of its own while the job runs.

The group is evaluated over the timelines that it has, and they stay as they are. Beside them lie those that are being
filled, under an identity of their own. When they are whole, the group goes over to them.
"""

import hashlib
from dataclasses import dataclass
from typing import Any, NamedTuple

from buckets.rules.completeness import Completeness, Since


@dataclass(frozen=True)
class Fill:
    """A group that is being filled.

    Attributes:
        number: of the fill; no two of a job have the same.
        group_id: the group.
        rule_ids: the rules that it was asked for.
        first_batch: the archive is read up to the batch before; what arrives from it on waits in the state.
        complete: since when the timelines will be complete; None: since the first event.
    """

    number: int
    group_id: str
    rule_ids: tuple[str, ...]
    first_batch: int
    complete: Completeness | None = None

    @property
    def timelines(self) -> str:
        """Under which identity its timelines lie in the state: 16 hex digits."""
        return self._identity("timelines")

    @property
    def waiting(self) -> str:
        """Under which identity arrivals lie in the state that wait until the archive has been read: 16 hex digits."""
        return self._identity("waiting")

    def _identity(self, what: str) -> str:
        return fill_identity(self.group_id, self.number, what)

    def to_record(self) -> list[Any]:
        """Return the fill as JSON."""
        complete = None if self.complete is None else [list(since) for since in self.complete]
        return [self.number, self.group_id, list(self.rule_ids), self.first_batch, complete]

    @classmethod
    def of_record(cls, record: list[Any]) -> "Fill":
        """Read what `to_record` wrote."""
        number, group_id, rule_ids, first_batch, complete = record
        steps = None if complete is None else tuple(Since(*step) for step in complete)
        return cls(number, group_id, tuple(rule_ids), first_batch, steps)


class Filled(NamedTuple):
    """How far a fill had come with a batch.

    Attributes:
        chunk: the next chunk of history of the shard that is least far.
        waiting: how many batches of arrivals waited, summed over the shards.
        done: whether all shards had caught up.
    """

    chunk: int
    waiting: int
    done: bool


class Piece(NamedTuple):
    """Some history of a group in a shard.

    Attributes:
        packed: the events as `fan_out` packs them; None where the shard has none.
        rows: how many rows of the archive it stands for, in all shards.
        lists: as JSON, by name the versions of the lists that its events have seen.
    """

    packed: bytes | None
    rows: int
    lists: str


def fill_identity(group_id: str, number: int, what: str) -> str:
    """Return an identity that belongs to one fill of a group alone."""
    return hashlib.blake2b(f"{group_id}/{number}/{what}".encode(), digest_size=8).hexdigest()
