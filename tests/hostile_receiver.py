"""A receiver of alerts that answers whatever it is told to, byte by byte, on a real socket."""

import contextlib
import socket
import socketserver
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

LONGEST_S = 30.0
"""How long a receiver goes on that never ends by itself."""
REFUSAL = b"HTTP/1.1 422 Unprocessable Content\r\nContent-Length: 0\r\n\r\n"
MOST_SENT = 64 << 20


class Step(NamedTuple):
    """What a receiver does: sends bytes at once, dribbles or floods with them over and over, waits, closes, resets."""

    does: Literal["send", "dribble", "flood", "hold", "pause", "close", "reset"]
    data: bytes = b""


@dataclass
class HostileReceiver:
    """What it does on an alert called `hostile`; others are refused by 422, which no alert has from somebody else."""

    url: str = ""
    script: Sequence[Step] = ()
    sent: int = 0
    asked: int = 0
    ended: threading.Event = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        self.ended = threading.Event()


@contextlib.contextmanager
def hostile_receiver() -> Iterator[HostileReceiver]:
    """A receiver on a free port, until the end of the block."""
    receiver = HostileReceiver()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while self._take():
                pass

        def _take(self) -> bool:
            """Take a request, and answer it; returns whether the connection goes on."""
            headers: dict[bytes, bytes] = {}
            while (line := self.rfile.readline()).strip():
                name, _, value = line.partition(b":")
                headers[name.lower()] = value.strip()
            if not headers:
                return False
            self.rfile.read(int(headers[b"content-length"]))
            if headers[b"webhook-id"] != b"hostile":
                code = REFUSAL if headers[b"webhook-id"] == b"next" else REFUSAL.replace(b"422", b"204")
                self.connection.sendall(code)
                return True
            receiver.asked += 1
            return all(self._does(step) for step in receiver.script)

        def _does(self, step: Step) -> bool:
            until_s = time.monotonic() + LONGEST_S
            match step.does:
                case "send":
                    self._send(step.data)
                case "dribble" | "flood":
                    pieces = [step.data[at : at + 1] for at in range(len(step.data))]
                    whole = [step.data] if step.does == "flood" else pieces
                    while time.monotonic() < until_s and receiver.sent < MOST_SENT:
                        for piece in whole:
                            self._send(piece)
                            if step.does == "dribble" and receiver.ended.wait(0.02):
                                return False
                case "hold":
                    self.connection.settimeout(LONGEST_S)
                    return bool(self.connection.recv(1))
                case "pause":
                    receiver.ended.wait(0.02)
                case "close":
                    return False
                case "reset":
                    linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    return False
            return True

        def _send(self, data: bytes) -> None:
            self.connection.settimeout(LONGEST_S)
            self.connection.sendall(data)
            receiver.sent += len(data)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that goes away is what is wanted."""

    with Server(("127.0.0.1", 0), Handler) as server:
        receiver.url = f"http://127.0.0.1:{server.server_address[1]}/alerts"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield receiver
        finally:
            receiver.ended.set()
            server.shutdown()
            thread.join()
