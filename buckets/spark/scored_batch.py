"""A scored batch, and what a sink is: it asks for an output as a table on the driver, or as a frame in the executors.

Both are decoded from the same payloads by the same `OutputDecoder`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from buckets.checkpoint.terms import Terms
from buckets.engine.batch import payload
from buckets.engine.stages.accounting import BatchAccount
from buckets.engine.stages.completion import complete_batch
from buckets.engine.stages.cross_group import PARTS
from buckets.engine.stages.filling import FILLS
from buckets.engine.stages.output_decoder import OutputDecoder
from buckets.engine.stages.shard import COUNTS, Produced, Scorer
from buckets.engine.storage.shard_store import DriverStores
from buckets.lists.lists import NO_LISTS, Lists
from buckets.outputs import columns
from buckets.rules.rule_set import RuleSet

MICROSECONDS = pa.timestamp("us", "UTC")
"""Moments as Spark has them."""
SMALL_BYTES = 1 << 18
"""A payload of no more than this is brought to the driver with the counts, others when they are asked for."""


@dataclass(frozen=True)
class ScoredBatch:
    """A batch that has been scored, and not yet written.

    Attributes:
        account: its accounts.
        rule_set: its rules.
        terms: what decides its results besides its rules.
        heads: what the shards put out, on the driver. All have their payload for a sink that works there; otherwise it
            is None but of counts, and of what has no more than `SMALL_BYTES`.
        met: what was put out on the driver: by rules with features of several groups, which meet there, and by rules
            over alerts.
        produced: the rows of the shards in the executors, already computed; only for a sink that does not work on the
            driver, for any other they would be computed again.
        sizes: by output, how many bytes the payloads of the shards have.
    """

    account: BatchAccount
    rule_set: RuleSet
    terms: Terms
    heads: Sequence[Produced]
    met: Sequence[Produced]
    produced: DataFrame
    sizes: Mapping[str, int]

    @property
    def fills(self) -> list[bytes]:
        """How far each shard has come with each fill, as JSON."""
        return [bytes(row.payload) for row in self._of(FILLS)]

    @property
    def decoder(self) -> OutputDecoder:
        """What decodes its payloads."""
        return OutputDecoder(self.rule_set, self.terms.event_schema, self.terms.engine)

    def has(self, output: str) -> bool:
        """Return whether an output has rows."""
        return bool(self._of(output))

    def _of(self, output: str) -> list[Produced]:
        """Return what is on the driver of an output; some of it may lack its payload."""
        return [row for row in (*self.heads, *self.met) if row.output == output]

    def size_bytes(self, output: str) -> int:
        """Return how large the payloads of an output are."""
        return self.sizes.get(output, 0) + sum(len(row.payload) for row in self.met if row.output == output)

    def table(self, output: str) -> pa.Table:
        """Return the rows of an output that has some; payloads that are not on the driver are brought there."""
        return self.decoder.table(output, self._payloads(output))

    def _payloads(self, output: str) -> list[bytes]:
        rows = self._of(output)
        if any(row.payload is None for row in rows):
            of_shards = self.produced.where(F.col("output") == output).collect()
            rows = [Produced(row.output, row.rows, row.payload) for row in of_shards]
            rows += [row for row in self.met if row.output == output]
        return [bytes(row.payload) for row in rows]

    def frame(self, output: str) -> DataFrame:
        """Return the rows of an output, decoded in the executors, for a sink that does not work on the driver.

        Its columns are those of the output, times in microseconds.
        """
        schema = in_microseconds(columns.columns_of(output, self.terms.event_schema.largest_scale))
        decoder = self.decoder

        def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            payloads = (packed for batch in batches for packed in batch.column("payload").to_pylist())
            for table in decoder.tables(output, payloads):
                yield from table.select(schema.names).cast(schema).to_batches()

        payloads = self.produced.where(F.col("output") == output).select("payload")
        met = [(one.payload,) for one in self.met if one.output == output]
        if met:
            payloads = payloads.union(payloads.sparkSession.createDataFrame(met, payloads.schema))
        if output == columns.DEAD_LETTERS:
            # Reasons of one event come from several shards, so one task has to see them all.
            payloads = payloads.coalesce(1)
        return payloads.mapInArrow(decode, from_arrow_schema(schema))

    def small_alerts(self) -> tuple[pa.Table, ...]:
        """Return its alerts, without those of a shard and group that are more than `SMALL_BYTES`."""
        packed = (row.payload for row in self._of(columns.ALERTS))
        return tuple(payload.unpack(bytes(data)) for data in packed if data is not None and len(data) <= SMALL_BYTES)


class Sink(Protocol):
    """Where the outputs of a batch go."""

    @property
    def on_driver(self) -> bool:
        """Whether it works on the driver; then all that was produced is brought there, and nothing is persisted."""

    def write(self, batch: ScoredBatch) -> None:
        """Write what a batch produced, once, however often the batch is run."""


def score_batch(
    produced: DataFrame,
    batch_id: int,
    rule_set: RuleSet,
    terms: Terms,
    on_driver: bool,
    stores: DriverStores,
    lists: Lists = NO_LISTS,
) -> ScoredBatch:
    """Score a batch, with one action.

    Args:
        produced: rows of `windows.PRODUCED`, which the action computes.
        batch_id: the batch.
        rule_set: its rules.
        terms: what decides its results besides its rules.
        on_driver: whether all that it produces is brought to the driver.
        stores: the state on the driver.
        lists: those of the batch.
    """
    if on_driver:
        rows = produced.collect()  # As it is: a column that is chosen is 5 ms of Spark's analysis in each batch.
        sizes = [(row.output, len(row.payload)) for row in rows]
    else:
        needed = (COUNTS, PARTS, columns.ALERTS) if rule_set.alert_groups else (COUNTS, PARTS)
        wanted = F.col("output").isin(*needed) | (F.length("payload") <= SMALL_BYTES)
        payload_bytes, small = F.length("payload").alias("bytes"), F.when(wanted, F.col("payload")).alias("payload")
        rows = produced.select("output", "rows", payload_bytes, small).collect()
        sizes = [(row.output, row.bytes) for row in rows]
    scorer = Scorer(terms.event_schema, terms.engine, terms.evaluations, lists)
    heads = [Produced(row.output, row.rows, row.payload) for row in rows]
    met, account = complete_batch(batch_id, heads, scorer, rule_set, stores)
    size_bytes: Counter[str] = Counter()
    for output, payload_size in sizes:
        size_bytes[output] += payload_size
    return ScoredBatch(account, rule_set, terms, heads, met, produced, size_bytes)


def in_microseconds(schema: pa.Schema) -> pa.Schema:
    """Return columns of an output, times in microseconds."""
    return pa.schema(
        [pa.field(field.name, MICROSECONDS if field.type == columns.TIME else field.type) for field in schema]
    )
