"""Rules over one file: the same streaming query as in production, fed part by part, with JSON lines for results."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from buckets.arrivals import BROKEN, POSITION, RAW, SOURCE, SOURCE_ORDER
from buckets.engine_settings import EngineSettings
from buckets.event_schema import EventSchema
from buckets.ledger import Basis, Ledger
from buckets.rule import Rule
from buckets.rule_book import RuleBook
from buckets.rule_feed import FixedRules
from buckets.spark.json_sink import JsonSink
from buckets.spark.query import BatchReport, Scoring, ScoringQuery
from buckets.spark.source import Arrivals, text_reader, typed_fields
from buckets.staging import ROW_NUMBER, EventFile, stage


@dataclass(frozen=True)
class Evaluation:
    """What is evaluated: a file of events, rules, and the settings that decide results."""

    file: EventFile
    schema: EventSchema
    rules: tuple[Rule, ...]
    engine: EngineSettings
    batch_rows: int | None


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
        stage(evaluation.file, staging, evaluation.batch_rows)
        staging.rename(parts)
    ledger = Ledger(work / "checkpoint")
    ledger.open(Basis(str(evaluation.file.path), evaluation.schema, evaluation.engine))
    sink = JsonSink(work / "results", evaluation.schema, evaluation.engine)
    scoring = Scoring(
        arrivals=_staged(spark, evaluation.file, parts, evaluation.schema),
        schema=evaluation.schema,
        engine=evaluation.engine,
        book=RuleBook(ledger, FixedRules(evaluation.rules), evaluation.schema, evaluation.engine.allowed_lateness),
        sink=sink,
        evaluations=True,
        checkpoint=work / "checkpoint" / "spark",
    )
    return ScoringQuery(scoring, on_batch), sink


def _staged(spark: SparkSession, file: EventFile, parts: Path, schema: EventSchema) -> Arrivals:
    first = spark.read.parquet(str(min(parts.glob("*.parquet"))))
    frame = spark.readStream.schema(first.schema).option("maxFilesPerTrigger", 1).parquet(str(parts))
    number = F.col(ROW_NUMBER).alias(POSITION)
    place = [F.lit(file.path.name).alias(SOURCE), F.lit(0).cast("long").alias(SOURCE_ORDER), number]
    if file.kind == "parquet":
        frame = frame.select(*place, F.lit(None).cast("string").alias(BROKEN), *typed_fields(frame, schema))
        return Arrivals(frame, lambda batches: iter(batches))
    return Arrivals(frame.select(RAW, *place), text_reader(file.kind, schema, file.header))
