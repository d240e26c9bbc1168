"""An archive in pieces that are scored in one go: as the job cut the stream, or batches joined to larger pieces.

What comes out does not depend on how a stream is cut, so joining changes nothing but when idle keys are evicted, and
with that what is not warm. A piece never spans a change of rules, lists or terms: those happen between batches.

Within a batch arrivals are ordered by `source_order`, source and position. In a joined piece the batch counts first, so
`source_order` is replaced by a number that counts the stretches of one batch and one `source_order`.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from buckets.archive.archive import BATCH, SOURCE_ORDER, by_batch
from buckets.archive.history import History
from buckets.archive.recorded_batches import RecordedBatches
from buckets.checkpoint.cuts import Cut
from buckets.checkpoint.terms import Terms
from buckets.history.replay.replayed_fills import ReplayedFills
from buckets.history.scoring.scoring import ArchivePiece
from buckets.lists.lists import Lists

CutAs = Literal["recorded", "joined"]
JOINED_ROWS = 500_000
"""Batches are joined until they have so many rows."""


def pieces_of(history: History, fills: ReplayedFills, cut_as: CutAs, last_batch: int) -> Iterator[ArchivePiece]:
    """Yield the archive up to a batch in pieces: one for each batch, or with `joined` several batches in one."""
    pinned = _Pinned(history.recorded, fills)
    parts: list[_Part] = []
    for batch_id, rows in by_batch(history.archive.tables()):
        if batch_id > last_batch:
            break
        part = _Part(batch_id, rows, pinned.lists_of(batch_id))
        if parts and not _goes_on(parts, part, pinned, cut_as):
            yield pinned.piece(parts)
            parts = []
        parts.append(part)
    if parts:
        yield pinned.piece(parts)


class _Part(NamedTuple):
    """Rows of one batch, or of a stretch of it, and its lists."""

    batch_id: int
    rows: pa.Table
    lists: Lists


def _goes_on(parts: list[_Part], part: _Part, pinned: "_Pinned", cut_as: CutAs) -> bool:
    """Return whether a part belongs to the piece of those before it."""
    before = parts[-1]
    if part.batch_id == before.batch_id or cut_as == "recorded":
        return part.batch_id == before.batch_id
    is_alike = part.lists is before.lists and pinned.is_alike(part.batch_id, before.batch_id)
    return is_alike and sum(len(earlier.rows) for earlier in parts) < JOINED_ROWS


class _Pinned:
    """What each batch is scored with; lists of the same versions are the same object."""

    def __init__(self, recorded: RecordedBatches, fills: ReplayedFills) -> None:
        self._recorded, self._fills = recorded, fills
        self._cuts = {cut.batch_id: cut for cut in recorded.cuts}
        self._shards = recorded.terms(recorded.cuts[-1].batch_id).engine.shards
        self._latest: tuple[Cut, Lists] | None = None

    def lists_of(self, batch_id: int) -> Lists:
        """Return the lists of a batch that is no earlier than the one asked for before."""
        cut = self._cuts[batch_id]
        if self._latest is None or self._latest[0].lists != cut.lists:
            self._latest = cut, self._recorded.lists(cut)
        return self._latest[1]

    def is_alike(self, one: int, other: int) -> bool:
        """Return whether two batches have the same rules and terms."""
        same_rules = self._cuts[one].ruleset_version == self._cuts[other].ruleset_version
        return same_rules and self._recorded.terms(one) is self._recorded.terms(other)

    def _terms(self, batch_id: int) -> Terms:
        """Return the terms of a batch, with as many shards as the last one has: timelines stay where they are.

        What comes out does not depend on shards.
        """
        terms = self._recorded.terms(batch_id)
        if terms.engine.shards == self._shards:
            return terms
        return terms.model_copy(update={"engine": terms.engine.model_copy(update={"shards": self._shards})})

    def piece(self, parts: list[_Part]) -> ArchivePiece:
        """Return parts as one piece."""
        first, last = parts[0].batch_id, parts[-1].batch_id
        rows = pa.concat_tables([part.rows for part in parts])
        rule_set = self._recorded.rule_set(self._cuts[last].ruleset_version)
        terms, lists = self._terms(last), parts[-1].lists
        sources_of = self._fills.sources_of(rule_set, self._cuts[last])
        if first == last:
            return ArchivePiece(rows, rule_set, terms, lists, (first, last), sources_of=sources_of)
        orders = rows[SOURCE_ORDER].to_numpy()
        is_next = np.ones(len(rows), np.bool_)
        is_next[1:] = (np.diff(rows[BATCH].to_numpy()) != 0) | (np.diff(orders) != 0)
        number = pa.array(np.cumsum(is_next) - 1)
        rows = rows.set_column(rows.column_names.index(SOURCE_ORDER), SOURCE_ORDER, number)
        return ArchivePiece(rows, rule_set, terms, lists, (first, last), orders[is_next], sources_of)
