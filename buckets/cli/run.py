"""The command `buckets run`: the main job."""

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from buckets.audit_folder import audit_settings
from buckets.cli.progress import BatchProgress
from buckets.errors import first_line
from buckets.job import load_job
from buckets.outputs import ALERTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from buckets.kafka.faults import Outage
    from buckets.revision import Refusal
    from buckets.spark.query import BatchReport


def run(
    conf: Annotated[Path, typer.Argument(help="A configuration, as in conf/demo.yaml or conf/kafka.yaml.")],
    audit: Annotated[
        bool, typer.Option("--audit", help="Keep the topics as tables in this process too, as `buckets audit` does.")
    ] = False,
) -> None:
    """Score a stream of transactions, and write alerts and all other outputs to topics or Delta tables.

    Ctrl-C stops it after the batch that is running; started again, it goes on
    where it was, with nothing lost or doubled.

    \b
    Examples:
      buckets run conf/demo.yaml
      buckets run conf/kafka.yaml
      buckets run conf/kafka.yaml --audit
      spark-submit --jars "$(python -m buckets.spark.jars)" jobs/score.py conf/demo.yaml
    """  # noqa: D301 - click needs the backspace itself
    job = load_job(conf)
    if audit:
        audit_settings(job)
    from buckets.live import LiveStatus
    from buckets.spark.audit import audit_beside
    from buckets.spark.run import job_session, prepare, scoring_query, watch_files

    console = Console(stderr=True)

    def say(line: str) -> None:
        console.print(line, highlight=False, soft_wrap=True, markup=False)

    def on_refused(refusals: "Sequence[Refusal]") -> None:
        for refusal in refusals:
            say(f"a change of the rules is not made ({refusal.place}): {refusal.reason}")

    def on_outage(outage: "Outage") -> None:
        say(f"{outage.message}; trying again")

    def on_failure(error: Exception) -> None:
        say(f"the audit has ended, scoring goes on: {first_line(error)}")

    def on_batch(report: "BatchReport") -> None:
        progress.on_batch(report)
        live.on_batch(report)

    carried_over = prepare(job).carried_over
    if carried_over:
        say(carried_over)
    with BatchProgress(console) as progress:
        spark = job_session(job)
        query = scoring_query(spark, job, on_batch, on_refused, on_outage, say)
        watch = watch_files(job, say)
        tables = audit_beside(spark, job, on_outage=on_outage, on_failure=on_failure) if audit else None
        try:
            with (
                LiveStatus(job.checkpoint, query.rules_in_force, query.lag, query.rules_fault, say) as live,
                tables or contextlib.nullcontext(),
                watch or contextlib.nullcontext(),
            ):
                query.run(job.settings.trigger.interval, progress.on_interrupt)
        except KeyboardInterrupt:
            say(f"stopped after {progress.events:,} events; start it again to go on")
            return
    output = job.settings.output
    place = f"tables are in {output.path}" if output.kind == "delta" else f"alerts are in topic {output.topic(ALERTS)}"
    unread = f"; {watch.not_read:,} files are not read" if watch is not None and watch.not_read else ""
    say(f"{progress.events:,} events, {progress.alerts:,} alerts; {place}{unread}")
