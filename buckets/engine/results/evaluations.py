"""Evaluations: the result of every rule for every event.

Those of rules in the short form are compact on their way through Spark, and become rows where they are written.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buckets.engine.results.condition_results import all_exact, all_warm, term_texts
from buckets.engine.results.rule_texts import RuleTexts
from buckets.engine.values.feature_rules import Judged
from buckets.engine.values.rule_values import ROW_COLUMNS, number_columns, row_columns
from buckets.engine.values.scored_group import ScoredGroup
from buckets.events.schema import EventSchema
from buckets.kernel.plan import GroupPlan
from buckets.kernel.score import chosen_rows
from buckets.outputs.columns import EVALUATIONS, TIME, columns_of


def condition_evaluations(judged: Judged, ruleset_version: int) -> pa.Table:
    """Return a rule with a condition at every event, in the columns that `expand_evaluations` gives."""
    table, rows = judged.table, np.arange(len(judged.events))
    taken = table.take(judged.events)
    columns = {
        "event_id": taken["event_id"],
        "rule_id": pa.repeat(judged.rule.rule_id, len(rows)),
        "rule_version": pa.repeat(pa.scalar(judged.rule.version, pa.int32()), len(rows)),
        "ruleset_version": pa.repeat(ruleset_version, len(rows)),
        "key": table.key_column(judged.events, judged.rule.group_by),
        "event_time": taken["time_ms"].cast(TIME),
        "exact": pa.array(all_exact(judged, rows)),
        "warm": pa.array(all_warm(judged, rows)),
        "fired": pa.array(judged.fired),
        "terms": term_texts(judged, rows, RuleTexts.of(judged.rule)),
    }
    return _table(columns, table.schema, taken)


def _table(found: dict[str, pa.Array], schema: EventSchema, origins: pa.Table) -> pa.Table:
    """Return columns in their order, with nulls for those that are not there, and where each event came from."""
    columns = columns_of(EVALUATIONS, schema.largest_scale)
    known = {field.name: found.get(field.name, pa.nulls(len(origins), field.type)) for field in columns}
    origin = {
        "source": origins["source"].cast(pa.string()),
        "source_order": origins["source_order"],
        "position": origins["position"],
    }
    return pa.table(known | origin)


def compact_evaluations(group: ScoredGroup) -> pa.Table:
    """Return the results of rules in the short form: a row for an event, with its results as lists.

    `expand_evaluations` makes them rows.
    """
    rows, are_short = group.scored.rows, np.array([rule.is_short for rule in group.plan.rules], np.bool_)
    if not are_short.all():
        rows = chosen_rows(rows, are_short[rows.rule])
    starts = np.flatnonzero(np.diff(rows.event, prepend=-1))
    events = rows.event[starts]
    offsets = pa.array(np.append(starts, len(rows.event)).astype(np.int32))
    taken = group.table.take(events)
    columns = {
        "rule": rows.rule,
        "fired": rows.fired,
        "warm": group.warm(rows.event, rows.rule),
        **row_columns(rows),
    }
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


def expand_evaluations(compact: pa.Table, plan: GroupPlan, schema: EventSchema, ruleset_version: int) -> pa.Table:
    """Expand compact evaluations into one row per event and rule, in the columns of the output `evaluations`.

    There are three more columns, `source`, `source_order` and `position`, which say where the event came from.

    Args:
        compact: what `compact_evaluations` gave.
        plan: the plan of its group.
        schema: the event schema.
        ruleset_version: version of the rule set that evaluated the events.
    """
    names = ["rule", "fired", "warm", *(name for name in ROW_COLUMNS if name in compact.column_names)]
    lists = {name: compact[name].combine_chunks() for name in names}
    flat = {name: pc.list_flatten(values) for name, values in lists.items()}
    events, rules = pc.list_parent_indices(lists["rule"]), flat["rule"].to_numpy()
    rows = {name: flat[name].to_numpy(zero_copy_only=False) for name in names if name in ROW_COLUMNS}
    rule_ids = pa.array([rule.rule_id for rule in plan.rules])
    versions = pa.array([rule.version for rule in plan.rules], pa.int32())
    columns = {
        "event_id": compact["event_id"].take(events),
        "rule_id": rule_ids.take(flat["rule"]),
        "rule_version": versions.take(flat["rule"]),
        "ruleset_version": pa.array(np.full(len(rules), ruleset_version)),
        "key": compact["key"].cast(pa.string()).take(events),
        "event_time": compact["time_ms"].cast(TIME).take(events),
        **number_columns(plan, schema, rules, rows),
        "warm": flat["warm"],
        "fired": flat["fired"],
    }
    return _table(columns, schema, compact.select(["source", "source_order", "position"]).take(events))
