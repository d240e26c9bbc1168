"""Delivers alerts over HTTP in the background of a job, those of one key in the order in which they were raised.

No batch waits for it. A batch's alerts are spread by key over the configured number of connections, and the next batch
follows once all are settled. While the receiver is unavailable an alert is retried, after pauses that double up to a
minute; an alert that is refused, or has become too old, is given up. Each exchange has one deadline, however slowly its
peer sends bytes.
"""

import base64
import contextlib
import hashlib
import hmac
import socket
import ssl
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import h11

from buckets.clock import epoch_ms
from buckets.config.output import WebhookSettings
from buckets.duration import format_duration
from buckets.errors import first_line, kind_and_line
from buckets.outputs.messages import Message
from buckets.printable import counted
from buckets.webhook.spool import Spool, WaitingAlert

_PORTS = {"http": 80, "https": 443}
_READ_BYTES = 1 << 14
_MOST_READ = 1 << 16  # How much of an answer's body is read to reuse the connection
_REFUSALS = frozenset({400, 413, 415, 422})
"""Status codes that concern this one message, so that a retry would not change them."""
_REDIRECTED = 300
_LONGEST_REASON = 200
_LONGEST_PAUSE_S = 3600
_PAUSE_DIGITS = 5  # A number with this many digits exceeds the longest pause


@dataclass(frozen=True)
class Attempt:
    """The outcome of an attempt."""

    # whether the alert was accepted, is refused for good, or the receiver is unavailable and may accept it later
    outcome: Literal["taken", "refused", "away"]
    reason: str = ""  # why it was not accepted, in words
    pause_s: float | None = None  # the pause that the receiver asks for; None if it does not


def signature(key: bytes, message_id: str, at_s: int, body: bytes) -> str:
    """Return a message's signature in the form of its header."""
    signed = f"{message_id}.{at_s}.".encode() + body
    return f"v1,{base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()}"


class Receiver:
    """Posts alerts over one connection, opened on demand and again after any fault."""

    def __init__(self, settings: WebhookSettings) -> None:
        self._settings, self._address = settings, urlsplit(settings.url)
        path = self._address.path or "/"
        self._path = f"{path}?{self._address.query}" if self._address.query else path
        self._until_s = 0.0  # the deadline of an exchange, on the monotonic clock
        self._socket: socket.socket | None = None
        self._protocol = h11.Connection(h11.CLIENT)

    def post(self, message_id: str, at_s: int, body: bytes) -> Attempt:
        """Try once to post an alert; twice if a kept connection turns out to be closed.

        The status code decides, whatever becomes of the body.
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
        self._until_s = time.monotonic() + self._settings.timeout / 1000
        was_kept = self._is_kept()
        try:
            try:
                answer = self._exchange(request, body)
            except ConnectionError:
                if not was_kept:
                    raise
                answer = self._exchange(request, body)
        except TimeoutError:
            return Attempt("away", f"does not answer within {format_duration(self._settings.timeout)}")
        except (OSError, h11.ProtocolError, ValueError) as error:
            return Attempt("away", f"does not answer ({first_line(error)[:_LONGEST_REASON]})")
        if answer.status_code < _REDIRECTED:
            return Attempt("taken")
        outcome: Literal["refused", "away"] = "refused" if answer.status_code in _REFUSALS else "away"
        return Attempt(outcome, f"answers {answer.status_code}", _pause_s(answer))

    def break_off(self) -> None:
        """End an attempt in another thread at once; it counts as not answered."""
        self._until_s = 0.0
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
            self._socket = None

    def _is_kept(self) -> bool:
        """Return whether the connection can be reused; if its peer has closed it or written to it, it is closed."""
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

    def _exchange(self, request: h11.Request, body: bytes) -> h11.Response:
        """Send a request and return the head of its answer; ConnectionError if there is none, OSError if too late."""
        try:
            connected = self._socket if self._socket is not None else self._opened()
            events = (request, h11.Data(data=body), h11.EndOfMessage())
            rest = memoryview(b"".join(self._protocol.send(event) or b"" for event in events))
            # A receiver may refuse a request before reading all of it; its answer says why.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                while rest:
                    connected.settimeout(self._left_s())
                    rest = rest[connected.send(rest) :]
            answer = self._head(connected)
        except (OSError, h11.ProtocolError):
            self.close()
            raise
        self._finish(connected)
        return answer

    def _left_s(self) -> float:
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s

    def _opened(self) -> socket.socket:
        """Connect to the first address that accepts; each gets a share of the remaining time."""
        self._protocol = h11.Connection(h11.CLIENT)
        host, port = self._address.hostname or "", self._address.port or _PORTS[self._address.scheme]
        untried = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        while self._socket is None:
            family, kind, protocol, _, address = untried.pop(0)
            self._socket = connected = socket.socket(family, kind, protocol)
            try:
                connected.settimeout(self._left_s() / (len(untried) + 1))
                connected.connect(address)
            except OSError:
                self.close()
                if not untried:
                    raise
        if self._address.scheme == "https":
            connected.settimeout(self._left_s())
            tls = ssl.create_default_context(cafile=self._settings.ca_file)
            self._socket = connected = secured = tls.wrap_socket(
                connected, server_hostname=host, do_handshake_on_connect=False
            )
            secured.do_handshake()
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connected

    def _received(self, connected: socket.socket) -> bytes:
        connected.settimeout(self._left_s())
        return connected.recv(_READ_BYTES)

    def _head(self, connected: socket.socket) -> h11.Response:
        """Read up to the end of an answer's head, skipping informational ones."""
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
        """Read the rest of an answer, as its head describes it; if it is incomplete, close the connection."""
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


