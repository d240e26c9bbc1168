"""The outputs of scoring: their names and their columns.

Inside the query times are epoch milliseconds and values are decimals, both exact; a sink writes them in the form of its
files (timestamps in Delta, integers and strings in JSON lines).
"""

import pyarrow as pa

ALERTS = "alerts"
SHADOW_ALERTS = "shadow_alerts"
HELD_ALERTS = "held_alerts"
VARIANT_ALERTS = "variant_alerts"
VARIANT_HELD_ALERTS = "variant_held_alerts"
VARIANT_OUTPUTS = (VARIANT_ALERTS, VARIANT_HELD_ALERTS)
"""What variants of rules would have raised, and held back; only in backtests with a sweep."""
EVALUATIONS = "evaluations"
LATE_EVENTS = "late_events"
COLLISIONS = "collisions"
DUPLICATES = "duplicates"
DEAD_LETTERS = "dead_letters"
BATCHES = "batches"
VERDICTS = "verdicts"
"""What people have found about alerts: no output of scoring, but a topic, or a table, beside those."""

TOPICS = (ALERTS, SHADOW_ALERTS, HELD_ALERTS, EVALUATIONS, LATE_EVENTS, COLLISIONS, DUPLICATES, DEAD_LETTERS)
"""The outputs that may go to topics."""

TIME = pa.timestamp("ms", "UTC")
"""A moment, to the millisecond."""
_POSITION = [pa.field("source", pa.string()), pa.field("source_order", pa.int64()), pa.field("position", pa.int64())]
_OF_GROUP = [
    pa.field("group", pa.string()),
    pa.field("group_by", pa.list_(pa.string())),
    pa.field("key", pa.string()),
]

DEAD_LETTER_COLUMNS = pa.schema([*_POSITION, pa.field("reason", pa.string()), pa.field("raw", pa.string())])
LATE_EVENT_COLUMNS = pa.schema(
    [
        pa.field("event_id", pa.string()),
        *_OF_GROUP,
        pa.field("event_time", TIME),
        pa.field("clock", TIME),
        pa.field("applied", pa.bool_()),
        pa.field("too_late", pa.bool_()),
        pa.field("other_event_id", pa.string()),
        pa.field("warm", pa.bool_()),
        *_POSITION,
    ]
)
COLLISION_COLUMNS = pa.schema(
    [
        pa.field("event_id", pa.string()),
        pa.field("other_event_id", pa.string()),
        *_OF_GROUP,
        pa.field("event_time", TIME),
        pa.field("kept", pa.bool_()),
        pa.field("warm", pa.bool_()),
        *_POSITION,
    ]
)
DUPLICATE_COLUMNS = pa.schema(
    [
        pa.field("event_id", pa.string()),
        *_OF_GROUP,
        pa.field("event_time", TIME),
        pa.field("warm", pa.bool_()),
        *_POSITION,
    ]
)
VARIANT_ALERT_COLUMNS = pa.schema(
    [
        pa.field("rule_id", pa.string()),
        pa.field("key", pa.string()),
        pa.field("event_id", pa.string()),
        pa.field("event_time", TIME),
        *_POSITION,
    ]
)
BATCH_COLUMNS = pa.schema(
    [
        pa.field("batch_id", pa.int64()),
        pa.field("ruleset_version", pa.int64()),
        pa.field("group_id", pa.string()),
        pa.field("group", pa.string()),
        pa.field("events_in", pa.int64()),
        pa.field("filtered", pa.int64()),
        pa.field("evaluated", pa.int64()),
        pa.field("late", pa.int64()),
        pa.field("too_late", pa.int64()),
        pa.field("duplicates", pa.int64()),
        pa.field("collisions_not_kept", pa.int64()),
        pa.field("dead_letters", pa.int64()),
        pa.field("alerts", pa.int64()),
        pa.field("held_alerts", pa.int64()),
        pa.field("latest_event_time", TIME),
        pa.field("no_key", pa.int64()),
    ]
)


