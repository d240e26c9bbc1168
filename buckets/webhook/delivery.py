"""Hands over alerts in a thread of its own, in the order in which they were raised, whatever the receiver does.

No batch waits for it. While the receiver is away the first alert is tried again, after pauses that double up to a
minute; an alert that it refuses, or that has become too old, is given up. What goes wrong is said in a line.
"""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from buckets.clock import epoch_ms
from buckets.config.webhook import WebhookSettings
from buckets.errors import kind_and_line
from buckets.webhook.receiver import Attempt, Receiver
from buckets.webhook.spool import Spool, WaitingAlert

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 60.0
_KEEP_EVERY_S = 1.0
_END_WITHIN_S = 10.0
"""How long a job waits at its end for alerts that are still there, while the receiver takes them."""


class Delivery:
    """Hands over the alerts of a checkpoint."""

    def __init__(
        self,
        checkpoint: Path,
        settings: WebhookSettings,
        say: Callable[[str], None],
        first_pause_s: float = FIRST_PAUSE_S,
    ) -> None:
        """Begin with what waits from before.

        Args:
            checkpoint: of the job.
            settings: where alerts go.
            say: told a line when alerts are not taken, and when they are again.
            first_pause_s: before an alert is tried again.

        Raises:
            BucketsError: the record of what was handed over is damaged.
        """
        self._spool, self._settings, self._say = Spool(checkpoint), settings, say
        self._receiver = Receiver(settings)
        self._first_pause_s = first_pause_s
        self._counts: Counter[str] = Counter()
        self._put = sum(1 for batch in self._spool.batches() for _ in self._spool.waiting(batch))
        self._settled = 0
        self._due, self._closing = threading.Event(), threading.Event()
        self._fault: str | None = None
        self._end_s = float("inf")

    def put(self, batch_id: int, decided_ms: int, alerts: Iterable[tuple[str, str]]) -> None:
        """Keep the alerts of a batch, id and JSON of each, which are handed over some time after."""
        self._put += self._spool.put(batch_id, decided_ms, alerts)
        self._due.set()

    def counts(self) -> Mapping[str, int]:
        """Return how many alerts were delivered, attempts failed and alerts were given up, and how many wait."""
        names = ("delivered", "failed_attempts", "undelivered")
        return {name: self._counts[name] for name in names} | {"waiting": max(self._put - self._settled, 0)}

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Hand over alerts until the end of the `with`, and what is there then as long as the receiver takes it."""
        self._closing.clear()
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
            if thread.is_alive():
                self._receiver.break_off()
                thread.join()
            self._receiver.close()

    def _run(self) -> None:
        while True:
            is_last = self._closing.is_set()
            self._due.clear()
            try:
                self._hand_over()
            except Exception as error:  # no fault of this thread may end the job
                self._tell(f"alerts are not handed over: {kind_and_line(error)}")
                self._closing.wait(LONGEST_PAUSE_S)
                self._due.set()
            if is_last or (self._closing.is_set() and self._fault is not None):
                return
            self._due.wait()

    def _hand_over(self) -> None:
        """Hand over what waits, in order; ends early where the job ends and an alert is not taken."""
        kept_s = time.monotonic()
        for batch_id in self._spool.batches():
            for alert in self._spool.waiting(batch_id):
                if not self._is_settled(alert):
                    self._spool.keep()
                    return
                self._settled += 1
                self._spool.settle(alert)
                if time.monotonic() - kept_s >= _KEEP_EVERY_S:
                    self._spool.keep()
                    kept_s = time.monotonic()
            self._spool.keep()
            self._spool.remove(batch_id)

    def _is_settled(self, alert: WaitingAlert) -> bool:
        """Try until an alert is taken or given up; returns whether it is, and otherwise the job ends."""
        pause_s = self._first_pause_s
        while time.monotonic() < self._end_s:
            now_ms = epoch_ms()
            answer = self._receiver.post(alert.message_id, now_ms // 1000, alert.body.encode())
            if answer.outcome == "taken":
                self._counts["delivered"] += 1
                self._tell(None)
                return True
            self._counts["failed_attempts"] += 1
            self._tell(
                f"webhook {self._settings.place} {answer.reason}; alerts wait in the checkpoint, and batches go on"
            )
            if answer.outcome == "refused" or now_ms - alert.decided_ms >= self._settings.give_up_after:
                self._give_up(alert, answer, now_ms)
                return True
            if self._closing.wait(pause_s if answer.pause_s is None else answer.pause_s):
                return False
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        return False

    def _give_up(self, alert: WaitingAlert, answer: Attempt, now_ms: int) -> None:
        self._spool.give_up(alert, answer.reason, now_ms)
        self._counts["undelivered"] += 1
        self._say(f"alert {alert.message_id} was given up: webhook {answer.reason}; it is in {self._spool.undelivered}")

    def _tell(self, fault: str | None) -> None:
        """Say what is wrong, once as long as it is the same, and that it is over."""
        if fault is None and self._fault is not None:
            self._say(f"webhook {self._settings.place} takes alerts again")
        elif fault is not None and fault != self._fault:
            self._say(fault)
        self._fault = fault
