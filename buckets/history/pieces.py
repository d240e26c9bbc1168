"""An archive in pieces that are scored in one go: as the job cut the stream, or batches joined to larger pieces.

What comes out does not depend on how a stream is cut, so joining changes nothing but when idle keys are evicted, and
with that what is not warm. A piece never spans a change of rules, lists or terms: those happen between batches.

Within a batch arrivals are ordered by `source_order`, source and position. In a joined piece the batch counts first, so
`source_order` is replaced by a number that counts the stretches of one batch and one `source_order`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal

import numpy as np
import pyarrow as pa

from buckets.checkpoint.cuts import Cut
from buckets.history.archive import ARRIVAL, BATCH, SOURCE_ORDER, by_batch
from buckets.history.history import History
from buckets.history.scoring import Piece

CutAs = Literal["recorded", "joined"]
MOST_ROWS = 500_000
"""Batches are joined until they have so many rows."""


@dataclass(frozen=True)
class _Conditions:
    """What batches have to share to be joined."""

    ruleset_version: int
    lists: tuple[tuple[str, int], ...]
    terms: str

    @classmethod
    def of(cls, cut: Cut, terms: str) -> "_Conditions":
        return cls(cut.ruleset_version, tuple(sorted(cut.lists.items())), terms)


def pieces_of(history: History, cut_as: CutAs, last_batch: int) -> Iterator[Piece]:
    """The archive from its beginning.

    Args:
        history: of the job.
        cut_as: `recorded`: a piece for each batch; `joined`: batches are joined.
        last_batch: the last batch that is wanted.
    """
    of_batches = _whole_batches(history, last_batch) if cut_as == "recorded" else _parts(history, last_batch)
    conditions = _ConditionsOf(history)
    joined: list[pa.Table] = []
    before: Piece | None = None
    for batch_id, rows in of_batches:
        piece = conditions.piece(batch_id, rows)
        if before is not None and (
            cut_as == "recorded" or not _is_alike(piece, before) or sum(map(len, joined)) >= MOST_ROWS
        ):
            yield _joined(before, joined)
            joined, before = [], None
        joined.append(rows)
        before = piece if before is None else replace(before, last_batch=batch_id)
    if before is not None:
        yield _joined(before, joined)
