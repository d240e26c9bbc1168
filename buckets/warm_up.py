"""Compiles the kernels ahead of the first batch: `python -m buckets.warm_up`. Later processes load them from disk."""

import numpy as np
import pyarrow as pa

from buckets.decimal128 import decimals
from buckets.engine_settings import EngineSettings
from buckets.event_schema import EventSchema
from buckets.grouping import relabel, sort_by_code
from buckets.plan import plan_group
from buckets.rule import Rule
from buckets.rule_set import first_rule_set
from buckets.scoring import EventIds, KeyBatch, score

_SCHEMA = EventSchema.model_validate(
    {"event_id": "id", "event_time": "t", "attributes": {"k": "string"}, "measures": {"v": {"scale": 2}}}
)
_RULE = Rule.model_validate(
    {
        "rule_id": "warm-up",
        "group_by": ["k"],
        "aggregate": {"function": "sum", "measure": "v"},
        "window": {"length": "1h"},
        "limit": {"operator": ">", "value": "1"},
    }
)


def warm_up() -> None:
    """Run every kernel once on the types that production uses."""
    plan = plan_group(first_rule_set([_RULE]).groups[0], _SCHEMA, EngineSettings())
    ids = EventIds.of(["a", "b"])
    batch = KeyBatch(np.array([0, 2]), np.array([1, 2]), np.array([[1, 2]]), ids)
    rows = score(plan, [b""], batch, True).rows
    decimals(rows.whole, rows.micro, np.full(len(rows.whole), 10**6), pa.decimal128(38, 8))
    codes = np.zeros(2, np.int32)
    relabel(codes, np.full(1, -1, np.int32))
    sort_by_code(codes, 1)


if __name__ == "__main__":
    warm_up()
