"""The stateful stage: a shard's timelines in Spark's state store, scored by `Scorer`."""

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from buckets.shard import Scorer
from buckets.spark.rule_route import rule_set_of_task, terms_of_task
from buckets.spark.state_client import get_values, put_values, remove_keys
from buckets.spark.worker import settle
from buckets.store import AGENDA, HEADS, PAGES, ShardStore, section_of

PRODUCED = StructType(
    [
        StructField("output", StringType()),
        StructField("rows", LongType()),
        StructField("payload", BinaryType()),
    ]
)
STATE_KEY = StructType([StructField("key", BinaryType())])
STATE_VALUE = StructType([StructField("timeline", BinaryType())])
STATE = "timelines"
"""Name of the one map state. Opening one costs a batch about as much as all calls for fifty keys, so there is one."""


class MapStateEntries:
    """One of the three maps, in the `binary -> binary` map state of the shard that Spark is at."""

    def __init__(self, state: MapState, section: bytes) -> None:
        """Use what begins with `section` in a map state."""
        self._state = state
        self._section = section

    def get(self, keys: Sequence[bytes]) -> list[bytes]:
        """The values of keys; empty bytes where there is none."""
        return get_values(self._state, [self._section + key for key in keys])

    def put(self, entries: Sequence[tuple[bytes, bytes]]) -> None:
        """Keep values."""
        put_values(self._state, [(self._section + key, value) for key, value in entries])

    def remove(self, keys: Sequence[bytes]) -> None:
        """Forget keys."""
        remove_keys(self._state, [self._section + key for key in keys])

    def list_keys(self) -> Iterator[bytes]:
        """All keys."""
        places = map(bytes, (row[0] for row in iter(self._state.keys())))
        return (place[len(self._section) :] for place in places if section_of(place) == self._section)


class Windows(StatefulProcessor):
    """Spark's view of a shard: its parcels of one micro-batch in, what came out as payloads."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state; its schema never changes, a versioned codec is inside."""
        state = handle.getMapState(STATE, STATE_KEY, STATE_VALUE)
        self._store = ShardStore(*(MapStateEntries(state, section) for section in (HEADS, PAGES, AGENDA)))

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Score the parcels of one shard."""
        payloads, terms = (bytes(row.payload) for row in rows), terms_of_task()
        scorer = Scorer(terms.event_schema, terms.engine, terms.evaluations)
        for produced in scorer.score(payloads, rule_set_of_task(), self._store):
            yield Row(output=produced.output, rows=produced.rows, payload=produced.payload)

    def close(self) -> None:
        """Nothing is held open."""
        settle()


def windows_stage(parcels: DataFrame) -> DataFrame:
    """Parcels into what comes out: rows of `PRODUCED`."""
    return parcels.groupBy("shard").transformWithState(Windows(), PRODUCED, "update", "none")