def _pause_s(answer: h11.Response) -> float | None:
    """Return the seconds in `Retry-After`, up to an hour; dates and other forms are ignored."""
    asked = next((value for name, value in answer.headers if name == b"retry-after"), b"").strip()
    if not asked.isdigit():
        return None
    return float(min(int(asked.lstrip(b"0")[:_PAUSE_DIGITS] or b"0"), _LONGEST_PAUSE_S))


FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 60.0
_KEEP_EVERY_S, _TELL_EVERY_S = 1.0, 60.0
_LOOK_AGAIN_S = 0.1
_END_WITHIN_S = 10.0  # How long a job's end waits for the remaining alerts while the receiver accepts them


class Delivery:
    """Delivers the alerts of a checkpoint."""

    def __init__(
        self,
        checkpoint: Path,
        settings: WebhookSettings,
        say: Callable[[str], None],
        first_pause_s: float = FIRST_PAUSE_S,
    ) -> None:
        """Begin with the waiting alerts of a checkpoint; `say` receives a line when the receiver stops or resumes.

        BucketsError if the record of delivered alerts is damaged.
        """
        self._spool, self._settings, self._say = Spool(checkpoint), settings, say
        self._receivers = [Receiver(settings) for _ in range(settings.connections)]
        self._first_pause_s = first_pause_s
        self._lock = threading.Lock()  # protects what several connections change
        self._counts: Counter[str] = Counter()
        self._put = self._spool.count()
        self._settled = 0
        self._kept_s = time.monotonic()
        self._due, self._closing = threading.Event(), threading.Event()
        self._stuck: set[Receiver] = set()  # the connections over which an alert is not accepted
        self._told_s, self._is_told = -_TELL_EVERY_S, False
        self._gave_up_s, self._untold = -_TELL_EVERY_S, 0
        self._end_s = float("inf")

    def put(self, batch_id: int, decided_ms: int, alerts: Iterable[Message]) -> None:
        """Store the alerts of a batch for later delivery."""
        self._put += self._spool.put(batch_id, decided_ms, alerts)
        self._due.set()

    def counts(self) -> Mapping[str, int]:
        """Return the numbers of delivered alerts, failed attempts, undelivered alerts and waiting alerts."""
        names = ("delivered", "failed_attempts", "undelivered")
        return {name: self._counts[name] for name in names} | {"waiting": max(self._put - self._settled, 0)}

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Deliver alerts until the `with` ends, and then the remaining ones as long as the receiver accepts them."""
        self._closing.clear()
        self._stuck.clear()
        self._end_s = float("inf")
        thread = threading.Thread(target=self._run, name="webhook", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._end_s = time.monotonic() + _END_WITHIN_S
            self._closing.set()
            self._due.set()
            thread.join(_END_WITHIN_S)
            while thread.is_alive():
                for receiver in self._receivers:
                    receiver.break_off()
                thread.join(_LOOK_AGAIN_S)
            for receiver in self._receivers:
                receiver.close()

    def _run(self) -> None:
        with ThreadPoolExecutor(len(self._receivers), "webhook") as connections:
            while True:
                is_last = self._closing.is_set()
                self._due.clear()
                try:
                    self._hand_over(connections)
                except Exception as error:  # a fault of this thread must not end the job
                    self._say(f"alerts are not handed over: {kind_and_line(error)}")
                    self._closing.wait(LONGEST_PAUSE_S)
                    self._due.set()
                if is_last or (self._closing.is_set() and self._stuck):
                    return
                self._due.wait()

    def _hand_over(self, connections: ThreadPoolExecutor) -> None:
        """Deliver waiting alerts batch by batch; stop early if the job ends while an alert is not accepted."""
        for batch_id in self._spool.batches():
            lanes: list[list[WaitingAlert]] = [[] for _ in self._receivers]
            for alert in self._spool.begin(batch_id):
                lanes[zlib.crc32(alert.key.encode()) % len(lanes)].append(alert)
            done = [
                connections.submit(self._hand_over_lane, *each)
                for each in zip(self._receivers, lanes, strict=True)
                if each[1]
            ]
            wait(done)
            self._spool.keep()
            if not all(lane.result() for lane in done):
                return
            self._spool.remove(batch_id)

    def _hand_over_lane(self, receiver: Receiver, alerts: Sequence[WaitingAlert]) -> bool:
        """Deliver alerts over one connection, in order; return whether all are settled."""
        for alert in alerts:
            if not self._is_settled(receiver, alert):
                return False
            with self._lock:
                self._settled += 1
                self._spool.settle(alert)
                if time.monotonic() - self._kept_s >= _KEEP_EVERY_S:
                    self._spool.keep()
                    self._kept_s = time.monotonic()
        return True

    def _is_settled(self, receiver: Receiver, alert: WaitingAlert) -> bool:
        """Try until an alert is accepted or given up, and return True; False if the job ends first."""
        pause_s = self._first_pause_s
        while time.monotonic() < self._end_s:
            now_ms = epoch_ms()
            answer = receiver.post(alert.message_id, now_ms // 1000, alert.body.encode())
            if answer.outcome == "taken":
                self._count("delivered")
                self._tell_of(receiver, None)
                return True
            self._count("failed_attempts")
            self._tell_of(receiver, None if answer.outcome == "refused" else answer.reason)
            if answer.outcome == "refused" or now_ms - alert.decided_ms >= self._settings.give_up_after:
                self._give_up(alert, answer, now_ms)
                return True
            if self._closing.wait(pause_s if answer.pause_s is None else answer.pause_s):
                return False
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        return False

    def _count(self, name: str) -> None:
        with self._lock:
            self._counts[name] += 1

    def _give_up(self, alert: WaitingAlert, answer: Attempt, now_ms: int) -> None:
        """Write an alert to the undelivered ones, and report it at most once a minute, with the number since."""
        self._count("undelivered")
        with self._lock:
            self._spool.give_up(alert, answer.reason, now_ms)
            if time.monotonic() - self._gave_up_s < _TELL_EVERY_S:
                self._untold += 1
                return
            since = f", with {counted(self._untold, 'other')} since" if self._untold else ""
            self._gave_up_s, self._untold = time.monotonic(), 0
            self._say(
                f"alert {alert.message_id} was given up: webhook {answer.reason}; it is in "
                f"{self._spool.undelivered}{since}"
            )

    def _tell_of(self, receiver: Receiver, fault: str | None) -> None:
        """Report that alerts are not accepted, or are again: at most once a minute, whatever happens in between."""
        with self._lock:
            if fault is None:
                self._stuck.discard(receiver)
                if self._is_told and not self._stuck:
                    self._is_told = False
                    self._say(f"webhook {self._settings.place} takes alerts again")
                return
            self._stuck.add(receiver)
            if not self._is_told and time.monotonic() - self._told_s >= _TELL_EVERY_S:
                self._told_s, self._is_told = time.monotonic(), True
                self._say(f"webhook {self._settings.place} {fault}; alerts wait in the checkpoint, and batches go on")
