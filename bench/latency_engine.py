"""Runs the product on a configuration, and prints a line of JSON for each batch: when, how many events, what took long.

    python bench/latency_engine.py CONF

Like `buckets run` it keeps its status. With an `audit` in the configuration it keeps the topics as tables too, with
`metrics` it answers Prometheus. Spark's own times of the batches follow at the end, as lines with `durationMs`.
"""

import contextlib
import json
import os
import sys
import time
from pathlib import Path

from watched import FOLDER, watch_driver

from buckets.config.job import load_job
from buckets.metrics.endpoint import metrics_endpoint
from buckets.monitor.live import LiveStatus
from buckets.monitor.pace import BatchReport
from buckets.spark.audit import AuditListener, audit_beside
from buckets.spark.prepared_job import Listener, job_session, prepare


def main() -> None:
    """Run until told to end."""
    job = load_job(Path(sys.argv[1]))
    if FOLDER in os.environ:
        watch_driver()

    def on_batch(report: BatchReport) -> None:
        account = report.account
        line = {
            "batch": account.batch_id,
            "version": account.ruleset_version,
            "events": account.events_in,
            "written_ms": report.written_ms,
            "scored_s": round(report.scored_s, 5),
            "written_s": round(report.written_s, 5),
        }
        print(json.dumps(line), flush=True)
        live.on_batch(report)

    spark = job_session(job)
    query = prepare(job).query(spark, Listener(on_batch))
    started_s = time.monotonic()
    audit = audit_beside(spark, job, AuditListener()) if job.settings.audit else contextlib.nullcontext()
    with contextlib.suppress(KeyboardInterrupt), audit, contextlib.ExitStack() as stack:
        live = stack.enter_context(LiveStatus(job.checkpoint, query.rules_in_force, query.news, query.rules_fault))
        if job.settings.metrics is not None:
            stack.enter_context(metrics_endpoint(job.settings.metrics)).follow(lambda: live.latest)
        query.run(job.settings.trigger.interval)
    for progress in query.progress():
        line = {
            "batch": progress["batchId"],
            "events": 0,
            "durationMs": progress["durationMs"],
        }
        print(json.dumps(line), flush=True)
    print(json.dumps({"batch": -1, "events": 0, "ran_s": round(time.monotonic() - started_s, 1)}), flush=True)


if __name__ == "__main__":
    main()
