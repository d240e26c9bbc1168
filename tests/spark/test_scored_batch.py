"""The two ways to an output: a table on the driver and a frame in the executors hold the same rows."""

import pyarrow as pa
import pytest

from buckets.checkpoint.terms import Terms
from buckets.engine.stages.accounting import BatchAccount
from buckets.engine.stages.shard import Produced
from buckets.outputs import columns
from buckets.spark.scored_batch import ScoredBatch, in_microseconds
from buckets.spark.windows import PRODUCED
from tests.core.examples import SCHEMA
from tests.core.test_output_decoder import ENGINE, RULES, dead_letters, produced

pytestmark = pytest.mark.spark


def test_a_frame_holds_the_rows_of_the_table(spark):
    payloads = produced()
    payloads[columns.DEAD_LETTERS] += [dead_letters((9, "sum of r")), dead_letters((9, "sum of q"))]
    made = [Produced(output, 1, packed) for output, several in payloads.items() for packed in several]
    met = [next(row for row in made if row.output == columns.ALERTS)]
    heads = [row for row in made if row not in met]
    batch = ScoredBatch(
        account=BatchAccount(0, RULES.version, 0, 0, (), ()),
        rule_set=RULES,
        terms=Terms(event_schema=SCHEMA, engine=ENGINE, evaluations=True, output="delta"),
        heads=heads,
        met=met,
        produced=spark.createDataFrame([(row.output, row.rows, row.payload) for row in heads], PRODUCED).repartition(3),
        sizes={},
    )
    for output, schema in columns.output_columns(SCHEMA.largest_scale).items():
        stored = in_microseconds(schema)
        table = batch.table(output).select(stored.names).cast(stored)
        frame = pa.table(batch.frame(output).toArrow()).cast(stored)
        assert sorted(frame.to_pylist(), key=repr) == sorted(table.to_pylist(), key=repr)
    reasons = [row.reason for row in batch.frame(columns.DEAD_LETTERS).where("position = 9").collect()]
    assert reasons == ["sum of q; sum of r"]
