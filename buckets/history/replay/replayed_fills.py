"""The fills of a job whose archive is scored again: each takes its history in the batch with which it began.

What a fill has taken in when makes no difference to any result, so that a replay does at once what the job has done bit
by bit.
"""

import json
from collections.abc import Callable
from pathlib import Path

from buckets.archive.history import History
from buckets.backfill.fill_builder import chunks_of_fill, rows_of_fill
from buckets.backfill.fill_chunks import ChunkFeed, FillChunks
from buckets.checkpoint.cuts import Cut
from buckets.engine.stages.filling import FillSources
from buckets.rules.fill import Fill
from buckets.rules.rule_set import RuleSet

EVERYTHING = 2**62


class ReplayedFills:
    """The history of a job's fills, made once more."""

    def __init__(self, history: History, folder: Path) -> None:
        """Make nothing yet; chunks lie meanwhile in a folder that is empty, and not the job's checkpoint."""
        self._history, self._folder = history, folder

    def sources_of(self, rule_set: RuleSet, cut: Cut) -> Callable[[int], FillSources]:
        """Return what a batch takes of each of its fills, by shard."""
        ready = {fill.number: self._chunks(fill) for fill in rule_set.fills}
        lists, checkpoint = json.dumps(dict(cut.lists), sort_keys=True), self._history.job.checkpoint
        return lambda shard: {
            number: ChunkFeed(chunks, checkpoint, shard, total, total, EVERYTHING, lists)
            for number, (chunks, total) in ready.items()
        }

    def _chunks(self, fill: Fill) -> tuple[FillChunks, int]:
        """Return the chunks of a fill, all written, and how many they are."""
        chunks = FillChunks(self._folder, fill.number)
        total = chunks.total()
        if total is not None:
            return chunks, total
        total, end = 0, rows_of_fill(self._history, fill)
        for chunk in () if end is None else chunks_of_fill(self._history, fill, 0, end):
            chunks.write(total, chunk)
            total += 1
        chunks.finish(total)
        return chunks, total
