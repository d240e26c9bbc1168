"""Both stages without Spark: rows of text in, tables out, timelines in a dictionary."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from buckets.config.engine import EngineSettings
from buckets.engine.batch import payload
from buckets.engine.batch.payload import PASSING
from buckets.engine.eviction.eviction import Eviction
from buckets.engine.stages.accounting import BatchAccount
from buckets.engine.stages.cross_group import FILLS, NO_SOURCES, PARTS, FillSources
from buckets.engine.stages.in_memory import InMemoryJob, MemoryEntries, OutputDecoder
from buckets.engine.stages.shard import COUNTS, Produced, Scorer
from buckets.engine.storage.shard_store import ShardStore
from buckets.events.arrivals import BROKEN, JUDGED, POSITION, RAW, SOURCE, SOURCE_ORDER, field_column
from buckets.events.schema import EventSchema
from buckets.outputs import columns
from buckets.rules.rule_set import RuleSet

Row = dict[str, Any]


def arrivals(rows: Sequence[Row], schema: EventSchema) -> pa.RecordBatch:
    """Rows as a source hands them over: declared fields as text, and where each row stands.

    A row may have `source`, `source_order`, `position`, `raw`, `broken` and `judged` beside its fields.
    """
    columns = {
        SOURCE: pa.array([row.get(SOURCE, "file") for row in rows], pa.string()),
        SOURCE_ORDER: pa.array([row.get(SOURCE_ORDER, 0) for row in rows], pa.int64()),
        POSITION: pa.array([row.get(POSITION, index) for index, row in enumerate(rows, 1)], pa.int64()),
        RAW: pa.array([row.get(RAW, "raw text") for row in rows], pa.string()),
        BROKEN: pa.array([row.get(BROKEN) for row in rows], pa.string()),
    }
    for index, name in enumerate(schema.field_names):
        values = [row.get(name) for row in rows]
        columns[field_column(index)] = pa.array(
            [None if value is None else str(value) for value in values], pa.string()
        )
    if any(JUDGED in row for row in rows):
        columns[JUDGED] = pa.array([row.get(JUDGED) for row in rows], pa.bool_())
    return pa.record_batch(columns)


class CountedEntries(MemoryEntries):
    """A map in memory; counts how often it is asked, and what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = self.writes = 0

    def get(self, keys: Sequence[bytes]) -> list[bytes]:
        self.reads += len(keys)
        return super().get(keys)

    def put(self, entries: Sequence[tuple[bytes, bytes]]) -> None:
        self.writes += len(entries)
        super().put(entries)


def counted_store() -> ShardStore:
    return ShardStore(*(CountedEntries() for _ in range(4)))


class CheckedScorer(Scorer):
    """Sees that what comes out says how many rows it has."""

    def score(
        self,
        payloads: Iterable[bytes],
        rule_set: RuleSet,
        store: ShardStore,
        sources: FillSources = NO_SOURCES,
        going_on: Eviction | None = None,
    ) -> Iterator[Produced]:
        return checked(super().score(payloads, rule_set, store, sources, going_on))

    def score_together(self, *given: Any) -> Iterator[Produced]:
        return checked(super().score_together(*given))


def checked(several: Iterable[Produced]) -> Iterator[Produced]:
    """What comes out, once it is seen that it says how many rows it has."""
    for produced in several:
        if produced.output not in (COUNTS, FILLS, PARTS):
            assert produced.rows == payload.unpack(produced.payload).num_rows > 0
        yield produced


class Pipeline(InMemoryJob):
    """A job: micro-batches of record batches in, rows of outputs out."""

    def __init__(self, rule_set: RuleSet, schema: EventSchema, **engine: Any) -> None:
        settings = EngineSettings.model_validate(engine)
        super().__init__(CheckedScorer(schema, settings, evaluations=True), counted_store)
        self.rule_set = rule_set
        self.schema = schema
        self.found: dict[str, list[Row]] = {}
        self.accounts: list[BatchAccount] = []

    def batch(self, parts: Iterable[Sequence[Row]], backwards: bool = False) -> None:
        """Take in one micro-batch, whose rows come in several record batches, the last one first if `backwards`."""
        batches = [arrivals(rows, self.schema) for rows in parts]
        results = self.score_batch(batches[::-1] if backwards else batches, self.rule_set)
        decoder = OutputDecoder(self.rule_set, self.schema, self.scorer.engine)
        for output, payloads in results.payloads.items():
            if output == columns.DEAD_LETTERS:  # one for each group and rule: a decoder joins those of an event
                tables = [payload.unpack(each) for each in payloads]
            else:
                tables = list(decoder.tables(output, payloads))
            self.found.setdefault(output, []).extend(row for table in tables for row in _rows(table))
        assert PASSING not in self.stores or not self.stores[PASSING].heads.data
        self.accounts.append(results.account)

    def output(self, name: str) -> list[Row]:
        """All rows of an output, in arrival order."""
        rows = self.found.get(name, [])
        return sorted(rows, key=lambda row: (row[SOURCE_ORDER], row[SOURCE], row[POSITION]))

    @property
    def timelines(self) -> dict[bytes, bytes]:
        """The heads of all shards."""
        return {key: data for store in self.stores.values() for key, data in store.heads.data.items()}


def _rows(table: pa.Table) -> list[Row]:
    for index, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(index, field.name, table.column(index).cast(pa.int64()))
    return table.to_pylist()
