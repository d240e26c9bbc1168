"""Rules over one file: the same streaming query as in production, fed part by part, with JSON lines for results."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from buckets.checkpoint.basis import Basis
from buckets.checkpoint.checkpoint import Checkpoint
from buckets.checkpoint.lock import Lock
from buckets.checkpoint.terms import Terms
from buckets.config.engine import EngineSettings
from buckets.config.state import StateSettings
from buckets.events.arrivals import POSITION, RAW, SOURCE, SOURCE_ORDER
from buckets.events.event_file import ROW_NUMBER, EventFile, stage, typed_part
from buckets.events.line_reader import line_reader
from buckets.events.schema import EventSchema
from buckets.list_feeds.file_feed import ListFile
from buckets.list_feeds.list_book import ListBook
from buckets.rule_feeds.feed import FixedRules
from buckets.rule_feeds.rule_book import RuleBook
from buckets.rules.rule import Rule
from buckets.spark.arrival_stream import ArrivalStream
from buckets.spark.file_stream import file_reader
from buckets.spark.json_sink import JsonSink
from buckets.spark.parquet_source import list_files, read_files
from buckets.spark.query import BatchReport, Scoring, ScoringQuery
from buckets.state.bounds import Bounds


@dataclass(frozen=True)
class Evaluation:
    """What is evaluated: a file of events, rules, the settings that decide results, and lists by name."""

    file: EventFile
    schema: EventSchema
    rules: tuple[Rule, ...]
    engine: EngineSettings
    batch_rows: int | None
    lists: Mapping[str, Path] = field(default_factory=dict)


def evaluation_query(
    spark: SparkSession, evaluation: Evaluation, work: Path, on_batch: Callable[[BatchReport], None]
) -> tuple[ScoringQuery, JsonSink]:
    """The query over a file, and the sink that will hold its results.

    Args:
        spark: the session.
        evaluation: what is evaluated.
        work: a folder for parts, checkpoint and results; a second query with the same folder goes on from there.
        on_batch: called after each batch.
    """
    parts = work / "parts"
    if not parts.exists():
        staging = work / "staging"
        stage(evaluation.file, evaluation.schema, staging, evaluation.batch_rows)
        staging.rename(parts)
    checkpoint = Checkpoint(work / "checkpoint")
    checkpoint.job.open(Basis(str(evaluation.file.path), evaluation.schema, evaluation.engine))
    lists = ListBook(checkpoint, {name: ListFile(path) for name, path in evaluation.lists.items()})
    sink, bounds = JsonSink(work / "results"), StateSettings()
    scoring = Scoring(
        arrivals=_staged(spark, evaluation.file, parts, evaluation.schema),
        terms=Terms(event_schema=evaluation.schema, engine=evaluation.engine, evaluations=True, output="json"),
        checkpoint=checkpoint,
        lock=Lock(checkpoint.path),
        book=RuleBook(checkpoint, FixedRules(evaluation.rules), evaluation.schema, evaluation.engine, lists=lists),
        sink=sink,
        bounds=Bounds.of_each(bounds.log, bounds.cache, evaluation.engine.shards),
    )
    return ScoringQuery(scoring, on_batch), sink


def _staged(spark: SparkSession, file: EventFile, parts: Path, schema: EventSchema) -> ArrivalStream:
    if file.kind == "parquet":
        files = list_files(file_reader(spark, 1), str(parts))
        return read_files(files, lambda part, _: typed_part(part, file, schema))
    first = spark.read.parquet(str(min(parts.glob("*.parquet"))))
    frame = file_reader(spark, 1).schema(first.schema).parquet(str(parts))
    number = F.col(ROW_NUMBER).alias(POSITION)
    origin = [F.lit(file.path.name).alias(SOURCE), F.lit(0).cast("long").alias(SOURCE_ORDER), number]
    return ArrivalStream(frame.select(RAW, *origin), line_reader(file.kind, schema, file.header))
