"""The command `buckets run`: the main job, with its log as text or JSON."""

import contextlib
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from buckets.checkpoint.lock import LostLease
from buckets.cli.console import Level, Terminal, Terminated, json_text
from buckets.cli.options import Master, MetricsPort, metrics_at, with_master
from buckets.cli.progress import BatchProgress
from buckets.cli.start_over import StartOver
from buckets.clock import epoch_ms
from buckets.config.environment import secrets_of
from buckets.config.job import Job, check_source, load_job
from buckets.errors import BucketsError, Outage, first_line, kind_and_line
from buckets.exit_codes import FAILED, INTERRUPTED
from buckets.metrics.endpoint import Endpoint, metrics_endpoint
from buckets.moment import iso_text
from buckets.monitor.live import LiveStatus
from buckets.monitor.query_news import AuditStatus
from buckets.outputs.columns import ALERTS
from buckets.rules.revision import Refusal

if TYPE_CHECKING:
    from buckets.monitor.pace import BatchReport
    from buckets.spark.audit import AuditListener


_HIDDEN = "***"
LogFormat = Annotated[
    Literal["text", "json"], typer.Option("--log-format", help="The job's log: lines of text, or JSON objects.")
]


class JsonLog(Terminal):
    """A console that prints each line as an object: time, level, message, and what is known besides."""

    def __init__(self) -> None:
        super().__init__(stderr=True)
        self.secrets: Sequence[str] = ()  # never printed, wherever they occur

    @property
    def is_terminal(self) -> bool:
        """Say that nothing can be renewed in place."""
        return False

    def say(self, text: str) -> None:
        """Print a line that nobody has to act upon."""
        self.tell(text)

    def tell(self, text: str, level: Level = "info", facts: Mapping[str, Any] | None = None) -> None:
        """Print an object of a line."""
        line = {"time": iso_text(epoch_ms()), "level": level, "message": self._shown(text)}
        known = {name: self._shown(fact) for name, fact in (facts or {}).items() if fact is not None}
        self.file.write(json_text(line | known, indent=None) + "\n")
        self.file.flush()

    def _shown(self, fact: Any) -> Any:
        if isinstance(fact, str):
            for secret in self.secrets:
                fact = fact.replace(secret, _HIDDEN)
        return fact


def log_of(log_format: str) -> Terminal:
    """Return where a job's log goes, in a format."""
    return JsonLog() if log_format == "json" else Terminal(stderr=True)


def hide_secrets(log: Terminal, job: Job) -> None:
    """See that a log for machines never shows what is secret in a job's configuration."""
    if isinstance(log, JsonLog):
        log.secrets = list(secrets_of(job.settings))


@contextlib.contextmanager
def errors_in(log: Terminal) -> Iterator[None]:
    """Write what ends a job into its log, where that is JSON; in text the command line says it.

    SIGTERM before the job has begun to run is no fault.

    Raises:
        SystemExit: it has been said; holds the exit code.
    """
    try:
        yield
    except Terminated:
        log.tell("stopped before the first batch; start it again to go on")
    except (Exception, KeyboardInterrupt) as error:
        if not isinstance(log, JsonLog):
            raise
        if isinstance(error, KeyboardInterrupt):
            log.tell("interrupted: nothing is left half done", "warning")
            raise SystemExit(INTERRUPTED) from None
        if isinstance(error, BucketsError):
            log.tell(error.message, "error", {"code": getattr(error, "code", None)})
            raise SystemExit(error.exit_code) from None
        log.tell(kind_and_line(error), "error", {"trace": traceback.format_exc()})
        raise SystemExit(FAILED) from None


NEW_TOPIC = (
    "A topic of the source was deleted: keep what there is, and read it from its beginning, or go on without it."
)


