"""A scored batch, which gives a sink each output as a table or as the paths of files with large payloads."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from buckets.archive.arrived_rows import ArrivedRows
from buckets.checkpoint.identity import Terms
from buckets.engine.batch import payload
from buckets.engine.stages.accounting import PIECES, BatchAccount, cut_by_event
from buckets.engine.stages.alert_stage import complete_batch, fired_parts
from buckets.engine.stages.cross_group import PARTS
from buckets.engine.stages.in_memory import OutputDecoder
from buckets.engine.stages.shard import ARRIVED, Produced, Scorer
from buckets.engine.storage.shard_store import DriverStores
from buckets.lists.index import NO_LISTS, Lists
from buckets.outputs import columns
from buckets.rules.rule_set import RuleSet
from buckets.spark.arrow_types import from_arrow_schema
from buckets.spark.batch_properties import lists_of_task, rule_set_of_task, terms_of_task
from buckets.spark.spilled import Spilled, beyond_share, payloads_of, spilled
from buckets.spark.state_client import fetch, state_tasks
from buckets.spark.windows import PRODUCED, as_rows
from buckets.spark.worker import settle

Share = TypeVar("Share")
_TASKS_A_CORE = 2
STATE = "state"
"""The output that reports the size of a task's state store."""


def run_as_second_job(
    session: SparkSession, shares: Sequence[Share], work: Callable[[Iterable[Share]], Iterator[Produced]]
) -> list[Produced]:
    """Let executors process shares, several per task, and return the results; a lost task runs again."""

    def stage(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers = (number for batch in batches for number in batch.column(0).to_pylist())
        yield from (as_rows([produced]) for produced in work(shares[number] for number in numbers))
        settle()

    tasks = min(len(shares), _TASKS_A_CORE * session.sparkContext.defaultParallelism)
    rows = session.range(0, len(shares), 1, tasks).mapInArrow(stage, from_arrow_schema(PRODUCED)).collect()
    return [Produced(row.output, row.rows, bytes(row.payload)) for row in rows]


def thinned_parts(session: SparkSession, parts: Sequence[bytes]) -> list[Produced]:
    """Reduce the parts of rules in executors to what the driver needs, with evaluations, as `fired_parts` yields them.

    This thread has set the batch for its Spark jobs; `parts` are all payloads of `PARTS`, or places of spilled ones.
    """
    lying = [at for at in map(spilled, parts) if at is not None]
    at_hand = [cut_by_event(packed) for packed in parts if spilled(packed) is None]

    def work(pieces: Iterable[tuple[int, list[bytes]]]) -> Iterator[Produced]:
        rule_set, terms = rule_set_of_task(), terms_of_task()
        scorer = Scorer(terms.event_schema, terms.engine, terms.evaluations, lists_of_task(), terms.features)
        for number, payloads in pieces:
            of_piece = [*payloads, *(each for at in lying for each in at.payloads([number]))]
            yield from beyond_share(fired_parts(scorer, of_piece, rule_set), PIECES, rule_set, terms)

    pieces = [(number, [cut[number] for cut in at_hand if cut[number]]) for number in range(PIECES)]
    return run_as_second_job(session, pieces, work)


SMALL_BYTES = 1 << 18  # Observers of a batch see the alerts in payloads up to this size


@dataclass(frozen=True)
class ScoredBatch:
    """A batch that has been scored but not yet written."""

    account: BatchAccount  # its accounts
    rule_set: RuleSet  # its rules
    terms: Terms  # what determines its results besides its rules
    rows: Sequence[Produced]  # the results: payloads, and the locations of those too large for the driver
    session: SparkSession  # the Spark session, in which executors process the latter
    arrived: Sequence[ArrivedRows] = ()  # the rows that each task has read; empty without an archive
    has_files: bool = False  # whether parts of it are in files, which are deleted when it is written
    state: Counter[str] = field(default_factory=Counter)  # total sizes of the state stores, under Spark's names

    @property
    def decoder(self) -> OutputDecoder:
        """The decoder of its payloads."""
        return OutputDecoder(self.rule_set, self.terms.event_schema, self.terms.engine)

    def has(self, output: str) -> bool:
        """Return whether an output has rows."""
        return bool(self.payloads(output))

    def payloads(self, output: str) -> list[bytes]:
        """Return the payloads of an output; in place of a spilled one, its location."""
        return [row.payload for row in self.rows if row.output == output]

    def spilled(self, output: str) -> list[Spilled]:
        """Return the locations of an output's spilled payloads."""
        found = (spilled(packed) for packed in self.payloads(output))
        return [each for each in found if each is not None]

    def table(self, output: str) -> pa.Table:
        """Return the rows of an output that has some, including those in files."""
        payloads = self.payloads(output)
        return self.decoder.table(output, (each for packed in payloads for each in payloads_of(packed)))

    def tables_at_hand(self, output: str) -> Iterator[pa.Table]:
        """Yield an output's rows that are on the driver."""
        return self.decoder.tables(output, (each for each in self.payloads(output) if spilled(each) is None))

    def small_alerts(self) -> tuple[pa.Table, ...]:
        """Return the alerts that are on the driver in payloads, one per shard and group, of up to `SMALL_BYTES`."""
        packed = self.payloads(columns.ALERTS)
        small = (each for each in packed if len(each) <= SMALL_BYTES and spilled(each) is None)
        return tuple(map(payload.unpack, small))


class Sink(Protocol):
    """The destination of a batch's outputs."""

    def write(self, batch: ScoredBatch) -> None:
        """Write a batch's results exactly once, even if the batch is run again."""


def run_batch(
    produced: DataFrame, state_folder: str, version: int, on_read: Callable[[], None] = lambda: None
) -> tuple[list[Produced], Counter[str]]:
    """Run tasks that produce rows of `windows.PRODUCED`, each on a version of its store, and commit the next version.

    `on_read` is called once the tasks have read all input. Returns their rows, and the total sizes of their stores
    under Spark's names.
    """
    run = state_tasks(produced.sparkSession.sparkContext, "run")
    where = run(produced._jdf, state_folder, version)
    on_read()
    rows, state = [], Counter[str]()
    for packed in fetch(where):
        end = 1 + packed[0]
        output, count, payload = packed[1:end].decode(), packed[end : end + 8], packed[end + 8 :]
        if output == STATE:
            state.update(json.loads(payload))
        else:
            rows.append(Produced(output, int.from_bytes(count, "little"), payload))
    return rows, state


def score_batch(
    produced: DataFrame,
    batch_id: int,
    rule_set: RuleSet,
    terms: Terms,
    stores: DriverStores,
    state_folder: str,
    lists: Lists = NO_LISTS,
    on_read: Callable[[], None] = lambda: None,
) -> ScoredBatch:
    """Score a batch in one Spark action, or in two if the parts of rules are too many for the driver.

    `produced` has rows of `windows.PRODUCED`, which the action computes; `stores` is the state on the driver, and
    `state_folder` the place of the shards' state. `on_read` is called once the whole source has been read.
    """
    session = produced.sparkSession
    rows, state = run_batch(produced, state_folder, batch_id, on_read)
    scorer = Scorer(terms.event_schema, terms.engine, terms.evaluations, lists, terms.features)
    arrived = [ArrivedRows.read(row.payload) for row in rows if row.output == ARRIVED]
    has_files = any(spilled(row.payload) is not None for row in rows) or any(each.path for each in arrived)
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
    return ScoredBatch(account, rule_set, terms, [*rows, *met], session, arrived, has_files, state)


def in_microseconds(schema: pa.Schema) -> pa.Schema:
    """Return the columns of an output with timestamps in microseconds, as Spark has them."""
    moment = pa.timestamp("us", "UTC")
    return pa.schema({field.name: moment if field.type == columns.TIME else field.type for field in schema})
