"""Scoring as a pure function: plan, timelines and new events of a group in; verdicts, results and timelines out."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from buckets.directory import Directory
from buckets.errors import BucketsError
from buckets.head import CODEC_VERSION, LEAST_INT64
from buckets.kernel import score_keys
from buckets.layout import Written
from buckets.needed import Paging, Policy
from buckets.plan import GroupPlan
from buckets.rows import Rows
from buckets.stored import Heads, KeyedEvents, choose_pages, read_heads, unreadable
from buckets.verdict import Verdicts

PAGING: Final = Paging(page_cells=128, hot_cells=64, most_pages=256)
"""How timelines are cut; measured, see DESIGN.md."""
PageReader = Callable[[Sequence[tuple[int, int]]], list[bytes]]
"""Reads pages, each given as the place of its key and its number."""


@dataclass(frozen=True)
class EventIds:
    """Event ids one behind the other: UTF-8 bytes, uint8, and int64 `(events + 1,)` places where each begins."""

    data: npt.NDArray[np.uint8]
    start: npt.NDArray[np.int64]

    @classmethod
    def of(cls, ids: Sequence[str]) -> "EventIds":
        """Lay out ids given as text."""
        encoded = [text.encode() for text in ids]
        start = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(text) for text in encoded], out=start[1:])
        return cls(np.frombuffer(b"".join(encoded), np.uint8), start)


@dataclass(frozen=True)
class KeyBatch:
    """The events of one group in one micro-batch, key by key, each key's in arrival order.

    Attributes:
        key_start: int64 `(keys + 1,)`, where each key's events begin.
        times_ms: int64 `(events,)`.
        values: int64 `(columns, events)`, scaled measures in the order of the group's layout.
        ids: the events' ids.
    """

    key_start: npt.NDArray[np.int64]
    times_ms: npt.NDArray[np.int64]
    values: npt.NDArray[np.int64]
    ids: EventIds


@dataclass(frozen=True)
class Page:
    """A page that was written, or that goes.

    Attributes:
        key: the place of its key.
        number: its number.
        data: its bytes; None where it goes.
    """

    key: int
    number: int
    data: bytes | None


@dataclass(frozen=True)
class Scored:
    """What came out for a `KeyBatch`.

    Attributes:
        verdicts: what became of each event.
        rows: results of events and rules, events key by key.
        beyond: rows of rules on trial without a result, because their sums pass 64 bits; event and rule alone are set.
        heads: the keys' new heads.
        clocks_ms: int64 `(keys,)`, the clocks that they have come to; the least int64 for none.
        since_ms: int64 `(keys,)`, since when each timeline is complete; the least int64 where it always was.
        pages: the pages that changed.
        pool: uint8, where `verdicts.other_start` points into.
    """

    verdicts: Verdicts
    rows: Rows
    beyond: Rows
    heads: list[bytes]
    clocks_ms: npt.NDArray[np.int64]
    since_ms: npt.NDArray[np.int64]
    pages: list[Page]
    pool: npt.NDArray[np.uint8]

    def other_id(self, event: int) -> str | None:
        """The id that stands at the event's time, if one did when it arrived."""
        start, length = int(self.verdicts.other_start[event]), int(self.verdicts.other_length[event])
        return None if start < 0 else self.pool[start : start + length].tobytes().decode()


def _no_verdicts(events: int) -> Verdicts:
    return Verdicts(
        outcome=np.zeros(events, np.uint8),
        applied=np.zeros(events, np.bool_),
        clock_ms=np.zeros(events, np.int64),
        other_start=np.full(events, -1, np.int64),
        other_length=np.zeros(events, np.int64),
        rule=np.full(events, -1, np.int64),
    )


def _joined(parts: Sequence[bytes]) -> tuple[bytes, npt.NDArray[np.int64]]:
    """Parts one behind the other, and where each begins."""
    start = np.zeros(len(parts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, parts), np.int64, len(parts)), out=start[1:])
    return b"".join(parts), start


