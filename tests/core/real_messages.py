"""Messages of every output, as scoring makes them, without Spark and without a broker."""

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from buckets.events.arrivals import BROKEN, INGESTED, RAW
from buckets.outputs import columns
from buckets.outputs.messages import Message, Messages
from buckets.rules.rule import Rule
from buckets.rules.rule_set import first_rule_set
from tests.core.pipeline import Pipeline
from tests.spark.payments import EVENT_SCHEMA, RULES, payments

DECIDED_MS = 1_700_000_000_123
QUIET = RULES[0] | {"rule_id": "payer-quiet", "cooldown": "1s", "severity": "high", "tags": ["cards"], "score": 7}
"""A rule with a policy, which holds back alerts."""
_POSITION = [pa.field("source", pa.string()), pa.field("source_order", pa.int64()), pa.field("position", pa.int64())]
Row = dict[str, Any]


def _columns(output: str, scale: int) -> pa.Schema:
    fields = columns.columns_of(output, scale)
    if output == columns.EVALUATIONS:
        return pa.schema([*fields, *_POSITION])
    return fields.append(pa.field(INGESTED, pa.int64())) if "alert_id" in fields.names else fields


def real_messages(events: Sequence[Row] | None = None, **engine: Any) -> dict[str, list[Message]]:
    """Messages of every output, by output.

    Args:
        events: payments; a hundred of them, with two broken ones, where they are left out.
        engine: settings of the engine.
    """
    rows = list(events) if events is not None else [*payments(100), {"id": "", "t": 0}, {BROKEN: "broken", RAW: "{"}]
    rule_set = first_rule_set(tuple(Rule.model_validate(rule) for rule in [*RULES, QUIET]))
    pipeline = Pipeline(rule_set, EVENT_SCHEMA, **{"shards": 4, "allowed_lateness": "100ms", **engine})
    pipeline.batch([[{RAW: json.dumps(row)} | row for row in rows]])
    return messages_of(pipeline)


def messages_of(pipeline: Pipeline) -> dict[str, list[Message]]:
    """All rows of a job as messages, by output."""
    messages, scale = Messages(pipeline.rule_set, pipeline.schema), pipeline.schema.largest_scale
    return {
        name: list(messages.of(name, pa.Table.from_pylist(pipeline.output(name), _columns(name, scale)), DECIDED_MS))
        for name in columns.TOPICS
    }
