"""Compiles the kernels ahead of the first batch: `python -m buckets.warm_up`. Later processes load them from disk."""

from collections.abc import Iterable, Sequence

import pyarrow as pa

from buckets import outputs
from buckets.arrivals import POSITION, SOURCE, SOURCE_ORDER, field_column
from buckets.engine_settings import EngineSettings
from buckets.event_schema import EventSchema
from buckets.fan_out import fan_out
from buckets.rule import Rule
from buckets.rule_set import first_rule_set
from buckets.shard import Scorer, evaluation_rows
from buckets.store import ShardStore

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
_EVENTS = 300
"""So many that a timeline gets pages, and the second batch reads some."""


class _Entries:
    """A map in memory."""

    def __init__(self) -> None:
        self._held: dict[bytes, bytes] = {}

    def get(self, keys: Sequence[bytes]) -> list[bytes]:
        return [self._held.get(key, b"") for key in keys]

    def put(self, entries: Sequence[tuple[bytes, bytes]]) -> None:
        self._held.update(entries)

    def remove(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            del self._held[key]

    def list_keys(self) -> Iterable[bytes]:
        return list(self._held)


def _arrivals(first: int) -> pa.RecordBatch:
    numbers = range(first, first + _EVENTS)
    return pa.record_batch(
        {
            SOURCE: pa.array(["file"] * _EVENTS),
            SOURCE_ORDER: pa.array([0] * _EVENTS),
            POSITION: pa.array(numbers),
            field_column(0): pa.array([f"e{number}" for number in numbers]),
            field_column(1): pa.array([str(number) for number in numbers]),
            field_column(2): pa.array(["k"] * _EVENTS),
            field_column(3): pa.array(["1.00"] * _EVENTS),
        }
    )


def warm_up() -> None:
    """Take two batches of events through both stages, on the types that production uses."""
    rule_set, engine = first_rule_set([_RULE]), EngineSettings(shards=1)
    scorer = Scorer(_SCHEMA, engine, evaluations=True)
    store = ShardStore(_Entries(), _Entries(), _Entries())
    for first in (0, _EVENTS):
        parcels = [parcel.payload for parcel in fan_out(_arrivals(first), rule_set, _SCHEMA, engine.shards)]
        for produced in scorer.score(parcels, rule_set, store):
            if produced.output == outputs.EVALUATIONS:
                evaluation_rows(produced.payload, rule_set, _SCHEMA, engine)


if __name__ == "__main__":
    warm_up()
