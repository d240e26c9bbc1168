"""The HTTP interface of `buckets serve`: who may call, how requests are read, and the replies."""

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import msgspec

from buckets.config.job import load_job
from buckets.config.settings import ServeSettings
from buckets.connections import Connection, WebServer, is_same, listen
from buckets.errors import ConfigurationError, first_line
from buckets.metrics.job_metrics import CONTENT_TYPE, SERVE, exposition
from buckets.resources import resource
from buckets.serve.answers import DEAD_LETTER, CallAnswer
from buckets.serve.service import Call, NotNow, Service

MOST_BYTES = 1 << 20
_MOST_READ = 32 * MOST_BYTES
MOST_PAYMENTS = 500  # In one call
_JSON, _PROBLEM = "application/json", "application/problem+json"
_KEPT_S = 75  # How long an idle connection stays open
_TITLES = {
    400: "Not a call", 401: "No token", 404: "No such address", 405: "Another method", 413: "Too large",
    422: "Not an event", 429: "Too many calls", 503: "Not now",
}  # fmt: skip
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


@dataclass(frozen=True)
class Reply:
    """An HTTP reply."""

    status: int
    body: bytes
    kind: str = _JSON

    @classmethod
    def of(cls, value: Any, status: int = 200) -> "Reply":
        """Return a reply in JSON, in case of an error as a problem by RFC 9457."""
        return cls(status, msgspec.json.encode(value), _JSON if status == 200 else _PROBLEM)

    @classmethod
    def problem(cls, status: int, line: str) -> "Reply":
        """Return an error reply."""
        return cls.of(_problem(status, line), status)


def _problem(status: int, line: str, **more: Any) -> dict[str, Any]:
    return {"type": "about:blank", "title": _TITLES[status], "status": status, "detail": line, **more}


