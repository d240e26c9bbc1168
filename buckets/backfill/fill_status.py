"""How far the backfills of a job are, by what its checkpoint says; nothing is taken from a job that runs."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from buckets.backfill.fill_chunks import CHUNK_ROWS, FillChunks
from buckets.checkpoint.backfill_requests import BackfillRequests
from buckets.checkpoint.batch_records import BatchRecords
from buckets.checkpoint.rule_versions import RuleVersions


@dataclass(frozen=True)
class FillStatus:
    """How far the history of a group is filled in.

    Attributes:
        rule_ids: the rules that it was asked for.
        group: the group, in words; None where the job has not begun.
        events: how many rows of the archive are in.
        of: how many there are; None while that is not known.
        chunk: how many chunks are in.
        chunks: about how many there are; None while that is not known.
        waiting: how many batches of arrivals wait, summed over the shards.
    """

    rule_ids: tuple[str, ...]
    group: str | None = None
    events: int = 0
    of: int | None = None
    chunk: int = 0
    chunks: int | None = None
    waiting: int = 0

    @property
    def words(self) -> str:
        """The same in a few words."""
        if self.group is None:
            return "history asked for, not begun"
        if self.of is None or self.chunks is None:
            return f"history of {self.group} begun, the archive is read"
        counted = f"{self.events:,} of {self.of:,} events, chunk {self.chunk:,} of {self.chunks:,}"
        return f"history of {self.group} is filled in: {counted}"

    def to_json(self) -> dict[str, Any]:
        """Return the same for programs."""
        return asdict(self)


def read_fills(checkpoint: Path) -> list[FillStatus]:
    """Return how far the backfills on a checkpoint are; empty where there is none."""
    rule_set, begun = RuleVersions(checkpoint).latest_rule_set(), list[FillStatus]()
    filled = BatchRecords(checkpoint).fills() if rule_set is not None and rule_set.fills else {}
    for fill in () if rule_set is None else rule_set.fills:
        assert rule_set is not None
        plan, so_far = FillChunks(checkpoint, fill.number).plan(), filled.get(fill.number)
        chunk, waiting = (0, 0) if so_far is None else (so_far.chunk, so_far.waiting)
        group = rule_set.filling[fill.number].name
        if plan is None:
            begun.append(FillStatus(fill.rule_ids, group, waiting=waiting))
        else:
            events = min(chunk * CHUNK_ROWS, plan.rows)
            chunks = max(plan.chunks, chunk)
            begun.append(FillStatus(fill.rule_ids, group, events, plan.rows, chunk, chunks, waiting))
    asked = [FillStatus((request.rule.rule_id,)) for request in BackfillRequests(checkpoint).read()]
    return begun + asked
