"""Sends calls at a fixed rate on its own schedule, over connections that stay open, and prints how long they took.

    python bench/serve_calls.py HOST:PORT TARGET BODIES RATE WARM_UP_S SECONDS

The n-th call is due n / RATE seconds after the first, whatever became of those before, and counts from then: one that
finds all connections busy waits, and its wait counts. `BODIES` has a body a line. What is printed is JSON: how many
calls there were by status, how long they took, how late they were sent, and the CPU that sending took.
"""

import asyncio
import json
import selectors
import sys
import time
from collections import Counter, deque
from pathlib import Path

import numpy as np

CONNECTIONS = 128
PATIENCE_S = 30.0
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "max": 1.0}


def quantiles_ms(seconds: list[float]) -> dict[str, float]:
    """The quantiles that are shown, in ms."""
    shares = [*QUANTILES.values()]
    found = np.quantile(seconds, shares, method="inverted_cdf") if seconds else np.full(len(shares), np.nan)
    return {name: round(float(value) * 1000, 3) for name, value in zip(QUANTILES, found, strict=True)}


class Caller:
    """Sends calls, and takes down what came back."""

    def __init__(self, place: str, target: str, bodies: list[bytes]) -> None:
        """Send these bodies to an address."""
        self._host, _, port = place.rpartition(":")
        self._port = int(port)
        self._head = (
            f"POST {target} HTTP/1.1\r\nhost: {place}\r\ncontent-type: application/json\r\ncontent-length: "
        ).encode()
        self.bodies = bodies
        self.free: deque[Connection] = deque()
        self.waiting: deque[tuple[int, float]] = deque()  # Calls that are due, and find no connection
        self.took_s: list[float] = []
        self.late_s: list[float] = []
        self.counts: Counter[str] = Counter()
        self.begin_s, self.left = 0.0, 0

    async def run(self, rate: float, warm_up_s: float, seconds: float) -> None:
        """Send at a rate; calls of the warm-up are not taken down."""
        loop = asyncio.get_running_loop()
        for _ in range(CONNECTIONS):
            await loop.create_connection(lambda: Connection(self), self._host, self._port)
        start_s, count = time.perf_counter(), round(rate * (warm_up_s + seconds))
        self.begin_s, self.left = start_s + warm_up_s, count
        for number in range(count):
            due_s = start_s + number / rate
            wait_s = due_s - time.perf_counter()
            if wait_s > 0 or not number % 16:
                await asyncio.sleep(max(wait_s, 0))
            if self.free:
                self.free.popleft().send(number, due_s)
            else:
                self.waiting.append((number, due_s))
        ends_s = time.perf_counter() + PATIENCE_S
        while self.left and time.perf_counter() < ends_s:
            await asyncio.sleep(0.01)

    def request(self, number: int) -> bytes:
        """A call as it is sent."""
        body = self.bodies[number % len(self.bodies)]
        return b"%s%d\r\n\r\n%s" % (self._head, len(body), body)

    def note(self, due_s: float, sent_s: float, status: bytes, body: bytes) -> None:
        """Take down a call that was answered."""
        self.left -= 1
        if due_s >= self.begin_s:
            self.took_s.append(time.perf_counter() - due_s)
            self.late_s.append(sent_s - due_s)
            self.counts[status.decode()] += 1
            self.counts["undecided"] += b'"outcome":"undecided"' in body


class Connection(asyncio.Protocol):
    """A connection, on which one call at a time is answered."""

    def __init__(self, caller: Caller) -> None:
        self._caller, self._due_s, self._sent_s, self._data = caller, 0.0, 0.0, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Be free."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._caller.free.append(self)

    def send(self, number: int, due_s: float) -> None:
        """Send a call."""
        self._due_s, self._sent_s, self._data = due_s, time.perf_counter(), b""
        self._transport.write(self._caller.request(number))

    def data_received(self, data: bytes) -> None:
        """Take a part of an answer; with the last of it send the call that waits longest."""
        self._data += data
        head, end, body = self._data.partition(b"\r\n\r\n")
        if not end:
            return
        size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if len(body) < size:
            return
        caller = self._caller
        caller.note(self._due_s, self._sent_s, head[9:12], body)
        if caller.waiting:
            self.send(*caller.waiting.popleft())
        else:
            caller.free.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Be no more."""
        self._caller.counts["lost connections"] += 1
        if self in self._caller.free:
            self._caller.free.remove(self)


def main() -> None:
    """Send."""
    place, target, path, rate, warm_up_s, seconds = sys.argv[1:]
    caller = Caller(place, target, Path(path).read_bytes().splitlines())
    # Other selectors wake up to a millisecond late.
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
    loop.run_until_complete(caller.run(float(rate), float(warm_up_s), float(seconds)))
    found = {
        "calls": len(caller.took_s),
        "unanswered": caller.left,
        "counts": dict(caller.counts),
        "took_ms": quantiles_ms(caller.took_s),
        "sent_late_ms": quantiles_ms(caller.late_s),
        "caller_cpu_s": round(time.process_time(), 2),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
