"""A connection over HTTP on which each exchange has one deadline, however its peer deals out its bytes.

The timeout of a socket counts each wait anew, so that a peer that sends a byte now and then would hold its caller for
good. Here all of it counts together: finding the address, connecting, TLS, what is sent, informational answers
(`100 Continue`) and the answer itself.

A receiver of alerts.
"""

import base64
import contextlib
import hashlib
import hmac
import socket
import ssl
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal
from urllib.parse import SplitResult, urlsplit

import h11

from buckets.config.output import WebhookSettings
from buckets.duration import format_duration
from buckets.errors import first_line

_PORTS = {"http": 80, "https": 443}
_READ_BYTES = 1 << 14
_MOST_READ = 1 << 16  # How much of an answer's body is read, so that the connection can be used again


class ReceiverConnection:
    """A connection to one address, opened when it is needed and again after whatever went wrong.

    Attributes:
        until_s: the deadline of exchanges, on the monotonic clock.
    """

    def __init__(self, address: SplitResult, tls: Callable[[], ssl.SSLContext]) -> None:
        """Connect to nothing yet.

        Args:
            address: whose scheme, host and port count.
            tls: makes what an `https` connection is opened with.
        """
        self._address, self._tls = address, tls
        self.until_s = 0.0
        self._socket: socket.socket | None = None
        self._protocol = h11.Connection(h11.CLIENT)

    @property
    def is_kept(self) -> bool:
        """Whether it is open and can be used again; one that its peer has closed or writes to unasked is closed."""
        if self._socket is None:
            return False
        self._socket.settimeout(0)
        try:
            self._socket.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            pass
        self.close()
        return False

    def exchange(self, request: h11.Request, body: bytes) -> h11.Response:
        """Send a request, and return the head of its answer.

        Args:
            request: its head.
            body: what follows it.

        Raises:
            TimeoutError: the deadline has passed.
            ConnectionError: the connection is closed, without any answer.
            OSError: it cannot be opened.
            h11.RemoteProtocolError: the answer is not HTTP/1.
        """
        try:
            connected = self._socket if self._socket is not None else self._opened()
            events = (request, h11.Data(data=body), h11.EndOfMessage())
            data = b"".join(self._protocol.send(event) or b"" for event in events)
            # A receiver may refuse a request before it has read all of it; its answer says why.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self._send(connected, data)
            answer = self._head(connected)
        except (OSError, h11.ProtocolError):
            self.close()
            raise
        self._finish(connected)
        return answer

    def break_off(self) -> None:
        """Let an exchange that another thread makes end at once, and no other begin before the next deadline is set."""
        self.until_s = 0.0
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close it, if it is open."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
            self._socket = None

    def _left_s(self) -> float:
        left_s = self.until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s

    def _opened(self) -> socket.socket:
        self._protocol = h11.Connection(h11.CLIENT)
        host = self._address.hostname or ""
        port = self._address.port or _PORTS[self._address.scheme]
        connected = self._connected(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        if self._address.scheme == "https":
            connected.settimeout(self._left_s())
            secured = self._tls().wrap_socket(connected, server_hostname=host, do_handshake_on_connect=False)
            self._socket = connected = secured
            secured.do_handshake()
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connected

    def _connected(self, addresses: "Iterable[tuple[int, int, int, str, tuple[object, ...]]]") -> socket.socket:
        """Connect to the first address that takes it; each has its share of the time that is left."""
        untried = list(addresses)
        while True:
            family, kind, protocol, _, address = untried.pop(0)
            self._socket = socket.socket(family, kind, protocol)
            try:
                self._socket.settimeout(self._left_s() / (len(untried) + 1))
                self._socket.connect(address)
            except OSError:
                self.close()
                if not untried:
                    raise
            else:
                return self._socket

    def _send(self, connected: socket.socket, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            connected.settimeout(self._left_s())
            rest = rest[connected.send(rest) :]

    def _received(self, connected: socket.socket) -> bytes:
        connected.settimeout(self._left_s())
        return connected.recv(_READ_BYTES)

    def _head(self, connected: socket.socket) -> h11.Response:
        """Read up to the end of an answer's head; informational ones before it are passed over."""
        is_answered = False
        while True:
            event = self._protocol.next_event()
            if isinstance(event, h11.Response):
                return event
            if event is h11.NEED_DATA:
                data = self._received(connected)
                if not data and not is_answered:
                    message = "the connection is closed without an answer"
                    raise ConnectionResetError(message)
                is_answered = True
                self._protocol.receive_data(data)

    def _finish(self, connected: socket.socket) -> None:
        """Read the rest of an answer, which has been said by its head; without its end the connection is closed."""
        read = 0
        with contextlib.suppress(OSError, h11.ProtocolError):
            while read < _MOST_READ:
                event = self._protocol.next_event()
                if event is h11.NEED_DATA:
                    self._protocol.receive_data(self._received(connected))
                elif isinstance(event, h11.Data):
                    read += len(event.data)
                else:
                    break
            if self._protocol.trailing_data == (b"", False):
                self._protocol.start_next_cycle()
                return
        self.close()


_REFUSALS = frozenset({400, 413, 415, 422})
"""Answers that say something about this one message, which the next attempt would not change."""
_REDIRECTED = 300
_LONGEST_REASON = 200
_LONGEST_PAUSE_S = 3600
_PAUSE_DIGITS = 5  # As many digits of a pause are read as make it longer than the longest


@dataclass(frozen=True)
class Attempt:
    """What became of an attempt."""

    # whether the alert was taken, is refused for good, or the receiver is away and may take it later
    outcome: Literal["taken", "refused", "away"]
    reason: str = ""  # why it was not taken, in words
    pause_s: float | None = None  # how long the receiver asks to be left alone; None where it does not say


def signature(key: bytes, message_id: str, at_s: int, body: bytes) -> str:
    """Return the signature of a message in the form of its header."""
    signed = f"{message_id}.{at_s}.".encode() + body
    return f"v1,{base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()}"


class Receiver:
    """Hands over alerts over one connection, which is opened anew after whatever went wrong."""

    def __init__(self, settings: WebhookSettings) -> None:
        """Connect to nothing yet."""
        self._settings, self._address = settings, urlsplit(settings.url)
        path = self._address.path or "/"
        self._path = f"{path}?{self._address.query}" if self._address.query else path
        self._connection = ReceiverConnection(
            self._address, lambda: ssl.create_default_context(cafile=settings.ca_file)
        )

    def post(self, message_id: str, at_s: int, body: bytes) -> Attempt:
        """Try once to hand over an alert; twice, if the connection was kept from before and is closed by now.

        The code of the answer decides, however its body goes on.
        """
        headers = {
            "Host": self._address.netloc,
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "webhook-id": message_id,
            "webhook-timestamp": str(at_s),
        }
        if self._settings.key is not None:
            headers["webhook-signature"] = signature(self._settings.key, message_id, at_s, body)
        request = h11.Request(method="POST", target=self._path, headers=list(headers.items()))
        self._connection.until_s = time.monotonic() + self._settings.timeout / 1000
        was_kept = self._connection.is_kept
        try:
            try:
                answer = self._connection.exchange(request, body)
            except ConnectionError:
                if not was_kept:
                    raise
                answer = self._connection.exchange(request, body)
        except TimeoutError:
            return Attempt("away", f"does not answer within {format_duration(self._settings.timeout)}")
        except (OSError, h11.ProtocolError, ValueError) as error:
            return Attempt("away", f"does not answer ({first_line(error)[:_LONGEST_REASON]})")
        if answer.status_code < _REDIRECTED:
            return Attempt("taken")
        outcome: Literal["refused", "away"] = "refused" if answer.status_code in _REFUSALS else "away"
        return Attempt(outcome, f"answers {answer.status_code}", _pause_s(answer))

    def close(self) -> None:
        """Close the connection, if there is one."""
        self._connection.close()

    def break_off(self) -> None:
        """Let an attempt that another thread makes end at once; it counts as not answered."""
        self._connection.break_off()


def _pause_s(answer: h11.Response) -> float | None:
    """Return the seconds that `Retry-After` asks for, up to an hour; dates and all else are not read."""
    asked = next((value for name, value in answer.headers if name == b"retry-after"), b"").strip()
    if not asked.isdigit():
        return None
    return float(min(int(asked.lstrip(b"0")[:_PAUSE_DIGITS] or b"0"), _LONGEST_PAUSE_S))
