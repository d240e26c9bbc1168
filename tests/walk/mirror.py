"""The same batches in one process: what the engine makes of them without Spark, kills and restarts, in all columns."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from buckets.engine.stages.accounting import BatchAccount
from buckets.engine.stages.in_memory import InMemoryJob, OutputDecoder
from buckets.engine.stages.shard import Scorer
from buckets.events.arrivals import POSITION, RAW, SOURCE, SOURCE_ORDER
from buckets.events.message_fields import as_declared, schema_to_read
from buckets.events.source_files import line_reader
from buckets.spark.sinks import BATCH_ID, table_columns
from tests.walk.recorded import RecordedBatch

Row = dict[str, Any]


class Mirror:
    """An in-memory job that takes the batches of a job as they were cut, each under its own rules, terms and lists."""

    def __init__(self) -> None:
        self._job: InMemoryJob | None = None
        self.account: BatchAccount | None = None

    def score(self, batch: RecordedBatch) -> dict[str, list[Row]]:
        """The rows of each output of a batch, as its tables have them."""
        terms = batch.terms
        scorer = Scorer(terms.event_schema, terms.engine, evaluations=terms.evaluations, lists=batch.lists)
        if self._job is None:
            self._job = InMemoryJob(scorer)
        self._job.scorer, self._job.batches = scorer, batch.number
        results = self._job.score_batch(list(_arrivals(batch)), batch.rule_set)
        self.account = results.account
        decoder, schemas = OutputDecoder(batch.rule_set, terms.event_schema, terms.engine), table_columns(terms)
        found: dict[str, list[Row]] = {name: [] for name in schemas}
        for name, payloads in results.payloads.items():
            table = decoder.table(name, payloads)
            table = table.append_column(BATCH_ID, pa.array([batch.number] * len(table), pa.int64()))
            found[name] = table.select(schemas[name].names).cast(schemas[name]).to_pylist()
        accounts = pa.Table.from_pylist(results.account.rows(), schema=schemas["batches"])
        found["batches"] = accounts.to_pylist()
        return found


def _arrivals(batch: RecordedBatch) -> Iterator[pa.RecordBatch]:
    """The lines of a batch in the form of `events.arrivals`."""
    sources, orders, positions, raw = zip(*batch.lines, strict=True) if batch.lines else ((),) * 4
    columns = {
        RAW: pa.array(raw, pa.binary()),
        SOURCE: pa.array(sources, pa.string()),
        SOURCE_ORDER: pa.array(orders, pa.int64()),
        POSITION: pa.array(positions, pa.int64()),
    }
    schema = batch.terms.event_schema
    read = line_reader("json", schema_to_read(schema), header=None)
    yield from as_declared(read([pa.record_batch(columns)]), schema)
