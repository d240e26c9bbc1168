"""Calls `buckets serve` on a schedule that waits for nothing: each call counts from the moment at which it was due."""

import http.client
import json
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

_THREADS = 32
_TIMEOUT_S = 10.0
_WRITTEN = (200, 422)  # What is no JSON at all never comes into the topic


@dataclass
class PacedCalls:
    """Sends payments as calls, and keeps what they were answered."""

    port: int  # on this machine
    answers: list[dict[str, Any]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  # from when each was due until its answer was there
    refused: int = 0

    def is_ready(self) -> bool:
        """Return whether what is called has taken in all that was there."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=_TIMEOUT_S):
                return True
        except OSError:
            return False

    def send(
        self,
        messages: Iterable[tuple[str, bytes]],
        rate: float,
        on_sent: Callable[[str, int], None],
        ending: threading.Event,
    ) -> int:
        """Send messages at a rate a second; return how many came into the topic.

        `on_sent` and `ending` are as for `paced_produce`.
        """
        due, lock, started_s = enumerate(messages), threading.Lock(), time.monotonic()

        def work() -> int:
            connection, sent = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_TIMEOUT_S), 0
            while not ending.is_set():
                with lock:
                    number, (key, value) = next(due, (0, ("", b"")))
                if not value:
                    break
                due_s = started_s + number / rate
                time.sleep(max(due_s - time.monotonic(), 0))
                connection.request("POST", "/v1/score", value, {"content-type": "application/json"})
                reply = connection.getresponse()
                answer = json.loads(reply.read())
                is_written = reply.status in _WRITTEN
                with lock:
                    self._note(reply.status, answer, time.monotonic() - due_s)
                    if is_written:
                        on_sent(key, 0)
                sent += is_written
            connection.close()
            return sent

        with ThreadPoolExecutor(_THREADS) as pool:
            return sum(each.result() for each in [pool.submit(work) for _ in range(_THREADS)])

    def _note(self, status: int, answer: dict[str, Any], seconds: float) -> None:
        self.seconds.append(seconds)
        if status == 200:
            self.answers.append(answer)
        else:
            self.refused += 1

    def report(self, alerts: Iterable[dict[str, Any]]) -> list[str]:
        """Say how long answers took, what was caught in the call, and how that compares with alerts of the job."""
        ids = {alert["alert_id"] for alert in alerts}
        told = {alert["alert_id"] for answer in self.answers for alert in answer["alerts"]}
        caught = sum(1 for answer in self.answers if answer["decision"]["fired"])
        undecided = sum(1 for answer in self.answers if answer["outcome"] == "undecided")
        p50, p99, p999 = (1000 * float(each) for each in np.quantile(self.seconds or [0.0], [0.5, 0.99, 0.999]))
        return [
            f"{len(self.seconds):,} calls: half were answered within {p50:.0f} ms of their due time, 99 of 100 within "
            f"{p99:.0f} ms, 999 of 1,000 within {p999:.0f} ms; {undecided:,} undecided, {self.refused:,} no events",
            f"{caught:,} payments were caught in the call, before they went through, with {len(told):,} alerts; "
            f"{len(told - ids):,} of these alerts are not the job's",
        ]
