"""Whether a job is alive, and whether it is ready: what Kubernetes asks, each answered with a reason in one line."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from buckets.monitor.live import SILENT_AFTER_MS
from buckets.printable import counted, one_line

if TYPE_CHECKING:
    from buckets.metrics.family import Status

STARTING = "it is starting"


@dataclass(frozen=True)
class Health:
    """An answer: whether all is well, and why, in one line."""

    is_well: bool
    reason: str

    def to_json(self) -> dict[str, str]:
        """Return the answer as plain data."""
        return {"status": "ok" if self.is_well else "unavailable", "reason": one_line(self.reason)}


def alive(status: "Status | None") -> Health:
    """Say whether a job is alive: it is from its start to its end, however busy or far behind it is."""
    if status is None:
        return Health(True, STARTING)
    if status["ended_ms"] is not None:
        return Health(False, f"it has ended: {status.get('failure') or 'it was stopped'}")
    return Health(True, "it runs")


def ready(status: "Status | None", now_ms: int, ready_lag: int) -> Health:
    """Say whether a job is ready: it has scored a batch, or found that there is nothing to score; and all is well.

    Args:
        status: of the job, or of an audit; None before there is one.
        now_ms: the time.
        ready_lag: how many messages it may be behind.
    """
    if status is None:
        return Health(False, STARTING)
    of_life = alive(status)
    if not of_life.is_well:
        return of_life
    silent_ms = now_ms - status["written_ms"]
    if silent_ms > SILENT_AFTER_MS:
        return Health(False, f"it has not told how it is for {silent_ms // 1000:,} s, so Spark does not answer it")
    if status["last_batch"] is None and status["idle_ms"] is None:
        return Health(False, "no batch is written yet")
    if status.get("rules_fault") is not None:
        return Health(False, f"its rules are not followed: {status['rules_fault']}")
    lag = status["lag"]
    if lag is not None and lag > ready_lag:
        return Health(False, f"it is {counted(lag, 'message')} behind, more than metrics.ready_lag, {ready_lag:,}")
    return Health(True, _how_it_is(status))


def _how_it_is(status: "Status") -> str:
    last = status["last_batch"]
    done = "there is nothing to score" if last is None else f"batch {last['batch_id']:,} is written"
    return done if status["lag"] is None else f"{done}, {counted(status['lag'], 'message')} behind"
