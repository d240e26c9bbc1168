"""A backtest over a batch DataFrame, by the tasks of its session; the driver gets the alerts and what is counted."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from buckets.archive.arrived_rows import ARRIVAL, archived_and_rounded, arrivals_of
from buckets.config.engine import EngineSettings
from buckets.engine.stages.in_memory import BatchResults
from buckets.errors import BucketsError
from buckets.events.parquet_rows import plain_table_arrivals
from buckets.events.schema import EventSchema
from buckets.history.backtest.backtest import Backtest, question
from buckets.history.backtest.report import BacktestReport
from buckets.history.scoring import ScoredPiece, scorer_of
from buckets.lists.index import NO_LISTS
from buckets.spark.arrow_types import from_arrow_schema
from buckets.spark.frame_input import (
    FrameError,
    ListsOrPaths,
    RulesOrPath,
    SchemaOrPath,
    check_columns_of,
    check_is_frame,
    told_as,
)
from buckets.spark.frame_rows import SLICE_ROWS, in_utc, quoted, slices
from buckets.spark.frames import SLICE_BITS, by_percentiles, in_order, numbers_of_slices, read_input
from buckets.spark.slice_scoring import ROWS, SENT, Payloads, Slice, SliceScoring, batches_of
from buckets.spark.worker import settle
from buckets.verdicts.confirmed import AMOUNT, MADE_AT, VERDICT, Amounts, fraud_amounts, fraud_rows, id_column


@dataclass(frozen=True)
class _BacktestScoring(SliceScoring):
    """What tasks need to know."""

    asked: Backtest
    slice_rows: int  # at most

    def of(self, number: int) -> Slice:
        """Return what a slice is scored by."""
        return Slice(scorer_of(self.asked.settings, "alerts"), self.asked.rule_set)

    def fan_out(self, columns: Sequence[str], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Send the slices of a partition to the shards, and their rows to where they are completed."""
        asked = self.asked
        for number, numbered in zip(numbers_of_slices(), slices(batches, self.slice_rows), strict=False):
            rows = numbered.rename_columns(list(columns))
            arrivals = plain_table_arrivals(in_utc(rows), asked.schema)
            tables, rounded = zip(*(archived_and_rounded(each, asked.schema, 0) for each in arrivals), strict=True)
            numbers = pa.array(range(number * self.slice_rows, number * self.slice_rows + len(rows)))
            arrived = asked.scored_rows(pa.concat_tables(tables).append_column(ARRIVAL, numbers))
            sent = self.sent(number, arrivals_of(arrived, asked.schema))
            beside = cloudpickle.dumps((arrived, sum(map(Counter, rounded), Counter[str]())))
            sent.append((number % asked.engine.shards, number, ROWS, beside))
            yield from batches_of(sent)
        settle()

    def found_in(self, number: int, payloads: Payloads, results: BatchResults) -> Any:
        """Return what is found in a slice."""
        ((rows, rounded),) = (cloudpickle.loads(packed) for output, packed in payloads if output == ROWS)
        piece = replace(self.asked.settings, rows=rows, rounded=rounded)
        return self.asked.found_in(ScoredPiece(piece, results))


def backtest(
    frame: DataFrame,
    rules: RulesOrPath,
    schema: SchemaOrPath,
    *,
    order_by: Sequence[str | Column],
    engine: EngineSettings | Mapping[str, Any] | None = None,
    lists: ListsOrPaths = NO_LISTS,
    begin: datetime | None = None,
    end: datetime | None = None,
    amount: str | None = None,
    fraud: Mapping[str, Any] | DataFrame | None = None,
    sweep: Mapping[str, Iterable[object]] | None = None,
) -> BacktestReport:
    """Say what rules would have raised on the events of a DataFrame. It runs at once.

    Args:
        frame: as for `features`.
        rules: as for `features`.
        schema: as for `features`.
        order_by: as for `features`.
        engine: as for `features`.
        lists: as for `features`.
        begin: the first event time that is reported; without a zone it is in UTC; None for any.
        end: the first event time that is not reported any more.
        amount: the measure that is the amount of an event; the first one if None.
        fraud: the events that were fraud, by id with their amounts, None for an event's own; or a DataFrame with the
            columns of a table of `--fraud`, such as the id as the event schema names it, `amount` and `verdict`.
        sweep: other values that are tried, by parameter, as in `{"spike.limit": range(3, 9)}`.

    Returns:
        The report, as `buckets.backtest` gives it.

    Raises:
        FrameError: as `features`; a sweep, an amount or fraud cannot be read, or no event is in the range
            (`INVALID_BACKTEST`); fraud has no ids (`COLUMN_MISSING`).
    """
    settings, chosen, declared, indices = read_input(frame, rules, schema, engine, lists)
    swept = {} if sweep is None else sweep
    are_values = isinstance(swept, Mapping) and all(isinstance(each, Iterable) for each in swept.values())
    if not are_values or any(isinstance(each, str) for each in swept.values()):
        message = f'sweep: must be values by parameter, as in {{"spike.limit": [100, 200]}}, not {sweep!r}'
        raise FrameError(message, "INVALID_BACKTEST")
    texts = [f"{name}={','.join(map(str, values))}" for name, values in swept.items()]
    with told_as("INVALID_BACKTEST"):
        if isinstance(fraud, DataFrame):
            fraud = _confirmed(fraud, declared, amount or next(iter(declared.measures), None))
        asked = question(chosen, declared, settings, indices, begin, end, amount, fraud, texts)
    check_columns_of(frame, declared, asked.rule_set)
    work, shards = _BacktestScoring(asked, SLICE_ROWS), settings.shards
    names, rows = in_order(frame, order_by, partial(by_percentiles, shards), declared)
    fanned = rows.mapInArrow(partial(work.fan_out, names), from_arrow_schema(SENT))
    # The slices of a partition are completed by one task; all by one, where rules need what came before.
    tasks, task = (1, "0") if asked.rule_set.needs_driver_state else (shards, f"slice >> {SLICE_BITS}")
    with told_as("INVALID_BACKTEST"):
        return asked.report(work.found(work.scored(fanned, shards), tasks, task, work.found_in))


def _confirmed(fraud: DataFrame, schema: EventSchema, measure: str | None) -> Amounts:
    """Return the amounts of confirmed fraud by id; rows have no order, so only `made_at` says which is the last."""
    check_is_frame(fraud, "fraud")
    with told_as("COLUMN_MISSING"):
        column = id_column(fraud.columns, "fraud", schema)
    known = {column, AMOUNT, VERDICT, MADE_AT, measure}
    names = [name for name in fraud.columns if name in known]
    rows = fraud.select(*(F.col(quoted(name)) for name in names)).distinct().toArrow().to_pylist()
    if MADE_AT not in names:
        about = Counter(str(row[column]) for row in rows if row[column] is not None)
        twice = next((each for each, several in about.items() if several > 1), None)
        if twice is not None:
            message = f"fraud: has several rows about {twice!r}, in no order; leave one, or say when each was {MADE_AT}"
            raise BucketsError(message)
    return fraud_amounts(fraud_rows(rows, "fraud", schema), "fraud", measure)
