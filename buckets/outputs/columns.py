"""The outputs of scoring, each declared once in `OUTPUTS`; sinks, audit, replays and commands use these declarations.

Inside the query times are epoch milliseconds and values are decimals, both exact; a sink writes them in the form of
its files (timestamps in Delta, integers and strings in JSON lines).
"""

import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

from buckets.events.conversion import column_types
from buckets.events.schema import EventSchema
from buckets.json_text import write_json
from buckets.outputs import output
from buckets.outputs.output import VALUE, Check, Output, Published

ALERTS = "alerts"
SHADOW_ALERTS = "shadow_alerts"
HELD_ALERTS = "held_alerts"
VARIANT_ALERTS = "variant_alerts"
VARIANT_HELD_ALERTS = "variant_held_alerts"
VARIANT_OUTPUTS = (VARIANT_ALERTS, VARIANT_HELD_ALERTS)
"""Alerts that variants of rules would have raised, or held back; only in backtests with a sweep."""
EVALUATIONS = "evaluations"
LATE_EVENTS = "late_events"
COLLISIONS = "collisions"
DUPLICATES = "duplicates"
DEAD_LETTERS = "dead_letters"
BATCHES = "batches"
VERDICTS = "verdicts"
"""People's verdicts on alerts: not an output of scoring, but a further topic or table."""

TIME = pa.timestamp("ms", "UTC")  # A timestamp, in ms
DIFFERING = ("other_values", "own_values")
"""Columns of duplicates with only those fields that differ from the event that arrived earlier."""
OBJECTS = ("key", "event", "terms", *DIFFERING)  # Columns that are JSON as text in tables
_TYPES = {
    pa.string(): "source reason raw group group_id key alert_id rule_id rule event_id other_event_id operator limit "
    "event terms condition severity other_values own_values held_by state",
    pa.list_(pa.string()): "group_by tags compared",
    pa.bool_(): "exact certain warm fired applied too_late kept",
    pa.int32(): "rule_version",
    pa.int64(): "source_order position ruleset_version count count_lower count_upper score held_back batch_id",
    TIME: "event_time window_start window_end clock latest_event_time",
    VALUE: "value lower upper",
}
"""Types of columns by name: columns with one name have the same type in each output."""
_TYPE_OF = {name: kind for kind, names in _TYPES.items() for name in names.split()}


def _fields(names: str) -> tuple[pa.Field, ...]:
    return tuple(pa.field(name, _TYPE_OF[name]) for name in names.split())


_POSITION, _OF_GROUP = "source source_order position", "group group_by key"
DEAD_LETTER_COLUMNS = pa.schema(_fields(f"{_POSITION} reason raw"))
_ALERT = (
    "alert_id rule_id rule_version ruleset_version rule key event_id event_time value lower upper exact certain warm "
    "count count_lower count_upper operator limit window_start window_end event terms condition severity tags score "
    "held_back"
)
_REPEATS_OF_ALERTS = ("day", "event_time")
"""The id of an alert depends on the time of its transaction, but not on its source."""


def _alerts(name: str, contract: str, more: str = "") -> Output:
    published = Published(contract, output.OF_ALERTS, identity="alert_id", repeats_share=_REPEATS_OF_ALERTS)
    return Output(name, _fields(f"{_ALERT} {more} {_POSITION}"), published, ("alert_id",))


OUTPUTS = (
    _alerts(ALERTS, "alert-v2"),
    _alerts(SHADOW_ALERTS, "alert-v2"),
    _alerts(HELD_ALERTS, "held-alert-v1", "held_by state"),
    Output(
        EVALUATIONS,
        # For rules with features the value, its bounds and counts are NULL, and `terms` holds them as JSON; for others
        # it is the other way round.
        _fields(
            "event_id rule_id rule_version ruleset_version key event_time value lower upper exact warm "
            "count count_lower count_upper fired terms"
        ),
        Published("evaluation-v2", output.OF_VALUES),
        identity=("rule_id", "event_id", "event_time", "key"),
    ),
    Output(
        LATE_EVENTS,
        _fields(f"event_id {_OF_GROUP} event_time clock applied too_late other_event_id warm {_POSITION}"),
        Published(
            "late-event-v1",
            (
                Check("is_late", "event_time < clock", lambda row: row["event_time"] < row["clock"]),
                Check(
                    "too_late_is_not_applied",
                    "NOT (too_late AND applied)",
                    lambda row: not (row["too_late"] and row["applied"]),
                ),
            ),
        ),
    ),
    Output(
        COLLISIONS,
        _fields(f"event_id other_event_id {_OF_GROUP} event_time kept warm {_POSITION}"),
        Published(
            "collision-v1",
            (Check("two_events", "event_id <> other_event_id", lambda row: row["event_id"] != row["other_event_id"]),),
        ),
    ),
    Output(
        DUPLICATES,
        _fields(f"event_id {_OF_GROUP} event_time event compared other_values own_values warm {_POSITION}"),
        Published("duplicate-v1"),
    ),
    # A dead letter has no time of its own, and may be sent again on another day.
    Output(DEAD_LETTERS, DEAD_LETTER_COLUMNS, Published("dead-letter-v1", repeats_share=("position",))),
)
"""The outputs of scoring, which are decoded from payloads."""
PUBLISHED = {output.name: output.published for output in OUTPUTS if output.published is not None} | {
    VERDICTS: Published(
        "verdict-v1",
        (
            Check(
                "alert_or_event",
                "alert_id IS NOT NULL OR event_id IS NOT NULL",
                lambda row: row["alert_id"] is not None or row["event_id"] is not None,
            ),
        ),
        # A case tool may send a verdict again on any day; there are few of them.
        repeats_share=(),
    )
}
"""The outputs that may go to topics, and verdicts."""
TOPICS = tuple(name for name in PUBLISHED if name != VERDICTS)  # The outputs that may go to topics
TABLES = (*(output.name for output in OUTPUTS), BATCHES)  # The tables of a job that keeps evaluations
_VARIANT = _fields(f"rule_id key event_id event_time {_POSITION}")
_BY_NAME = {output.name: output for output in (*OUTPUTS, *(Output(name, _VARIANT) for name in VARIANT_OUTPUTS))}
_COUNTED = "events_in filtered evaluated late too_late duplicates collisions_not_kept dead_letters alerts held_alerts"
BATCH_COLUMNS = pa.schema(
    [
        *_fields("batch_id ruleset_version group_id group"),
        *((name, pa.int64()) for name in _COUNTED.split()),
        *_fields("latest_event_time"),
        *((name, pa.int64()) for name in ("no_key", "skipped", "unjudged", "rounded")),
    ]
)


