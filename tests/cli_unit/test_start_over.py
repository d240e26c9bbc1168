"""A job that could not renew its lease begins anew and waits for its store; nothing is really started or ended here."""

from pathlib import Path

import pytest

from buckets.checkpoint.lock import LostLease
from buckets.cli import start_over
from buckets.cli.console import Terminal
from buckets.cli.start_over import StartOver
from buckets.errors import BucketsError, ConfigurationError
from buckets.exit_codes import DONE
from buckets.stores.store_path import store_away

PATIENCE_MS = 60_000
AWAY = store_away("s3a://bucket/checkpoint", "connection refused")


def expired() -> LostLease:
    return LostLease(Path("checkpoint"), "it could not be renewed for 10 s", is_taken=False)


class BegunAnew(BaseException):
    """The program was replaced."""


class Left(BaseException):
    """The process has ended."""


class Told(Terminal):
    """A log that keeps its lines."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def tell(self, text, level="info", facts=None):
        self.lines.append(text)


class Clock:
    """Time that passes by sleeping."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch) -> Clock:
    ticking = Clock()

    def replaced(program, arguments):
        raise BegunAnew(arguments)

    def left(code):
        raise Left(code)

    monkeypatch.setattr(start_over, "time", ticking)
    monkeypatch.setattr(start_over, "_end_children", lambda: None)
    monkeypatch.setattr(start_over.os, "execv", replaced)
    monkeypatch.setattr(start_over.os, "_exit", left)
    monkeypatch.setenv(start_over.WAITS, "")  # so that what is set in its place goes with the test
    monkeypatch.delenv(start_over.WAITS)
    return ticking


def begun_anew(log: Told) -> StartOver:
    """What the new program knows, after a lease has run out."""
    with pytest.raises(BegunAnew):
        StartOver(log).after(expired(), PATIENCE_MS)
    return StartOver(log)


def test_a_job_begins_anew_and_waits_until_the_store_answers_and_says_each_once(clock):
    log, answers = Told(), iter([AWAY, AWAY, None])

    def step() -> str:
        clock.now_s += 20
        fault = next(answers)
        if fault is not None:
            message = "event schema: cannot be read"
            raise ConfigurationError(message) from fault
        return "read"

    over = begun_anew(log)
    assert over.through(step) == "read"
    over.answers()
    assert len(log.lines) == 2
    assert "it could not be renewed for 10 s" in log.lines[0]
    assert "waiting for up to 1m (store_patience)" in log.lines[0]
    assert "answers again after 62s" in log.lines[1]


def test_a_store_that_is_away_again_before_a_batch_is_done_is_the_same_outage(clock):
    log = Told()
    over = begun_anew(log)
    clock.now_s += 50
    with pytest.raises(BegunAnew):
        over.after(AWAY, PATIENCE_MS)
    assert len(log.lines) == 1
    clock.now_s += 20
    over = StartOver(log)
    over.after(expired(), PATIENCE_MS)
    with pytest.raises(BucketsError, match="connection refused"):
        over.through(fails_with(AWAY))


def test_after_a_batch_an_outage_is_another_one(clock):
    log = Told()
    over = begun_anew(log)
    over.is_over()
    clock.now_s += 10 * PATIENCE_MS
    with pytest.raises(BegunAnew):
        over.after(expired(), PATIENCE_MS)
    assert len(log.lines) == 2


def fails_with(fault):
    def step():
        raise fault

    return step


def test_a_first_start_does_not_wait_and_nothing_else_is_waited_for(clock):
    over = StartOver(Told())
    with pytest.raises(BucketsError, match="connection refused"):
        over.through(fails_with(AWAY))
    over.after(AWAY, PATIENCE_MS)
    over.after(LostLease(Path("checkpoint"), "process 7 has taken it", is_taken=True), PATIENCE_MS)
    over.after(expired(), 0)
    waiting = begun_anew(Told())
    with pytest.raises(BucketsError, match="is in use"):
        waiting.through(fails_with(BucketsError("is in use")))
    waiting.after(BucketsError("is in use"), PATIENCE_MS)


def test_under_spark_submit_the_job_ends_for_its_supervisor(clock, monkeypatch):
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    StartOver(Told()).after(expired(), PATIENCE_MS)


def test_a_job_that_was_asked_to_end_ends(clock):
    over = StartOver(log := Told())
    over.is_stopping()
    with pytest.raises(Left) as left:
        over.after(expired(), PATIENCE_MS)
    assert left.value.args == (DONE,)
    assert log.lines == ["stopped while the store did not answer; start it again to go on"]
