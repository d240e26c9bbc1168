"""Web servers with limits on their connections: the time to send a request or read an answer, and their number.

uvicorn waits for the end of a request without limit: a client that begins many and ends none would take all
descriptors of this process.
"""

import asyncio
import contextlib
import hmac
import resource
import socket
from collections import Counter
from typing import Any, ClassVar, Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from buckets.errors import BucketsError

REQUEST_WITHIN_S = 15.0
"""So long may a request take until all of it is there, and so long may nothing of an answer be read."""
IDLE_WITHIN_S = 90.0  # So long a connection may wait for its next request, unless the server ends it before
_MOST: Final = 340
_OF_DESCRIPTORS: Final = 3  # Of this many descriptors one may be a connection; pages read tables with others
_ACCEPTED_AT_ONCE: Final = 32  # So many are accepted before the first of them is counted
_QUEUE: Final = 1_024  # So many connections wait at most to be accepted
_END_WITHIN_S: Final = 5


def most_connections(most: int = _MOST) -> int:
    """Return the most connections at once; half of them may be without a request."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(most, descriptors // _OF_DESCRIPTORS)


class Connection(H11Protocol):
    """A connection that is ended if its request does not arrive, or its answer is not read, in time."""

    most: ClassVar[int] = _MOST  # The most at once, if there are enough descriptors
    _waits_since_s: float | None = None
    _is_idle = False
    _timers: dict[str, asyncio.TimerHandle]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request, and end other connections if there are too many."""
        self._timers = {}
        super().connection_made(transport)
        self._follow()
        _make_room([each for each in self.connections if isinstance(each, Connection)], most_connections(self.most))

    def data_received(self, data: bytes) -> None:
        """Receive a part of a request."""
        if self._is_idle:
            self._is_idle, self._waits_since_s = False, None
            self._end("request")
        super().data_received(data)
        self._follow()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._follow()
        if self._waits_since_s is not None:
            self._is_idle = True
            self._end("request")
            self._begin("request", IDLE_WITHIN_S)

    def pause_writing(self) -> None:
        """Wait until more of the answer has been read."""
        super().pause_writing()
        self._begin("reading")

    def resume_writing(self) -> None:
        """Continue the answer."""
        super().resume_writing()
        self._end("reading")

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel all timers."""
        for name in tuple(self._timers):
            self._end(name)
        super().connection_lost(exc)

    @property
    def waits_since_s(self) -> float | None:
        """Since when the connection waits for a request; None while it answers one or is closing."""
        return None if self.transport.is_closing() else self._waits_since_s

    def _follow(self) -> None:
        """Start or stop the timer for a request, which starts once per request, not at each of its bytes."""
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._waits_since_s = None
            self._end("request")
        elif self._waits_since_s is None:
            self._waits_since_s = self.loop.time()
            self._begin("request")

    def _begin(self, name: str, within_s: float | None = None) -> None:
        self._timers[name] = self.loop.call_later(within_s or REQUEST_WITHIN_S, self.transport.abort)

    def _end(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()


def _make_room(connections: list[Connection], most: int) -> None:
    """End surplus connections without a request: first those of the client with the most, oldest first."""
    there = sum(not each.transport.is_closing() for each in connections)
    waiting = [(since_s, each) for each in connections if (since_s := each.waits_since_s) is not None]
    surplus = max(len(waiting) - most // 2, there - most)
    if surplus <= 0:
        return
    of_client: Counter[Any] = Counter(_address(each) for _, each in waiting)
    waiting.sort(key=lambda found: (-of_client[_address(found[1])], found[0]))
    for _, each in waiting[:surplus]:
        each.transport.abort()


def _address(connection: Connection) -> str | None:
    return None if connection.client is None else connection.client[0]


def is_same(text: str, secret: str) -> bool:
    """Compare a text with a secret in constant time; the text may have any characters."""
    return hmac.compare_digest(text.encode(), secret.encode())


def listen(host: str, port: int, what: str) -> socket.socket:
    """Return a socket that listens on an address; errors call the server `what`."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(_ACCEPTED_AT_ONCE)
        except OSError:
            listening.close()
            raise
    except OSError as error:
        remedy = "end what uses it, or name another port with --port"
        message = f"{what}: cannot listen on {host}, port {port} ({error.strerror}); {remedy}"
        raise BucketsError(message) from None
    return listening


class WebServer(uvicorn.Server):
    """A server on a listening socket, which answers once it runs."""

    def __init__(self, application: Any, listening: socket.socket, **settings: Any) -> None:
        """Serve an application at a socket; `settings` are passed to uvicorn."""
        shared: dict[str, Any] = {
            "http": Connection,
            "ws": "none",
            "backlog": _ACCEPTED_AT_ONCE,
            "log_level": "warning",
            "access_log": False,
            "server_header": False,
            "timeout_graceful_shutdown": _END_WITHIN_S,
            "proxy_headers": False,
        }
        super().__init__(uvicorn.Config(application, **shared | settings))
        self.listening = listening

    @property
    def address(self) -> str:
        """The URL of the server."""
        host, port = self.listening.getsockname()[:2]
        return f"{'https' if self.config.ssl_certfile else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until interrupted."""
        with contextlib.closing(self.listening), contextlib.suppress(KeyboardInterrupt):
            super().run([*(sockets or ()), self.listening])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen with a long queue, from which few connections are accepted at once."""
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(_QUEUE)
