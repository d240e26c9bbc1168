"""`buckets watch`: what it says of a job that runs, has stopped, has died, or never ran."""

from collections.abc import Callable
from dataclasses import asdict
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

from buckets.cli import watch as watching
from buckets.cli.watch import WatchedJob, bars, figures_line
from buckets.clock import epoch_ms
from buckets.monitor.live import Live, LiveStatus, live_path, read_live
from buckets.monitor.pace import Pace
from buckets.monitor.query_news import QueryNews
from buckets.monitor.words import faults_of, pace_line
from buckets.outputs.columns import ALERTS, columns_of
from buckets.resources import DEFAULT_SCHEMA
from buckets.rules.rule_set import first_rule_set
from tests.core.checkpoints import write_sealed, written_in
from tests.core.done_batches import batch
from tests.core.examples import rule

CONF = f"""\
source: {{kind: json, path: events}}
schema: {DEFAULT_SCHEMA}
rules: rules.yaml
checkpoint: checkpoint
output: {{path: tables}}
trigger: {{interval: 1s}}
"""
RULES = """\
rules:
  - rule_id: big-sum
    group_by: [payerId]
    aggregate: {function: sum, measure: paymentAmount}
    window: {length: 24h}
    limit: {operator: ">", value: "200000"}
"""


@pytest.fixture
def conf(tmp_path) -> Path:
    (tmp_path / "events").mkdir()
    (tmp_path / "rules.yaml").write_text(RULES)
    (tmp_path / "conf.yaml").write_text(CONF)
    return tmp_path / "conf.yaml"


@pytest.fixture
def checkpoint(conf) -> Path:
    return conf.parent / "checkpoint"


def alert(number: int) -> pa.Table:
    written = {
        "alert_id": "a", "rule_id": "big-sum", "rule_version": 1, "ruleset_version": 1, "rule": "The sum",
        "exact": True, "key": '{"payerId": "p1"}', "event_time": 0, "value": Decimal("1234.50"), "certain": True,
        "warm": True, "count": 3, "operator": ">", "limit": "1000", "source": "t[0]", "source_order": 0,
        "event_id": f"e{number}", "position": number,
    }  # fmt: skip
    return pa.Table.from_pylist([written], schema=columns_of(ALERTS, 2))


def run_job(checkpoint: Path, *alerts: pa.Table, **done: Any) -> Live:
    """The status that a job leaves behind which runs one batch and stops."""
    now_ms = epoch_ms()
    rules = first_rule_set([rule("big-sum"), rule("tried", state="SHADOW")])
    with LiveStatus(checkpoint, lambda: rules, lambda: QueryNews({("payments", "0"): 1234})) as status:
        status.on_batch(batch(500, now_ms, [(now_ms - 80, 400.0), (now_ms - 300, 100.0)], alerts, **done))
    live = read_live(checkpoint)
    assert live is not None
    return live


def change(checkpoint: Path, **fields: Any) -> None:
    """Change fields of the status."""
    path = live_path(checkpoint)
    write_sealed(path, written_in(path) | fields)


def test_a_job_that_never_ran_is_one_line_and_a_failure(buckets, conf, as_worded):
    ran = buckets("watch", conf, "--once")
    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert as_worded(ran.err)


def test_once_shows_rate_delay_rules_and_alerts(buckets, conf, checkpoint):
    run_job(checkpoint, alert(1))
    change(checkpoint, ended_ms=None, lag=1234)
    ran = buckets("watch", conf, "--once")
    assert (ran.code, ran.err) == (0, "")
    assert "runs, process" in ran.out
    assert "delay p50 80 ms, p99 300 ms, p99.9 300 ms, max 300 ms" in ran.out
    assert "1,234 messages behind" in ran.out
    assert "rules version 1 (1 ACTIVE, 1 SHADOW)" in ran.out
    assert "ACTIVE big-sum: The sum of amount of events of the same payer" in ran.out
    assert "big-sum: payerId p1: 1,234.50 > 1,000" in ran.out


