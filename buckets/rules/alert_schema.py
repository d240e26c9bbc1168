"""Alerts as events: the event schema of rules that count alerts.

An alert as an event has an id of its own, the time of its event, all fields of that event (its id is an attribute), and
what the rule that fired says: its name, its severity and its score.
"""

from typing import Literal

from buckets.events.event_id import EventId
from buckets.events.schema import ALERT_SCORE, AttributeType, EventSchema, EventTime, Measure

Counted = Literal["events", "alerts"]
"""What a rule counts."""
ALERT_ID = "alert_id"
ALERT_RULE = "alert_rule"
ALERT_SEVERITY = "alert_severity"
ALERT_FIELDS = (ALERT_ID, ALERT_RULE, ALERT_SEVERITY, ALERT_SCORE)
"""The fields that an alert has beside those of its event."""


def alert_schema(schema: EventSchema) -> EventSchema:
    """Return the event schema of alerts on events.

    Args:
        schema: the event schema of the events.

    Raises:
        ValueError: a field of the events has the name of one that only alerts have.
    """
    taken = next((name for name in schema.field_names if name in ALERT_FIELDS), None)
    if taken is not None:
        message = (
            f"event schema {schema.name!r} has a field {taken!r}, which alerts as events have themselves; rename the "
            "field to have rules over alerts"
        )
        raise ValueError(message)
    strings: dict[str, AttributeType] = {ALERT_RULE: "string", ALERT_SEVERITY: "string"}
    time = schema.event_time
    return EventSchema(
        name=f"alerts of {schema.name}",
        version=schema.version,
        event_id=EventId(field=ALERT_ID),
        event_time=EventTime(field=time.field, unit="ms", earliest=time.earliest, latest=time.latest),
        attributes={schema.event_id: "string", **schema.attributes, **strings},
        measures={**schema.measures, ALERT_SCORE: Measure(scale=0)},
        arrays=schema.arrays,
    )


def schema_on(counted: Counted, schema: EventSchema) -> EventSchema:
    """Return the event schema of what a rule counts.

    Args:
        counted: events or alerts.
        schema: the event schema of the events.

    Raises:
        ValueError: as `alert_schema`.
    """
    return alert_schema(schema) if counted == "alerts" else schema
