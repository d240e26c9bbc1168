"""The stateful stage: a shard's timelines in Spark's state store, scored by `Scorer`; and carried state put into it."""

import pickle
from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructType

from buckets.spark.shard_keys import ShardKeys
from buckets.spark.worker import settle
from buckets.state.bounds import Bounds

if TYPE_CHECKING:
    from buckets.spark.state_client import StateEntries
    from buckets.state_transfer.export_manifest import Regrouping


PRODUCED = StructType().add("output", StringType()).add("rows", LongType()).add("payload", BinaryType())
STATE_KEY = StructType().add("key", BinaryType())
STATE_VALUE = StructType().add("timeline", BinaryType())
STATE = "timelines"
"""Name of the one map state. Opening one costs a batch about as much as all calls for fifty keys, so there is one."""


class Windows(StatefulProcessor):
    """Spark's view of a shard: the messages to it in one micro-batch in, and payloads out."""

    def __init__(self, bounds: Bounds, shard_keys: ShardKeys) -> None:
        """Bound log and caches, and know shards by the numbers that Spark has of them."""
        self._bounds = bounds
        self._shard_keys = shard_keys

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state; its schema never changes, a versioned codec is inside."""
        self._state = handle.getMapState(STATE, STATE_KEY, STATE_VALUE)

    @cached_property
    def _entries(self) -> "StateEntries":
        # What `init` needs is all that this module imports: Spark starts a Python for it alone, which a job's first
        # batch waits for, and Spark for ten seconds at most.
        from buckets.spark.state_client import StateEntries

        return StateEntries(self._state)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Score the messages to one shard."""
        from buckets.engine.stages.accounting import shard_count
        from buckets.engine.stages.shard import COUNTS, Scorer
        from buckets.engine.storage.shard_store import HEADS, PAGES, POLICIES, SCHEDULE, Section, ShardStore
        from buckets.spark.batch_properties import lists_of_task, rule_set_of_task, sources_of_task, terms_of_task
        from buckets.spark.machine_caches import caches_of_worker
        from buckets.spark.spilled import beyond_share
        from buckets.state.layer import Layer

        payloads, terms, rule_set = (bytes(row.payload) for row in rows), terms_of_task(), rule_set_of_task()
        scorer = Scorer(terms.event_schema, terms.engine, terms.evaluations, lists_of_task(), terms.features)
        layer = Layer(self._entries, caches_of_worker(), self._bounds)
        store = ShardStore(
            heads=Section(layer, HEADS),
            pages=Section(self._entries, PAGES),
            schedule=Section(layer, SCHEDULE),
            policies=Section(layer, POLICIES),
        )
        shard = self._shard_keys.shard_of(key[0])
        scored = scorer.score(payloads, rule_set, store, sources_of_task(shard))
        for produced in beyond_share(scored, terms.engine.shards, rule_set, terms):
            yield Row(output=produced.output, rows=produced.rows, payload=produced.payload)
        held = layer.commit()
        if held is not None:
            yield Row(output=COUNTS, rows=0, payload=shard_count(shard, held))

    def close(self) -> None:
        """Do nothing: nothing is open."""
        settle()


def windows_stage(messages: DataFrame, bounds: Bounds, shard_keys: ShardKeys) -> DataFrame:
    """Turn messages to shards into what the shards produce: rows of `PRODUCED`."""
    return messages.groupBy("shard").transformWithState(Windows(bounds, shard_keys), PRODUCED, "update", "none")


MESSAGES = StructType().add("shard", IntegerType())
for _name in ("state_key", "head", "policies", "page", "overview", "voters"):
    MESSAGES.add(_name, BinaryType())
"""A key (`head`, `policies`), a page, or what the shard knows of time (no `state_key`); `shard` is its number of
`ShardKeys`."""
_AT_ONCE = 10_000


class Install(StatefulProcessor):
    """Puts what comes for a shard into its store."""

    def __init__(self, carried: "Regrouping") -> None:
        """Keep the groups of the job.

        They are unpacked where they are needed: Spark starts a Python for `init` alone, whose imports it waits for ten
        seconds at most.
        """
        self._carried = pickle.dumps(carried)

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._state = handle.getMapState(STATE, STATE_KEY, STATE_VALUE)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Install a shard."""
        from buckets.engine.storage.shard_store import HEADS, PAGES, POLICIES, SCHEDULE, Section, ShardStore
        from buckets.spark.state_client import StateEntries
        from buckets.state_transfer.shard_times import CarriedKey, Installer, ShardTimes

        entries = StateEntries(self._state)
        store = ShardStore(*(Section(entries, name) for name in (HEADS, PAGES, SCHEDULE, POLICIES)))
        installer, times = Installer(store, pickle.loads(self._carried)), ShardTimes()
        while some := [*islice(rows, _AT_ONCE)]:
            keys: list[CarriedKey] = []
            pages: list[tuple[bytes, bytes]] = []
            for row in some:
                if row.state_key is None:
                    times = ShardTimes.read(bytes(row.overview), bytes(row.voters))
                elif row.page is not None:
                    pages.append((bytes(row.state_key), bytes(row.page)))
                else:
                    keys.append(CarriedKey(bytes(row.state_key), bytes(row.head), bytes(row.policies)))
            installer.put_pages(pages)
            installer.put_keys(keys)
        installer.end(times)
        yield from ()

    def close(self) -> None:
        """Do nothing: nothing is open."""
