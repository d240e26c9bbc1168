"""The outputs of scoring, each declared once in `OUTPUTS`; sinks, audit, replays and commands go by these declarations.

Inside the query times are epoch milliseconds and values are decimals, both exact; a sink writes them in the form of its
files (timestamps in Delta, integers and strings in JSON lines).
"""

import pyarrow as pa

from buckets.outputs import checks
from buckets.outputs.output import VALUE, Check, Output, Published

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

TIME = pa.timestamp("ms", "UTC")
"""A moment, to the millisecond."""
DIFFERING = ("other_values", "own_values")
"""Columns of duplicates, with the fields alone in which one differs from the event that had arrived."""
OBJECTS = ("key", "event", "terms", *DIFFERING)
"""Columns that are JSON as text in tables."""
_POSITION = [pa.field("source", pa.string()), pa.field("source_order", pa.int64()), pa.field("position", pa.int64())]
_OF_GROUP = [
    pa.field("group", pa.string()),
    pa.field("group_by", pa.list_(pa.string())),
    pa.field("key", pa.string()),
]
DEAD_LETTER_COLUMNS = pa.schema([*_POSITION, pa.field("reason", pa.string()), pa.field("raw", pa.string())])
_ALERT = (
    pa.field("alert_id", pa.string()),
    pa.field("rule_id", pa.string()),
    pa.field("rule_version", pa.int32()),
    pa.field("ruleset_version", pa.int64()),
    pa.field("rule", pa.string()),
    pa.field("key", pa.string()),
    pa.field("event_id", pa.string()),
    pa.field("event_time", TIME),
    pa.field("value", VALUE),
    pa.field("lower", VALUE),
    pa.field("upper", VALUE),
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
)
_REPEATS_OF_ALERTS = ("day", "event_time")
"""The id of an alert does not say where its transaction came from, but when it was."""


def _alerts(name: str, contract: str, *more: pa.Field, in_all_releases: bool = False) -> Output:
    published = Published(contract, checks.OF_ALERTS, identity="alert_id", repeats_share=_REPEATS_OF_ALERTS)
    return Output(name, (*_ALERT, *more, *_POSITION), published, ("alert_id",), in_all_releases)


OUTPUTS = (
    _alerts(ALERTS, "alert-v2", in_all_releases=True),
    _alerts(SHADOW_ALERTS, "alert-v2"),
    _alerts(HELD_ALERTS, "held-alert-v1", pa.field("held_by", pa.string()), pa.field("state", pa.string())),
    Output(
        EVALUATIONS,
        # Of a rule with features the value, its bounds and counts are NULL, and `terms` tells them, as JSON; of others
        # it is the other way round.
        (
            pa.field("event_id", pa.string()),
            pa.field("rule_id", pa.string()),
            pa.field("rule_version", pa.int32()),
            pa.field("ruleset_version", pa.int64()),
            pa.field("key", pa.string()),
            pa.field("event_time", TIME),
            pa.field("value", VALUE),
            pa.field("lower", VALUE),
            pa.field("upper", VALUE),
            pa.field("exact", pa.bool_()),
            pa.field("warm", pa.bool_()),
            pa.field("count", pa.int64()),
            pa.field("count_lower", pa.int64()),
            pa.field("count_upper", pa.int64()),
            pa.field("fired", pa.bool_()),
            pa.field("terms", pa.string()),
        ),
        Published("evaluation-v2", checks.OF_VALUES),
        identity=("rule_id", "event_id", "event_time", "key"),
    ),
    Output(
        LATE_EVENTS,
        (
            pa.field("event_id", pa.string()),
            *_OF_GROUP,
            pa.field("event_time", TIME),
            pa.field("clock", TIME),
            pa.field("applied", pa.bool_()),
            pa.field("too_late", pa.bool_()),
            pa.field("other_event_id", pa.string()),
            pa.field("warm", pa.bool_()),
            *_POSITION,
        ),
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
        in_all_releases=True,
    ),
    Output(
        COLLISIONS,
        (
            pa.field("event_id", pa.string()),
            pa.field("other_event_id", pa.string()),
            *_OF_GROUP,
            pa.field("event_time", TIME),
            pa.field("kept", pa.bool_()),
            pa.field("warm", pa.bool_()),
            *_POSITION,
        ),
        Published(
            "collision-v1",
            (Check("two_events", "event_id <> other_event_id", lambda row: row["event_id"] != row["other_event_id"]),),
        ),
        in_all_releases=True,
    ),
    Output(
        DUPLICATES,
        (
            pa.field("event_id", pa.string()),
            *_OF_GROUP,
            pa.field("event_time", TIME),
            pa.field("event", pa.string()),
            pa.field("compared", pa.list_(pa.string())),
            pa.field("other_values", pa.string()),
            pa.field("own_values", pa.string()),
            pa.field("warm", pa.bool_()),
            *_POSITION,
        ),
        Published("duplicate-v1"),
        in_all_releases=True,
    ),
    Output(
        DEAD_LETTERS,
        DEAD_LETTER_COLUMNS,
        # A dead letter has no time of its own, and may be sent again on another day.
        Published("dead-letter-v1", repeats_share=("position",)),
        in_all_releases=True,
    ),
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
TOPICS = tuple(name for name in PUBLISHED if name != VERDICTS)
"""The outputs that may go to topics."""
TABLES = (*(output.name for output in OUTPUTS), BATCHES)
"""The tables of a job that keeps evaluations."""
_VARIANT = (
    pa.field("rule_id", pa.string()),
    pa.field("key", pa.string()),
    pa.field("event_id", pa.string()),
    pa.field("event_time", TIME),
    *_POSITION,
)
_BY_NAME = {output.name: output for output in (*OUTPUTS, *(Output(name, _VARIANT) for name in VARIANT_OUTPUTS))}
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
        pa.field("skipped", pa.int64()),
        pa.field("unjudged", pa.int64()),
        pa.field("rounded", pa.int64()),
    ]
)


def output_columns(largest_scale: int) -> dict[str, pa.Schema]:
    """Return the outputs that are decoded from payloads, which are all but `batches`, and their columns."""
    return {output.name: output.columns_for(largest_scale) for output in OUTPUTS}


def columns_of(name: str, largest_scale: int) -> pa.Schema:
    """Return the columns of one output that is decoded from payloads, also of variants."""
    return _BY_NAME[name].columns_for(largest_scale)


def names_of(kind: pa.DataType) -> frozenset[str]:
    """Return the columns of outputs that have a type."""
    return frozenset(field.name for output in OUTPUTS for field in output.columns if field.type == kind)


def identity_of(name: str) -> tuple[str, ...]:
    """Return the columns that tell rows of an output apart."""
    return _BY_NAME[name].identity


def replayed_outputs(evaluations: bool) -> tuple[str, ...]:
    """Return the outputs whose rows a replay compares, with or without evaluations."""
    return tuple(output.name for output in OUTPUTS if output.identity and (evaluations or output.name != EVALUATIONS))
