"""Runs the product's query over steady data, and prints a line of JSON for each batch.

    python bench/ours.py TRIAL WORK

TRIAL is JSON with the fields of `trial.Trial`, WORK a folder for configuration, checkpoint and tables.
"""

import json
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from trial import Trial, write_conf

from buckets.config.job import Job, load_job
from buckets.engine.stages.shard import Produced
from buckets.monitor.pace import BatchReport
from buckets.outputs import columns
from buckets.spark.prepared_job import Listener, job_session, prepare
from buckets.spark.query import ScoringQuery
from buckets.spark.scored_batch import ScoredBatch, run_as_second_job
from buckets.spark.spilled import Spilled


class ThrowAway:
    """A sink that keeps nothing. Where there are evaluations, it computes each of them as a row first."""

    def write(self, batch: ScoredBatch) -> None:
        """Compute the rows of evaluations, in executors where sinks do so."""
        decoder, output = batch.decoder, columns.EVALUATIONS
        for _ in batch.tables_at_hand(output):
            pass

        def work(lying: Iterable[Spilled]) -> Iterator[Produced]:
            for at in lying:
                yield Produced(output, sum(map(len, decoder.tables(output, at.payloads()))), b"")

        if batch.spilled(output):
            run_as_second_job(batch.session, batch.spilled(output), work)


def query_of(job: Job, sink: str, on_batch: Callable[[BatchReport], None]) -> ScoringQuery:
    """The query that is measured."""
    prepared, listener = prepare(job), Listener(on_batch)
    return prepared.query(job_session(job), listener, None if sink == "alerts" else ThrowAway())


def batch_line(report: BatchReport, progress: dict) -> dict[str, object]:
    """What is kept of a batch."""
    return {
        "batch": progress["batchId"],
        "at": progress["timestamp"],
        "events": report.account.events_in,
        "alerts": sum(group.alerts for group in report.account.groups),
        "ms": progress["durationMs"]["triggerExecution"],
        "duration_ms": progress["durationMs"],
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
