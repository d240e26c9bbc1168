"""Compiles the kernels ahead of the first batch: `python -m buckets.warm_up`. Later processes load them from disk."""

from collections.abc import Sequence

import pyarrow as pa

from buckets import outputs
from buckets.arrivals import POSITION, SOURCE, SOURCE_ORDER, field_column
from buckets.engine_settings import EngineSettings
from buckets.event_schema import EventSchema
from buckets.fan_out import fan_out
from buckets.rule import Rule
from buckets.rule_set import first_rule_set
from buckets.shard import Scorer, evaluation_rows

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
_ARRIVALS = {
    SOURCE: pa.array(["file"] * 2),
    SOURCE_ORDER: pa.array([0, 0]),
    POSITION: pa.array([1, 2]),
    field_column(0): pa.array(["a", "b"]),
    field_column(1): pa.array(["1", "2"]),
    field_column(2): pa.array(["k", "k"]),
    field_column(3): pa.array(["1.00", "2.00"]),
}


class _NoTimelines:
    def get(self, keys: Sequence[bytes]) -> list[bytes]:
        return [b""] * len(keys)

    def put(self, entries: Sequence[tuple[bytes, bytes]]) -> None:
        pass


def warm_up() -> None:
    """Take two events through both stages, on the types that production uses."""
    rule_set, engine = first_rule_set([_RULE]), EngineSettings(shards=1)
    parcels = [parcel.payload for parcel in fan_out(pa.record_batch(_ARRIVALS), rule_set, _SCHEMA, engine.shards)]
    scorer = Scorer(_SCHEMA, engine, evaluations=True)
    for produced in scorer.score(parcels, rule_set, _NoTimelines()):
        if produced.output == outputs.EVALUATIONS:
            evaluation_rows(produced.payload, rule_set, _SCHEMA, engine)


if __name__ == "__main__":
    warm_up()
