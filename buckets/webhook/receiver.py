"""A receiver of alerts: one attempt to hand one over, and what became of it.

Requests are signed as Standard Webhooks says: HMAC-SHA256 over id, time and body, each with a point between. The id is
that of the alert, the same however often it is sent, so a receiver knows repeats by it.

Source: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import base64
import contextlib
import hashlib
import hmac
import http.client
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from buckets.config.webhook import WebhookSettings
from buckets.errors import first_line

_REFUSALS = frozenset({400, 413, 415, 422})
"""Answers that say something about this one message, which the next attempt would not change."""
_MOST_READ = 1 << 16
_LONGEST_PAUSE_S = 3600


@dataclass(frozen=True)
class Attempt:
    """What became of an attempt.

    Attributes:
        outcome: whether the alert was taken, is refused for good, or the receiver is away and may take it later.
        reason: why it was not taken, in words.
        pause_s: how long the receiver asks to be left alone; None where it does not say.
    """

    outcome: Literal["taken", "refused", "away"]
    reason: str = ""
    pause_s: float | None = None


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
        self._connection: http.client.HTTPConnection | None = None

    def post(self, message_id: str, at_s: int, body: bytes) -> Attempt:
        """Try once to hand over an alert; twice, if the connection was kept from before and is closed by now."""
        headers = {"Content-Type": "application/json", "webhook-id": message_id, "webhook-timestamp": str(at_s)}
        if self._settings.key is not None:
            headers["webhook-signature"] = signature(self._settings.key, message_id, at_s, body)
        was_kept = self._connection is not None
        try:
            try:
                status, retry_after = self._posted(body, headers)
            except ConnectionError:
                if not was_kept:
                    raise
                self.close()
                status, retry_after = self._posted(body, headers)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            return Attempt("away", f"does not answer ({first_line(error) or type(error).__name__})")
        if 200 <= status < 300:
            return Attempt("taken")
        return Attempt("refused" if status in _REFUSALS else "away", f"answers {status}", _pause_s(retry_after))

    def _posted(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, str | None]:
        """Post, and return the code of the answer and what it says of the next attempt."""
        if self._connection is None:
            self._connection = self._opened()
        self._connection.request("POST", self._path, body, headers)
        response = self._connection.getresponse()
        rest = response.read(_MOST_READ)
        if len(rest) == _MOST_READ or response.will_close:
            self.close()
        return response.status, response.getheader("Retry-After")

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.close()
            self._connection = None

    def break_off(self) -> None:
        """Let an attempt that another thread makes end at once; it counts as not answered."""
        connected = None if self._connection is None else self._connection.sock
        if connected is not None:
            with contextlib.suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

    def _opened(self) -> http.client.HTTPConnection:
        host, port, timeout_s = self._address.hostname or "", self._address.port, self._settings.timeout / 1000
        if self._address.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=timeout_s)
        tls = ssl.create_default_context(cafile=self._settings.ca_file)
        return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=tls)


def _pause_s(retry_after: str | None) -> float | None:
    """Return the seconds that a header asks for, up to an hour; dates are not read."""
    if retry_after is None or not retry_after.strip().isdecimal():
        return None
    return float(min(int(retry_after), _LONGEST_PAUSE_S))
