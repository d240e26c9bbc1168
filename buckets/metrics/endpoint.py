"""Answers Prometheus and Kubernetes over HTTP: `/metrics`, `/healthz` and `/readyz`, on separate threads.

It starts before Spark, and never waits for the query: it reports only the latest status.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from typing import TYPE_CHECKING, Any

from buckets.clock import epoch_ms
from buckets.config.settings import MetricsSettings
from buckets.errors import BucketsError, kind_and_line
from buckets.extras import extra
from buckets.json_text import write_json
from buckets.monitor.live import SILENT_AFTER_MS
from buckets.printable import counted, one_line

if TYPE_CHECKING:
    from buckets.metrics.job_metrics import Status

STARTING = "it is starting"


@dataclass(frozen=True)
class Health:
    """A health check's result: whether all is well, and why, in one line."""

    is_well: bool
    reason: str


def alive(status: "Status | None") -> Health:
    """Return whether a job is alive: from its start to its end, however busy or far behind it is."""
    if status is None:
        return Health(True, STARTING)
    if status["ended_ms"] is not None:
        return Health(False, f"it has ended: {status.get('failure') or 'it was stopped'}")
    return Health(True, "it runs")


def ready(status: "Status | None", now_ms: int, ready_lag: int) -> Health:
    """Return whether a job is ready: it has scored a batch or found nothing to score, and has no problem.

    Args:
        status: of the job, or of an audit; None before there is one.
        now_ms: the time.
        ready_lag: how many messages it may be behind.
    """
    if status is None:
        return Health(False, STARTING)
    of_life = alive(status)
    if not of_life.is_well:
        return of_life
    silent_ms = now_ms - status["written_ms"]
    if silent_ms > SILENT_AFTER_MS:
        return Health(False, f"it has not told how it is for {silent_ms // 1000:,} s, so Spark does not answer it")
    if status["last_batch"] is None and status["idle_ms"] is None:
        return Health(False, "no batch is written yet")
    if status.get("rules_fault") is not None:
        return Health(False, f"its rules are not followed: {status['rules_fault']}")
    lag = status["lag"]
    if lag is not None and lag > ready_lag:
        return Health(False, f"it is {counted(lag, 'message')} behind, more than metrics.ready_lag, {ready_lag:,}")
    last = status["last_batch"]
    done = "there is nothing to score" if last is None else f"batch {last['batch_id']:,} is written"
    return Health(True, done if lag is None else f"{done}, {counted(lag, 'message')} behind")


REQUEST_WITHIN_S = 10.0  # Time for a client to send its request and to read the response
_MOST_CONNECTIONS = 64  # Concurrent clients; beyond that the oldest one is disconnected
Latest = Callable[[], "Status"]


class Endpoint:
    """The content of the endpoint: a job, an audit, or a job with its audit; nothing while Spark starts."""

    def __init__(self, ready_lag: int) -> None:
        """Begin without content; `ready_lag` is how many messages a ready job may be behind."""
        self._ready_lag = ready_lag
        self._job: Latest | None = None
        self._audit: Latest | None = None

    def follow(self, job: Latest | None = None, audit: Latest | None = None) -> None:
        """Report a job or an audit from now on, from functions that return the latest status."""
        self._job, self._audit = job or self._job, audit or self._audit

    def metrics(self) -> bytes:
        """Return all metrics."""
        from buckets.metrics.job_metrics import AUDIT, BUILD, exposition, job_exposition

        told = [] if self._job is None else [job_exposition(self._job())]
        told += [] if self._audit is None else [exposition(AUDIT, self._audit())]
        return exposition([BUILD], {}) + b"".join(told)

    def health(self, path: str) -> Health:
        """Return whether a job, or an audit alone, is alive or ready, depending on the path."""
        latest = self._job or self._audit
        status = None if latest is None else latest()
        return alive(status) if path == "/healthz" else ready(status, epoch_ms(), self._ready_lag)


@contextlib.contextmanager
def metrics_endpoint(settings: MetricsSettings | None, name: str = "metrics.port") -> Iterator[Endpoint]:
    """Serve inside the `with` block; without settings nothing is served.

    Raises:
        BucketsError: the address cannot be bound, or the package that writes metrics is missing.
    """
    if settings is None:
        yield Endpoint(0)
        return
    with extra("metrics", name):
        import_module("buckets.metrics.job_metrics")
    watched = Endpoint(settings.ready_lag)
    try:
        server = _Server(settings, watched)
    except OSError as error:
        message = (
            f"{name}: nobody can listen at {settings.place} ({error.strerror or error}); stop who has it, or choose "
            "another port (--metrics-port) or host"
        )
        raise BucketsError(message) from None
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield watched
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    """A server with one thread per client, for one request each."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = _MOST_CONNECTIONS

    def __init__(self, settings: MetricsSettings, watched: Endpoint) -> None:
        self.watched = watched
        self.address_family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        self._since_s: dict[socket.socket, float] = {}
        super().__init__((settings.host, settings.port), _Answers)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a client, and disconnect the oldest one if there are too many."""
        self._since_s[request] = time.monotonic()
        for connection in list(self._since_s)[:-_MOST_CONNECTIONS]:
            self._let_go(connection)
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Disconnect clients that take too long; called twice a second."""
        for request, since_s in list(self._since_s.items()):
            if time.monotonic() - since_s > REQUEST_WITHIN_S:
                self._let_go(request)

    def shutdown_request(self, request: Any) -> None:
        """Close the connection of a client that has been served."""
        self._since_s.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, *_: object) -> None:
        """Ignore clients that have disconnected."""

    def _let_go(self, request: socket.socket) -> None:
        """Interrupt the reads and writes of a client's thread, so that it closes the connection."""
        self._since_s.pop(request, None)
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)


class _Answers(BaseHTTPRequestHandler):
    server: _Server
    timeout = REQUEST_WITHIN_S
    server_version = "buckets"
    sys_version = ""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            try:
                metrics = self.server.watched.metrics()
            except Exception as error:  # The job continues; the client sees the error.
                self._send(500, "text/plain; charset=utf-8", kind_and_line(error).encode())
            else:
                from buckets.metrics.job_metrics import CONTENT_TYPE

                self._send(200, CONTENT_TYPE, metrics)
        elif path in ("/healthz", "/readyz"):
            health = self.server.watched.health(path)
            answer = {"status": "ok" if health.is_well else "unavailable", "reason": one_line(health.reason)}
            self._send(200 if health.is_well else 503, "application/json", write_json(answer).encode() + b"\n")
        else:
            self._send(404, "text/plain; charset=utf-8", b"there are /metrics, /healthz and /readyz\n")

    def _send(self, code: int, content_type: str, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing: requests every few seconds are not news."""
