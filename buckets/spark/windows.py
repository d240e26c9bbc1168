"""The stateful stage: a shard's timelines in Spark's state store, one entry a key, scored by `Scorer`."""

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from buckets.shard import Scorer
from buckets.spark.rule_route import rule_set_of_task
from buckets.spark.state_client import get_values, put_values

PRODUCED = StructType(
    [
        StructField("output", StringType()),
        StructField("rows", LongType()),
        StructField("payload", BinaryType()),
    ]
)
STATE_KEY = StructType([StructField("key", BinaryType())])
STATE_VALUE = StructType([StructField("timeline", BinaryType())])
STATE_NAME = "timelines"


class MapStateStore:
    """The timelines of the shard that Spark is at, in a map state."""

    def __init__(self, state: MapState) -> None:
        """Use a `binary -> binary` map state."""
        self._state = state

    def get(self, keys: Sequence[bytes]) -> list[bytes]:
        """The timelines of keys; empty bytes for a new key."""
        return get_values(self._state, keys)

    def put(self, entries: Sequence[tuple[bytes, bytes]]) -> None:
        """Keep the timelines of keys."""
        put_values(self._state, entries)


class Windows(StatefulProcessor):
    """Spark's view of a shard: its parcels of one micro-batch in, what came out as payloads."""

    def __init__(self, scorer: Scorer) -> None:
        """Score with `scorer`."""
        self._scorer = scorer

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state; its schema never changes, a versioned codec is inside."""
        self._store = MapStateStore(handle.getMapState(STATE_NAME, STATE_KEY, STATE_VALUE))

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Score the parcels of one shard."""
        payloads = (bytes(row.payload) for row in rows)
        for produced in self._scorer.score(payloads, rule_set_of_task(), self._store):
            yield Row(output=produced.output, rows=produced.rows, payload=produced.payload)

    def close(self) -> None:
        """Nothing is held open."""


def windows_stage(parcels: DataFrame, scorer: Scorer) -> DataFrame:
    """Parcels into what comes out: rows of `PRODUCED`."""
    return parcels.groupBy("shard").transformWithState(Windows(scorer), PRODUCED, "update", "none")
