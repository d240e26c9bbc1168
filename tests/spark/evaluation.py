"""Rules over a file by the query of a job, in the session of the tests, with the files of `buckets evaluate`."""

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from buckets.config.engine import EngineSettings
from buckets.events.event_file import open_event_file
from buckets.events.schema import EventSchema
from buckets.monitor.pace import BatchReport
from buckets.rules.rule import Rule
from tests.spark.file_query import Evaluation, JsonSink, evaluation_query


def evaluation_of(
    events: Path,
    schema: EventSchema,
    rules: Sequence[Rule],
    engine: EngineSettings | None = None,
    batch_rows: int | None = None,
) -> Evaluation:
    """What is evaluated, checked as the command line checks it."""
    file = open_event_file(events, schema)
    return Evaluation(file, schema, tuple(rules), engine or EngineSettings(), batch_rows)


def evaluate(spark: SparkSession, evaluation: Evaluation, work: Path, stops: Sequence[int] = ()) -> dict[str, bytes]:
    """Evaluate to the end.

    Args:
        spark: the session.
        evaluation: what is evaluated.
        work: a folder for all files of the evaluation.
        stops: batches after each of which the query is stopped and another one started in the same folder.

    Returns:
        The text of each result file, by name.
    """
    for stop in [*stops, None]:
        sink = _evaluate_until(stop, spark, evaluation, work)
    sink.publish(work / "out")
    return {path.name: path.read_bytes() for path in sorted((work / "out").iterdir())}


def _evaluate_until(stop: int | None, spark: SparkSession, evaluation: Evaluation, work: Path) -> JsonSink:
    """Evaluate until a batch is done; None for all of them."""
    batches: list[int] = []

    def on_batch(report: BatchReport) -> None:
        batches.append(report.account.batch_id)
        if report.account.batch_id == stop:
            query.stop()

    query, sink = evaluation_query(spark, evaluation, work, on_batch)
    query.run(None)
    assert stop is None or batches[-1] == stop, "the query did not end where it was stopped"
    return sink
