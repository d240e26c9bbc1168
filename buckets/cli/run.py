"""The command `buckets run`: the main job."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from buckets.cli.progress import BatchProgress
from buckets.job import load_job


def run(conf: Annotated[Path, typer.Argument(help="A configuration, as in conf/demo.yaml.")]) -> None:
    """Score a stream of transactions, and write alerts and all other outputs to Delta tables.

    Ctrl-C stops it after the batch that is running; started again, it goes on
    where it was, with nothing lost or doubled.

    \b
    Examples:
      buckets run conf/demo.yaml
      spark-submit --jars "$(python -m buckets.spark.jars)" jobs/score.py conf/demo.yaml
    """  # noqa: D301 - click needs the backspace itself
    job = load_job(conf)
    from buckets.spark.run import job_session, prepare, scoring_query

    carried_over = prepare(job).carried_over
    console = Console(stderr=True)
    if carried_over:
        console.print(carried_over, highlight=False, soft_wrap=True)
    with BatchProgress(console) as progress:
        query = scoring_query(job_session(job), job, progress.on_batch)
        try:
            query.run(job.settings.trigger.interval, progress.on_interrupt)
        except KeyboardInterrupt:
            console.print(
                f"stopped after {progress.events:,} events; start it again to go on", highlight=False, soft_wrap=True
            )
            return
    output = job.settings.output.path
    done = f"{progress.events:,} events, {progress.alerts:,} alerts; tables are in {output}"
    console.print(done, highlight=False, soft_wrap=True)
