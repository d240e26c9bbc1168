"""The main job: a configuration into a running query with Delta outputs."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from buckets.errors import BucketsError
from buckets.job import Job
from buckets.ledger import Basis, Ledger, RuleBook, partial_of, write_whole
from buckets.rule_set import first_rule_set
from buckets.spark.delta_sink import DeltaSink
from buckets.spark.query import BatchReport, Scoring, ScoringQuery
from buckets.spark.session import start_session
from buckets.spark.source import open_source

OWNER = "_buckets.json"
"""File in an output folder that names the checkpoint whose results it holds."""


def check_output(folder: Path, ledger: Ledger, identity: str | None) -> None:
    """See that an output folder is new and the checkpoint too, or that the two belong together.

    Raises:
        BucketsError: they do not, or the folder holds something else.
    """
    owner = folder / OWNER
    if owner.exists():
        if json.loads(owner.read_text(encoding="utf-8"))["checkpoint"] != identity:
            message = (
                f"output {folder} holds results of another checkpoint, which this run would mix with its own; "
                "name a new output folder, or go on with the checkpoint that it belongs to"
            )
            raise BucketsError(message)
    elif folder.exists() and (not folder.is_dir() or any(path != partial_of(owner) for path in folder.iterdir())):
        message = f"output {folder} holds something that this program did not write; name a new folder"
        raise BucketsError(message)
    elif identity is not None and ledger.has_run():
        message = (
            f"output {folder} does not hold the results so far of checkpoint {ledger.checkpoint}; "
            "go back to its output folder, or name a new checkpoint"
        )
        raise BucketsError(message)


def job_session(job: Job) -> SparkSession:
    """The Spark session of a job."""
    return start_session("buckets", job.settings.engine.shards, job.settings.spark)


@dataclass(frozen=True)
class Prepared:
    """A checkpoint and an output folder that belong to a job.

    Attributes:
        identity: of the checkpoint.
        carried_over: settings that have changed since the last start, in words.
    """

    identity: str
    carried_over: str | None


def prepare(job: Job) -> Prepared:
    """Check checkpoint and output of a job, and take them for it.

    Raises:
        BucketsError: one of them belongs to something else.
    """
    settings = job.settings
    output = Path(settings.output.path)
    source = f"{settings.source.kind} {settings.source.path}"
    basis, ledger = Basis(source, job.event_schema, settings.engine), Ledger(job.checkpoint)
    check_output(output, ledger, ledger.identity(basis))
    carried_over = ledger.carried_over(basis)
    identity = ledger.open(basis)
    if not (output / OWNER).exists():
        write_whole(output / OWNER, json.dumps({"checkpoint": identity}))
    return Prepared(identity, carried_over)


def scoring_query(spark: SparkSession, job: Job, on_batch: Callable[[BatchReport], None]) -> ScoringQuery:
    """The query of a job, not yet started.

    Args:
        spark: the session.
        job: the job.
        on_batch: called after each batch.

    Raises:
        BucketsError: checkpoint, output or source do not fit the job.
    """
    settings = job.settings
    identity = prepare(job).identity
    arrivals = open_source(spark, settings.source, job.event_schema, first_rule_set(job.rules).needed_fields)
    folder, evaluations = Path(settings.output.path), settings.output.evaluations
    sink = DeltaSink(folder, identity, job.event_schema, settings.engine, evaluations)
    sink.prepare(spark)
    scoring = Scoring(
        arrivals=arrivals,
        schema=job.event_schema,
        engine=settings.engine,
        book=RuleBook(Ledger(job.checkpoint), job.rules, settings.engine.allowed_lateness),
        sink=sink,
        evaluations=evaluations,
        checkpoint=job.checkpoint / "spark",
    )
    return ScoringQuery(scoring, on_batch)
