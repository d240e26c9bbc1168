"""The last hour of a job: what its status kept of it, and a sample a second while the console runs, in memory."""

import threading
from collections import deque
from pathlib import Path

from buckets.clock import epoch_ms
from buckets.errors import BucketsError
from buckets.monitor.last_hour import LiveSample, recorded_hour, sample_of
from buckets.monitor.live import read_live

EVERY_S = 1.0
_KEPT = 3600


class Sampler:
    """Takes a sample each second; closing ends it."""

    def __init__(self, checkpoint: Path, every_s: float = EVERY_S) -> None:
        """Look at the status of a checkpoint's job; nothing is taken from the job."""
        self._checkpoint, self._every_s = checkpoint, every_s
        self._samples: deque[LiveSample] = deque(maxlen=_KEPT)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="samples of the job", daemon=True)

    def start(self) -> None:
        """Begin to take samples."""
        self._thread.start()

    def close(self) -> None:
        """Take no more."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()

    def since(self, time_s: int = 0) -> list[LiveSample]:
        """Return the samples later than a second, oldest first."""
        return [sample for sample in tuple(self._samples) if sample.time_s > time_s]

    def _run(self) -> None:
        while not self._closing.wait(self._every_s):
            try:
                live = read_live(self._checkpoint)
            except BucketsError:  # pages say it
                continue
            if live is None:
                continue
            if not self._samples:
                self._samples.extend(recorded_hour(live.data))
            now_ms = epoch_ms()
            if live.state(now_ms) == "running":
                sample = sample_of(live.data["minute"], live.data["lag"], now_ms)
                if not self._samples or sample.time_s > self._samples[-1].time_s:
                    self._samples.append(sample)
