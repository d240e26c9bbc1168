"""Rules over one file: the same streaming query as in production, fed part by part, with JSON lines for results."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from buckets.arrivals import POSITION, RAW, SOURCE, SOURCE_ORDER
from buckets.basis import Basis
from buckets.engine_settings import EngineSettings
from buckets.event_schema import EventSchema
from buckets.ledger import Ledger
from buckets.rule import Rule
from buckets.rule_book import RuleBook
from buckets.rule_feed import FixedRules
from buckets.spark.file_source import file_reader, list_files, read_files
from buckets.spark.json_sink import JsonSink
from buckets.spark.query import BatchReport, Scoring, ScoringQuery
from buckets.spark.source import Arrivals, text_reader
from buckets.staging import ROW_NUMBER, EventFile, stage, typed_part
from buckets.terms import Terms


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
        stage(evaluation.file, evaluation.schema, staging, evaluation.batch_rows)
        staging.rename(parts)
    ledger = Ledger(work / "checkpoint")
    ledger.open(Basis(str(evaluation.file.path), evaluation.schema, evaluation.engine))
    sink = JsonSink(work / "results")
    scoring = Scoring(
        arrivals=_staged(spark, evaluation.file, parts, evaluation.schema),
        terms=Terms(event_schema=evaluation.schema, engine=evaluation.engine, evaluations=True, output="json"),
        ledger=ledger,
        book=RuleBook(ledger, FixedRules(evaluation.rules), evaluation.schema, evaluation.engine.allowed_lateness),
        sink=sink,
        checkpoint=work / "checkpoint" / "spark",
    )
    return ScoringQuery(scoring, on_batch), sink


def _staged(spark: SparkSession, file: EventFile, parts: Path, schema: EventSchema) -> Arrivals:
    if file.kind == "parquet":
        files = list_files(file_reader(spark, 1), str(parts))
        return Arrivals(*read_files(files, lambda part, _: typed_part(part, file, schema)))
    first = spark.read.parquet(str(min(parts.glob("*.parquet"))))
    frame = file_reader(spark, 1).schema(first.schema).parquet(str(parts))
    number = F.col(ROW_NUMBER).alias(POSITION)
    place = [F.lit(file.path.name).alias(SOURCE), F.lit(0).cast("long").alias(SOURCE_ORDER), number]
    return Arrivals(frame.select(RAW, *place), text_reader(file.kind, schema, file.header))
