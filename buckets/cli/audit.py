"""The commands `buckets audit` and `archive`: topics as Delta tables, and the files of an archive joined."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from buckets.archive.archive import join_small_files
from buckets.archive.history import History
from buckets.audit.folder import audit_settings
from buckets.checkpoint.lock import LostLease
from buckets.cli.console import Terminal, echo
from buckets.cli.options import ArchivedConf, Master, MetricsPort, metrics_at, with_master
from buckets.cli.progress import StatusLine
from buckets.cli.run import NEW_TOPIC, LogFormat, errors_in, hide_secrets, log_of
from buckets.cli.start_over import StartOver
from buckets.config.job import Job, load_job
from buckets.errors import Outage
from buckets.metrics.endpoint import Endpoint, metrics_endpoint
from buckets.monitor.query_news import AuditStatus

if TYPE_CHECKING:
    from buckets.audit.writer import WrittenMessages


def audit(
    conf: Annotated[Path, typer.Argument(help="A configuration with `audit`, as in conf/kafka.yaml.")],
    once: Annotated[bool, typer.Option("--once", help="Take what the topics hold now, then end.")] = False,
    new_topic: Annotated[bool, typer.Option("--new-topic", help=NEW_TOPIC)] = False,
    master: Master = None,
    metrics_port: MetricsPort = None,
    log_format: LogFormat = "text",
) -> None:
    """Keep the topics of a job, and its transactions, as Delta tables.

    Every message is in its table once, however often it was sent and however
    often this was stopped or killed. Ctrl-C stops it after the batch that is
    running; started again, it goes on where it was.

    Examples:
      buckets audit conf/kafka.yaml
      buckets audit conf/kafka.yaml --once
      buckets audit conf/kafka.yaml --new-topic
      buckets audit conf/kafka.yaml --metrics-port 9465 --log-format json
      spark-submit --jars "$(python -m buckets.java.jars)" jobs/audit.py conf/kafka.yaml
    """
    log = log_of(log_format)
    with errors_in(log):
        over = StartOver(log)
        job = over.through(lambda: with_master(load_job(conf), master))
        hide_secrets(log, job)
        settings = metrics_at(audit_settings(job).metrics, metrics_port)
        begins_anew = over.after_faults(job.settings.store_patience)
        with metrics_endpoint(settings, "audit.metrics.port") as endpoint, begins_anew:
            _audit(job, once, new_topic, StatusLine(log), endpoint, over)


def _audit(job: Job, once: bool, new_topic: bool, progress: StatusLine, endpoint: Endpoint, over: StartOver) -> None:
    from buckets.spark.audit import AuditListener, AuditQuery, prepare_audit
    from buckets.spark.prepared_job import job_session
    from buckets.spark.stall import give_up

    accept, counts = progress.say if new_topic else None, AuditStatus()
    prepared = over.through(lambda: prepare_audit(job, accept, progress.warn))
    over.answers()

    def on_batch(batch_id: int, written: "WrittenMessages", duration_s: float) -> None:
        over.is_over()
        counts.on_batch(batch_id, written, duration_s)
        messages, remarks = _so_far(counts)
        pace = sum(written.messages.values()) / duration_s
        progress.facts = {"batch": batch_id}
        progress.show(f"batch {batch_id}: {messages}, {pace:,.0f} messages/s{remarks}")

    def on_outage(outage: Outage) -> None:
        progress.on_outage(outage)
        counts.on_outage()

    def on_lost(lost: LostLease) -> None:
        over.after(lost, job.settings.store_patience)
        give_up(lost)

    def on_interrupt() -> None:
        over.is_stopping()
        progress.on_interrupt()

    with progress:
        spark = job_session(job, prepared.folder.checkpoint, progress.on_phase)
        query = AuditQuery(spark, prepared, AuditListener(on_batch, on_outage, progress.warn, on_lost=on_lost))
        try:
            with counts.asking(query.news):
                endpoint.follow(audit=lambda: counts.latest)
                query.run(once, on_interrupt)
        except KeyboardInterrupt:
            progress.say(f"stopped after {_so_far(counts)[0]}; start it again to go on")
            return
    progress.say(f"{''.join(_so_far(counts))}; tables are in {prepared.settings.path}")


def _so_far(counts: AuditStatus) -> tuple[str, str]:
    """Return how many messages an audit has taken, and how many were repeats or are unreadable, where some are."""
    found = counts.latest
    repeats = f", {found['repeats']:,} repeats dropped" if found["repeats"] else ""
    unreadable = f", {found['unreadable']:,} unreadable" if found["unreadable"] else ""
    return f"{sum(found['messages'].values()):,} messages", repeats + unreadable


def archive(conf: ArchivedConf) -> None:
    """Say what the archive of a job holds, and join its small files; the job may run meanwhile.

    The archive is one Delta table of all that has arrived, typed, in order of
    arrival, with the batch that scored each row. The job writes it, and joins
    small files to larger ones. This joins them to files of a million rows, in
    which questions about a key read less.

    Examples:
      buckets archive conf/demo.yaml
    """
    history = History.open(load_job(conf))
    with Terminal(stderr=True).status("Joining small files…"):
        fewer = join_small_files(history.archive.table_path)
    joined = f", in {fewer:,} files fewer than before" if fewer else ""
    echo(f"{history.archive.end():,} rows are in {history.archive.folder}{joined}")