def value_type(largest_scale: int) -> pa.DataType:
    """The type of values: a decimal with room for any 64-bit sum and for an average's extra digits."""
    return pa.decimal128(38, largest_scale + 6)


def evaluation_columns(largest_scale: int) -> pa.Schema:
    """Columns of `evaluations`: one row for an evaluated event and a rule.

    `value`, its bounds and counts are NULL of a rule with features, whose `terms` tell them, as JSON; and the other way
    round.
    """
    value = value_type(largest_scale)
    return pa.schema(
        [
            pa.field("event_id", pa.string()),
            pa.field("rule_id", pa.string()),
            pa.field("rule_version", pa.int32()),
            pa.field("ruleset_version", pa.int64()),
            pa.field("key", pa.string()),
            pa.field("event_time", TIME),
            pa.field("value", value),
            pa.field("lower", value),
            pa.field("upper", value),
            pa.field("exact", pa.bool_()),
            pa.field("warm", pa.bool_()),
            pa.field("count", pa.int64()),
            pa.field("count_lower", pa.int64()),
            pa.field("count_upper", pa.int64()),
            pa.field("fired", pa.bool_()),
            pa.field("terms", pa.string()),
        ]
    )


def alert_columns(largest_scale: int) -> pa.Schema:
    """Columns of `alerts` and `shadow_alerts`."""
    value = value_type(largest_scale)
    return pa.schema(
        [
            pa.field("alert_id", pa.string()),
            pa.field("rule_id", pa.string()),
            pa.field("rule_version", pa.int32()),
            pa.field("ruleset_version", pa.int64()),
            pa.field("rule", pa.string()),
            pa.field("key", pa.string()),
            pa.field("event_id", pa.string()),
            pa.field("event_time", TIME),
            pa.field("value", value),
            pa.field("lower", value),
            pa.field("upper", value),
            pa.field("exact", pa.bool_()),
            pa.field("certain", pa.bool_()),
            pa.field("warm", pa.bool_()),
            pa.field("count", pa.int64()),
            pa.field("count_lower", pa.int64()),
            pa.field("count_upper", pa.int64()),
            pa.field("operator", pa.string()),
            pa.field("limit", pa.string()),
            pa.field("window_start", TIME),
            pa.field("window_end", TIME),
            pa.field("event", pa.string()),
            pa.field("terms", pa.string()),
            pa.field("condition", pa.string()),
            pa.field("severity", pa.string()),
            pa.field("tags", pa.list_(pa.string())),
            pa.field("score", pa.int64()),
            pa.field("held_back", pa.int64()),
            *_POSITION,
        ]
    )


def held_alert_columns(largest_scale: int) -> pa.Schema:
    """Columns of `held_alerts`: those of alerts, what has held them back, and the state that they are of."""
    columns = alert_columns(largest_scale)
    for name in ("state", "held_by"):
        columns = columns.insert(columns.get_field_index("held_back") + 1, pa.field(name, pa.string()))
    return columns


def output_columns(largest_scale: int) -> dict[str, pa.Schema]:
    """The outputs that are decoded from payloads, which are all but `batches`, and their columns."""
    alerts = alert_columns(largest_scale)
    return {
        ALERTS: alerts,
        SHADOW_ALERTS: alerts,
        HELD_ALERTS: held_alert_columns(largest_scale),
        EVALUATIONS: evaluation_columns(largest_scale),
        LATE_EVENTS: LATE_EVENT_COLUMNS,
        COLLISIONS: COLLISION_COLUMNS,
        DUPLICATES: DUPLICATE_COLUMNS,
        DEAD_LETTERS: DEAD_LETTER_COLUMNS,
    }


def columns_of(output: str, largest_scale: int) -> pa.Schema:
    """The columns of one output that is decoded from payloads, also of variants."""
    return VARIANT_ALERT_COLUMNS if output in VARIANT_OUTPUTS else output_columns(largest_scale)[output]
