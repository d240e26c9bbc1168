"""A job whose tail was made longer, so that buckets lie in it."""

import json
from typing import Any

import pyarrow as pa

import buckets
from buckets.engine.stages.in_memory import InMemoryJob, OutputDecoder
from buckets.engine.stages.shard import Scorer
from buckets.events.parquet_rows import table_arrivals
from buckets.outputs.columns import EVALUATIONS
from buckets.rules.change import changes_between
from buckets.rules.revision import revise
from buckets.rules.rule_set import RuleSet


def behind_a_longer_tail(
    wanted: buckets.Rule, schema: buckets.EventSchema, events: pa.Table, first: int, precision: dict[str, str]
) -> list[dict[str, Any]]:
    """The terms of a rule at each event but the first ones, which were folded into buckets before it was asked for."""
    plain = buckets.Rule.model_validate(
        {"rule_id": "r", "group_by": wanted.group_by, "features": {"recent": {"function": "count", "window": "9d"}},
         "when": "recent > 0"}
    )  # fmt: skip
    paused = wanted.model_copy(update={"features": wanted.features | plain.features, "rule_id": "p", "state": "PAUSE"})
    rule_set, job, found, arrived = RuleSet(0, (), (), {}), None, [], ()
    for tail, now, part in (("5h", plain, events[:first]), ("9d", wanted, events[first:])):
        engine = buckets.EngineSettings.model_validate({"precision": precision | {"tail": tail}, "shards": 1})
        scorer = Scorer(schema, engine, evaluations=True)
        job = job or InMemoryJob(scorer)
        job.scorer = scorer
        rule_set = revise(rule_set, changes_between(rule_set.rules, [now, paused]), schema, arrived, 0).rule_set
        results = job.score_batch(table_arrivals(part, schema), rule_set)
        arrived, decoder = results.account.arrived, OutputDecoder(rule_set, schema, engine)
        found = decoder.table(EVALUATIONS, results.payloads.get(EVALUATIONS, [])).to_pylist()
    return [{"event_id": row["event_id"]} | term for row in found for term in json.loads(row["terms"])]
