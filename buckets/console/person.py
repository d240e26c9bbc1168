"""The users of the console and their roles, and the gate that each request passes before it reaches a page."""

import base64
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from buckets.config.settings import LOOPBACK_NAMES, ROLES, ConsoleSettings, Role
from buckets.connections import is_same
from buckets.printable import one_line
from buckets.resources import built_site

DOCUMENTS = "/docs"
_INLINE = re.compile(rb"<script>(.*?)</script>", re.DOTALL)
_POLICY = (
    "default-src 'none'; script-src 'self' {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def documents() -> BaseRoute:
    """Return the route of `/docs`: the site, or a line on how to get it."""
    folder = built_site()
    if folder is None:
        return Route(DOCUMENTS + "/{page:path}", _not_built)
    return Mount(DOCUMENTS, _Pages(folder))


class _Pages(StaticFiles):
    """Serves the site; only scripts that its pages contained when the console started may run.

    Its search writes styles into the page.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(directory=folder, html=True)
        scripts = {script for page in folder.rglob("*.html") for script in _INLINE.findall(page.read_bytes())}
        digests = (base64.b64encode(hashlib.sha256(script).digest()).decode() for script in scripts)
        self._policy = _POLICY.format(scripts=" ".join(sorted(f"'sha256-{digest}'" for digest in digests)))

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return a file."""
        response = await super().get_response(path, scope)
        response.headers["content-security-policy"] = self._policy
        return response


async def _not_built(_: object) -> Response:
    return PlainTextResponse(
        "the documentation is not here: `make docs` builds it in a checkout, and a wheel has it\n", 404
    )


_LONGEST_NAME = 100


@dataclass(frozen=True)
class Person:
    """A user and their role."""

    name: str
    role: Role

    def may(self, role: Role) -> bool:
        """Return whether they have the rights of a role."""
        return ROLES.index(self.role) >= ROLES.index(role)


@dataclass(frozen=True)
class Session:
    """A session of a browser: a random id, and the name of the signed-in user, empty without one."""

    identity: str
    name: str = ""


class People:
    """Identifies users by their requests; nothing is stored, and a restart signs everybody out."""

    def __init__(self, settings: ConsoleSettings, host: str, port: int, login_name: str, is_read_only: bool) -> None:
        """Begin with a secret for this process.

        Args:
            settings: who has access.
            host: the address to listen on.
            port: the port, which is in the name of the cookie because browsers share cookies among ports.
            login_name: who started the console; connections from this machine count as this user.
            is_read_only: whether nobody may change anything.
        """
        self.settings, self.cookie = settings, f"buckets_console_{port}"
        self._hosts = {host.lower(), *LOOPBACK_NAMES, *(name.lower() for name in settings.names)}
        self._login_name, self._is_read_only = login_name, is_read_only
        self._secret = secrets.token_bytes(32)

    def knows_host(self, header: str) -> bool:
        """Return whether a request names this console as its host; other names may be DNS rebinding."""
        name = header.rsplit(":", 1)[0] if not header.endswith("]") else header
        return name.strip("[]").lower() in self._hosts

    def person(self, request: Request, session: Session) -> Person | None:
        """Return the user of a request; None if sign-in is required and nobody has signed in."""
        token, header = self.settings.token, self.settings.trusted_user_header
        is_bearer = self.is_token(_header(request, "authorization").removeprefix("Bearer "))
        if header is not None:
            named = _header(request, header).strip()
            is_trusted = token is None or is_bearer
            return self._known(named) if named and is_trusted else None
        if token is None:
            return self._known(self._login_name or "somebody")
        return self._known(session.name or "token") if session.name or is_bearer else None

    def is_token(self, text: str) -> bool:
        """Return whether a text is the token."""
        token = self.settings.token
        return token is not None and is_same(text, token.get_secret_value())

    def session(self, cookie: str | None) -> Session:
        """Return the session of a cookie; a new one if the cookie is not ours."""
        identity, _, rest = (cookie or "").partition(".")
        name, _, mark = rest.partition(".")
        if identity and is_same(mark, self._mark(f"{identity}.{name}")):
            return Session(identity, base64.urlsafe_b64decode(name).decode())
        return Session(secrets.token_urlsafe(18))

    def signed_in(self, name: str) -> Session:
        """Return a new session for a user who has given the token."""
        return Session(secrets.token_urlsafe(18), one_line(name.strip())[:_LONGEST_NAME])

    def cookie_of(self, session: Session) -> str:
        """Return a session as a cookie that nobody else can forge."""
        written = f"{session.identity}.{base64.urlsafe_b64encode(session.name.encode()).decode()}"
        return f"{written}.{self._mark(written)}"

    def form_mark(self, session: Session) -> str:
        """Return the token of all forms of a session, against cross-site requests."""
        return self._mark(f"form {session.identity}")

    def _known(self, name: str) -> Person:
        shown = one_line(name)[:_LONGEST_NAME]
        return Person(shown, "read" if self._is_read_only else self.settings.role_of(shown))

    def _mark(self, text: str) -> str:
        return hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()


def _header(request: Request, name: str) -> str:
    """Return a header decoded as UTF-8, which proxies and browsers use for names; empty if missing."""
    return request.headers.get(name, "").encode("latin-1").decode("utf-8", "replace")


SIGN_IN = "/sign-in"
OPEN = ("/static/", f"{DOCUMENTS}/")  # Paths with files that are the same for everybody
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
    """Checks requests before an application, and stores the user in their state."""

    def __init__(self, app: ASGIApp, people: People) -> None:
        """Wrap an application."""
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
        """Return the response to a request that may not pass; None if it may."""
        if not self._people.knows_host(request.headers.get("host", "")):
            return PlainTextResponse(
                "this console has another name; open the address that `buckets console` has printed\n", 421
            )
        if is_static and request.method == "GET":
            return None
        if request.method not in ("GET", "HEAD"):
            fault = await self._fault_of_form(request)
            if fault is not None:
                return PlainTextResponse(f"{fault}\n", 403)
        person = self._people.person(request, session)
        request.state.person = person
        if person is None and request.url.path != SIGN_IN:
            if self._people.settings.trusted_user_header is not None:
                return PlainTextResponse(
                    "the proxy before this console does not say who you are; ask whoever runs it\n", 401
                )
            return RedirectResponse(SIGN_IN, 303)
        return None

    async def _fault_of_form(self, request: Request) -> str | None:
        """Read the form of a request, and return why it is not ours; None if it is."""
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
            form = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
        except ValueError:
            return f"this form has more than {_MOST_FIELDS:,} fields; nothing has changed"
        request.state.form = form
        mark = next(iter(form.get("form_mark", ())), "")
        if not is_same(mark, request.state.form_mark):
            return "this page is older than the console's last start; load it again, and send the form once more"
        return None
