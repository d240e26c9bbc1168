"""Scoring as a pure function: plan, timelines and new events of a group in; outcomes, results and timelines out."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from buckets.aggregates.operation import MAX
from buckets.byte_strings import ByteStrings, fixed
from buckets.errors import BucketsError
from buckets.kernel.context import Context, Policy, cells_read_of
from buckets.kernel.kernel import score_keys
from buckets.kernel.keyed_events import KeyedEvents
from buckets.kernel.needed_pages import choose_pages
from buckets.kernel.outcome import EventOutcomes
from buckets.kernel.plan import GroupPlan
from buckets.kernel.result_rows import Rows
from buckets.timeline.directory import Directory
from buckets.timeline.head import CODEC_VERSION, FROM_THE_BEGINNING, NO_CLOCK
from buckets.timeline.layout import Written
from buckets.timeline.loading import Heads, read_heads, unreadable
from buckets.timeline.paging import Paging

PAGING: Final = Paging(page_cells=128, hot_cells=64, most_pages=256)
"""How timelines are cut; measured, see DESIGN.md."""
NO_RESET: Final = FROM_THE_BEGINNING
"""Stands for the time of a reset that has never been."""
Int64s = npt.NDArray[np.int64]
PageReader = Callable[[Sequence[tuple[int, int]]], list[bytes]]
"""Reads pages, each given as the index of its key and its number."""


@dataclass(frozen=True)
class Page:
    """A page that was written, or that goes.

    Attributes:
        key: the index of its key.
        number: its number.
        data: its bytes; None where it goes.
    """

    key: int
    number: int
    data: bytes | None


@dataclass(frozen=True)
class Scored:
    """What came out for the events of a group.

    Attributes:
        outcomes: what became of each event.
        rows: results of events and rules, events key by key.
        parts: results of events and parts, those of a part in the order of events; `rule` is its index in the plan's
            parts.
        beyond: rows of rules and parts on trial without a result, because their sums pass 64 bits; of these event and
            rule alone are set, and parts are numbered after the rules.
        heads: the keys' new heads.
        clocks_ms: int64 `(keys,)`, the clocks that they have come to; NO_CLOCK for none.
        since_ms: int64 `(keys,)`, since when each timeline is complete; FROM_THE_BEGINNING where it always was.
        pages: the pages that changed.
        reset_ms: int64 `(keys, rules)`, when each of the plan's `resetting` rules last fired; `NO_RESET` for never.
        pool: uint8, where `outcomes.other_start` points into.
    """

    outcomes: EventOutcomes
    rows: Rows
    parts: Rows
    beyond: Rows
    heads: ByteStrings
    clocks_ms: npt.NDArray[np.int64]
    since_ms: npt.NDArray[np.int64]
    pages: list[Page]
    reset_ms: Int64s
    pool: npt.NDArray[np.uint8]

    def other_id(self, event: int) -> str | None:
        """Return the id that stands at the event's time, if one did when it arrived."""
        start, length = int(self.outcomes.other_start[event]), int(self.outcomes.other_length[event])
        return None if start < 0 else self.pool[start : start + length].tobytes().decode()


def _no_outcomes(events: int) -> EventOutcomes:
    return EventOutcomes(
        code=np.zeros(events, np.uint8),
        applied=np.zeros(events, np.bool_),
        clock_ms=np.zeros(events, np.int64),
        other_start=np.full(events, -1, np.int64),
        other_length=np.zeros(events, np.int64),
        rule=np.full(events, -1, np.int64),
    )


def score(
    plan: GroupPlan,
    heads: ByteStrings,
    read_pages: PageReader,
    events: KeyedEvents,
    emit_all: bool,
    paging: Paging = PAGING,
    evicted_until_ms: int | None = None,
    reset_ms: Int64s | None = None,
) -> Scored:
    """Take a batch of events into the timelines of a group, and evaluate each event.

    Args:
        plan: the group's rules and policies.
        heads: each key's head; empty for a new key.
        read_pages: called once, with the pages that are needed beside the heads, if there are any.
        events: the events of these keys.
        emit_all: whether results are wanted for every rule, or for the fired ones only.
        paging: how timelines are cut.
        evicted_until_ms: the latest event of a timeline of this group that was evicted; None where none was. A new key
            may be one of them, so its windows are complete only after that.
        reset_ms: int64 `(keys, rules)`, when each of the plan's `resetting` rules last fired, `NO_RESET` where it never
            did; None where none of them ever did.

    Returns:
        EventOutcomes, results and what has changed of the timelines. Nothing given is changed.

    Raises:
        BucketsError: a timeline was written by an unknown version of the codec.
    """
    key = unreadable(*heads)
    if key >= 0:
        version = heads.data[heads.start[key]]
        message = (
            f"state of group {plan.group.name!r} was written by codec version {version}, and this release reads "
            f"1 to {CODEC_VERSION}; run the release that wrote the checkpoint, or start with a new checkpoint"
        )
        raise BucketsError(message)
    known, directory = read_heads(*heads, plan.group.generation, len(plan.group.measures))
    if evicted_until_ms is not None:
        _note_evicted(known, events, evicted_until_ms, plan.horizon_ms)
    events, context = events._replace(times_ms=_read_only(events.times_ms)), _context(plan, paging, emit_all)
    from_ms = _counted_from(plan, heads.size, reset_ms)
    page_data, page_start = np.empty(0, np.uint8), np.zeros(len(directory.page), np.int64)
    if len(directory.page):
        choose_pages(known, directory, events.key_start, events.times_ms, events.nulls, context, from_ms)
        page_data, page_start = _read_needed(directory, read_pages, len(heads.data))
    pool = np.concatenate([heads.data, page_data, events.ids.data])
    in_pool = fixed(pool, events.ids.start + (len(heads.data) + len(page_data)))
    outcomes = _no_outcomes(len(events.times_ms))
    rows, used, encoded, encoded_start, written = score_keys(
        events._replace(ids=in_pool), known, directory, page_start, context, outcomes, from_ms
    )
    of_rules, of_parts, beyond = _split(chosen_rows(rows, slice(used)), plan)
    return Scored(
        outcomes=outcomes,
        rows=of_rules,
        parts=of_parts,
        beyond=beyond,
        heads=fixed(encoded, encoded_start),
        clocks_ms=known.clock_ms,
        since_ms=known.since_ms,
        pages=_pages(written),
        pool=pool,
        reset_ms=_reset_ms(plan, from_ms),
    )


