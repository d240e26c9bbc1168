"""The console as an application: its routes, the roles that they need, and its server."""

import socket
import time
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from buckets.config.job import load_job
from buckets.config.settings import ConsoleSettings, Role
from buckets.connections import WebServer, listen
from buckets.console.pages import alerts, change, job, lists, rules
from buckets.console.person import SIGN_IN, Gate, People, documents
from buckets.console.view import Asked, Onward, Sampler, Site, View, shown, shown_error, stream
from buckets.errors import BucketsError
from buckets.metrics.job_metrics import CONSOLE, CONTENT_TYPE, exposition
from buckets.questions.long_questions import Questions
from buckets.questions.rule_checks import RuleChecks
from buckets.resources import resource

Page = Callable[[Asked], View | Onward | dict[str, Any]]


def application(site: Site) -> Starlette:
    """Return the application of a console."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> Any:
        site.sampler.start()
        yield
        site.sampler.close()
        await run_in_threadpool(site.questions.close)

    def on_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        line = "there is no such page; go on from one of those above" if error.status_code == 404 else error.detail
        return shown_error(request, site, BucketsError(line), status=error.status_code)

    return Starlette(
        routes=_routes(site),
        middleware=[Middleware(Gate, people=site.people)],
        exception_handlers={HTTPException: on_error},
        lifespan=lifespan,
    )


def _routes(site: Site) -> list[BaseRoute]:
    def get(path: str, name: str, page: Page) -> Route:
        return Route(path, _endpoint(site, name, page, "read"), methods=["GET"])

    def post(path: str, name: str, page: Page, role: Role) -> Route:
        return Route(path, _endpoint(site, name, page, role), methods=["POST"])

    return [
        Mount("/static", StaticFiles(directory=resource("console/static"))),
        documents(),
        Route(SIGN_IN, _sign_in(site), methods=["GET", "POST"]),
        Route("/metrics", _metrics(site)),
        get("/", "now", job.now),
        get("/samples", "now", job.samples),
        Route("/now/live", stream(site, job.now_changes)),
        get("/alerts", "alerts", alerts.listed),
        Route("/alerts/live", stream(site, alerts.list_changes)),
        post("/alerts/verdict", "alerts", alerts.judge, "analyst"),
        get("/alert", "alerts", alerts.alert),
        get("/alert/explanation", "alerts", alerts.explanation),
        get("/why", "alerts", alerts.why_page),
        get("/rules", "rules", rules.listed),
        get("/rule", "rules", rules.one),
        get("/rules/change", "rules", change.preview),
        post("/rules/change", "rules", change.make, "analyst"),
        post("/rules/change/preview", "rules", change.preview, "analyst"),
        get("/rule/edit", "rules", rules.edit),
        get("/rule/schema", "rules", rules.schema),
        post("/rule/check", "rules", rules.check, "read"),
        post("/rule/backtest", "rules", rules.backtest, "analyst"),
        get("/key", "keys", alerts.key),
        get("/key/events", "keys", alerts.key_events_part),
        get("/lists", "lists", lists.page),
        get("/list", "lists", lists.one),
        post("/list/preview", "lists", lists.preview, "analyst"),
        post("/list/change", "lists", lists.make, "analyst"),
        get("/verdicts", "verdicts", alerts.verdicts),
        get("/quality", "quality", alerts.quality),
        get("/quality/table", "quality", alerts.quality_table),
        get("/batches", "batches", job.batches),
        post("/batches/replay", "batches", job.replay, "analyst"),
        get("/question", "rules", job.question),
        Route("/question/live", stream(site, job.question_changes)),
        post("/question/cancel", "rules", job.cancel, "analyst"),
    ]


def _endpoint(site: Site, name: str, page: Page, role: Role) -> Callable[[Request], Response]:
    """Return the endpoint of a page; it runs in a thread, since pages read files."""

    def endpoint(request: Request) -> Response:
        began_s = time.perf_counter()
        answer = answered(request)
        site.activity.note(name, answer.status_code, time.perf_counter() - began_s)
        return answer

    def answered(request: Request) -> Response:
        person = request.state.person
        if not person.may(role):
            error = BucketsError(f"{person.name} may not do this; it needs the role {role}, see `console.roles`")
            return shown_error(request, site, error, name, 403)
        try:
            made = page(Asked(site, person, request.query_params, request.state.form))
        except BucketsError as error:
            return shown_error(request, site, error, name)
        if isinstance(made, Onward):
            return RedirectResponse(made.address_with_done(), 303)
        return JSONResponse(made) if isinstance(made, dict) else shown(request, site, made, name)

    return endpoint


def _metrics(site: Site) -> Callable[[Request], Response]:
    def endpoint(_: Request) -> Response:
        status = site.activity.status() | {"questions": site.questions.states()}
        return Response(exposition(CONSOLE, status), headers={"content-type": CONTENT_TYPE})

    return endpoint


def _sign_in(site: Site) -> Callable[[Request], Response]:
    def endpoint(request: Request) -> Response:
        settings, error = site.people.settings, ""
        if settings.token is None or settings.trusted_user_header is not None:
            return RedirectResponse("/", 303)
        if request.method == "POST":
            fields = {name: values[0].strip() for name, values in request.state.form.items()}
            if fields.get("name") and site.people.is_token(fields.get("token", "")):
                request.state.session = site.people.signed_in(fields["name"])
                return RedirectResponse("/", 303)
            error = "This is not the token; it is in the job's configuration, as console.token."
            error = error if fields.get("name") else "Say who you are; changes carry your name."
        return shown(request, site, View("sign-in.html", 403 if error else 200, error=error))

    return endpoint


class Console(WebServer):
    """A server of the console, which ends streams when it stops."""

    def __init__(self, site: Site, listening: socket.socket) -> None:
        super().__init__(application(site), listening)
        self.site = site

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End streams and checks first, then wait for the other responses."""
        self.site.closing.set()
        self.site.checks.close()
        await super().shutdown(sockets)


def open_console(
    conf: Path, login_name: str, host: str | None = None, port: int | None = None, is_read_only: bool = False
) -> Console:
    """Open a console.

    Args:
        conf: the job's configuration.
        login_name: the user who opens it.
        host: the address to listen on; None for that of the configuration.
        port: the port likewise; 0 for any that is free.
        is_read_only: whether nobody may change anything.
    """
    loaded = load_job(conf)
    settings = loaded.settings.console
    if host is not None:
        try:
            settings = ConsoleSettings.model_validate({**dict(settings), "host": host})
        except ValueError:
            remedy = "add `console.token`"
            message = f"--host {host}: can be reached from elsewhere, and nothing says who may come in; {remedy}"
            raise BucketsError(message) from None
    listening = listen(settings.host, settings.port if port is None else port, "console")
    people = People(settings, settings.host, listening.getsockname()[1], login_name, is_read_only)
    site = Site(conf, loaded, people, Sampler(loaded.checkpoint), Questions(), RuleChecks(is_replaced=True))
    return Console(site, listening)
