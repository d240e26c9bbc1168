"""The console as an application: which page answers which address, and who may ask it."""

import time
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from buckets.config.console import Role
from buckets.console.documents import documents
from buckets.console.gate import SIGN_IN, Gate
from buckets.console.pages import (
    alert,
    alerts,
    change,
    editor,
    key,
    lists,
    now,
    question,
    records,
    rule,
    rules,
    sign_in,
)
from buckets.console.site import Site
from buckets.console.stream import stream
from buckets.console.view import Asked, Onward, View, address, shown, shown_error
from buckets.errors import BucketsError
from buckets.metrics.console_metrics import CONSOLE
from buckets.metrics.family import CONTENT_TYPE, exposition
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
        Route(SIGN_IN, sign_in.endpoint(site), methods=["GET", "POST"]),
        Route("/metrics", _metrics(site)),
        get("/", "now", now.page),
        get("/samples", "now", now.samples),
        Route("/now/live", stream(site, now.changes)),
        get("/alerts", "alerts", alerts.page),
        Route("/alerts/live", stream(site, alerts.changes)),
        post("/alerts/verdict", "alerts", alerts.judge, "analyst"),
        get("/alert", "alerts", alert.page),
        get("/alert/explanation", "alerts", alert.explanation),
        get("/why", "alerts", alert.why_page),
        get("/rules", "rules", rules.page),
        get("/rule", "rules", rule.page),
        get("/rules/change", "rules", change.preview),
        post("/rules/change", "rules", change.make, "analyst"),
        post("/rules/change/preview", "rules", change.preview, "analyst"),
        get("/rule/edit", "rules", editor.page),
        get("/rule/schema", "rules", editor.schema),
        post("/rule/check", "rules", editor.check, "read"),
        post("/rule/backtest", "rules", editor.backtest, "analyst"),
        get("/key", "keys", key.page),
        get("/key/events", "keys", key.events),
        get("/lists", "lists", lists.page),
        get("/list", "lists", lists.one),
        post("/list/preview", "lists", lists.preview, "analyst"),
        post("/list/change", "lists", lists.make, "analyst"),
        get("/verdicts", "verdicts", records.verdicts),
        get("/quality", "quality", records.quality),
        get("/quality/table", "quality", records.quality_table),
        get("/batches", "batches", records.batches),
        post("/batches/replay", "batches", records.replay, "analyst"),
        get("/question", "rules", question.page),
        Route("/question/live", stream(site, question.changes)),
        post("/question/cancel", "rules", question.cancel, "analyst"),
    ]


def _endpoint(site: Site, name: str, page: Page, role: Role) -> Callable[[Request], Response]:
    """Return what answers requests with a page; in a thread of its own, since pages read files."""

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
            return RedirectResponse(address_with(made), 303)
        return JSONResponse(made) if isinstance(made, dict) else shown(request, site, made, name)

    return endpoint


def _metrics(site: Site) -> Callable[[Request], Response]:
    """Return what tells Prometheus what the console does."""

    def endpoint(_: Request) -> Response:
        status = site.activity.status() | {"questions": site.questions.states()}
        return Response(exposition(CONSOLE, status), headers={"content-type": CONTENT_TYPE})

    return endpoint


def address_with(onward: Onward) -> str:
    """Return where to go on, with what has been done."""
    if not onward.done:
        return onward.address
    return f"{onward.address}{'&' if '?' in onward.address else '?'}{address('', done=onward.done).removeprefix('?')}"
