"""What each request passes before a page sees it: for whom it is meant, who sends it, and whether a form is ours."""

from collections.abc import Mapping
from urllib.parse import parse_qsl

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from buckets.console.documents import DOCUMENTS
from buckets.console.person import People, Session, is_same

SIGN_IN = "/sign-in"
OPEN = ("/static/", f"{DOCUMENTS}/")
"""Below these lie files that are the same for everybody."""
_MOST_BYTES = 1 << 20
_MOST_FIELDS = 5_000
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Gate:
    """Lets requests through to an application, which finds who sends them in their state."""

    def __init__(self, app: ASGIApp, people: People) -> None:
        """Stand before an application."""
        self._app, self._people = app, people

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        cookie = request.cookies.get(self._people.cookie)
        session = self._people.session(cookie)
        state = scope.setdefault("state", {})
        state |= {"session": session, "form_mark": self._people.form_mark(session), "form": {}}
        is_static = scope["path"].startswith(OPEN)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers["cache-control"] = "no-cache" if is_static else "no-store"
                kept: Session = state["session"]
                if not is_static and self._people.cookie_of(kept) != cookie:
                    written = f"{self._people.cookie}={self._people.cookie_of(kept)}; HttpOnly; SameSite=Strict; Path=/"
                    headers.append("set-cookie", written)
            await send(message)

        refusal = await self._refusal(request, session, is_static)
        await (self._app if refusal is None else refusal)(scope, receive, send_with_headers)

    async def _refusal(self, request: Request, session: Session, is_static: bool) -> Response | None:
        """Return the answer to a request that does not pass; None of one that does."""
        if not self._people.knows_host(request.headers.get("host", "")):
            return _text("this console has another name; open the address that `buckets console` has printed", 421)
        if is_static and request.method == "GET":
            return None
        if request.method not in ("GET", "HEAD"):
            fault = await self._fault_of_form(request)
            if fault is not None:
                return _text(fault, 403)
        person = self._people.person(request, session)
        request.state.person = person
        if person is None and request.url.path != SIGN_IN:
            if self._people.settings.trusted_user_header is not None:
                return _text("the proxy before this console does not say who you are; ask whoever runs it", 401)
            return RedirectResponse(SIGN_IN, 303)
        return None

    async def _fault_of_form(self, request: Request) -> str | None:
        """Read the form of a request, and say why it is none of ours; None where it is."""
        host = request.headers["host"]
        origin = request.headers.get("origin", f"http://{host}")
        site = request.headers.get("sec-fetch-site", "same-origin")
        if origin.partition("://")[2] != host or site != "same-origin":
            return "this form was sent by another page; nothing has changed"
        body = b""
        try:
            async for chunk in request.stream():
                body += chunk
                if len(body) > _MOST_BYTES:
                    return f"this form has more than {_MOST_BYTES:,} bytes; nothing has changed"
        except ClientDisconnect:
            return "this form has no end; nothing has changed"
        try:
            form: Mapping[str, list[str]] = _form(body)
        except ValueError:
            return f"this form has more than {_MOST_FIELDS:,} fields; nothing has changed"
        request.state.form = form
        mark = next(iter(form.get("form_mark", ())), "")
        if not is_same(mark, request.state.form_mark):
            return "this page is older than the console's last start; load it again, and send the form once more"
        return None


def _form(body: bytes) -> dict[str, list[str]]:
    """Return the fields of a form, each with its values."""
    form: dict[str, list[str]] = {}
    for name, value in parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=_MOST_FIELDS):
        form.setdefault(name, []).append(value)
    return form


def _text(line: str, status: int) -> Response:
    return Response(f"{line}\n", status, media_type="text/plain; charset=utf-8")