def run(
    conf: Annotated[Path, typer.Argument(help="A configuration, as in conf/demo.yaml or conf/kafka.yaml.")],
    audit: Annotated[
        bool, typer.Option("--audit", help="Also keep the topics as tables in this process, as `buckets audit` does.")
    ] = False,
    new_topic: Annotated[bool, typer.Option("--new-topic", help=NEW_TOPIC)] = False,
    master: Master = None,
    metrics_port: MetricsPort = None,
    log_format: LogFormat = "text",
) -> None:
    """Score a stream of transactions, and write alerts and all other outputs to topics or Delta tables.

    Ctrl-C stops it after the batch that is running; started again, it goes on
    where it was, with nothing lost or doubled.

    Examples:
      buckets run conf/demo.yaml
      buckets run conf/kafka.yaml
      buckets run conf/kafka.yaml --audit
      buckets run conf/kafka.yaml --new-topic
      buckets run conf/kafka.yaml --master spark://spark-master:7077
      buckets run conf/kafka.yaml --metrics-port 9464 --log-format json
      spark-submit --jars "$(python -m buckets.java.jars)" jobs/score.py conf/demo.yaml
    """
    log = log_of(log_format)
    with errors_in(log):
        over = StartOver(log)
        job = over.through(lambda: with_master(load_job(conf), master))
        hide_secrets(log, job)
        check_source(conf, job)
        if audit:
            from buckets.audit.folder import audit_settings

            audit_settings(job)
        begins_anew = over.after_faults(job.settings.store_patience)
        with metrics_endpoint(metrics_at(job.settings.metrics, metrics_port)) as endpoint, begins_anew:
            _run(job, audit, new_topic, BatchProgress(log), endpoint, over)


def _run(job: Job, audit: bool, new_topic: bool, progress: BatchProgress, endpoint: Endpoint, over: StartOver) -> None:
    from buckets.spark.audit import audit_beside
    from buckets.spark.prepared_job import Listener, job_session, prepare
    from buckets.spark.stall import give_up

    def on_lost(lost: LostLease) -> None:
        over.after(lost, job.settings.store_patience)
        give_up(lost)

    accept = progress.say if new_topic else None
    prepared = over.through(lambda: prepare(job, accept, on_lost))
    over.answers()
    if prepared.carried_over:
        progress.say(prepared.carried_over)

    def on_batch(report: "BatchReport") -> None:
        over.is_over()
        progress.on_batch(report.account, report.duration_s)
        live.on_batch(report)

    def on_refused(refusals: Sequence[Refusal]) -> None:
        progress.on_refused(refusals)
        live.on_refused(len(refusals))

    def on_outage(outage: Outage) -> None:
        progress.on_outage(outage)
        live.on_outage()

    def on_interrupt() -> None:
        over.is_stopping()
        progress.on_interrupt()

    with progress:
        progress.on_phase("starting Spark")
        spark = job_session(job, job.checkpoint, progress.on_phase)
        query = prepared.query(spark, Listener(on_batch, on_refused, on_outage, progress.warn, progress.on_phase))
        watch = prepared.file_watch(progress.warn)
        counts = AuditStatus()
        tables = audit_beside(spark, job, _audit_listener(progress, counts, on_lost), accept) if audit else None
        try:
            with (
                LiveStatus(job.checkpoint, query.rules_in_force, query.news, query.rules_fault, progress.warn) as live,
                tables or contextlib.nullcontext() as beside,
                watch or contextlib.nullcontext(),
                contextlib.nullcontext() if beside is None else counts.asking(beside.news),
            ):
                endpoint.follow(lambda: live.latest, None if beside is None else lambda: counts.latest)
                query.run(job.settings.trigger.interval, on_interrupt)
        except KeyboardInterrupt:
            progress.say(f"stopped after {progress.events:,} events; start it again to go on")
            return
    unread = f"; {watch.not_read:,} files are not read" if watch is not None and watch.not_read else ""
    output = job.settings.output
    results = f"tables are in {output.path}" if output.folder else f"alerts are in topic {output.topic(ALERTS)}"
    progress.say(f"{progress.events:,} events, {progress.alerts:,} alerts; {results}{unread}")


def _audit_listener(
    progress: BatchProgress, counts: AuditStatus, on_lost: Callable[[LostLease], None]
) -> "AuditListener":
    from buckets.spark.audit import AuditListener

    def on_outage(outage: Outage) -> None:
        progress.on_outage(outage)
        counts.on_outage()

    def on_failure(error: Exception) -> None:
        progress.warn(f"the audit has ended, scoring goes on: {first_line(error)}")

    return AuditListener(counts.on_batch, on_outage, progress.warn, on_failure, on_lost)