def test_a_job_that_has_stopped_says_so(buckets, conf, checkpoint):
    run_job(checkpoint)
    ran = buckets("watch", conf, "--once")
    assert ran.code == 0
    assert "is not running, it was stopped at" in ran.out
    assert "no alerts yet" in ran.out


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"failure": "no broker answers"}, "is not running, it failed at"),
        ({"ended_ms": None, "pid": 2**22 + 1}, "is not running, process 4194305 on"),
        ({"ended_ms": None, "written_ms": 0}, "has not reported since 1970-01-01 00:00:00 UTC"),
    ],
)
def test_a_job_that_has_failed_died_or_fallen_silent_says_so(buckets, conf, checkpoint, fields, said):
    run_job(checkpoint)
    change(checkpoint, **fields)
    ran = buckets("watch", conf, "--once")
    assert said in ran.out
    assert ran.code == 1


FAULT = {
    "rules_fault": "topic rules is not followed: no broker answers",
    "query": {"schema": {"name": "payment", "version": 2, "fault": "checkpoint c was made with kind"}},
    "not_counted": 2,
    "fault": "KeyError: 'a'",
}
REMARKS = [
    "the rules may be out of date: topic rules is not followed: no broker answers",
    "the event schema stays as it is: checkpoint c was made with kind",
    "these figures are not complete, 2 batches are not in them: KeyError: 'a'",
]


def test_what_is_wrong_with_a_job_that_goes_on_is_shown(buckets, conf, checkpoint, monkeypatch):
    live = run_job(checkpoint)
    change(checkpoint, ended_ms=None)
    assert not any(remark in buckets("watch", conf, "--once").out for remark in REMARKS)
    change(checkpoint, **FAULT)
    assert buckets("watch", conf, "--once").out.splitlines()[1:4] == REMARKS
    monkeypatch.setattr(watching, "time", Passing(lambda: None, lambda: change(checkpoint, not_counted=3)))
    said = buckets("watch", conf).out.splitlines()
    assert [line for line in said if "events/s" not in line] == [*REMARKS, REMARKS[2].replace("2", "3")]
    assert all("event schema version 2 | " in line for line in said if "events/s" in line)
    console = Console(file=StringIO(), force_terminal=True, width=160)
    console.print(WatchedJob(conf, checkpoint).view(Live(live.data | {"ended_ms": None} | FAULT), epoch_ms(), 40))
    assert all(remark in console.file.getvalue() for remark in REMARKS)


PACES = {
    "falls behind": Pace("falls behind", 125_000, 4_100, 1.0, 488.0, 1_000.0),
    "slow": Pace("slow", 7_192, 6_800, 0.99, 500.0),
    "waits": Pace("slow", 11_000, 300, 0.02, 500.0),
    "catches up": Pace("catches up", 90_000, 2_000, 1.0, 2_000.0, 500.0),
}


@pytest.mark.parametrize("pace", PACES)
def test_a_job_that_cannot_keep_up_is_told_from_a_slow_one_with_what_to_do(
    buckets, conf, checkpoint, monkeypatch, as_worded, pace
):
    live = run_job(checkpoint)
    change(checkpoint, ended_ms=None)
    assert "the job" not in buckets("watch", conf, "--once").out.partition("\n")[2]
    change(checkpoint, pace=asdict(PACES[pace]))
    said = buckets("watch", conf, "--once").out.splitlines()
    assert as_worded(said[1])
    assert f" | {PACES[pace].state} | " in said[2]
    monkeypatch.setattr(watching, "time", Passing(lambda: None, lambda: None))
    assert buckets("watch", conf).out.splitlines().count(said[1]) == 1  # once, and not with each line
    running = Live(live.data | {"ended_ms": None, "pace": asdict(PACES[pace])})
    console = Console(file=StringIO(), force_terminal=True, width=400)
    console.print(WatchedJob(conf, checkpoint).view(running, epoch_ms(), 40))
    assert said[1] in console.file.getvalue()
    assert (said[1] in faults_of(conf, checkpoint, running, epoch_ms())) == (pace == "falls behind")