def output_columns(largest_scale: int) -> dict[str, pa.Schema]:
    """Return the outputs that are decoded from payloads (all but `batches`), with their columns."""
    return {output.name: output.columns_for(largest_scale) for output in OUTPUTS}


def columns_of(name: str, largest_scale: int) -> pa.Schema:
    """Return the columns of one output that is decoded from payloads, or of one of variants."""
    return _BY_NAME[name].columns_for(largest_scale)


def names_of(kind: pa.DataType) -> frozenset[str]:
    """Return the names of all output columns of a type."""
    return frozenset(field.name for output in OUTPUTS for field in output.columns if field.type == kind)


def identity_of(name: str) -> tuple[str, ...]:
    """Return the columns that identify a row of an output."""
    return _BY_NAME[name].identity


def replayed_outputs(evaluations: bool) -> tuple[str, ...]:
    """Return the outputs whose rows a replay compares, with or without evaluations."""
    return tuple(output.name for output in OUTPUTS if output.identity and (evaluations or output.name != EVALUATIONS))


_VALUES = ("value", "lower", "upper")
_MOST_DIGITS = 38
_OF_MEASURE = 19  # Digits of the largest integer of 64 bits
_TERM = "name function of window where group_by value exact lower upper may_be_null count warm type"
_NO_TEXTS = dict.fromkeys(("exact", "may_be_null", "warm"), pa.bool_())
_NO_TEXTS |= {"group_by": pa.list_(pa.string()), "count": pa.int64()}
_TERMS = pa.list_(pa.struct([pa.field(name, _NO_TEXTS.get(name, pa.string())) for name in _TERM.split()]))


def field_types(schema: EventSchema) -> dict[str, pa.DataType]:
    """Return the types of event fields; measures are decimals with their scale."""
    measures = {name: pa.decimal128(_OF_MEASURE, measure.scale) for name, measure in schema.measures.items()}
    named = {schema.event_id: pa.string(), schema.event_time.field: pa.int64()}
    return named | column_types(schema) | measures


def with_structs(
    table: pa.Table, known: Mapping[str, pa.DataType] | None = None, key_fields: Iterable[str] = ()
) -> pa.Table:
    """Return results with `key`, `event` and `terms`, which are objects or JSON as text, as structs.

    `known` gives the types of fields, which all events then have; other types follow from the values. Keys always have
    `key_fields`.
    """
    for name in OBJECTS:
        index = table.schema.get_field_index(name)
        if index >= 0 and not pa.types.is_nested(table.schema.field(index).type):
            encoded = table.column(index).combine_chunks().dictionary_encode()
            written = encoded.dictionary.to_pylist()
            values = [json.loads(value) if isinstance(value, str) else value for value in written]
            there = key_fields if name == "key" else () if name in DIFFERING else known or ()
            kind = _TERMS if name == "terms" else _struct_of(values, known or {}, there)
            parsed = pa.array([_fitting(value, kind) for value in values], kind)
            table = table.set_column(index, name, parsed.take(encoded.indices))
    return table


def with_digits(table: pa.Table, digits: int) -> pa.Table:
    """Return results with values cast to `digits` digits after the point, the most that any rule has."""
    for name in _VALUES:
        index = table.schema.get_field_index(name)
        if index >= 0:
            table = table.set_column(index, name, table.column(index).cast(pa.decimal128(_MOST_DIGITS, digits)))
    return table


def _struct_of(values: Iterable[Any], known: Mapping[str, pa.DataType], there: Iterable[str]) -> pa.DataType:
    """Return the type that fits all values, and always has the given fields."""
    seen: dict[str, set[type]] = {name: set() for name in there}
    elements: dict[str, set[type]] = {}
    for value in values:
        for name, part in (value or {}).items():
            seen.setdefault(name, set()).add(type(part))
            if isinstance(part, list):
                elements.setdefault(name, set()).update(map(type, part))
    kinds = {name: _type_of(kinds) for name, kinds in seen.items()}
    kinds |= {name: pa.list_(_type_of(of)) for name, of in elements.items() if seen[name] <= {list, type(None)}}
    return pa.struct([(name, known.get(name) or kind) for name, kind in kinds.items()])


def _type_of(kinds: set[type]) -> pa.DataType:
    of_values = kinds - {type(None)}
    if of_values == {bool}:
        return pa.bool_()
    return pa.int64() if of_values == {int} else pa.string()


def _fitting(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _fitting(value.get(field.name), field.type) for field in kind}
    if pa.types.is_list(kind):
        return [_fitting(item, kind.value_type) for item in value]
    if pa.types.is_decimal(kind):
        return Decimal(str(value))
    return write_json(value) if pa.types.is_string(kind) and not isinstance(value, str) else value
