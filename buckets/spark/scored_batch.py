"""A scored batch, and what a sink is: it asks for an output as a table, or for where that of it lies which is large."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from buckets.checkpoint.terms import Terms
from buckets.engine.batch import payload
from buckets.engine.stages.accounting import BatchAccount
from buckets.engine.stages.completion import complete_batch
from buckets.engine.stages.cross_group import PARTS
from buckets.engine.stages.filling import FILLS
from buckets.engine.stages.output_decoder import OutputDecoder
from buckets.engine.stages.shard import Produced, Scorer
from buckets.engine.storage.shard_store import DriverStores
from buckets.lists.lists import NO_LISTS, Lists
from buckets.outputs import columns
from buckets.rules.rule_set import RuleSet
from buckets.spark.spilled import Spilled, payloads_of, spilled
from buckets.spark.spilled_parts import thinned_parts

MICROSECONDS = pa.timestamp("us", "UTC")
"""Moments as Spark has them."""
SMALL_BYTES = 1 << 18
"""Who watches a batch is shown alerts of payloads up to this size."""


@dataclass(frozen=True)
class ScoredBatch:
    """A batch that has been scored, and not yet written.

    Attributes:
        account: its accounts.
        rule_set: its rules.
        terms: what decides its results besides its rules.
        rows: what came out: payloads, and where those lie that are too large for the driver.
        session: of Spark, for what executors do with the latter.
        has_spilled: whether something of it lies in files.
    """

    account: BatchAccount
    rule_set: RuleSet
    terms: Terms
    rows: Sequence[Produced]
    session: SparkSession
    has_spilled: bool = False

    @property
    def fills(self) -> list[bytes]:
        """How far each shard has come with each fill, as JSON."""
        return self._payloads(FILLS)

    @property
    def decoder(self) -> OutputDecoder:
        """What decodes its payloads."""
        return OutputDecoder(self.rule_set, self.terms.event_schema, self.terms.engine)

    def has(self, output: str) -> bool:
        """Return whether an output has rows."""
        return bool(self._payloads(output))

    def _payloads(self, output: str) -> list[bytes]:
        return [row.payload for row in self.rows if row.output == output]

    def spilled(self, output: str) -> list[Spilled]:
        """Return where payloads of an output lie that are not on the driver."""
        found = (spilled(packed) for packed in self._payloads(output))
        return [each for each in found if each is not None]

    def table(self, output: str) -> pa.Table:
        """Return the rows of an output that has some; what lies in files is read."""
        payloads = self._payloads(output)
        return self.decoder.table(output, (each for packed in payloads for each in payloads_of(packed)))

    def tables_at_hand(self, output: str) -> Iterator[pa.Table]:
        """Yield the rows of an output that are on the driver."""
        return self.decoder.tables(output, (each for each in self._payloads(output) if spilled(each) is None))

    def small_alerts(self) -> tuple[pa.Table, ...]:
        """Return its alerts, without those of a shard and group that are more than `SMALL_BYTES`."""
        packed = self._payloads(columns.ALERTS)
        small = (each for each in packed if len(each) <= SMALL_BYTES and spilled(each) is None)
        return tuple(map(payload.unpack, small))


class Sink(Protocol):
    """Where the outputs of a batch go."""

    def write(self, batch: ScoredBatch) -> None:
        """Write what a batch produced, once, however often the batch is run."""


def score_batch(
    produced: DataFrame,
    batch_id: int,
    rule_set: RuleSet,
    terms: Terms,
    stores: DriverStores,
    lists: Lists = NO_LISTS,
) -> ScoredBatch:
    """Score a batch, with one action; where parts of rules are too many for the driver, with another one.

    Args:
        produced: rows of `windows.PRODUCED`, which the action computes.
        batch_id: the batch.
        rule_set: its rules.
        terms: what decides its results.
        stores: the state on the driver.
        lists: those of the batch.
    """
    session = produced.sparkSession
    # As it is: a column that is chosen is 5 ms of Spark's analysis in each batch.
    rows = [Produced(row.output, row.rows, bytes(row.payload)) for row in produced.collect()]
    scorer = Scorer(terms.event_schema, terms.engine, terms.evaluations, lists)
    has_spilled = any(spilled(row.payload) is not None for row in rows)
    is_thinned = any(row.output == PARTS and spilled(row.payload) is not None for row in rows)
    if is_thinned:
        parts = [row.payload for row in rows if row.output == PARTS]
        rows = [row for row in rows if row.output != PARTS] + thinned_parts(session, parts)
    needed = {PARTS, columns.ALERTS} if rule_set.alert_groups else {PARTS}
    read = [
        Produced(row.output, row.rows, each)
        for row in rows
        for each in (payloads_of(row.payload) if row.output in needed else [row.payload])
    ]
    met, account = complete_batch(batch_id, read, scorer, rule_set, stores, is_thinned)
    return ScoredBatch(account, rule_set, terms, [*rows, *met], session, has_spilled)


def in_microseconds(schema: pa.Schema) -> pa.Schema:
    """Return columns of an output, times in microseconds."""
    return pa.schema(
        [pa.field(field.name, MICROSECONDS if field.type == columns.TIME else field.type) for field in schema]
    )