def test_a_job_that_keeps_up_or_has_ended_says_nothing_of_its_pace(checkpoint):
    data = run_job(checkpoint).data
    behind = asdict(PACES["falls behind"])
    assert pace_line(data | {"ended_ms": None, "pace": asdict(Pace("keeps up"))}) == ""
    assert pace_line(data | {"pace": behind}) == ""
    assert pace_line({name: part for name, part in data.items() if name != "pace"} | {"ended_ms": None}) == ""


class Passing:
    """Time that does not pass, but at each sleep something happens; then Ctrl-C is pressed."""

    def __init__(self, *happenings: Callable[[], object]) -> None:
        self._happenings = iter(happenings)

    def sleep(self, seconds: float) -> None:
        happens = next(self._happenings, None)
        if happens is None:
            raise KeyboardInterrupt
        happens()


def test_without_a_terminal_there_is_a_line_each_time_and_one_for_each_new_alert(
    buckets, conf, checkpoint, monkeypatch
):
    def runs(*alerts: pa.Table) -> None:
        run_job(checkpoint, *alerts)
        change(checkpoint, ended_ms=None)

    passing = Passing(lambda: runs(alert(1)), lambda: None, lambda: change(checkpoint, ended_ms=1), lambda: None)
    monkeypatch.setattr(watching, "time", passing)
    ran = buckets("watch", conf)
    assert (ran.code, ran.err) == (0, "")
    first, figures, fired, again, stopped = ran.out.splitlines()
    assert "has never run" in first
    assert figures == again
    assert "events/s" in figures
    assert fired.endswith("big-sum: payerId p1: 1,234.50 > 1,000")
    assert "it was stopped" in stopped


def test_on_a_terminal_the_view_stands_in_its_place_until_ctrl_c(conf, checkpoint, monkeypatch):
    written = StringIO()
    console = Console(file=written, force_terminal=True, width=160, height=50)
    change_to = {"ended_ms": None}
    passing = Passing(lambda: run_job(checkpoint, alert(1)), lambda: change(checkpoint, **change_to))
    monkeypatch.setattr(watching, "time", passing)
    monkeypatch.setattr(watching, "Terminal", lambda: console)
    watching.watch(conf)
    shown = written.getvalue()
    assert "has never run" in shown
    assert "it was stopped at" in shown
    assert "runs, process" in shown
    assert "1,234.50" in shown


def test_a_view_with_no_batch_and_no_rule_is_drawn(conf, checkpoint):
    rules = first_rule_set([])
    with LiveStatus(checkpoint, lambda: rules):
        live = read_live(checkpoint)
    console = Console(file=StringIO(), force_terminal=True, width=80)
    console.print(WatchedJob(conf, checkpoint).view(live, epoch_ms()))
    assert "no batch | delay not known | lag not known | rules version 1 (none) | 0 alerts" in figures_line(live.data)


@pytest.mark.parametrize("every", ["99ms", "often", "1"])
def test_an_interval_that_is_none_is_refused_in_one_line(buckets, conf, every, as_worded):
    ran = buckets("watch", conf, "--every", every)
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert as_worded(ran.err)


def test_help_has_examples(buckets):
    assert "buckets watch conf/kafka.yaml --once" in buckets("watch", "--help").out


def test_bars_are_as_high_as_their_numbers():
    assert bars([0, 1, 50, 99, 100]) == "▁▂▅██"
    assert bars([]) == bars([0, 0]) == ""


def test_alerts_that_were_held_back_are_counted_where_there_are_any(checkpoint):
    assert "| 0 alerts" in figures_line(run_job(checkpoint).data)
    assert "| 0 alerts (1,200 held back)" in figures_line(run_job(checkpoint, held=1_200).data)
