"""The result of every rule for every event: compactly on its way through Spark, as rows where it is written."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.engine.values.rule_values import value_maker
from buckets.engine.values.scored_group import ScoredGroup
from buckets.events.schema import EventSchema
from buckets.kernel.plan import GroupPlan
from buckets.outputs.columns import TIME

_LIST_COLUMNS = ("rule", "whole", "micro", "count", "fired", "warm")
_BOUND_COLUMNS = (
    "lower_whole",
    "lower_micro",
    "upper_whole",
    "upper_micro",
    "exact",
    "count_lower",
    "count_upper",
)
"""Columns of compact evaluations that are there only where some window is uncertain."""


def compact_evaluations(group: ScoredGroup) -> pa.Table:
    """All results of a group: one row per event, with its results as lists. `expand_evaluations` makes them rows."""
    rows = group.scored.rows
    starts = np.flatnonzero(np.diff(rows.event, prepend=-1))
    events = rows.event[starts]
    offsets = pa.array(np.append(starts, len(rows.event)).astype(np.int32))
    taken = group.table.take(events)
    columns = {
        "rule": rows.rule,
        "whole": rows.whole,
        "micro": rows.micro,
        "count": rows.event_count,
        "fired": rows.fired,
        "warm": group.warm(rows.event, rows.rule),
    }
    if not np.array_equal(rows.count_lower, rows.count_upper):
        columns |= {name: getattr(rows, name) for name in _BOUND_COLUMNS}
    return pa.table(
        {
            "event_id": taken["event_id"],
            "key": group.table.key_column(events).dictionary_encode(),
            "time_ms": taken["time_ms"],
            "source": taken["source"],
            "source_order": taken["source_order"],
            "position": taken["position"],
        }
        | {name: pa.ListArray.from_arrays(offsets, pa.array(values)) for name, values in columns.items()}
    )


def _null_without_events(values: pa.Array, events: pa.Array) -> pa.Array:
    """Values, NULL where they are of no events."""
    is_null = pc.equal(events, 0)
    return pc.if_else(is_null, pa.scalar(None, values.type), values) if pc.any(is_null).as_py() else values


def expand_evaluations(compact: pa.Table, plan: GroupPlan, schema: EventSchema, ruleset_version: int) -> pa.Table:
    """Compact evaluations as one row per event and rule, in the columns of `columns.evaluation_columns`.

    There are three more columns, `source`, `source_order` and `position`, which say where the event came from.

    Args:
        compact: what `compact_evaluations` gave.
        plan: the plan of its group.
        schema: the event schema.
        ruleset_version: version of the rule set that evaluated the events.
    """
    names = [*_LIST_COLUMNS, *(name for name in _BOUND_COLUMNS if name in compact.column_names)]
    lists = {name: compact[name].combine_chunks() for name in names}
    flat = {name: pc.list_flatten(values) for name, values in lists.items()}
    events = pc.list_parent_indices(lists["rule"])
    rules = flat["rule"].to_numpy()
    decimals = value_maker(plan, schema, rules)
    value = decimals(flat["whole"].to_numpy(), flat["micro"].to_numpy())
    lower = upper = value
    count_lower = count_upper = flat["count"]
    exact = pa.array(np.ones(len(rules), np.bool_))
    if "exact" in flat:
        count_lower, count_upper = flat["count_lower"], flat["count_upper"]
        lower = decimals(flat["lower_whole"].to_numpy(), flat["lower_micro"].to_numpy())
        upper = decimals(flat["upper_whole"].to_numpy(), flat["upper_micro"].to_numpy())
        exact = flat["exact"]
    value = _null_without_events(value, flat["count"])
    lower, upper = (_null_without_events(each, count_upper) for each in (lower, upper))
    rule_ids = pa.array([rule.rule_id for rule in plan.rules])
    versions = pa.array([rule.version for rule in plan.rules], pa.int32())
    return pa.table(
        {
            "event_id": compact["event_id"].take(events),
            "rule_id": rule_ids.take(flat["rule"]),
            "rule_version": versions.take(flat["rule"]),
            "ruleset_version": pa.array(np.full(len(rules), ruleset_version)),
            "key": compact["key"].cast(pa.string()).take(events),
            "event_time": compact["time_ms"].cast(TIME).take(events),
            "value": value,
            "lower": lower,
            "upper": upper,
            "exact": exact,
            "warm": flat["warm"],
            "count": flat["count"],
            "count_lower": count_lower,
            "count_upper": count_upper,
            "fired": flat["fired"],
            "terms": pa.nulls(len(rules), pa.string()),
            "source": compact["source"].cast(pa.string()).take(events),
            "source_order": compact["source_order"].take(events),
            "position": compact["position"].take(events),
        }
    )
