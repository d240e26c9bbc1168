"""Who looks at the console, what they may do, and how the console knows them again."""

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass

from starlette.requests import Request

from buckets.config.console import LOOPBACK, ROLES, ConsoleSettings, Role
from buckets.printable import one_line

_LONGEST_NAME = 100


@dataclass(frozen=True)
class Person:
    """Somebody, and what they may do."""

    name: str
    role: Role

    def may(self, role: Role) -> bool:
        """Return whether they may do what a role may."""
        return ROLES.index(self.role) >= ROLES.index(role)


@dataclass(frozen=True)
class Session:
    """A browser: a random id, and the name with which somebody has signed in; empty where nobody has."""

    identity: str
    name: str = ""


class People:
    """Knows people by what a request carries; nothing of them is kept, and a restart signs everybody out."""

    def __init__(self, settings: ConsoleSettings, host: str, port: int, login_name: str, is_read_only: bool) -> None:
        """Begin with a secret of this process's own.

        Args:
            settings: who may come in.
            host: the address that is listened on.
            port: the port; cookies are not told apart by it, so their name has it.
            login_name: who has started the console, and is whoever reaches it on this machine.
            is_read_only: whether nobody may change anything.
        """
        self.settings, self.cookie = settings, f"buckets_console_{port}"
        self._hosts = {host.lower(), *LOOPBACK, *(name.lower() for name in settings.names)}
        self._login_name, self._is_read_only = login_name, is_read_only
        self._secret = secrets.token_bytes(32)

    def knows_host(self, header: str) -> bool:
        """Return whether a request was meant for this console; under another name a page may play tricks with DNS."""
        name = header.rsplit(":", 1)[0] if not header.endswith("]") else header
        return name.strip("[]").lower() in self._hosts

    def person(self, request: Request, session: Session) -> Person | None:
        """Return who has sent a request; None where nobody has signed in who would have to."""
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
        """Return the session of a cookie; a new one where it is none of ours."""
        identity, _, rest = (cookie or "").partition(".")
        name, _, mark = rest.partition(".")
        if identity and is_same(mark, self._mark(f"{identity}.{name}")):
            return Session(identity, base64.urlsafe_b64decode(name).decode())
        return Session(secrets.token_urlsafe(18))

    def signed_in(self, name: str) -> Session:
        """Return a session of somebody who has given the token."""
        return Session(secrets.token_urlsafe(18), one_line(name.strip())[:_LONGEST_NAME])

    def cookie_of(self, session: Session) -> str:
        """Return a session as a cookie, which nobody else can make."""
        written = f"{session.identity}.{base64.urlsafe_b64encode(session.name.encode()).decode()}"
        return f"{written}.{self._mark(written)}"

    def form_mark(self, session: Session) -> str:
        """Return what each form of a session carries, so that no other page can send one."""
        return self._mark(f"form {session.identity}")

    def _known(self, name: str) -> Person:
        shown = one_line(name)[:_LONGEST_NAME]
        return Person(shown, "read" if self._is_read_only else self.settings.role_of(shown))

    def _mark(self, text: str) -> str:
        return hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()


def is_same(text: str, secret: str) -> bool:
    """Return whether a text is a secret, in a time that tells nothing of it; a text may have any characters."""
    return hmac.compare_digest(text.encode(), secret.encode())


def _header(request: Request, name: str) -> str:
    """Return a header as UTF-8, in which proxies and browsers write names; empty where there is none."""
    return request.headers.get(name, "").encode("latin-1").decode("utf-8", "replace")
