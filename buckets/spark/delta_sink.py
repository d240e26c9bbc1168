"""Results into Delta tables, a table an output, each written once for a batch however often the batch runs."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from buckets import outputs, payload
from buckets.accounting import BatchAccount
from buckets.numbered_append import append_new
from buckets.rule_set import RuleSet
from buckets.shard import evaluation_rows
from buckets.spark.query import ScoredBatch
from buckets.table_upgrade import add_missing_columns
from buckets.terms import Terms

_MICROS = pa.timestamp("us", "UTC")
_HIDDEN = ("source_order",)


def table_columns(terms: Terms) -> dict[str, pa.Schema]:
    """The outputs and their columns, as the tables have them."""
    scale = terms.event_schema.largest_scale
    alerts = outputs.alert_columns(scale)
    columns = {
        outputs.ALERTS: alerts,
        outputs.SHADOW_ALERTS: alerts,
        outputs.LATE_EVENTS: outputs.LATE_EVENT_COLUMNS,
        outputs.COLLISIONS: outputs.COLLISION_COLUMNS,
        outputs.DUPLICATES: outputs.DUPLICATE_COLUMNS,
        outputs.DEAD_LETTERS: outputs.DEAD_LETTER_COLUMNS,
        outputs.BATCHES: outputs.BATCH_COLUMNS,
    }
    if terms.evaluations:
        columns[outputs.EVALUATIONS] = outputs.evaluation_columns(scale)
    return {name: _as_stored(each) for name, each in columns.items()}


def _as_stored(columns: pa.Schema) -> pa.Schema:
    """Columns of a Delta table: times in microseconds, as Spark has them, and the batch that wrote the row."""
    kept = [
        pa.field(field.name, _MICROS if field.type == outputs.TIME else field.type)
        for field in columns
        if field.name not in (*_HIDDEN, "batch_id")
    ]
    return pa.schema([pa.field("batch_id", pa.int64()), *kept])


def spark_schema(columns: pa.Schema) -> StructType:
    """Arrow columns as Spark knows them."""
    return from_arrow_schema(columns)


class DeltaSink:
    """Writes the outputs of each batch to Delta tables under one folder."""

    def __init__(self, folder: Path, identity: str) -> None:
        """Write under `folder`.

        Args:
            folder: where the tables are.
            identity: of the checkpoint; with a batch's number it makes a write happen once.
        """
        self._folder = folder
        self._identity = identity

    def prepare(self, terms: Terms) -> None:
        """Make the tables that are not there yet, so that every output can be read at once, and upgrade the others."""
        for name, columns in table_columns(terms).items():
            DeltaTable.create(self._folder / name, columns, mode="ignore")
            add_missing_columns(self._folder / name, columns)

    @property
    def on_driver(self) -> bool:
        """It writes from the executors."""
        return False

    def write(self, batch: ScoredBatch) -> None:
        """Write what a batch produced: the tables at once, for a commit is mostly waiting, and then the accounts."""
        batch_id, rule_set = batch.account.batch_id, batch.rule_set
        frames: dict[str, DataFrame] = {}
        for name, columns in table_columns(batch.terms).items():
            if batch.rows.get(name):
                decode = table_decoder(name, columns, batch.terms, batch_id, rule_set)
                mine = batch.produced.where(F.col("output") == name).select("payload")
                frame = mine.mapInArrow(decode, spark_schema(columns))
                frames[name] = frame if name == outputs.EVALUATIONS else frame.coalesce(1)
        if outputs.DEAD_LETTERS in frames:
            frames[outputs.DEAD_LETTERS] = one_letter_an_event(frames[outputs.DEAD_LETTERS])
        with ThreadPoolExecutor(max_workers=max(1, len(frames))) as pool:
            list(pool.map(lambda name: self._append(frames[name], name, batch_id), frames))
        self._append_accounts(batch.account)

    def _append_accounts(self, account: BatchAccount) -> None:
        """Append the accounts; they are made here on the driver, so no Spark job is needed to write them."""

        def new_rows(last: int | None) -> tuple[int, pa.Table] | None:
            if last is not None and last >= account.batch_id:
                return None
            return account.batch_id, pa.Table.from_pylist(account.rows(), schema=_as_stored(outputs.BATCH_COLUMNS))

        table = DeltaTable(self._folder / outputs.BATCHES)
        append_new(table, f"{self._identity}-{outputs.BATCHES}", new_rows)

    def _append(self, frame: DataFrame, name: str, batch_id: int) -> None:
        writer = frame.write.format("delta").mode("append")
        writer = writer.option("txnAppId", f"{self._identity}-{name}").option("txnVersion", batch_id)
        writer.save(str(self._folder / name))


def one_letter_an_event(letters: DataFrame) -> DataFrame:
    """Dead letters with all reasons of each event, which may have failed in several groups and for several rules."""
    event = [name for name in letters.columns if name != "reason"]
    reasons = F.array_join(F.array_sort(F.collect_set("reason")), "; ")
    return letters.groupBy(*event).agg(reasons.alias("reason")).select(*letters.columns)


def table_decoder(
    name: str, columns: pa.Schema, terms: Terms, batch_id: int, rule_set: RuleSet
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What turns the payloads of an output into the rows of its table, in the tasks."""

    def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for packed in batch.column("payload").to_pylist():
                if name == outputs.EVALUATIONS:
                    table = evaluation_rows(packed, rule_set, terms.event_schema, terms.engine)
                else:
                    table = payload.unpack(packed)
                numbered = table.append_column("batch_id", pa.repeat(batch_id, table.num_rows))
                yield from numbered.select(columns.names).cast(columns).to_batches()

    return decode
