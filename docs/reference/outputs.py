"""The page of the outputs: the columns of each table, and what the published schemas say of them."""

import json
from collections.abc import Iterable

import pyarrow as pa

from buckets.outputs.columns import BATCH_COLUMNS, OUTPUTS
from buckets.resources import resource
from docs.reference.markdown import code, table

_INTRO = """\
# Outputs

The outputs of a job. Each is a Delta table under `output.path`, or a topic: then the value of a message is JSON by
the schema that is named here, with times in ms since 1970 and amounts as text. `buckets evaluate` writes each as a
file of JSON lines, and `buckets.evaluate` returns each as a table. Delta tables of a job also have the column
`batch_id`; those of an audit also say where each message was and on which `day`.

"""
_ABOUT = {
    "alerts": "Events at which an ACTIVE rule fired, unless a policy held the alert back.",
    "shadow_alerts": "The same for rules on trial (SHADOW), and for keys outside a rule's `rollout`.",
    "held_alerts": "Alerts that a policy has held back.",
    "evaluations": "A row for every event and rule, fired or not, if `output.evaluations` is true.",
    "late_events": "Events that came after a later one of their key, a row for each group.",
    "collisions": "Events that share their time with another event of the key, a row for each group.",
    "duplicates": "Events that came again, a row for each group.",
    "dead_letters": "Rows that are no events, and events whose sum would pass 64 bits.",
    "batches": "The account of each micro-batch and group: every event that came in is in one of these columns.",
}
_SAID_HERE = {
    "batch_id": "The number of the micro-batch.",
    "ruleset_version": "The version of all rules together that evaluated the batch.",
    "group_id": "The identity of the group: its fields and its filter.",
    "group": "The group in words.",
    "events_in": "How many events came in; for a group of rules over alerts, how many alerts.",
    "filtered": "How many its filter left out.",
    "evaluated": "How many were evaluated.",
    "late": "How many were late, and kept or dropped as `engine.late` says.",
    "too_late": "How many were older than the horizon.",
    "duplicates": "How many came again.",
    "collisions_not_kept": "How many shared their time with another event, and were not kept.",
    "dead_letters": "How many are dead letters of the group.",
    "alerts": "How many alerts came out.",
    "held_alerts": "How many alerts a policy held back.",
    "latest_event_time": "The latest event time of the batch.",
    "skipped": "How many messages were neither events nor faulty, such as a deletion.",
    "unjudged": "How many only filled timelines, since their topic is `judge: false`.",
    "rounded": "How many values of measures in these events were rounded, as `round` of the measure says.",
    "no_key": "How many have a null in a field by which the group groups.",
    "terms": "The features of the rule with their values, as JSON.",
}
_UNWRITTEN = "source_order"
"""A column that orders events inside a batch, and is written nowhere."""
_TYPES = {"string": "text", "int64": "whole number", "int32": "whole number", "bool": "true or false"}


def page() -> str:
    """Return the page.

    Raises:
        KeyError: an output or a column is described nowhere.
    """
    parts = [_INTRO]
    for output in OUTPUTS:
        published = output.published
        described = {} if published is None else _schema(published.contract)
        named = "" if published is None else f" Messages follow `schemas/{published.contract}.json`."
        parts += [f"## `{output.name}`\n\n{_ABOUT[output.name]}{named}\n\n", _columns(output.columns, described), "\n"]
    return "".join([*parts, f"## `batches`\n\n{_ABOUT['batches']}\n\n", _columns(BATCH_COLUMNS, {})])


def _schema(contract: str) -> dict[str, str]:
    """Return what a published schema says of each field."""
    properties = json.loads(resource(f"schemas/{contract}.json").read_text(encoding="utf-8"))["properties"]
    return {name: field["description"] for name, field in properties.items() if "description" in field}


def _columns(columns: Iterable[pa.Field], described: dict[str, str]) -> str:
    rows = []
    for column in columns:
        if column.name != _UNWRITTEN:
            meaning = described[column.name] if column.name in described else _SAID_HERE[column.name]
            rows.append((code(column.name), _type(column), meaning.replace(" In ms since 1970-01-01T00:00:00Z.", "")))
    return table(("Column", "Type", "Meaning"), rows)


def _type(column: pa.Field) -> str:
    if pa.types.is_timestamp(column.type):
        return "moment"
    if pa.types.is_decimal(column.type):
        return "decimal"
    return "list of text" if pa.types.is_list(column.type) else _TYPES[str(column.type)]
