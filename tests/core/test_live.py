"""The status of a running job: what it counts, that its file is always whole, and how a reader knows that it died."""

import itertools
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from buckets.clock import epoch_ms
from buckets.errors import BucketsError
from buckets.monitor.live import MOST_WAITING, SILENT_AFTER_MS, Live, LiveStatus, live_path, read_live
from buckets.monitor.pace import BatchReport
from buckets.monitor.query_news import LATEST_ALERTS, QueryNews
from buckets.outputs.columns import ALERTS, columns_of
from buckets.rules.rule_set import RuleSet, first_rule_set
from tests.core.done_batches import NOW_MS, batch
from tests.core.examples import rule

RULES = first_rule_set([rule("one"), rule("two", state="SHADOW"), rule("off", state="PAUSE")])


def alerts(positions) -> pa.Table:
    """Alerts, each told by where its event stood."""
    template = {
        "alert_id": "a", "rule_id": "one", "rule_version": 1, "ruleset_version": 1, "rule": "The sum", "exact": True,
        "key": '{"payer": "p1"}', "event_time": NOW_MS, "value": Decimal("12.30"), "certain": True, "warm": True,
        "count": 3, "operator": ">", "limit": "10", "source": "t[0]", "source_order": 0,
    }  # fmt: skip
    rows = [template | {"event_id": f"e{position}", "position": position} for position in positions]
    return pa.Table.from_pylist(rows, schema=columns_of(ALERTS, 2))


@pytest.fixture
def checkpoint(tmp_path) -> Path:
    return tmp_path / "checkpoint"


def status_of(checkpoint: Path, *batches: BatchReport, rules=lambda: RULES, query=QueryNews) -> dict:
    """What is in the file when a job has ended that ran these batches."""
    with LiveStatus(checkpoint, rules, query) as status:
        for each in batches:
            status.on_batch(each)
    live = read_live(checkpoint)
    assert live is not None
    return live.data


def test_the_file_has_totals_accounts_and_rules(checkpoint):
    data = status_of(checkpoint, batch(10, alerts=[alerts(range(3))], held=2), batch(20, batch_id=1, held=3))
    assert data["totals"] == {
        "batches": 2,
        "events": 30,
        "malformed": 0,
        "skipped": 0,
        "rounded": 0,
        "dead_letters": 0,
        "alerts": 3,
        "held_alerts": 5,
    }
    assert (
        data["groups"]["payer"] | {"events_in": 30, "evaluated": 24, "filtered": 2, "late": 4}
        == data["groups"]["payer"]
    )
    assert data["last_batch"]["batch_id"] == 1
    assert data["rules"]["version"] == 1
    assert data["rules"]["states"] == {"ACTIVE": 1, "SHADOW": 1, "PAUSE": 1}
    assert data["rules"]["rules"][0] == {
        "rule_id": "one", "version": 1, "state": "ACTIVE", "sentence": RULES.rules[0].sentence()
    }  # fmt: skip


def test_the_latest_alerts_come_first_however_they_were_spread(checkpoint):
    first, second = alerts([1, 4, 0]), alerts([3, 2])
    data = status_of(
        checkpoint, batch(alerts=[first, second]), batch(alerts=[alerts(range(100, 100 + LATEST_ALERTS - 2))])
    )
    shown = [alert["event_id"] for alert in data["alerts"]]
    assert shown == [*(f"e{at}" for at in reversed(range(100, 100 + LATEST_ALERTS - 2))), "e4", "e3"]
    alert = data["alerts"][0]
    assert (alert["key"], Decimal(alert["value"]), alert["event_time"]) == ({"payer": "p1"}, Decimal("12.3"), NOW_MS)


def test_rules_in_force_are_those_of_now(checkpoint):
    versions = itertools.chain([RULES], itertools.repeat(RuleSet(2, (), (), {})))
    data = status_of(checkpoint, rules=lambda: next(versions))
    assert data["rules"] == {"version": 2, "states": {}, "rules": []}


def test_a_lag_that_cannot_be_asked_for_is_unknown(checkpoint):
    def away() -> QueryNews:
        raise ConnectionError

    with LiveStatus(checkpoint, lambda: RULES, away):
        assert read_live(checkpoint).data["lag"] is None
    with LiveStatus(checkpoint, lambda: RULES, lambda: QueryNews({("t", "0"): 3, ("t", "1"): 4})):
        assert read_live(checkpoint).data["lag"] == 7


def test_a_reader_finds_the_file_whole_while_it_is_written(checkpoint):
    done = threading.Event()
    found: list[int] = []

    def read() -> None:
        while not done.is_set():
            found.append(read_live(checkpoint).data["totals"]["batches"])

    with LiveStatus(checkpoint, lambda: RULES, every_s=0.0005) as status:
        reader = threading.Thread(target=read)
        reader.start()
        for number in range(MOST_WAITING):
            status.on_batch(batch(batch_id=number, alerts=[alerts([number])]))
        while reader.is_alive() and (not found or found[-1] < MOST_WAITING):
            pass
        done.set()
        reader.join()
    assert found == sorted(found)


def fails(*_: object) -> None:
    raise ZeroDivisionError


