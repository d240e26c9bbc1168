"""What the Kafka demo shows: a few alerts a second, each once; its delays; when a changed rule came into force."""

from typing import Any

import pytest

from buckets.checkpoint.rule_versions import RuleVersions
from buckets.cli.console import Terminal
from buckets.cli.demo import demo_kafka_report
from buckets.cli.demo.demo_kafka_report import (
    RuleChanged,
    ShownAlerts,
    account_line,
    change_line,
    print_report,
    quantiles_line,
)
from buckets.clock import epoch_ms
from buckets.monitor.live import Live
from buckets.monitor.pace import Pace
from buckets.rules.revision import Change
from buckets.rules.rule_set import first_rule_set, next_rule_set
from tests.core.examples import rule, until


class Clock:
    """Time that passes when told to."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(demo_kafka_report, "time", clock)
    return clock


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def shown(clock, said) -> ShownAlerts:
    clock.now_s = 100.0
    return ShownAlerts(said.append)


def alert(number: int, ingested_ms: int | None = 5, version: int = 1) -> dict[str, Any]:
    return {
        "alert_id": f"a{number}", "rule_id": "r", "key": {"payer": "p"}, "value": "12.30", "operator": ">",
        "limit": "10", "ruleset_version": version, "ingested_at": ingested_ms,
        "decided_at": (ingested_ms or 0) + 100 + number,
    }  # fmt: skip


def status(state: str = "unknown") -> Live:
    pace = Pace(state, 7_000, 6_800, 0.99, 480.0, 1_000.0)
    return Live({"totals": {"events": 900}, "ended_ms": None, "pace": pace.to_json()})


def test_a_few_alerts_are_shown_in_a_second_and_the_rest_is_counted(shown, said, clock):
    shown.take([alert(number) for number in range(5)])
    shown.take([alert(9)])
    assert said == ["  r: payer p: 12.30 > 10, 100 ms after it came", "  r: payer p: 12.30 > 10, 101 ms after it came"]
    clock.now_s += 1
    shown.take([])
    assert said[2:] == ["  … and 4 more"]
    shown.take([alert(10)])
    assert len(said) == 4


def test_an_alert_that_comes_again_counts_once(shown, said):
    shown.take([alert(1), alert(1)])
    shown.take([alert(1)])
    assert (len(shown.alerts), len(said)) == (1, 1)


def test_figures_are_said_now_and_then(shown, said, clock):
    shown.begin()
    for _ in range(11):
        shown.progress(1000, lambda: status())
        clock.now_s += 1
    assert said == ["5 s: 1,000 sent, 900 evaluated, 0 alerts", "10 s: 1,000 sent, 900 evaluated, 0 alerts"]


def test_that_the_job_falls_behind_or_is_slow_is_said_when_it_begins_and_in_the_end(shown, said, clock, capsys):
    shown.begin()
    paces = ["unknown", "keeps up", "falls behind", "falls behind", "slow"]
    for state in paces:
        clock.now_s += 5
        shown.progress(1000, lambda state=state: status(state))
    news = [line.partition(":")[0] for line in said if line.startswith("—")]
    assert news == ["— the job falls behind", "— the job keeps up, but is slow"]
    print_report(Terminal(), shown, [])
    words = " ".join(capsys.readouterr().out.split())
    assert "how it kept up, as it was said last: the job keeps up, but is slow: results are 7 s late" in words


def test_delays_are_those_of_payments_that_came_since_the_stream_began(shown):
    before_ms = epoch_ms() - 1
    shown.begin()
    now_ms = epoch_ms()
    shown.take([alert(1, before_ms - 1000), alert(2, None), alert(3, now_ms), alert(4, now_ms + 5)])
    assert shown.delays_ms() == [103, 104]
    assert quantiles_line([1, 2, 3, 1000]) == "p50 2 ms, p99 1,000 ms, p99.9 1,000 ms, max 1,000 ms"


def test_the_first_alert_of_a_new_version_says_when_the_change_came_into_force(shown, said, tmp_path):
    versions = RuleVersions(tmp_path)
    first = first_rule_set([rule("r")])
    versions.keep(first, [], 0, None)
    shown.changed(versions)
    assert shown.change.version == 1
    shown.take([alert(1, version=1)])
    assert shown.change.first_alert_ms is None
    changes: list[Change] = []
    versions.keep(next_rule_set(first, [rule("r", length="2h")], until(0), 0), changes, 5, None)
    late = alert(2, shown.change.sent_ms, version=2)
    shown.take([late])
    assert shown.change.in_force_ms == versions.history()[-1].made_ms
    assert shown.change.first_alert_ms == late["decided_at"]
    assert sum("rules version 2: evaluates every payment from" in line for line in said) == 1


def test_a_change_without_an_alert_is_told_in_the_end(shown, tmp_path):
    versions = RuleVersions(tmp_path)
    shown.changed(versions)
    shown.ended(None)
    assert change_line(shown.change) == "the change of the rule came too late for any payment"
    changed = RuleChanged(1000, 1, in_force_ms=1250)
    assert change_line(changed) == (
        "rules version 2: evaluates every payment from 250 ms on after the change was sent, and has raised no alert"
    )


def test_an_account_is_an_equation():
    counts = {
        "events_in": 1005, "no_key": 0, "filtered": 1, "evaluated": 1000, "late": 4, "too_late": 0, "duplicates": 0,
        "collisions_not_kept": 0, "dead_letters": 0, "alerts": 3,
    }  # fmt: skip
    assert account_line("payer", counts).startswith(
        "payer: 1,005 in = 0 without a key + 1 filtered out + 1,000 evaluated + 4 late + 0 too"
    )