def _read_only(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return numbers as a view that is not to be changed: for others numba would compile the kernel again."""
    view = numbers.view()
    view.flags.writeable = False
    return view


def _context(plan: GroupPlan, paging: Paging, emit_all: bool) -> Context:
    return Context(
        features=plan.feature_arrays,
        rules=plan.rule_arrays,
        reach_ms=plan.window_arrays.reach_ms,
        cells_read=cells_read_of(plan.feature_arrays, len(plan.window_arrays.reach_ms)),
        needs_extremes=plan.needs_extremes,
        tiers=plan.tiers,
        policy=Policy(plan.horizon_ms, plan.late, plan.collision, plan.edge),
        paging=paging,
        generation=plan.group.generation,
        emit_all=emit_all,
        has_event_features=bool((plan.feature_arrays.operation > MAX).any()),
        has_resets=bool(plan.resetting),
    )


def _counted_from(plan: GroupPlan, keys: int, reset_ms: Int64s | None) -> Int64s:
    """Return the first time that counts in each window of each key; nothing where no window is ever reset."""
    from_ms = np.full((keys if plan.resetting else 0, len(plan.window_arrays.reach_ms)), FROM_THE_BEGINNING, np.int64)
    if reset_ms is not None and plan.resetting:
        from_ms[:, plan.reset_windows] = np.where(reset_ms == NO_RESET, FROM_THE_BEGINNING, reset_ms + 1)
    return from_ms


def _reset_ms(plan: GroupPlan, from_ms: Int64s) -> Int64s:
    """Return when each resetting rule last fired for each key."""
    if not plan.resetting:
        return np.empty((0, 0), np.int64)
    of_rules = from_ms[:, plan.reset_windows]
    return np.where(of_rules == FROM_THE_BEGINNING, NO_RESET, of_rules - 1)


def _note_evicted(known: Heads, events: KeyedEvents, evicted_until_ms: int, horizon_ms: int) -> None:
    """Let new keys be complete from after the latest evicted event on, where their windows may reach that far back."""
    new = np.flatnonzero((known.clock_ms == NO_CLOCK) & (np.diff(events.key_start) > 0))
    first_ms = events.times_ms[events.key_start[new]]
    known.since_ms[new[first_ms - horizon_ms <= evicted_until_ms]] = evicted_until_ms + 1


def _read_needed(
    directory: Directory, read_pages: PageReader, page_at: int
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Read the pages that are marked.

    Returns:
        Their bytes one after the other, and where each begins in the pool, by entry.
    """
    needed = np.flatnonzero(directory.is_loaded)
    page_start = np.zeros(len(directory.page), np.int64)
    if not len(needed):
        return np.empty(0, np.uint8), page_start
    keys = np.searchsorted(directory.start, needed, side="right") - 1
    pages = read_pages(list(zip(keys.tolist(), directory.page[needed].tolist(), strict=True)))
    data, start = ByteStrings.of(pages)
    page_start[needed] = start[:-1] + page_at
    return data, page_start


def chosen_rows(rows: Iterable[npt.NDArray[Any]], chosen: slice | npt.NDArray[Any]) -> Rows:
    """Return some rows, chosen as numpy chooses elements of an array."""
    return Rows(*(column[chosen] for column in rows))


def _split(rows: Rows, plan: GroupPlan) -> tuple[Rows, Rows, Rows]:
    """Return the rows of rules in order, those of parts, and those whose sums pass 64 bits."""
    if not len(rows.fits):
        return rows, rows, rows
    if rows.fits.all():
        return *_of_rules_and_parts(rows, plan), chosen_rows(rows, slice(0))
    fitting, beyond = (chosen_rows(rows, np.flatnonzero(fits)) for fits in (rows.fits, ~rows.fits))
    return *_of_rules_and_parts(fitting, plan), _in_order(beyond, plan)


def _of_rules_and_parts(rows: Rows, plan: GroupPlan) -> tuple[Rows, Rows]:
    first = len(plan.rules)
    if not plan.parts:
        return _in_order(rows, plan), chosen_rows(rows, slice(0))
    is_part = rows.rule >= first
    parts = chosen_rows(rows, np.flatnonzero(is_part))
    of_rules = _in_order(chosen_rows(rows, np.flatnonzero(~is_part)), plan)
    return of_rules, parts._replace(rule=parts.rule - np.int32(first))


def _in_order(rows: Rows, plan: GroupPlan) -> Rows:
    """Sort rows by event, and by rule within an event: features and their limits may stand in another order."""
    if bool((np.diff(plan.rule_arrays.number) > 0).all()):
        return rows
    return chosen_rows(rows, np.lexsort((rows.rule, rows.event)))


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
