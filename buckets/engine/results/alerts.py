"""Alerts: the events of a group at which a rule fired."""

import hashlib
import json
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from buckets.duration import format_duration
from buckets.engine.batch.keyed_table import KeyedTable
from buckets.engine.policies.policies import Decided, Fired
from buckets.engine.values.rule_values import value_maker
from buckets.engine.values.scored_group import ScoredGroup
from buckets.events.arrivals import INGESTED
from buckets.kernel.plan import GroupPlan
from buckets.kernel.result_rows import Rows
from buckets.numbers.fixed_point import AVERAGE_FACTOR, format_scaled, readable
from buckets.outputs.columns import TIME, VARIANT_ALERT_COLUMNS, output_columns
from buckets.rules.rule import Rule
from buckets.rules.short_form import VALUE, sentence_of

_POSITION = ("source", "source_order", "position")


def alert_id(rule: Rule, key: str, event_id: str, event_time_ms: int) -> str:
    """The identity of an alert: the same whenever the same event of the same key crosses the same version of a rule.

    An event is its id and its time, as everywhere: the same id at another time is no duplicate. Where it stands in its
    source does not count, so a replay from another file or topic has the same alerts.
    """
    parts = json.dumps([rule.rule_id, rule.version, key, event_id, event_time_ms], ensure_ascii=False)
    return hashlib.blake2b(parts.encode(), digest_size=16).hexdigest()


def fired_rows(group: ScoredGroup) -> Fired:
    """The rows at which rules of one aggregate fired."""
    rows = group.scored.rows
    chosen = np.flatnonzero(rows.fired)
    events, rules = rows.event[chosen], rows.rule[chosen]
    return Fired(group.plan.rules, rules, events, group.warm(events, rules))


def alert_table(group: ScoredGroup, decided: Decided, output: str, mine: npt.NDArray[np.int64]) -> pa.Table:
    """The rows of an output of alerts; with `ingested_ms` where the source knows that.

    Args:
        group: the scored events.
        decided: what became of its `fired_rows`.
        output: `alerts`, `shadow_alerts` or `held_alerts`.
        mine: int64, which of these rows go there.
    """
    rows, columns = group.scored.rows, output_columns(group.table.schema.largest_scale)[output]
    chosen = np.flatnonzero(rows.fired)[mine]
    events, rules = rows.event[chosen], rows.rule[chosen]
    taken = group.table.take(events)
    keys = group.table.key_column(events)
    times_ms = taken["time_ms"].to_numpy()
    fired = [group.plan.rules[rule] for rule in rules]
    decimals = value_maker(group.plan, group.table.schema, rules)
    value = decimals(rows.whole[chosen], rows.micro[chosen])
    lower = upper = value
    if not rows.exact[chosen].all():
        lower = decimals(rows.lower_whole[chosen], rows.lower_micro[chosen])
        upper = decimals(rows.upper_whole[chosen], rows.upper_micro[chosen])
    ids = taken["event_id"].to_pylist()
    numbers, index = np.unique(rules, return_inverse=True)
    different = [group.plan.rules[number] for number in numbers.tolist()]
    lengths_ms = np.array([rule.longest_window.length_ms for rule in different], np.int64)[index]
    sentences = pa.array([rule.sentence() for rule in different]).take(pa.array(index))
    warm = decided.fired.warm[mine]
    terms, conditions = _findings(group.plan, rows, chosen, warm)
    found = {
        "alert_id": pa.array(list(map(alert_id, fired, keys.to_pylist(), ids, times_ms.tolist()))),
        "rule_id": pa.array([rule.rule_id for rule in fired]),
        "rule_version": pa.array([rule.version for rule in fired], pa.int32()),
        "ruleset_version": pa.array(np.full(len(chosen), group.ruleset_version)),
        "rule": sentences,
        "key": keys,
        "event_id": taken["event_id"],
        "event_time": taken["time_ms"].cast(TIME),
        "value": value,
        "lower": lower,
        "upper": upper,
        "exact": pa.array(rows.exact[chosen]),
        "certain": pa.array(rows.certain[chosen]),
        "warm": pa.array(warm),
        "count": pa.array(rows.event_count[chosen]),
        "count_lower": pa.array(rows.count_lower[chosen]),
        "count_upper": pa.array(rows.count_upper[chosen]),
        "operator": pa.array([rule.limit.operator for rule in fired if rule.limit is not None]),
        "limit": pa.array([format(rule.limit.value, "f") for rule in fired if rule.limit is not None]),
        "window_start": pa.array(times_ms - lengths_ms).cast(TIME),
        "window_end": taken["time_ms"].cast(TIME),
        "event": pa.array(group.table.event_texts(events, taken)),
        "terms": pa.array(terms, pa.string()),
        "condition": pa.array(conditions, pa.string()),
        **decided.columns(mine),
        "source": taken["source"].cast(pa.string()),
        "source_order": taken["source_order"],
        "position": taken["position"],
    }
    table = pa.table({name: found[name] for name in columns.names}, schema=columns)
    return table.append_column(INGESTED, taken[INGESTED]) if INGESTED in taken.column_names else table


