"""Rule sets on their way to the tasks: large ones, too large ones, and one version for both stages of a batch."""

import json
import random
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from buckets.errors import BucketsError
from buckets.rules.rule import Rule
from buckets.rules.rule_set import LARGEST_BYTES, encode_rule_set, first_rule_set, next_rule_set
from buckets.spark.batch_properties import RULES as RULES_PROPERTY
from buckets.spark.batch_properties import rule_set_of_task
from tests.core.examples import until
from tests.oracle import Event, Oracle
from tests.spark.evaluation import evaluate, evaluation_of
from tests.spark.payments import EVENT_SCHEMA, RULES, payments

pytestmark = pytest.mark.spark

GROUPS, RULES_OF_GROUP = 20, 50
LATENESS_MS = 3_600_000


def many_rules() -> list[Rule]:
    """A thousand rules: twenty filters on the amount, under each of them fifty windows."""
    return [
        Rule.model_validate(
            {
                "rule_id": f"{group}-{number}",
                "group_by": ["payer"] if group % 2 else [],
                "where": {"amount": {">": str(group - 5)}},
                "aggregate": {"function": ["sum", "count", "min", "max", "avg"][number % 5], "measure": "amount"},
                "window": {"length": f"{1 + 37 * number}ms", "left": ["closed", "open"][number % 2]},
                "limit": {"operator": [">", "<="][number % 2], "value": str(number)},
            }
        )
        for group in range(GROUPS)
        for number in range(RULES_OF_GROUP)
    ]


def write_events(path: Path, events: list[dict]) -> Path:
    path.write_text("".join(f"{json.dumps(event)}\n" for event in events), encoding="utf-8")
    return path


def test_a_thousand_rules_in_twenty_groups_give_what_a_loop_over_a_list_gives(spark, tmp_path):
    rules, events = many_rules(), payments(30)
    groups = first_rule_set(rules).groups
    assert len(groups) == GROUPS
    results = evaluate(spark, evaluation_of(write_events(tmp_path / "e.jsonl", events), EVENT_SCHEMA, rules), tmp_path)
    expected = []
    for number, group in enumerate(groups):
        oracle = Oracle(list(group.rules), {"amount": 2}, LATENESS_MS)
        for event in events:
            amount = Decimal(event["amount"])
            if amount > number - 5:
                key = json.dumps({field: event[field] for field in group.fields})
                outcome = oracle.arrive(Event(event["id"], event["t"], key, (amount,)))
                expected += [(event["id"], rule_id, *result) for rule_id, result in outcome.results.items()]
    found = [
        (row["event_id"], row["rule_id"], Decimal(row["value"]), row["count"], row["fired"])
        for row in map(json.loads, results["evaluations.jsonl"].decode().splitlines())
    ]
    assert sorted(found) == sorted(expected)
    assert len({rule_id for _, rule_id, *_ in found}) == GROUPS * RULES_OF_GROUP


def test_a_rule_set_that_a_batch_cannot_carry_is_refused_and_nothing_is_committed(spark, tmp_path):
    dice = random.Random(1)
    long_rules = [
        Rule.model_validate(
            RULES[0] | {"rule_id": f"r{number}", "description": dice.randbytes(LARGEST_BYTES // 2).hex()}
        )
        for number in range(2)
    ]
    evaluation = evaluation_of(write_events(tmp_path / "e.jsonl", payments(3)), EVENT_SCHEMA, long_rules)
    with pytest.raises(BucketsError, match=rf"rule set of 2 rules takes [\d,]+ bytes, .* {LARGEST_BYTES:,}; split"):
        evaluate(spark, evaluation, tmp_path)
    assert not list((tmp_path / "checkpoint" / "spark" / "commits").glob("[0-9]*"))


def versions_seen():
    """Both stages of a query, each of which says which version it sees; made inside a function to travel by value."""

    def stateless(batches):
        for batch in batches:
            seen = pa.array([rule_set_of_task().version] * batch.num_rows, pa.int64())
            yield pa.RecordBatch.from_arrays([batch.column(0), seen], names=["shard", "stateless"])

    class Stateful(StatefulProcessor):
        def init(self, handle):
            pass

        def handleInputRows(self, key, rows, timerValues):
            for row in rows:
                yield Row(stateless=row.stateless, stateful=rule_set_of_task().version)

        def close(self):
            pass

    return stateless, Stateful()


def test_both_stages_see_the_version_of_their_batch(spark, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for batch in range(3):
        pq.write_table(pa.table({"shard": list(range(4))}), source / f"{batch}.parquet")
    first = first_rule_set([Rule.model_validate(RULES[0])])
    second = next_rule_set(first, [Rule.model_validate(rule) for rule in RULES], arrived=until(0), lateness_ms=0)
    in_force = [first, second, first]
    stateless, stateful = versions_seen()
    stream = spark.readStream.schema("shard long").option("maxFilesPerTrigger", 1).parquet(str(source))
    messages = stream.mapInArrow(stateless, "shard long, stateless long")
    seen = messages.groupBy("shard").transformWithState(stateful, "stateless long, stateful long", "update", "none")
    found: list[list[tuple[int, int]]] = []

    def run_batch(frame, batch_id):
        frame.sparkSession.sparkContext.setLocalProperty(RULES_PROPERTY, encode_rule_set(in_force[batch_id]))
        found.append([(row.stateless, row.stateful) for row in frame.collect()])

    writer = seen.writeStream.outputMode("update").foreachBatch(run_batch)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert found == [[(rule_set.version, rule_set.version)] * 4 for rule_set in in_force]
