"""A receiver of alerts for tests: a real HTTP server that takes them, answers something else, hangs or drops."""

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

HANG, DROP, CLOSE = "hang", "drop", "close"
Behaviour = int | str | tuple[int, dict[str, str]]
"""A code with which it answers, with headers or without, or what it does instead."""


class Request(NamedTuple):
    """What was posted."""

    headers: Mapping[str, str]
    body: bytes

    @property
    def alert(self) -> dict[str, Any]:
        return json.loads(self.body)


class WebhookServer:
    """What was asked of it, what it has taken, and what it does."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.taken: list[Request] = []
        self.behave: Callable[[Request], Behaviour] = lambda request: 200
        self.released = threading.Event()
        self.url = ""

    @property
    def ids(self) -> list[str]:
        """The ids of what was taken, in order."""
        return [request.headers["webhook-id"] for request in self.taken]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is what some tests want."""


@contextlib.contextmanager
def webhook_server(port: int = 0, tls: ssl.SSLContext | None = None) -> Iterator[WebhookServer]:
    """A receiver on a free port, until the end of the block; over TLS where a context is given."""
    webhook = WebhookServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = Request(dict(self.headers), self.rfile.read(int(self.headers["Content-Length"])))
            webhook.asked.append(request)
            behaviour = webhook.behave(request)
            if behaviour == HANG:
                webhook.released.wait(60)
            if behaviour in (HANG, DROP):
                with contextlib.suppress(OSError):
                    self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return
            # A connection that is closed without a word is one that a server has let go of.
            self.close_connection = behaviour == CLOSE
            code, headers = (
                behaviour if isinstance(behaviour, tuple) else (200 if behaviour == CLOSE else behaviour, {})
            )
            if code < 300:
                webhook.taken.append(request)
            self.send_response(code)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = _Server(("127.0.0.1", port), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    scheme = "http" if tls is None else "https"
    webhook.url = f"{scheme}://127.0.0.1:{server.server_port}/alerts?team=a"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield webhook
    finally:
        webhook.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