def variant_table(group: ScoredGroup, mine: npt.NDArray[np.int64]) -> pa.Table:
    """Return the rows of an output of variants, which say no more than which event it was: a sweep may have very many.

    Args:
        group: the scored events.
        mine: int64, which of its `fired_rows` go there.
    """
    rows = group.scored.rows
    chosen = np.flatnonzero(rows.fired)[mine]
    ids = pa.array([rule.rule_id for rule in group.plan.rules])
    return event_rows(group.table, rows.event[chosen], ids.take(pa.array(rows.rule[chosen])))


def event_rows(
    table: KeyedTable, events: npt.NDArray[np.int64], rule_ids: pa.Array, order: Sequence[str] = ()
) -> pa.Table:
    """Return rows of an output of variants.

    Args:
        table: the events of a group.
        events: int64, indices of events.
        rule_ids: the variant of each.
        order: of the fields of the key; empty for that of the group.
    """
    taken = table.events.select(["event_id", "time_ms", *_POSITION]).take(pa.array(events))
    found = {
        "rule_id": rule_ids,
        "key": table.key_column(events, order),
        "event_id": taken["event_id"],
        "event_time": taken["time_ms"].cast(TIME),
        "source": taken["source"].cast(pa.string()),
        "source_order": taken["source_order"],
        "position": taken["position"],
    }
    return pa.table(found, schema=VARIANT_ALERT_COLUMNS)


def _findings(
    plan: GroupPlan, rows: Rows, chosen: npt.NDArray[np.int64], warm: npt.NDArray[np.bool_]
) -> tuple[list[str], list[str]]:
    """The one term of each chosen row, as JSON text, and what was found as a sentence."""
    rules, exact = rows.rule[chosen].tolist(), rows.exact[chosen].tolist()
    of_rule = {rule: _Fixed.of(plan.rules[rule], plan.value_scales[rule]) for rule in set(rules)}
    fixed = [of_rule[rule] for rule in rules]
    values = _texts(fixed, rows.whole[chosen], rows.micro[chosen])
    lower, upper = values, values
    if not all(exact):
        lower = _texts(fixed, rows.lower_whole[chosen], rows.lower_micro[chosen])
        upper = _texts(fixed, rows.upper_whole[chosen], rows.upper_micro[chosen])
    counts = rows.event_count[chosen].tolist()
    terms, conditions = [], []
    for of, value, is_exact, least, most, count, is_warm in zip(
        fixed, values, exact, lower, upper, counts, warm.tolist(), strict=True
    ):
        bounds = "" if is_exact else f', "lower": "{least}", "upper": "{most}"'
        flags = f'"exact": {_JSON[is_exact]}, "count": {count}, "warm": {_JSON[is_warm]}'
        terms.append(f'{of.term}, "value": "{value}"{bounds}, {flags}}}]')
        conditions.append(f"{of.before}{readable(value)}{of.after}")
    return terms, conditions


_JSON = {True: "true", False: "false"}


def _texts(fixed: Sequence["_Fixed"], whole: npt.NDArray[np.int64], micro: npt.NDArray[np.int32]) -> list[str]:
    """Values as decimals with the digits of their rule."""
    numbers = zip(fixed, whole.tolist(), micro.tolist(), strict=True)
    return [format_scaled(one * of.factor + part, of.scale) for of, one, part in numbers]


class _Fixed(NamedTuple):
    """What all alerts of a rule of one aggregate share.

    Attributes:
        factor: how many of the last digits of a value make one unit of what the kernel gives.
        scale: the digits of a value after the point.
        term: the beginning of their term, as JSON.
        before: of their sentence what stands before the value.
        after: and what stands after it.
    """

    factor: int
    scale: int
    term: str
    before: str
    after: str

    @classmethod
    def of(cls, rule: Rule, scale: int) -> "_Fixed":
        """That of a rule whose values have so many digits after the point."""
        assert rule.limit is not None
        feature = rule.features[VALUE]
        of = {} if feature.of is None else {"of": feature.of}
        window = format_duration(feature.window.length_ms)
        term = {"name": VALUE, "function": feature.function} | of | {"window": window}
        before, _, after = sentence_of(feature, rule.limit, value=_VALUE).partition(_VALUE)
        factor = AVERAGE_FACTOR if feature.function == "avg" else 1
        return cls(factor, scale, json.dumps([term], ensure_ascii=False).removesuffix("}]"), before, after)


_VALUE = "\0"
"""Stands for the value in a sentence; no name contains it."""
