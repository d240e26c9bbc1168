"""Runs the product's query over steady data, and prints a line of JSON for each batch.

    python bench/ours.py TRIAL WORK

TRIAL is JSON with the fields of `trial.Trial`, WORK a folder for configuration, checkpoint and tables.
"""

import json
import shutil
import sys
from pathlib import Path

from pyspark.sql import functions as F
from trial import Trial, write_conf

from buckets import outputs
from buckets.basis import Basis
from buckets.job import Job, load_job
from buckets.ledger import Ledger
from buckets.rule_book import RuleBook
from buckets.rule_feed import FixedRules
from buckets.rule_set import first_rule_set
from buckets.spark.delta_sink import spark_schema, table_columns, table_decoder
from buckets.spark.query import BatchReport, ScoredBatch, Scoring, ScoringQuery
from buckets.spark.run import job_session, scoring_query
from buckets.spark.source import open_source
from buckets.terms import Terms


class ThrowAway:
    """A sink that keeps nothing. Where there are evaluations, it computes each of them as a row first."""

    @property
    def on_driver(self) -> bool:
        """It leaves what is computed where it is."""
        return False

    def write(self, batch: ScoredBatch) -> None:
        """Compute the rows of evaluations."""
        if not batch.rows.get(outputs.EVALUATIONS):
            return
        columns = table_columns(batch.terms)[outputs.EVALUATIONS]
        decode = table_decoder(outputs.EVALUATIONS, columns, batch.terms, batch.account.batch_id, batch.rule_set)
        mine = batch.produced.where(F.col("output") == outputs.EVALUATIONS).select("payload")
        mine.mapInArrow(decode, spark_schema(columns)).write.format("noop").mode("overwrite").save()


def query_of(job: Job, sink: str, on_batch) -> ScoringQuery:
    """The query that is measured."""
    spark = job_session(job)
    if sink == "alerts":
        return scoring_query(spark, job, on_batch)
    ledger, engine = Ledger(job.checkpoint), job.settings.engine
    ledger.open(Basis("steady", job.event_schema, engine))
    scoring = Scoring(
        arrivals=open_source(spark, job.settings.source, job.event_schema, first_rule_set(job.rules).needed_fields),
        terms=Terms(event_schema=job.event_schema, engine=engine, evaluations=sink == "evaluations", output="nowhere"),
        ledger=ledger,
        book=RuleBook(ledger, FixedRules(job.rules), job.event_schema, engine.allowed_lateness),
        sink=ThrowAway(),
        checkpoint=job.checkpoint / "spark",
    )
    return ScoringQuery(scoring, on_batch)


def batch_line(report: BatchReport, progress: dict) -> dict[str, object]:
    """What is kept of a batch."""
    state = progress["stateOperators"][0]
    return {
        "batch": progress["batchId"],
        "at": progress["timestamp"],
        "events": report.account.events_in,
        "alerts": sum(group.alerts for group in report.account.groups),
        "ms": progress["durationMs"]["triggerExecution"],
        "duration_ms": progress["durationMs"],
        "state_update_ms": state["allUpdatesTimeMs"],
        "state_commit_ms": state["commitTimeMs"],
        "scored_s": round(report.scored_s, 4),
        "written_s": round(report.written_s, 4),
    }


def main() -> None:
    """Run, and print what was measured."""
    trial, work = Trial(**json.loads(sys.argv[1])), Path(sys.argv[2])
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    job = load_job(write_conf(trial, work))
    reports: list[BatchReport] = []
    query = query_of(job, trial.sink, reports.append)
    query.run(None)
    for report, progress in zip(reports, query.progress(), strict=True):
        print(json.dumps(batch_line(report, progress)))


if __name__ == "__main__":
    main()