def score(
    plan: GroupPlan,
    heads: Sequence[bytes],
    read_pages: PageReader,
    batch: KeyBatch,
    emit_all: bool,
    paging: Paging = PAGING,
    evicted_until_ms: int | None = None,
) -> Scored:
    """Take a batch of events into the timelines of a group, and judge each event.

    Args:
        plan: the group's rules and policies.
        heads: each key's head; empty for a new key.
        read_pages: called once, with the pages that are needed beside the heads, if there are any.
        batch: the events of these keys.
        emit_all: whether results are wanted for every rule, or for the fired ones only.
        paging: how timelines are cut.
        evicted_until_ms: the latest event of a timeline of this group that was evicted; None where none was. A new key
            may be one of them, so its windows are complete only behind that.

    Returns:
        Verdicts, results and what has changed of the timelines. Nothing given is changed.

    Raises:
        BucketsError: a timeline was written by an unknown version of the codec.
    """
    state, state_start = _joined(heads)
    head_pool = np.frombuffer(state, np.uint8)
    key = unreadable(head_pool, state_start)
    if key >= 0:
        message = (
            f"state of group {plan.group.name!r} was written by codec version {heads[key][0]}, and this release reads "
            f"1 to {CODEC_VERSION}; run the release that wrote the checkpoint, or start with a new checkpoint"
        )
        raise BucketsError(message)
    columns, generation = len(plan.group.measures), plan.group.generation
    known, directory = read_heads(head_pool, state_start, generation, columns)
    if evicted_until_ms is not None:
        _note_evicted(known, batch, evicted_until_ms, plan.horizon_ms)
    policy = Policy(plan.horizon_ms, plan.late, plan.collision, plan.edge)
    reach_ms = plan.window_arrays.reach_ms
    page_data, page_start = b"", np.zeros(len(directory.page), np.int64)
    events = KeyedEvents(
        key_start=batch.key_start,
        times_ms=batch.times_ms,
        values=batch.values,
        id_start=batch.ids.start[:-1],
        id_length=np.diff(batch.ids.start),
    )
    if len(directory.page):
        choose_pages(known, directory, events, reach_ms, plan.tiers, policy, paging)
        page_data, page_start = _read_needed(directory, read_pages, len(state))
    ids_at = len(state) + len(page_data)
    events = events._replace(id_start=events.id_start + ids_at)
    pool = np.concatenate([head_pool, np.frombuffer(page_data, np.uint8), batch.ids.data])
    verdicts = _no_verdicts(len(batch.times_ms))
    rows, used, encoded, encoded_start, written = score_keys(
        events,
        pool,
        known,
        directory,
        page_start,
        plan.rule_arrays,
        reach_ms,
        plan.needs_extremes,
        plan.tiers,
        policy,
        paging,
        generation,
        emit_all,
        verdicts,
    )
    whole = encoded.tobytes()
    fits = rows.fits[:used]
    all_fit = bool(fits.all())
    return Scored(
        verdicts=verdicts,
        rows=_chosen(rows, slice(used) if all_fit else np.flatnonzero(fits)),
        beyond=_chosen(rows, slice(0) if all_fit else np.flatnonzero(~fits)),
        heads=[whole[start:end] for start, end in pairwise(encoded_start.tolist())],
        clocks_ms=known.clock_ms,
        since_ms=known.since_ms,
        pages=_pages(written),
        pool=pool,
    )


def _note_evicted(known: Heads, batch: KeyBatch, evicted_until_ms: int, horizon_ms: int) -> None:
    """Let new keys be complete from behind the latest evicted event on, where their windows may reach that far back."""
    new = np.flatnonzero((known.clock_ms == LEAST_INT64) & (np.diff(batch.key_start) > 0))
    first_ms = batch.times_ms[batch.key_start[new]]
    known.since_ms[new[first_ms - horizon_ms <= evicted_until_ms]] = evicted_until_ms + 1


def _read_needed(directory: Directory, read_pages: PageReader, page_at: int) -> tuple[bytes, npt.NDArray[np.int64]]:
    """Read the pages that are marked.

    Returns:
        Their bytes one behind the other, and where each begins in the pool, by entry.
    """
    needed = np.flatnonzero(directory.is_loaded)
    page_start = np.zeros(len(directory.page), np.int64)
    if not len(needed):
        return b"", page_start
    keys = np.searchsorted(directory.start, needed, side="right") - 1
    found = read_pages(list(zip(keys.tolist(), directory.page[needed].tolist(), strict=True)))
    data, start = _joined(found)
    page_start[needed] = start[:-1] + page_at
    return data, page_start


def _chosen(rows: Iterable[npt.NDArray[Any]], places: slice | npt.NDArray[np.int64]) -> Rows:
    return Rows(*(column[places] for column in rows))


def _pages(written: Written) -> list[Page]:
    used, count = written.used.tolist()
    data, start, pages = written.data[:used].tobytes(), 0, []
    for key, number, end, is_removed in zip(
        written.key[:count].tolist(),
        written.page[:count].tolist(),
        written.end[:count].tolist(),
        written.is_removed[:count].tolist(),
        strict=True,
    ):
        pages.append(Page(key, number, None if is_removed else data[start:end]))
        start = end
    return pages