class Application:
    """Answers requests, as an ASGI application."""

    def __init__(self, service: Service, settings: ServeSettings) -> None:
        """Answer with the results of a service."""
        self._service, self._settings = service, settings
        self._pages: Mapping[tuple[str, str], Callable[[], Reply]] = {
            ("GET", "/healthz"): lambda: Reply.of({"status": "ok"}),
            ("GET", "/readyz"): self._ready,
            ("GET", "/metrics"): lambda: Reply(200, exposition(SERVE, service.status()), CONTENT_TYPE),
            ("GET", "/v1/openapi.json"): lambda: Reply(200, resource("serve/openapi.json").read_bytes()),
        }

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer a request."""
        try:
            reply = await self._reply(scope, receive)
        except NotNow as error:
            reply = Reply.problem(error.status, error.reason)
        headers = [(b"content-type", reply.kind.encode()), (b"content-length", str(len(reply.body)).encode())]
        headers += [(b"retry-after", b"1")] if reply.status in (429, 503) else []
        headers += [(b"allow", b"POST")] if reply.status == 405 else []
        headers += [(b"connection", b"close")] if reply.status == 413 else []
        with contextlib.suppress(OSError):
            await send({"type": "http.response.start", "status": reply.status, "headers": headers})
            await send({"type": "http.response.body", "body": reply.body})

    async def _reply(self, scope: Mapping[str, Any], receive: Receive) -> Reply:
        method, path = scope["method"], scope["path"]
        page = self._pages.get((method, path))
        if page is not None and path != "/metrics":
            return page()
        if not self._may_call(scope):
            return Reply.problem(401, "give the token of `serve` as `Authorization: Bearer TOKEN`")
        if page is not None:
            return page()
        if path != "/v1/score":
            return Reply.problem(404, f"{path[:100]!r} is no address here; payments go to /v1/score")
        if method != "POST":
            return Reply.problem(405, "payments are sent by POST")
        return await self._called(scope, receive)

    def _may_call(self, scope: Mapping[str, Any]) -> bool:
        token = self._settings.token
        scheme, _, given = dict(scope["headers"]).get(b"authorization", b"").partition(b" ")
        is_token = scheme.lower() == b"bearer"
        return token is None or (is_token and is_same(given.strip().decode("latin-1"), token.get_secret_value()))

    def _ready(self) -> Reply:
        why = self._service.not_ready()
        return Reply.of({"status": "ok"}) if why is None else Reply.problem(503, why)

    async def _called(self, scope: Mapping[str, Any], receive: Receive) -> Reply:
        query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = {name: values[-1] for name, values in query.items()}
        unknown = next((name for name in given if name not in ("mode", "features", "key")), None)
        if unknown is not None or given.get("mode", "score") not in ("score", "check"):
            what = f"{unknown!r} is no parameter" if unknown is not None else f"mode {given['mode']!r} is not known"
            return Reply.problem(400, f"{what}; there are mode=check, features=PATTERN and key=TEXT")
        body = await _body(receive)
        if body is None:
            return Reply.problem(
                413, f"the call has more than {MOST_BYTES:,} bytes, which is the limit; send fewer payments"
            )
        kind = dict(scope["headers"]).get(b"content-type", b"").partition(b";")[0].strip()
        try:
            values, is_one = _payments(body, kind == b"application/octet-stream")
        except (ValueError, RecursionError) as error:
            return Reply.problem(400, f"the call is no payment in JSON, nor an array of some: {first_line(error)}")
        if not 0 < len(values) <= MOST_PAYMENTS:
            return Reply.problem(400, f"the call has {len(values):,} payments; send 1 to {MOST_PAYMENTS:,}")
        wanted, mode, began_s = given.get("features"), given.get("mode", "score"), time.perf_counter()
        calls = (self._service.check if mode == "check" else self._service.score)(
            values, wanted is not None, given.get("key")
        )
        self._service.counts[mode] += len(calls)
        _, late = await asyncio.wait([call.future for call in calls], timeout=self._settings.answer_within / 1000)
        self._service.counts["undecided"] += len(late)
        self._service.seconds[mode].add([(time.perf_counter() - began_s, len(calls))])
        replies = [self._shown(call, wanted) for call in calls]
        return Reply.of(*replies[0]) if is_one else Reply.of({"answers": [reply for reply, _ in replies]})

    def _shown(self, call: Call, wanted: str | None) -> tuple[dict[str, Any], int]:
        """Return a call for its reply, with its status if it was a single payment."""
        if not call.future.done():
            call.future.cancel()
            nothing: dict[str, Any] = {"fired": [], "severity": None, "score": 0, "held": []}
            decision = nothing | {"undecided": self._settings.undecided}
            return {"decision": decision, "outcome": "undecided", "alerts": [], "written": call.is_written}, 200
        try:
            answer: CallAnswer = call.future.result()
        except NotNow as error:
            return _problem(error.status, error.reason), error.status
        if answer.outcome == DEAD_LETTER:
            place = {"partition": answer.partition, "offset": answer.offset, "event_id": answer.event_id}
            return _problem(422, answer.reason, outcome=DEAD_LETTER, **place), 422
        return answer.to_json(wanted), 200


async def _body(receive: Receive) -> bytes | None:
    """Return the body of a request; None if too large, but read on for a while, so that the sender reads the reply."""
    parts, size = list[bytes](), 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return b""
        part = message.get("body", b"")
        size += len(part)
        if size <= MOST_BYTES:
            parts.append(part)
        if not message.get("more_body", False) or size > _MOST_READ:
            return b"".join(parts) if size <= MOST_BYTES else None


def _payments(body: bytes, is_binary: bool) -> tuple[Sequence[bytes], bool]:
    """Return the raw payments of a call, and whether it was a single one; ValueError if it is invalid."""
    if is_binary:
        return [body], True
    if body.lstrip()[:1] == b"[":
        values = [bytes(each) for each in msgspec.json.decode(body, type=list[msgspec.Raw])]
        for number, value in enumerate(values):
            if value[:1] != b"{":
                message = f"element {number} is no object"
                raise ValueError(message)
        return values, False
    msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    return [body], True


class _CallConnection(Connection):
    """A caller's connection, which stays open for many calls."""

    most = 2_000


class Serving(WebServer):
    """A server of a service; runs once started, and ends the service with it."""

    def __init__(self, service: Service, settings: ServeSettings, listening: socket.socket) -> None:
        self.service = service
        tls: dict[str, Any] = {}
        if settings.certificate_file is not None:
            tls = {
                "ssl_certfile": settings.certificate_file,
                "ssl_keyfile": settings.key_file,
                "ssl_ca_certs": settings.ca_file,
                "ssl_cert_reqs": ssl.CERT_NONE if settings.ca_file is None else ssl.CERT_REQUIRED,
            }
        application = Application(service, settings)
        super().__init__(
            application, listening, http=_CallConnection, timeout_keep_alive=_KEPT_S, lifespan="off", **tls
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish open requests, and end."""
        await super().shutdown(sockets)
        await asyncio.get_running_loop().run_in_executor(None, self.service.stop)


def open_serving(conf: Path, host: str | None, port: int | None, say: Callable[[str], None]) -> Serving:
    """Open a service for a job.

    Raises:
        ConfigurationError: the job has no topic as its source, or a setting is not valid.
    """
    job = load_job(conf)
    source, settings = job.settings.source, job.settings.serve
    if not source.has_topics or source.topic_pattern is not None:
        message = f"configuration {conf}: serve needs a source of `kind: kafka` with topics that are named"
        raise ConfigurationError(message)
    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    settings = settings.model_copy(update=given)
    if host is not None and settings.is_open:
        message = f"--host {host}: can be reached from elsewhere, and nothing says who may call; add `serve.token`"
        raise ConfigurationError(message)
    listening = listen(settings.host, settings.port, "serve")
    return Serving(Service(job, settings, say), settings, listening)
