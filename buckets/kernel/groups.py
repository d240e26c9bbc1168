"""The way into the kernel: the events of all groups of a shard in one call, one group after the other.

A call from Python describes hundreds of arrays to the machine code, which costs as much as some hundred events do.
"""

import numpy as np

from buckets.compiled import allocating, compiled, leaf
from buckets.kernel.group_plans import GroupPlans, context_of
from buckets.kernel.kernel import score_keys
from buckets.kernel.keyed_events import KeyedEvents, events_of
from buckets.kernel.outcome import EVALUATED, OUTCOMES, UNJUDGED, EventOutcomes
from buckets.kernel.result_rows import new_rows
from buckets.timeline.directory import Directory, directory_between
from buckets.timeline.layout import Written, new_written
from buckets.timeline.loading import Heads, heads_between
from buckets.timeline.paging import Paging


@leaf
def _count(outcomes: EventOutcomes, counts, group):
    """Count the events of a group by their outcome; returns whether some outcome is to be told of."""
    is_told = False
    for event in range(outcomes.code.shape[0]):
        code = outcomes.code[event]
        counts[group, code] += 1
        is_told = is_told or (code != EVALUATED and code != UNJUDGED) or outcomes.other_start[event] >= 0
    return is_told


@leaf
def _number_keys(written: Written, first, first_key):
    """Number the keys of pages from those of a group to those of all groups."""
    for page in range(first, written.used[1]):
        written.key[page] += first_key


@leaf
def _most_rows(events: KeyedEvents, plans: GroupPlans):
    """Return how many rows there are where one is wanted for every rule and event."""
    most = np.int64(0)
    for group in range(events.plan.shape[0]):
        plan, keys = events.plan[group], events.group_start
        rules = plans.rule_start[plan + 1] - plans.rule_start[plan]
        most += rules * (events.key_start[keys[group + 1]] - events.key_start[keys[group]])
    return most


@allocating
def _outcomes_between(outcomes: EventOutcomes, first, end) -> EventOutcomes:
    """Return those of events `[first, end)`, which are the same in memory."""
    return EventOutcomes(
        outcomes.code[first:end],
        outcomes.applied[first:end],
        outcomes.clock_ms[first:end],
        outcomes.other_start[first:end],
        outcomes.other_length[first:end],
        outcomes.rule[first:end],
        outcomes.other_ms[first:end],
        outcomes.other_values[first:end],
    )


@compiled
def score_groups(
    events: KeyedEvents,
    pool,
    ids_at,
    heads: Heads,
    directory: Directory,
    page_start,
    plans: GroupPlans,
    paging: Paging,
    emit_all,
    outcomes: EventOutcomes,
    from_ms,
):
    """Take in the events of the keys of several groups.

    Args:
        events: the events.
        pool: uint8, the keys' heads one after the other, then the pages at hand, then the events' ids.
        ids_at: where the ids begin.
        heads: what the heads say; clocks are changed.
        directory: entries of all keys, with the pages at hand marked; changed.
        page_start: int64 `(entries,)`, where each page at hand begins in the pool.
        plans: rules and policies.
        paging: how timelines are cut.
        emit_all: whether rows are written for every rule, or for the fired ones only.
        outcomes: filled.
        from_ms: int64 `(keys, windows)`, the first time that counts since each window was reset, changed; without keys
            where no window ever is.

    Returns:
        Rows, those of each group with its own events and rules; where those of each group begin, int64
        `(groups + 1,)`; the keys' new heads one after the other; where each begins, int64 `(keys + 1,)`; the pages that
        were written or go, `Written`; how many events of each group came to each outcome, int64 `(groups, OUTCOMES)`;
        and whether some outcome of each group is to be told of, bool `(groups,)`.
    """
    groups, keys = events.plan.shape[0], heads.cells.shape[0]
    rows = new_rows(_most_rows(events, plans) + 1 if emit_all else 1024)
    encoded, encoded_start = np.empty(65536, np.uint8), np.zeros(keys + 1, np.int64)
    written, used = new_written(65536, 64), np.int64(0)
    row_start, counts = np.zeros(groups + 1, np.int64), np.zeros((groups, OUTCOMES), np.int64)
    are_told = np.zeros(groups, np.bool_)
    for group in range(groups):
        first, end = events.group_start[group], events.group_start[group + 1]
        of_group = events_of(events, group, plans, pool, ids_at)
        of_events = _outcomes_between(outcomes, events.key_start[first], events.key_start[end])
        before = written.used[1]
        rows, used, encoded, written = score_keys(
            of_group,
            heads_between(heads, first, end),
            directory_between(directory, first, end),
            page_start,
            context_of(plans, events.plan[group], paging, emit_all),
            of_events,
            from_ms[first:end],
            rows,
            used,
            encoded,
            encoded_start[first : end + 1],
            written,
        )
        row_start[group + 1] = used
        _number_keys(written, before, first)
        are_told[group] = _count(of_events, counts, group)
    return rows, row_start, encoded[: encoded_start[keys]], encoded_start, written, counts, are_told
