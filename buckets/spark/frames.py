"""Rules over a batch DataFrame, run by its session's tasks: what a job computes at each event, over any history.

rows --sort--> slices --fan out--> shards --score--> slices --complete--> rows

Rows are sorted by arrival and cut into slices (`slice_scoring`). A slice's original rows travel beside its events, and
are joined with the results of the shards.

Only input and output have a Spark row per event; in between a few large rows carry many events each.

rows --by key, sorted--> score --> rows

If the keys of all rules share columns, features need no slices: rows are distributed by these columns, and each task
works alone.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import count
from operator import or_
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DatetimeType, IntegralType, NumericType, StringType

from buckets.config.engine import EngineSettings
from buckets.engine.batch import payload
from buckets.engine.results.feature_table import FeatureTable
from buckets.engine.stages.in_memory import BatchResults, InMemoryJob, OutputDecoder, memory_stores
from buckets.engine.stages.shard import Scorer
from buckets.evaluation import Evaluator
from buckets.events.parquet_rows import plain_table_arrivals
from buckets.events.schema import EventSchema
from buckets.lists.index import NO_LISTS, Lists
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet
from buckets.spark.arrow_types import from_arrow_schema
from buckets.spark.frame_input import (
    FrameError,
    ListsOrPaths,
    RulesOrPath,
    SchemaOrPath,
    beside_kinds,
    check_columns_of,
    check_is_frame,
    check_is_repeatable,
    check_switches,
    engine_settings,
    hash_of_all,
    numbered_kinds,
    order_columns,
    output_kinds,
    read_lists,
    reads,
    told_as,
)
from buckets.spark.frame_input import rules as read_rules
from buckets.spark.frame_input import schema as read_schema
from buckets.spark.frame_rows import SLICE_ROWS, beside_rows, in_utc, numbered_names, quoted, slices
from buckets.spark.slice_scoring import ROWS, SENT, Slice, SliceScoring, batches_of, by_slice
from buckets.spark.worker import settle

_Given = tuple[EngineSettings, tuple[Rule, ...], EventSchema, Lists]
_FEWEST_SHARDS = 8
SLICE_BITS = 24  # Bits for the number of a slice within its partition
_KEY_TYPES = {"string": StringType, "long": IntegralType}
"""By attribute type, the column types whose values are equal exactly when the keys made from them are equal."""


@dataclass(frozen=True)
class _Work(SliceScoring):
    """What every task needs."""

    scorer: Scorer
    rule_set: RuleSet
    slice_rows: int  # at most

    def of(self, number: int) -> Slice:
        """Return what a slice is scored with."""
        return Slice(self.scorer, self.rule_set)

    def fan_out(self, columns: Sequence[str], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Cut the sorted rows of a partition into slices for the shards; for features, send whole rows along too."""
        for number, numbered in zip(numbers_of_slices(), slices(batches, self.slice_rows), strict=False):
            rows = numbered.rename_columns(list(columns))
            sent = self.sent(number, plain_table_arrivals(in_utc(rows), self.scorer.schema))
            if self.scorer.features:
                sent.append((number % self.scorer.engine.shards, number, ROWS, payload.pack(payload.ROWS, rows)))
            yield from batches_of(sent)
        settle()

    def features(self, table: FeatureTable, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Append the features of each slice to its rows."""
        for number, _, payloads in by_slice(batches):
            (rows,) = (payload.unpack(packed) for output, packed in payloads if output == ROWS)
            yield from _beside(rows, table, self.complete(number, payloads, memory_stores()))
        settle()

    def features_by_key(
        self, columns: Sequence[str], table: FeatureTable, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """Append features to the sorted rows of a partition that holds all rows of each of its keys."""
        job = InMemoryJob(replace(self.scorer, engine=self.scorer.engine.model_copy(update={"shards": 1})))
        for rows in slices(batches, self.slice_rows):
            events = in_utc(rows.rename_columns(list(columns)))
            arrivals = plain_table_arrivals(events, self.scorer.schema)
            yield from _beside(rows, table, job.score_batch(arrivals, self.rule_set))
        settle()

    def outputs(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Complete slices; if the driver of a job would keep state for the rules, one task gets all slices in order."""
        stores = memory_stores()
        for number, _, payloads in by_slice(batches):
            found = self.complete(number, payloads, stores).payloads
            yield from batches_of(
                (0, number, output, packed) for output, several in found.items() for packed in several
            )

    def decode(self, output: str, kinds: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Decode the rows of an output."""
        decoder = OutputDecoder(self.rule_set, self.scorer.schema, self.scorer.engine)
        for _, _, payloads in by_slice(batches):
            table = decoder.table(output, [packed for _, packed in payloads])
            yield from table.select(kinds.names).cast(kinds).combine_chunks().to_batches()


def features(
    frame: DataFrame,
    rules: RulesOrPath,
    schema: SchemaOrPath,
    *,
    order_by: Sequence[str | Column],
    engine: EngineSettings | Mapping[str, Any] | None = None,
    lists: ListsOrPaths = NO_LISTS,
    flags: bool = False,
) -> DataFrame:
    """Compute the features of rules at each row of a DataFrame, as they were when it arrived.

    Nothing runs until the result is read. Rows arrive in the order of `order_by`; ties are ordered by a hash of all
    columns, so that the result does not depend on partitions.

    Args:
        frame: one row an event, with the columns that the event schema names: fields of structs and arrays too.
        rules: what `buckets.spark.rules` takes or returns, evaluated whether they are ACTIVE or SHADOW.
        schema: the event schema, as `buckets.spark.schema` takes or returns it.
        order_by: the columns that say in which order events arrived, such as a time and an id.
        engine: lateness, collisions and precision, as a model or a dict; the defaults of a job if None.
        lists: by name, the lists that rules look into, as `buckets.load_list` reads them, or paths of their files.
        flags: whether to say of each feature whether it is exact, and whether it is warm.

    Returns:
        The rows with their columns and types, and beside them `outcome`, for each rule its features as `RULE.FEATURE`,
        and `RULE.fired`, as `buckets.features` describes them.

    Raises:
        FrameError: the DataFrame is a stream (`STREAMING_FRAME`) or of Spark Connect (`NOT_A_FRAME`), lacks a column
            (`COLUMN_MISSING`), has one that is read twice (`COLUMN_TWICE`), or has one that the result has besides
            (`COLUMN_TAKEN`) or that Python cannot read (`COLUMN_TYPE`), or is computed with rand() and the like
            (`NOT_DETERMINISTIC`); there is no order (`ORDER_MISSING`) or no id (`NO_EVENT_ID`); as `buckets.features`
            (`INVALID_RULES`, `INVALID_SCHEMA`, `INVALID_ENGINE`, `INVALID_LISTS`); `flags` is not True or False
            (`INVALID_OPTION`).
    """
    check_switches(flags=flags)
    work = _prepared(frame, read_input(frame, rules, schema, engine, lists), is_of_features=True)
    with told_as("INVALID_RULES"):
        table = FeatureTable(work.rule_set, work.scorer.schema, flags)
    beside = beside_kinds(table, frame.schema)
    kinds = [*frame.schema.fields, *beside.fields]
    shards, keys = work.scorer.engine.shards, _shared_keys(work, frame)
    if keys:
        names, rows = in_order(frame, order_by, partial(_by_key, shards, keys))
        scored_rows = rows.mapInArrow(partial(work.features_by_key, names, table), numbered_kinds(kinds))
    else:
        scored = _scored(work, frame, order_by, shards)
        scored_rows = scored.mapInArrow(partial(work.features, table), numbered_kinds(kinds))
    return scored_rows.toDF(*(kind.name for kind in kinds))


def _beside(rows: pa.Table, table: FeatureTable, scored: BatchResults) -> Iterator[pa.RecordBatch]:
    """Yield rows with the features computed for each, under temporary column names."""
    yield from beside_rows(rows, table.beside(scored.payloads, len(rows))).combine_chunks().to_batches()


def _shared_keys(work: _Work, frame: DataFrame) -> list[str]:
    """Return the columns that are part of every group's key and whose values distinguish these keys."""
    schema, groups = work.scorer.schema, work.rule_set.groups
    names = Counter(name.casefold() for name in frame.columns)  # Spark ignores case in names.
    return [
        field.name
        for field in frame.schema
        if all(field.name in group.fields for group in groups)
        and names[field.name.casefold()] == 1
        and field.name not in {*schema.aliases, *schema.derive}
        and isinstance(field.dataType, _KEY_TYPES.get(schema.attributes.get(field.name, ""), ()))
    ]


class EvaluatedFrame:
    """The results for a DataFrame of events: one attribute per output, a DataFrame with the columns of a job's table.

    Outputs: `evaluations`, `alerts`, `shadow_alerts`, `held_alerts`, `late_events`, `collisions`, `duplicates`,
    `dead_letters`. Reading any of them scores the events again, unless `persist` was called.
    """

    def __init__(self, work: _Work, completed: DataFrame) -> None:
        """Keep the work and its completed slices, from which each output is decoded."""
        self._work, self._completed = work, completed
        self._kinds = output_kinds(work.scorer.schema)

    def __getattr__(self, name: str) -> DataFrame:
        """Return an output."""
        kinds = self.__dict__.get("_kinds", {})
        if name not in kinds:
            message = f"there is no output {name!r}; there are {', '.join(kinds)}"
            raise AttributeError(message)
        payloads = self._completed.where(F.col("output") == name)
        return payloads.mapInArrow(partial(self._work.decode, name, kinds[name]), from_arrow_schema(kinds[name]))

    def __dir__(self) -> list[str]:
        """Return the names of attributes and outputs."""
        return [*super().__dir__(), *self._kinds]

    def persist(self) -> "EvaluatedFrame":
        """Persist the results, so that events are scored only once."""
        self._completed.persist()
        return self

    def unpersist(self) -> "EvaluatedFrame":
        """Drop the persisted results."""
        self._completed.unpersist()
        return self


def evaluate(
    frame: DataFrame,
    rules: RulesOrPath,
    schema: SchemaOrPath,
    *,
    order_by: Sequence[str | Column],
    engine: EngineSettings | Mapping[str, Any] | None = None,
    lists: ListsOrPaths = NO_LISTS,
) -> EvaluatedFrame:
    """Evaluate rules at each row of a DataFrame, with the outputs of a job.

    If there are rules over alerts, or rules that span groups have policies with a memory, one task completes all
    slices in order.

    Args:
        frame: as for `features`.
        rules: as for `features`.
        schema: as for `features`.
        order_by: as for `features`.
        engine: as for `features`.
        lists: as for `features`.

    Raises:
        FrameError: as `features`.
    """
    work = _prepared(frame, read_input(frame, rules, schema, engine, lists), is_of_features=False)
    parts = 1 if work.rule_set.needs_driver_state else work.scorer.engine.shards
    completed = _scored(work, frame, order_by, parts).mapInArrow(work.outputs, from_arrow_schema(SENT))
    return EvaluatedFrame(work, completed)


def with_features(
    rules: RulesOrPath, schema: SchemaOrPath, *, order_by: Sequence[str | Column], **options: Any
) -> Callable[[DataFrame], DataFrame]:
    """Return `features` as a function for `DataFrame.transform`; `options` are its `engine`, `lists` and `flags`."""
    return lambda frame: features(frame, rules, schema, order_by=order_by, **options)


def _prepared(frame: DataFrame, given: _Given, is_of_features: bool) -> _Work:
    """Validate the input and return the work for the tasks."""
    settings, chosen, declared, indices = given
    with told_as("INVALID_RULES"):
        rule_set = Evaluator(chosen, declared, settings, indices).rule_set
    check_columns_of(frame, declared, rule_set)
    wanted = {"evaluations": not is_of_features, "features": is_of_features, "alerts": not is_of_features}
    scorer = Scorer(declared, settings, lists=indices, **wanted)
    return _Work(scorer, rule_set, SLICE_ROWS)


def read_input(
    frame: DataFrame,
    rules: RulesOrPath,
    schema: SchemaOrPath,
    engine: EngineSettings | Mapping[str, Any] | None,
    lists: ListsOrPaths,
) -> _Given:
    """Validate and return the arguments given with a batch DataFrame; a stream is refused.

    The settings get enough shards to keep the session busy.
    """
    check_is_frame(frame)
    if frame.isStreaming:
        message = "frame: is a stream; take bs.stream, or give a batch DataFrame"
        raise FrameError(message, "STREAMING_FRAME")
    check_is_repeatable(frame)
    shards = max(_FEWEST_SHARDS, 2 * frame.sparkSession.sparkContext.defaultParallelism)
    settings = engine_settings(engine).model_copy(update={"shards": shards})
    return settings, read_rules(rules), read_schema(schema), read_lists(lists)


def _scored(work: _Work, frame: DataFrame, order_by: Sequence[str | Column], parts: int) -> DataFrame:
    """Return the shards' results beside the rows of each slice, as rows of `SENT`, each slice in one partition."""
    shards = work.scorer.engine.shards
    # Features return with all columns; outputs need only those that are read.
    schema = None if work.scorer.features else work.scorer.schema
    names, rows = in_order(frame, order_by, partial(by_percentiles, shards), schema)
    scored = work.scored(rows.mapInArrow(partial(work.fan_out, names), from_arrow_schema(SENT)), shards)
    return scored.repartition(parts, "slice").sortWithinPartitions("slice")


def in_order(
    frame: DataFrame,
    order_by: Sequence[str | Column],
    dealt: Callable[[DataFrame, Sequence[Column]], DataFrame],
    schema: EventSchema | None = None,
) -> tuple[list[str], DataFrame]:
    """Return rows sorted by arrival within partitions, under temporary names, and the original column names.

    `dealt` distributes the rows over partitions, given their order. If there is a `schema`, only columns that it reads
    remain.
    """
    order = order_columns(frame, order_by, hashed := hash_of_all(frame))
    own_name = max(frame.columns, key=len) + "_hash"  # no column has this name
    ordered = dealt(frame, order).select("*", hashed.alias(own_name))
    ordered = ordered.sortWithinPartitions(*order, quoted(own_name))
    *numbers, hash_name = numbered_names(len(frame.columns) + 1)
    taken = {
        number: name
        for number, name in zip(numbers, frame.columns, strict=True)
        if schema is None or reads(schema, name)
    }
    return list(taken.values()), ordered.toDF(*numbers, hash_name).select(*taken)


def numbers_of_slices() -> Iterator[int]:
    """Yield numbers for the slices of this task's partition."""
    context = TaskContext.get()
    assert context is not None
    return count(context.partitionId() << SLICE_BITS)


def _by_key(parts: int, keys: Sequence[str], frame: DataFrame, order: Sequence[Column]) -> DataFrame:
    """Distribute rows over partitions by key columns; rows with a null, which have no key, by their order."""
    values = [F.col(quoted(key)) for key in keys]
    is_in_none = reduce(or_, (value.isNull() for value in values))
    return frame.repartition(parts, *values, F.when(is_in_none, F.hash(*order)))


def by_percentiles(parts: int, frame: DataFrame, order: Sequence[Column]) -> DataFrame:
    """Distribute rows over partitions in order: the first rows go to the first partition.

    Spark's own range partitioning would read all rows entirely to sample them; percentiles need only one column.
    """
    first = order[0]
    kinds = {f"Column<'{field.name}'>": field.dataType for field in frame.schema}
    if not isinstance(kinds.get(repr(first)), NumericType | DatetimeType):  # Or an expression, or descending.
        return frame.repartitionByRange(parts, *order)
    bounds = frame.select(F.percentile_approx(first, [part / parts for part in range(1, parts)])).scalar()
    passed = (first > F.get(bounds, F.lit(bound)) for bound in range(parts - 1))
    return frame.repartitionById(parts, sum((F.coalesce(each.cast("int"), F.lit(0)) for each in passed), F.lit(0)))
