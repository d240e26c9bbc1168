"""Runs the product's query over steady data, and prints a line of JSON for each batch.

    python bench/ours.py DATA FILES_PER_BATCH alerts|evaluations WORK

`alerts` is the main job as it is: alerts and accounts into Delta tables. `evaluations` puts out every evaluation of
every event, five rows an event, to a sink that throws them away.
"""

import json
import shutil
import sys
from pathlib import Path

import yaml
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from buckets import outputs
from buckets.accounting import BatchAccount
from buckets.job import Job, load_job
from buckets.ledger import Basis, Ledger, RuleBook
from buckets.rule_set import RuleSet, first_rule_set
from buckets.spark.delta_sink import spark_schema, table_columns, table_decoder
from buckets.spark.query import BatchReport, Scoring, ScoringQuery
from buckets.spark.run import job_session, scoring_query
from buckets.spark.source import open_source

FUNCTIONS = {"sum": ">", "count": ">", "avg": ">", "min": "<", "max": ">"}
LIMITS = {"sum": 4_000_000_000, "count": 10**6, "avg": 499_000, "min": 0, "max": 499_990}


def write_conf(data: Path, files_per_batch: int, work: Path) -> Path:
    """The configuration of the run: five aggregates over one window of an hour."""
    rules = [
        {
            "rule_id": function,
            "group_by": ["key"],
            "aggregate": {"function": function, "measure": "amount"},
            "window": {"length": "1h"},
            "limit": {"operator": operator, "value": LIMITS[function]},
        }
        for function, operator in FUNCTIONS.items()
    ]
    schema = {
        "name": "steady",
        "event_id": "event_id",
        "event_time": {"field": "ts", "unit": "ms"},
        "attributes": {"key": "string"},
        "measures": {"amount": {"scale": 0}},
    }
    conf = {
        "source": {"kind": "parquet", "path": str(data), "arrival": "off", "max_files_per_trigger": files_per_batch},
        "schema": "schema.yaml",
        "rules": "rules.yaml",
        "checkpoint": "checkpoint",
        "output": {"path": "tables"},
        "engine": {"shards": 8},
    }
    for name, content in (("schema", schema), ("rules", {"rules": rules}), ("conf", conf)):
        (work / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return work / "conf.yaml"


class ThrowAway:
    """A sink that computes every evaluation as a row, and keeps none."""

    def __init__(self, job: Job) -> None:
        """Throw the results of a job away."""
        self._job = job

    def write(self, produced: DataFrame, rows: dict[str, int], account: BatchAccount, rule_set: RuleSet) -> None:
        """Compute the rows."""
        schema, engine = self._job.event_schema, self._job.settings.engine
        columns = table_columns(schema, evaluations=True)[outputs.EVALUATIONS]
        decode = table_decoder(outputs.EVALUATIONS, columns, schema, engine, account.batch_id, rule_set)
        mine = produced.where(F.col("output") == outputs.EVALUATIONS).select("payload")
        mine.mapInArrow(decode, spark_schema(columns)).write.format("noop").mode("overwrite").save()


def query_of(job: Job, emit: str, on_batch) -> ScoringQuery:
    """The query that is measured."""
    spark = job_session(job)
    if emit == "alerts":
        return scoring_query(spark, job, on_batch)
    ledger, engine = Ledger(job.checkpoint), job.settings.engine
    ledger.open(Basis("steady", job.event_schema, engine))
    source = open_source(spark, job.settings.source, job.event_schema, first_rule_set(job.rules).needed_fields)
    book = RuleBook(ledger, job.rules, engine.allowed_lateness)
    sink = ThrowAway(job)
    return ScoringQuery(Scoring(source, job.event_schema, engine, book, sink, True, job.checkpoint / "spark"), on_batch)


def main() -> None:
    """Run, and print what was measured."""
    data, files_per_batch, emit, work = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    job = load_job(write_conf(data.resolve(), files_per_batch, work))
    reports: list[BatchReport] = []
    query = query_of(job, emit, reports.append)
    query.run(None)
    for report, progress in zip(reports, query.progress(), strict=True):
        state = progress["stateOperators"][0]
        line = {
            "batch": progress["batchId"],
            "events": report.account.events_in,
            "alerts": sum(group.alerts for group in report.account.groups),
            "ms": progress["durationMs"]["triggerExecution"],
            "duration_ms": progress["durationMs"],
            "state_update_ms": state["allUpdatesTimeMs"],
            "state_commit_ms": state["commitTimeMs"],
            "scored_s": report.scored_s,
            "written_s": report.written_s,
        }
        print(json.dumps(line))


if __name__ == "__main__":
    main()
