"""Hands over alerts beside the job, those of one key in the order in which they were raised.

No batch waits for it. A batch's alerts are spread by key over as many connections as are set, and those of the next
batch follow once all of them are settled. While the receiver is away an alert is tried again, after pauses that double
up to a minute; an alert that it refuses, or that has become too old, is given up. What goes wrong is said in a line.
"""

import contextlib
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

from buckets.clock import epoch_ms
from buckets.config.output import WebhookSettings
from buckets.errors import kind_and_line
from buckets.outputs.messages import Message
from buckets.printable import counted
from buckets.webhook.connection import Attempt, Receiver
from buckets.webhook.spool import Spool, WaitingAlert

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 60.0
_KEEP_EVERY_S, _TELL_EVERY_S = 1.0, 60.0
_LOOK_AGAIN_S = 0.1
_END_WITHIN_S = 10.0  # How long a job waits at its end for alerts that are still there, while the receiver takes them


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
        self._receivers = [Receiver(settings) for _ in range(settings.connections)]
        self._first_pause_s = first_pause_s
        self._lock = threading.Lock()
        """Held for what several connections change."""
        self._counts: Counter[str] = Counter()
        self._put = self._spool.count()
        self._settled = 0
        self._kept_s = time.monotonic()
        self._due, self._closing = threading.Event(), threading.Event()
        self._stuck: set[Receiver] = set()
        """Over which connections an alert is not taken."""
        self._told_s, self._is_told = -_TELL_EVERY_S, False
        self._gave_up_s, self._untold = -_TELL_EVERY_S, 0
        self._end_s = float("inf")

    def put(self, batch_id: int, decided_ms: int, alerts: Iterable[Message]) -> None:
        """Keep the alerts of a batch, which are handed over some time after."""
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
                except Exception as error:  # no fault of this thread may end the job
                    self._say(f"alerts are not handed over: {kind_and_line(error)}")
                    self._closing.wait(LONGEST_PAUSE_S)
                    self._due.set()
                if is_last or (self._closing.is_set() and self._stuck):
                    return
                self._due.wait()

    def _hand_over(self, connections: ThreadPoolExecutor) -> None:
        """Hand over what waits, batch by batch; ends early where the job ends and an alert is not taken."""
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
        """Hand over alerts over one connection, in order; returns whether all are settled."""
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
        """Try until an alert is taken or given up; returns whether it is, and otherwise the job ends."""
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
        """Keep an alert apart, and say so: at most once a minute, with how many there were since."""
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
        """Say that alerts are not taken, and that they are again: at most once a minute, whatever comes between."""
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
