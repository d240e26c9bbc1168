"""A receiver of alerts: one attempt to hand one over, and what became of it.

Requests are signed as Standard Webhooks says: HMAC-SHA256 over id, time and body, each with a point between. The id is
that of the alert, the same however often it is sent, so a receiver knows repeats by it.

Source: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import base64
import hashlib
import hmac
import ssl
import time
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

import h11

from buckets.config.webhook import WebhookSettings
from buckets.duration import format_duration
from buckets.errors import first_line
from buckets.webhook.connection import ReceiverConnection

_REFUSALS = frozenset({400, 413, 415, 422})
"""Answers that say something about this one message, which the next attempt would not change."""
_REDIRECTED = 300
_LONGEST_REASON = 200
_LONGEST_PAUSE_S = 3600
_PAUSE_DIGITS = 5
"""As many digits of a pause are read as make it longer than the longest."""


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
