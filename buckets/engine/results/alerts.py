"""Alerts: the events at which rules fired."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring

import numpy as np
import pyarrow as pa

from buckets.arrays import Int64s
from buckets.engine.batch.fan_out import KeyedTable
from buckets.engine.policies import Decided, Fired
from buckets.events.arrivals import INGESTED
from buckets.outputs.columns import TIME, VARIANT_OUTPUTS, columns_of
from buckets.rules.rule import Rule

_POSITION = ("source", "source_order", "position")


@dataclass(frozen=True)
class FiredRules:
    """Rules of one group at the events at which they fired."""

    table: KeyedTable  # the events of the group
    fired: Fired  # the events at which they fired, a row for each rule and event
    # returns the alert columns with the results, for some of these rows
    columns: Callable[[Int64s], dict[str, pa.Array]]
    key_order: Sequence[str] = ()  # the order of fields in keys; empty for the group's order


def alert_id(rule: str, key: str, event_id: str, event_time_ms: int) -> str:
    """Return the identity of an alert: the same whenever an event of a key crosses the same version of a rule.

    `rule` is as `_named` writes it. Id and time identify an event, as everywhere: the same id at another time is not a
    duplicate. Its position in the source does not count, so a replay from another file or topic has the same alerts.
    """
    parts = f"[{rule}, {encode_basestring(key)}, {encode_basestring(event_id)}, {event_time_ms}]"
    return hashlib.blake2b(parts.encode(), digest_size=16).hexdigest()


def _named(rule: Rule) -> str:
    """Return the id and version of a rule as two elements of a JSON list."""
    return f"{encode_basestring(rule.rule_id)}, {rule.version}"


def alert_table(results: FiredRules, ruleset_version: int, decided: Decided, output: str, chosen: Int64s) -> pa.Table:
    """Return the chosen rows of an output of alerts, with `ingested_ms` if the source has it.

    Alerts of variants only identify the event, as they may be many.
    """
    table, fired, is_of_variants = results.table, results.fired, output in VARIANT_OUTPUTS
    events, columns = fired.events[chosen], columns_of(output, table.schema.largest_scale)
    taken = table.take(events, ("event_id", "time_ms", *_POSITION) if is_of_variants else ())
    numbers, index = np.unique(fired.rule[chosen], return_inverse=True)
    rules, of_rule = [fired.rules[number] for number in numbers.tolist()], pa.array(index)
    values: dict[str, pa.Array] = {
        "rule_id": pa.array([rule.rule_id for rule in rules], pa.string()).take(of_rule),
        "key": table.key_column(events, results.key_order),
        "event_id": taken["event_id"],
        "event_time": taken["time_ms"].cast(TIME),
        "source": taken["source"].cast(pa.string()),
        "source_order": taken["source_order"],
        "position": taken["position"],
    }
    if is_of_variants:
        return pa.table(values, schema=columns)
    shown = taken
    if len(rules) > 1:  # At an event many rules may have fired.
        different, event = np.unique(events, return_inverse=True)
        shown = table.take(different)
    texts = pa.array(table.event_texts(shown), pa.string())
    times_ms = table.times_ms(events)
    of_events = (values["key"].to_pylist(), values["event_id"].to_pylist(), times_ms.tolist())
    starts_ms = times_ms - np.array([rule.longest_window.begins_ms for rule in rules], np.int64)[index]
    ends_ms = times_ms - np.array([rule.ends_ms for rule in rules], np.int64)[index]
    for number, rule in enumerate(rules):
        if any(feature.window.calendar or feature.periods for feature in rule.features.values()):
            here = index == number
            of_windows = [feature.window.starts_ms(times_ms[here]) for feature in rule.features.values()]
            starts_ms[here] = np.min(of_windows, axis=0)
            ends_ms[here] = np.max(
                [feature.window.ends_ms(times_ms[here]) for feature in rule.features.values()], axis=0
            )
    named = [*map(_named, rules)]
    values |= {
        "alert_id": pa.array(list(map(alert_id, [named[rule] for rule in index.tolist()], *of_events)), pa.string()),
        "rule_version": pa.array([rule.version for rule in rules], pa.int32()).take(of_rule),
        "ruleset_version": pa.array(np.full(len(chosen), ruleset_version)),
        "rule": pa.array([rule.sentence() for rule in rules], pa.string()).take(of_rule),
        "warm": pa.array(fired.warm[chosen]),
        **results.columns(chosen),
        "window_start": pa.array(starts_ms).cast(TIME),
        "window_end": pa.array(ends_ms).cast(TIME),
        "event": texts if shown is taken else texts.take(pa.array(event)),
        **decided.columns(chosen),
    }
    known = [values[field.name] if field.name in values else pa.nulls(len(chosen), field.type) for field in columns]
    made = pa.table(known, schema=columns)
    return made.append_column(INGESTED, taken[INGESTED]) if INGESTED in taken.column_names else made
