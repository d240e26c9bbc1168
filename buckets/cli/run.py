"""The command `buckets run`: the main job."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from buckets.audit.folder import audit_settings
from buckets.cli.console import Terminal
from buckets.cli.progress import BatchProgress
from buckets.config.job import check_source, load_job
from buckets.errors import first_line
from buckets.monitor.live_status import LiveStatus
from buckets.outputs.columns import ALERTS

if TYPE_CHECKING:
    from buckets.spark.query import BatchReport


NEW_TOPIC = "A topic that is read was deleted and created again: keep what there is, and read it from its beginning."


def run(
    conf: Annotated[Path, typer.Argument(help="A configuration, as in conf/demo.yaml or conf/kafka.yaml.")],
    audit: Annotated[
        bool, typer.Option("--audit", help="Keep the topics as tables in this process too, as `buckets audit` does.")
    ] = False,
    new_topic: Annotated[bool, typer.Option("--new-topic", help=NEW_TOPIC)] = False,
) -> None:
    """Score a stream of transactions, and write alerts and all other outputs to topics or Delta tables.

    Ctrl-C stops it after the batch that is running; started again, it goes on
    where it was, with nothing lost or doubled.

    \b
    Examples:
      buckets run conf/demo.yaml
      buckets run conf/kafka.yaml
      buckets run conf/kafka.yaml --audit
      buckets run conf/kafka.yaml --new-topic
      spark-submit --jars "$(python -m buckets.java.jars)" jobs/score.py conf/demo.yaml
    """  # noqa: D301 - click needs the backspace itself
    job = load_job(conf)
    check_source(conf, job)
    if audit:
        audit_settings(job)
    from buckets.spark.audit import AuditListener, audit_beside
    from buckets.spark.prepared_job import Listener, job_session, prepare

    progress = BatchProgress(Terminal(stderr=True))
    accept = progress.say if new_topic else None
    prepared = prepare(job, accept)
    if prepared.carried_over:
        progress.say(prepared.carried_over)

    def on_batch(report: "BatchReport") -> None:
        progress.on_batch(report)
        live.on_batch(report)

    def on_failure(error: Exception) -> None:
        progress.say(f"the audit has ended, scoring goes on: {first_line(error)}")

    with progress:
        progress.on_phase("starting Spark")
        spark = job_session(job, job.checkpoint)
        listener = Listener(on_batch, progress.on_refused, progress.on_outage, progress.say, progress.on_phase)
        query = prepared.query(spark, listener)
        watch = prepared.file_watch(progress.say)
        told = AuditListener(on_outage=progress.on_outage, say=progress.say, on_failure=on_failure)
        tables = audit_beside(spark, job, told, accept) if audit else None
        try:
            with (
                LiveStatus(job.checkpoint, query.rules_in_force, query.lag, query.rules_fault, progress.say) as live,
                tables or contextlib.nullcontext(),
                watch or contextlib.nullcontext(),
            ):
                query.run(job.settings.trigger.interval, progress.on_interrupt)
        except KeyboardInterrupt:
            progress.say(f"stopped after {progress.events:,} events; start it again to go on")
            return
    unread = f"; {watch.not_read:,} files are not read" if watch is not None and watch.not_read else ""
    output = job.settings.output
    results = f"tables are in {output.path}" if output.folder else f"alerts are in topic {output.topic(ALERTS)}"
    progress.say(f"{progress.events:,} events, {progress.alerts:,} alerts; {results}{unread}")
