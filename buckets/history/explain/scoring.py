"""The keys of an event scored again by the engine in memory, where what is asked is recorded nowhere.

A group whose history was filled in is scored as what it is since then: one that was there from the beginning of the
archive. Until the fill began it is scored by the rules of the batch with which that was.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from buckets.archive.archive import ARRIVAL, BATCH, OWN_COLUMNS
from buckets.delta.query import is_between
from buckets.history.explain.arrivals import Arrivals
from buckets.history.explain.history_lookup import Past, is_value
from buckets.moment import TimeRange
from buckets.outputs.recorded_outputs import Row, rows_of
from buckets.rules.fill import Fill
from buckets.rules.group import Group
from buckets.rules.rule_set import RuleSet

if TYPE_CHECKING:
    from buckets.history.scoring.scoring import ArchivePiece

_NEVER = -1
"""The generation of a group that is not there yet: what it takes in counts for no later one."""


def score_again(
    past: Past, target: Arrivals, groups: Sequence[Group], from_ms: int | None, outputs: Iterable[str]
) -> dict[str, list[Row]]:
    """Score the keys of an event in some groups, and return the rows of some outputs.

    Args:
        past: the past.
        target: the event, alone.
        groups: the groups, as they were in its batch.
        from_ms: the first event time that is scored; None for all.
        outputs: those that are wanted.
    """
    from buckets.history.scoring.scoring import score_pieces

    by_output: dict[str, list[Row]] = {output: [] for output in outputs}
    for scored in score_pieces(_pieces(past, target, groups, from_ms), evaluations=True):
        for output, rows in by_output.items():
            rows += rows_of(scored.table(output), Path(output))
    return by_output


def _pieces(past: Past, target: Arrivals, groups: Sequence[Group], from_ms: int | None) -> "Iterator[ArchivePiece]":
    """Read what has arrived of some keys up to an event, batch by batch."""
    from buckets.history.scoring.scoring import ArchivePiece

    schema, columns, batch_id = target.schema, target.columns(), int(target.batches[0])
    keys = [
        " and ".join(is_value(schema, field, columns[field][0].as_py()) for field in group.fields) or "true"
        for group in groups
    ]
    tests = [f"({') or ('.join(keys)})", f'"{ARRIVAL}" <= {target.numbers[0]}']
    tests += is_between(schema.event_time.field, TimeRange(from_ms))
    rows: pa.Table = past.rows(tests, [*OWN_COLUMNS.names, *schema.field_names]).sort_by(ARRIVAL).combine_chunks()
    batches = rows[BATCH].to_numpy()
    starts = np.flatnonzero(np.diff(batches, prepend=batches[:1] - 1)).tolist()
    known = [(group, past.fill_of(group, batch_id)) for group in groups]
    fills = [(group, fill) for group, fill in known if fill is not None]
    for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
        batch_id = int(batches[start])
        rule_set = _rules(past, batch_id, fills) if fills else past.rule_set(batch_id)
        yield ArchivePiece(rows.slice(start, end - start), rule_set, past.terms(batch_id), past.lists(batch_id))


def _rules(past: Past, batch_id: int, fills: Sequence[tuple[Group, Fill]]) -> RuleSet:
    """Return the rules of a batch as if what was filled in had been there from the beginning."""
    begun = max(past.begun_with(fill) for _, fill in fills)
    rule_set = past.rule_set(max(batch_id, begun))
    then = {group.group_id: group.generation for group in past.rule_set(batch_id).groups}
    filled = {group.group_id: (group.timelines, fill) for group, fill in fills}
    groups = []
    for group in rule_set.groups:
        if group.group_id in filled:
            timelines, fill = filled[group.group_id]
            group = replace(group, timelines=timelines, complete=dict.fromkeys(group.complete, fill.complete))
        elif batch_id < begun:
            group = replace(group, generation=then.get(group.group_id, _NEVER))
        groups.append(group)
    return replace(rule_set, groups=tuple(groups), fills=())
