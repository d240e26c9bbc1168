"""What is done when a query ends by itself: outages that are waited for, and failures in one line. Without a JVM."""

from collections.abc import Callable, Iterable

import pytest
from pyspark.errors import StreamingQueryException

from buckets.errors import BucketsError, Outage
from buckets.spark import running
from buckets.spark.running import WAITING, Patience, Running

PATIENCE_S = 10.0
START_S = 100.0
AWAY = "no broker answers"


class Clock:
    """Time that passes as told."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


class Query:
    """A query that does one thing each time it is looked at, and then fails with Spark's text, or ends."""

    def __init__(self, looks: Iterable[Callable[[], str]], text: str | None) -> None:
        self._looks = list(looks)
        self._text = text
        self.status = {"message": "Getting offsets", "isTriggerActive": True}

    def awaitTermination(self, _: float) -> bool:
        if self._looks:
            self.status["message"] = self._looks.pop(0)()
            return False
        if self._text is None:
            return True
        raise StreamingQueryException(self._text)


@pytest.fixture
def clock(monkeypatch) -> Clock:
    ticking = Clock()
    monkeypatch.setattr(running, "time", ticking)
    monkeypatch.setattr(running, "RETRY_S", 0)
    monkeypatch.setattr(running, "LONGEST_RETRY_S", 0)
    monkeypatch.setattr(running.SparkContext, "_active_spark_context", object())
    return ticking


def run(*queries: Query) -> list[str]:
    """Run one query after the other; returns what was said."""
    said: list[str] = []
    waiting = iter(queries)
    patience = Patience(
        PATIENCE_S,
        lambda text: Outage(text) if AWAY in text else None,
        lambda outage: said.append(outage.message),
        START_S,
        say=said.append,
    )
    Running(lambda interval_ms, batch: next(waiting), lambda frame, batch_id: None, patience).run(0)
    return said


def after(clock: Clock, seconds: float, message: str = "Getting offsets") -> Callable[[], str]:
    """So much later, the status says this."""

    def look() -> str:
        clock.now_s += seconds
        return message

    return look


def test_an_outage_is_waited_for_and_one_that_lasts_too_long_ends_it(clock):
    away = [Query([after(clock, 4)], AWAY) for _ in range(4)]
    with pytest.raises(Outage, match=AWAY):
        run(*away, Query([], None))
    assert clock.now_s == 16


@pytest.mark.parametrize("idle", ["Waiting for data to arrive", "Waiting for next trigger"])
def test_outages_are_counted_one_by_one_also_where_nothing_came_in_between(clock, idle):
    assert idle.startswith(WAITING)
    quiet = Query([after(clock, 1, idle), after(clock, 3600, idle)], AWAY)
    assert run(Query([], AWAY), quiet, Query([after(clock, 5)], AWAY), Query([], None)) == [AWAY] * 3


SLOW = "SparkException: Python worker failed to connect back.\nat x"


def test_a_query_whose_python_is_slow_to_start_is_started_again_until_patience_ends_and_that_is_said(clock, as_worded):
    slow = [Query([after(clock, START_S / 4)], SLOW) for _ in range(6)]
    said = run(*slow[:4], Query([], None))
    assert len(said) == 4
    assert all(line.startswith("a Python worker of Spark did not answer in time, as happens where") for line in said)
    assert said[0].endswith("; trying again in 0 s")
    with pytest.raises(BucketsError, check=as_worded):
        run(*slow[4:], *[Query([after(clock, START_S)], SLOW)] * 2, Query([], None))


def test_patience_with_slow_starts_begins_anew_after_a_batch(clock, as_worded):
    begun = []

    def begin(interval_ms, batch) -> Query:
        begun.append(batch)
        if len(begun) in (2, 3):
            batch(None, 0)
        return Query([after(clock, START_S * 0.6)], SLOW)

    with pytest.raises(BucketsError, check=as_worded):
        Running(begin, lambda frame, batch_id: None, Patience(start_s=START_S)).run(0)
    assert len(begun) == 5


def test_pauses_between_starts_grow_up_to_a_limit(clock, monkeypatch):
    monkeypatch.setattr(running, "RETRY_S", 0.001)
    monkeypatch.setattr(running, "LONGEST_RETRY_S", 0.005)
    said = run(*[Query([], SLOW)] * 5, Query([], None))
    assert [line.rpartition("again in ")[2] for line in said] == ["0.001 s", "0.002 s", "0.004 s", "0.005 s", "0.005 s"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n \n",
        "boom\nat x",
        "a\nSparkException: why\nat x",
        "a\nCaused by: java.io.IOException: why",
        "java.io.FileNotFoundException: x (Too many open files)",
        "x buckets.errors.BucketsError: mend it\nat y",
        "x buckets.errors.BucketsError:",
    ],
)
def test_a_failure_is_one_line_whatever_spark_says(clock, text, as_worded):
    with pytest.raises(BucketsError, check=as_worded) as failed:
        run(Query([], text))
    assert "\n" not in failed.value.message


@pytest.mark.parametrize("error", [MemoryError(), AssertionError("\n"), KeyError()])
def test_a_batch_that_fails_without_a_word_is_named_by_its_kind(clock, error, as_worded):
    def fail(frame, batch_id) -> None:
        raise error

    failing = Running(lambda interval_ms, batch: Failing(batch), fail, Patience())
    with pytest.raises(BucketsError, check=as_worded):
        failing.run(0)


class Failing(Query):
    """A query whose first batch fails."""

    def __init__(self, batch: Callable) -> None:
        super().__init__([], "")
        self._batch = batch

    def awaitTermination(self, _: float) -> bool:
        try:
            self._batch(None, 0)
        except Exception as error:
            raise StreamingQueryException(self._text) from error
        return True


def test_a_table_with_other_columns_is_opened_again_and_not_for_ever(clock):
    changed = "[DELTA_SCHEMA_CHANGED_WITH_VERSION] Detected schema change in version 2"
    assert run(Query([], changed), Query([], None)) == []
    with pytest.raises(BucketsError, match="DELTA_SCHEMA_CHANGED_WITH_VERSION"):
        run(*(Query([], changed) for _ in range(running.MOST_REOPENED + 1)))
