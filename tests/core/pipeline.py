"""Both stages without Spark: rows of text in, tables out, timelines in a dictionary."""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from buckets import outputs, payload
from buckets.accounting import BatchAccount, account_batch
from buckets.arrivals import BROKEN, POSITION, RAW, SOURCE, SOURCE_ORDER, field_column
from buckets.engine_settings import EngineSettings
from buckets.event_schema import EventSchema
from buckets.fan_out import PASSING, fan_out
from buckets.plan import plan_group
from buckets.results import expand
from buckets.rule_set import RuleSet
from buckets.shard import COUNTS, Scorer
from buckets.store import ShardStore

Row = dict[str, Any]


def arrivals(rows: Sequence[Row], schema: EventSchema) -> pa.RecordBatch:
    """Rows as a source hands them over: declared fields as text, and where each row stands.

    A row may have `source`, `source_order`, `position`, `raw` and `broken` beside its fields.
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
    return pa.record_batch(columns)


class DictEntries:
    """A map in memory; counts how often it is asked, and what is written to it."""

    def __init__(self) -> None:
        self.held: dict[bytes, bytes] = {}
        self.reads = self.writes = 0

    def get(self, keys: Sequence[bytes]) -> list[bytes]:
        self.reads += len(keys)
        return [self.held.get(key, b"") for key in keys]

    def put(self, entries: Sequence[tuple[bytes, bytes]]) -> None:
        self.writes += len(entries)
        self.held.update(entries)

    def remove(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            del self.held[key]

    def list_keys(self) -> list[bytes]:
        return list(self.held)


def dict_store() -> ShardStore:
    return ShardStore(DictEntries(), DictEntries(), DictEntries())


class Pipeline:
    """A job: micro-batches of record batches in, rows of outputs out."""

    def __init__(self, rule_set: RuleSet, schema: EventSchema, **engine: Any) -> None:
        self.rule_set = rule_set
        self.schema = schema
        self.engine = EngineSettings.model_validate(engine)
        self.scorer = Scorer(schema, self.engine, evaluations=True)
        self.stores: dict[int, ShardStore] = {}
        self.found: dict[str, list[Row]] = {}
        self.accounts: list[BatchAccount] = []

    def batch(self, parts: Iterable[Sequence[Row]], backwards: bool = False) -> None:
        """Take in one micro-batch, whose rows come in several record batches."""
        by_shard: dict[int, list[bytes]] = {}
        for rows in parts:
            for parcel in fan_out(arrivals(rows, self.schema), self.rule_set, self.schema, self.engine.shards):
                by_shard.setdefault(parcel.shard, []).append(parcel.payload)
        counts: list[bytes] = []
        for shard, payloads in by_shard.items():
            store = self.stores.setdefault(shard, dict_store())
            ordered = payloads[::-1] if backwards else payloads
            for produced in self.scorer.score(ordered, self.rule_set, store):
                if produced.output == COUNTS:
                    counts.append(produced.payload)
                else:
                    table = payload.unpack(produced.payload)
                    assert produced.rows == table.num_rows > 0
                    self.found.setdefault(produced.output, []).extend(self._rows(produced.output, table))
        assert PASSING not in by_shard or not self.stores[PASSING].heads.held
        account = account_batch(len(self.accounts), self.rule_set, counts)
        account.check()
        self.accounts.append(account)

    def _rows(self, output: str, table: pa.Table) -> list[Row]:
        if output == outputs.EVALUATIONS:
            group = next(each for each in self.rule_set.groups if each.group_id == payload.group_of(table))
            plan = plan_group(group, self.schema, self.engine)
            table = expand(table, plan, self.schema, self.rule_set.version)
        for index, field in enumerate(table.schema):
            if pa.types.is_timestamp(field.type):
                table = table.set_column(index, field.name, table.column(index).cast(pa.int64()))
        return table.to_pylist()

    def output(self, name: str) -> list[Row]:
        """All rows of an output, in arrival order."""
        rows = self.found.get(name, [])
        return sorted(rows, key=lambda row: (row[SOURCE_ORDER], row[SOURCE], row[POSITION]))

    @property
    def timelines(self) -> dict[bytes, bytes]:
        """The heads of all shards."""
        return {key: data for store in self.stores.values() for key, data in store.heads.held.items()}
