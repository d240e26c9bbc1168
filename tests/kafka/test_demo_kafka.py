"""`buckets demo-kafka` as people start it: to its end, interrupted, and with a job that dies."""

import contextlib
import os
import re
import signal
import subprocess
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Self

import pytest

from buckets.monitor.live import read_live
from buckets.outputs.reader import read_rows
from tests.spark.command import BUCKETS, run_command

MARK = "BUCKETS_TEST_MARK"
WITHIN_S = 600.0
POLL_S = 0.05
GONE_WITHIN_S = 20.0


class Ran(NamedTuple):
    code: int
    out: str


class Demo:
    """The demo in the background; all that it starts inherits a mark in its environment, by which it is found."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        """Say where it works."""
        self.out = folder / "demo"
        self._said = folder / "said.txt"
        self._mark = uuid.uuid4().hex
        self._arguments = [BUCKETS, "demo-kafka", "--out", str(self.out), *arguments]

    def __enter__(self) -> Self:
        """Start it."""
        with self._said.open("wb") as said:
            environment = os.environ | {MARK: self._mark, "COLUMNS": "100"}
            self.process = subprocess.Popen(
                self._arguments, stdout=said, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )
        return self

    def __exit__(self, *_: object) -> None:
        """Kill whatever is left of it."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    @property
    def said(self) -> str:
        """What it has said so far."""
        return self._said.read_text(encoding="utf-8")

    def processes(self, running: str = "") -> list[int]:
        """What has the mark, and the given text in its command line."""
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdecimal():
                with contextlib.suppress(OSError):
                    marked = f"{MARK}={self._mark}".encode() in (folder / "environ").read_bytes().split(b"\0")
                    command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    if marked and running in command:
                        found.append(int(folder.name))
        return found

    def wait_until(self, condition: Callable[[], object]) -> None:
        """Wait for a condition while it runs."""
        given_up_s = time.monotonic() + WITHIN_S
        while not condition():
            assert self.process.poll() is None, f"it ended before that: {self.said}"
            assert time.monotonic() < given_up_s, f"it did not come to that: {self.said}"
            time.sleep(POLL_S)

    def wait(self) -> Ran:
        """Wait for its end; nothing of it may be left then."""
        code = self.process.wait(WITHIN_S)
        # Workers of Spark see for themselves that it is gone.
        given_up_s = time.monotonic() + GONE_WITHIN_S
        while left := self.processes():
            assert time.monotonic() < given_up_s, f"still there: {left}"
            time.sleep(POLL_S)
        return Ran(code, self.said)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Demo, Ran]:
    """A demo that has run to its end."""
    with Demo(tmp_path_factory.mktemp("finished"), "--rate", "100", "--seconds", "15") as demo:
        return demo, demo.wait()


def test_it_runs_to_its_end_and_leaves_no_process_behind(finished):
    _, ran = finished
    assert ran.code == 0, ran.out
    assert "Traceback" not in ran.out


def test_all_payments_are_sent_evaluated_and_accounted_for(finished):
    demo, ran = finished
    live = read_live(demo.out / "checkpoint")
    sent = int(re.search(r"^([\d,]+) payments sent and evaluated", ran.out, re.MULTILINE)[1].replace(",", ""))
    assert live is not None
    assert live.data["totals"]["events"] == sent >= 1500
    for counts in live.data["groups"].values():
        outcomes = {name: count for name, count in counts.items() if name not in ("events_in", "alerts")}
        assert counts["events_in"] == sum(outcomes.values()) == sent
    assert len(read_rows(demo.out / "tables", "transactions", ["offset"])) == sent


def test_planted_fraud_is_caught_and_every_alert_is_in_the_tables(finished):
    demo, ran = finished
    for pattern in ("structuring", "card-testing", "mule-fan-in", "five-in-five"):
        assert re.search(rf"{pattern} +\S+ +5 +5 +5 ", ran.out), ran.out
    alerts = read_rows(demo.out / "tables", "alerts", ["alert_id", "ruleset_version"])
    assert (
        len({alert["alert_id"] for alert in alerts})
        == len(alerts)
        == read_live(demo.out / "checkpoint").data["totals"]["alerts"]
    )


def test_the_rule_changes_while_payments_come_and_evaluates_from_then_on(finished):
    demo, ran = finished
    assert "the limit goes from 200,000 to 20,000" in ran.out
    assert re.search(r"rules version 2: evaluates every payment from [\d,]+ ms on after the change was sent", ran.out)
    alerts = read_rows(demo.out / "tables", "alerts", ["rule_id", "rule_version", "limit", "ruleset_version"])
    changed = [alert for alert in alerts if alert["rule_id"] == "payer-to-beneficiary-24h"]
    assert {(alert["ruleset_version"], alert["rule_version"], int(alert["limit"])) for alert in changed} >= {
        (2, 2, 20000)
    }
    assert all(alert["ruleset_version"] == alert["rule_version"] for alert in changed)


def test_delays_are_told(finished):
    delays = r"p50 [\d,]+ ms, p99 [\d,]+ ms, p99.9 [\d,]+ ms, max [\d,]+ ms"
    assert re.search(rf"delay of all payments of the last minute.*: {delays}", finished[1].out)
    assert re.search(rf"delay of [\d,]+ alerts, from Kafka to the decision: {delays}", finished[1].out)


def test_its_alerts_and_its_status_can_be_read_afterwards(finished):
    demo, _ = finished
    shown = run_command("alerts", demo.out / "tables")
    assert (shown.returncode, shown.stderr) == (0, "")
    shown = run_command("watch", demo.out / "conf.yaml", "--once")
    assert shown.returncode == 0
    assert "is not running, it was stopped" in shown.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_all_that_was_started(tmp_path, number):
    with Demo(tmp_path) as demo:
        demo.wait_until(lambda: len(demo.processes("buckets.cli.as_child")) == 3)
        os.kill(demo.process.pid, number)
        ran = demo.wait()
    assert ran.code == 130
    assert "stopping what was started" in ran.out
    assert "Traceback" not in ran.out


def test_a_job_that_dies_ends_the_demo_in_one_line(tmp_path):
    with Demo(tmp_path) as demo:
        demo.wait_until(lambda: demo.processes("buckets.cli.as_child run"))
        os.kill(demo.processes("buckets.cli.as_child run")[0], signal.SIGKILL)
        ran = demo.wait()
    assert ran.code == 1
    assert ran.out.splitlines()[-1].startswith("error: `buckets run ")
    assert "has ended with -9" in ran.out
    assert "Traceback" not in ran.out


def test_a_folder_with_something_else_is_left_alone(tmp_path):
    (tmp_path / "mine").write_text("x")
    ran = run_command("demo-kafka", "--out", tmp_path)
    assert (ran.returncode, ran.stderr.count("\n")) == (1, 1)
    assert "name another folder with --out" in ran.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