def test_a_batch_that_cannot_be_counted_is_seen_and_ends_nothing(checkpoint):
    remarks: list[str] = []
    with LiveStatus(checkpoint, lambda: RULES, on_remark=remarks.append, every_s=0.001) as status:
        for each in (batch(1), replace(batch(2), account=None), batch(4), replace(batch(8), alerts=(pa.table({}),))):
            status.on_batch(each)
        wait_until(lambda: read_live(checkpoint).data["not_counted"] == 2)
    data = read_live(checkpoint).data
    assert (data["totals"]["events"], data["not_counted"]) == (13, 2)  # Of the last one alerts alone are not shown.
    assert data["fault"].startswith("ArrowInvalid: ")
    assert [remark.split(":")[1] for remark in remarks] == [" AttributeError", " ArrowInvalid"]


def test_a_status_that_cannot_be_made_is_said_once_and_is_written_as_soon_as_it_can(checkpoint, as_worded):
    remarks: list[str] = []
    started = threading.Event()

    def in_force() -> RuleSet:
        if started.is_set() and not remarks:
            raise ZeroDivisionError
        return RULES

    with LiveStatus(checkpoint, in_force, on_remark=remarks.append, every_s=0.001) as status:
        started.set()
        wait_until(lambda: bool(remarks))
        status.on_batch(batch())
        wait_until(lambda: read_live(checkpoint).data["totals"]["batches"] == 1)
    assert len(remarks) == 1
    assert as_worded(remarks[0])


def test_somebody_who_cannot_be_told_does_not_end_it(checkpoint):
    with LiveStatus(checkpoint, lambda: RULES, on_remark=fails, every_s=0.001) as status:
        status.on_batch(replace(batch(), account=None))
        status.on_batch(batch())
        wait_until(lambda: read_live(checkpoint).data["totals"]["batches"] == 1)


def test_batches_that_nobody_counts_are_not_kept_for_ever(checkpoint):
    with LiveStatus(checkpoint, lambda: RULES, every_s=3600) as status:
        for _ in range(MOST_WAITING + 7):
            status.on_batch(batch(1))
    data = read_live(checkpoint).data
    assert (data["totals"]["batches"], data["not_counted"]) == (MOST_WAITING, 7)


def test_rules_that_are_not_followed_are_in_the_file(checkpoint):
    with LiveStatus(checkpoint, lambda: RULES, rules_fault=lambda: "topic rules is not followed: why"):
        assert read_live(checkpoint).data["rules_fault"] == "topic rules is not followed: why"


def wait_until(condition) -> None:
    given_up_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < given_up_s


def test_a_disk_that_takes_no_file_does_not_end_the_job(checkpoint):
    live_path(checkpoint).mkdir(parents=True)
    (live_path(checkpoint) / "in the way").touch()
    with LiveStatus(checkpoint, lambda: RULES) as status:
        status.on_batch(batch())


def test_handing_over_a_batch_writes_nothing(checkpoint):
    with LiveStatus(checkpoint, lambda: RULES, every_s=3600) as status:
        before = live_path(checkpoint).stat()
        status.on_batch(batch())
        assert live_path(checkpoint).stat() == before
        assert read_live(checkpoint).data["totals"]["batches"] == 0
    assert read_live(checkpoint).data["totals"]["batches"] == 1


# Whether the job runs


def test_a_job_runs_until_it_is_closed(checkpoint):
    assert read_live(checkpoint) is None
    with LiveStatus(checkpoint, lambda: RULES):
        assert read_live(checkpoint).state(epoch_ms()) == "running"
    live = read_live(checkpoint)
    assert (live.state(epoch_ms()), live.data["failure"]) == ("stopped", None)


def test_a_job_that_fails_says_why(checkpoint):
    outage = BucketsError("no broker answers")
    with pytest.raises(BucketsError), LiveStatus(checkpoint, lambda: RULES):
        raise outage
    assert read_live(checkpoint).data["failure"] == "no broker answers"


def test_a_job_that_was_interrupted_has_not_failed(checkpoint):
    with pytest.raises(KeyboardInterrupt), LiveStatus(checkpoint, lambda: RULES):
        raise KeyboardInterrupt
    assert read_live(checkpoint).data["failure"] is None


def running(checkpoint: Path, **changes) -> Live:
    """The status of a job that was killed while it ran, with some fields changed."""
    return Live(status_of(checkpoint) | {"ended_ms": None} | changes)


def test_a_job_whose_process_is_gone_has_died(checkpoint):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert running(checkpoint, pid=ended.pid).state(epoch_ms()) == "gone"
    assert running(checkpoint, pid=os.getpid()).state(epoch_ms()) == "running"


def test_a_job_that_has_not_written_for_a_while_is_silent_here_and_on_another_host(checkpoint):
    for host in ({}, {"host": "elsewhere", "pid": 2**22 + 1}):
        live = running(checkpoint, **host)
        written_ms = live.data["written_ms"]
        assert live.state(written_ms + SILENT_AFTER_MS) == "running"
        assert live.state(written_ms + SILENT_AFTER_MS + 1) == "silent"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 99}'])
def test_a_file_that_is_no_status_is_said_in_one_line(checkpoint, text, as_worded):
    live_path(checkpoint).parent.mkdir(parents=True)
    live_path(checkpoint).write_text(text)
    with pytest.raises(BucketsError, check=as_worded):
        read_live(checkpoint)
