"""Scoring as a pure function: plan, timelines and new events of a group in; outcomes, results and timelines out."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from buckets.arrays import Flags, Int64s, read_only
from buckets.byte_strings import ByteStrings, fixed
from buckets.errors import BucketsError
from buckets.kernel.group_plans import GroupPlans
from buckets.kernel.keyed_events import KeyedEvents
from buckets.kernel.needed_pages import choose_pages, score_groups
from buckets.kernel.outcome import EventOutcomes
from buckets.kernel.plan import GroupPlan
from buckets.kernel.result_rows import Rows
from buckets.timeline.codec import CODEC_VERSION
from buckets.timeline.head import FROM_THE_BEGINNING, NO_CLOCK, Directory
from buckets.timeline.inspection import read_heads, unreadable
from buckets.timeline.layout import Written
from buckets.timeline.tiers import Paging

PAGING: Final = Paging(page_cells=128, hot_cells=64, most_pages=256)  # How timelines are cut; measured, see DESIGN.md
PageReader = Callable[[Int64s, Int64s], ByteStrings]
"""Reads pages, each given by the index of its key and its number."""


class Pages(NamedTuple):
    """Pages to write or remove."""

    keys: Int64s  # int64 `(pages,)`, the index of each page's key
    numbers: Int64s  # int64 `(pages,)`, its number
    data: ByteStrings  # its bytes; empty to remove it

    def take(self, indices: Int64s) -> "Pages":
        """Return the pages at these indices."""
        return Pages(self.keys[indices], self.numbers[indices], self.data.take(indices))


@dataclass(frozen=True)
class Scored:
    """The results for the events of a group."""

    outcomes: EventOutcomes  # the outcome of each event
    rows: Rows  # results of events and rules, events key by key
    # results of events and parts, those of a part in the order of events; `rule` is its index in the plan's parts
    parts: Rows
    # rows of rules and parts on trial without a result, because their sums pass 64 bits; only event and rule are set,
    # and parts are numbered after the rules
    beyond: Rows
    # int64 `(keys,)`, since when each timeline is complete; FROM_THE_BEGINNING if it always was
    since_ms: Int64s
    # int64 `(keys, rules)`, from when events count since each of the plan's `resetting` rules last fired;
    # FROM_THE_BEGINNING if it never did
    from_ms: Int64s
    pool: npt.NDArray[np.uint8]  # uint8, the bytes into which `outcomes.other_start` points
    pairs: Int64s  # int64, the list into which rows of features of pairs point, see `listed_pairs`

    def other_id(self, event: int) -> str | None:
        """Return the id of the event that had the same time when this one arrived; None if there was none."""
        start, length = int(self.outcomes.other_start[event]), int(self.outcomes.other_length[event])
        return None if start < 0 else self.pool[start : start + length].tobytes().decode()


@dataclass(frozen=True)
class ScoredGroups:
    """The results for the events of several groups, group by group."""

    plans: Sequence[GroupPlan]  # the plan of each group
    events: KeyedEvents  # the events
    outcomes: EventOutcomes  # the outcome of each event
    counts: Int64s  # int64 `(groups, OUTCOMES)`, the number of events by group and outcome
    # bool `(groups,)`, whether a group has nothing to report: it has no row, and each event was evaluated, or unjudged,
    # without another event at its time
    are_quiet: Flags
    rows: Rows  # results, by the events, rules and parts of their group
    row_start: Int64s  # int64 `(groups + 1,)`, where the rows of each group begin
    heads: ByteStrings  # the keys' new heads
    clocks_ms: Int64s  # int64 `(keys,)`, the keys' new clocks; NO_CLOCK for none
    since_ms: Int64s  # int64 `(keys,)`, since when each timeline is complete; FROM_THE_BEGINNING if it always was
    pages: Pages  # the pages that changed
    # int64 `(keys, windows)`, from when windows count that were reset; without keys if none ever is
    from_ms: Int64s
    pool: npt.NDArray[np.uint8]  # uint8, the bytes into which `outcomes.other_start` points
    pairs: Int64s  # int64, the list into which rows of features of pairs point

    def of_group(self, group: int) -> Scored:
        """Return the results for the events of one group."""
        plan = self.plans[group]
        first, end = self.events.group_start[group : group + 2].tolist()
        events = slice(*self.events.key_start[[first, end]].tolist())
        rows = chosen_rows(self.rows, slice(*self.row_start[group : group + 2].tolist()))
        of_rules, of_parts, beyond = _split(rows, plan)
        return Scored(
            outcomes=EventOutcomes._make(column[events] for column in self.outcomes),
            rows=of_rules,
            parts=of_parts,
            beyond=beyond,
            since_ms=self.since_ms[first:end],
            pool=self.pool,
            pairs=self.pairs,
            from_ms=self.from_ms[first:end, plan.reset_windows],
        )


def _no_outcomes(events: int, columns: int) -> EventOutcomes:
    return EventOutcomes(
        code=np.zeros(events, np.uint8),
        applied=np.zeros(events, np.bool_),
        clock_ms=np.zeros(events, np.int64),
        other_start=np.full(events, -1, np.int64),
        other_length=np.zeros(events, np.int64),
        rule=np.full(events, -1, np.int64),
        other_ms=np.empty(events, np.int64),
        other_values=np.empty((events, columns, 2), np.int64),
    )


def score_all(
    plans: Sequence[GroupPlan],
    joined: GroupPlans,
    heads: ByteStrings,
    read_pages: PageReader,
    events: KeyedEvents,
    emit_all: bool,
    paging: Paging = PAGING,
    evicted_until_ms: Int64s | None = None,
    from_ms: Mapping[int, Int64s] = MappingProxyType({}),
) -> ScoredGroups:
    """Take a batch of events into the timelines of groups, and evaluate each event.

    Args:
        plans: the rules and policies of each group.
        joined: the plans to which `KeyedEvents.plan` refers.
        heads: each key's head; empty for a new key.
        read_pages: called once, with the needed pages, unless the heads are enough.
        events: the events of these keys.
        emit_all: whether results are wanted for every rule, or for the fired ones only.
        paging: how timelines are cut into pages.
        evicted_until_ms: int64 `(keys,)`, the latest event time of all evicted timelines of each key's group in its
            shard, `NO_CLOCK` for none; None if nothing was evicted. A new key may have been evicted before, so its
            windows are complete only after that.
        from_ms: by group, int64 `(keys, rules)`, from when events count since each of the plan's `resetting` rules last
            fired, `FROM_THE_BEGINNING` if it never did; a group is left out if none of them ever did.

    Returns:
        Outcomes, results and the changes of timelines. Arguments are not changed.

    Raises:
        BucketsError: a timeline was written by an unknown version of the codec.
    """
    key = unreadable(*heads)
    if key >= 0:
        version, group = heads.data[heads.start[key]], np.searchsorted(events.group_start, key, side="right") - 1
        message = (
            f"state of group {plans[group].group.name!r} was written by codec version {version}, and this release "
            f"reads version {CODEC_VERSION}; run the release that wrote the checkpoint, or start with a new checkpoint"
        )
        raise BucketsError(message)
    events = KeyedEvents._make(each if isinstance(each, ByteStrings) else read_only(each) for each in events)
    columns = max(len(plan.group.measures) for plan in plans)
    known, directory = read_heads(*heads, columns)
    until_ms = np.full(heads.size, NO_CLOCK, np.int64) if evicted_until_ms is None else evicted_until_ms
    of_windows_ms = _counted_from(plans, events, from_ms)
    page_data, page_start = np.empty(0, np.uint8), np.zeros(len(directory.page), np.int64)
    if choose_pages(known, directory, events, joined, paging, until_ms, of_windows_ms):
        page_data, page_start = _read_needed(directory, read_pages, len(heads.data))
    pool, ids_at = np.concatenate([heads.data, page_data, events.ids.data]), len(heads.data) + len(page_data)
    outcomes = _no_outcomes(len(events.rows), columns)
    rows, row_start, encoded, encoded_start, written, counts, are_told, pairs = score_groups(
        events, pool, ids_at, known, directory, page_start, joined, paging, emit_all, outcomes, of_windows_ms
    )
    return ScoredGroups(
        plans=plans,
        events=events,
        outcomes=outcomes,
        counts=counts,
        are_quiet=~are_told & (row_start[1:] == row_start[:-1]),
        rows=Rows(*rows),
        row_start=row_start,
        heads=fixed(encoded, encoded_start),
        clocks_ms=known.clock_ms,
        since_ms=known.since_ms,
        pages=_pages(written),
        from_ms=of_windows_ms,
        pool=pool,
        pairs=pairs,
    )


def _counted_from(plans: Sequence[GroupPlan], events: KeyedEvents, known_ms: Mapping[int, Int64s]) -> Int64s:
    """Return from when each window of each key counts, int64 `(keys, windows)`; no keys if no window is ever reset."""
    resetting = [group for group, plan in enumerate(plans) if plan.resetting]
    windows = max((len(plans[group].windows.reach_ms) for group in resetting), default=0)
    keys = len(events.key_start) - 1 if resetting else 0
    from_ms = np.full((keys, windows), FROM_THE_BEGINNING, np.int64)
    for group in resetting:
        if group in known_ms:
            first, end = events.group_start[group : group + 2]
            from_ms[first:end, plans[group].reset_windows] = known_ms[group]
    return from_ms


def _read_needed(directory: Directory, read_pages: PageReader, page_at: int) -> tuple[npt.NDArray[np.uint8], Int64s]:
    """Read the marked pages.

    Returns:
        Their concatenated bytes, and where each begins in the pool, by entry.
    """
    needed, page_start = np.flatnonzero(directory.is_loaded), np.zeros(len(directory.page), np.int64)
    keys = np.searchsorted(directory.start, needed, side="right") - 1
    data, start = read_pages(keys, directory.page[needed])
    page_start[needed] = start[:-1] + page_at
    return data, page_start


def chosen_rows(rows: Iterable[npt.NDArray[Any]], chosen: slice | npt.NDArray[Any]) -> Rows:
    """Return the rows that a numpy index selects."""
    return Rows(*(column[chosen] for column in rows))


def _split(rows: Rows, plan: GroupPlan) -> tuple[Rows, Rows, Rows]:
    """Split rows into those of rules, sorted, those of parts, and those whose sums pass 64 bits."""
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
    """Sort rows by event, then by rule: features and their limits may be in another order."""
    if bool((np.diff(plan.rule_arrays.number) > 0).all()):
        return rows
    return chosen_rows(rows, np.lexsort((rows.rule, rows.event)))


def _pages(written: Written) -> Pages:
    used, count = written.used.tolist()
    data = fixed(written.data[:used], np.append(0, written.end[:count]))
    return Pages(written.key[:count], written.page[:count], data)
