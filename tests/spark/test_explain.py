"""`buckets explain` on what a real job has left behind."""

import json
import re
import sys

import pytest

from buckets.cli.commands import exit_code
from tests.spark.job_folder import JobFolder, read_table
from tests.spark.payments import payments

pytestmark = pytest.mark.spark


@pytest.fixture
def explain(monkeypatch, capsys):
    """Runs the command in this process; its exit code, and what it printed."""

    def run(*arguments: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["buckets", "explain", *map(str, arguments)])
        capsys.readouterr()
        code = exit_code()
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return run


def test_an_alert_and_an_event_without_one_are_explained_by_what_arrived(spark, tmp_path, explain):
    job = JobFolder(tmp_path, archive={"path": "archive"}, output={"path": "tables", "evaluations": False})
    lines = [json.dumps(row) for row in payments(120)]
    for file in range(3):
        job.add_file(file, lines[file * 40 : (file + 1) * 40])
    job.run(spark)
    alerts = [row for row in read_table(tmp_path / "tables" / "alerts") if row["rule_id"] == "payer-sum"]
    assert alerts

    for alert in alerts[:3]:
        code, text = explain(job.conf, alert["alert_id"], "--json")
        found = json.loads(text)
        (feature,) = found["features"]
        assert (code, found["outcome"], found["origin"]) == (0, "alert", "recorded in table alerts")
        assert (feature["comparison"]["equal"], feature["count"]) == (True, alert["count"])
        assert found["condition"]["truth"] == "true"
        assert sum(entry["counts"] for entry in feature["entries"]) == alert["count"]

    first = payments(120)[0]
    code, text = explain(job.conf, "--event", first["id"], "--rule", "payer-sum")
    assert code == 0
    assert f"Rule payer-sum did not fire at event {first['id']}" in text
    assert "equal to the last digit" in text
    assert "not recorded: scored again by the engine in memory" in text

    page = tmp_path / "why.html"
    assert explain(job.conf, alerts[0]["alert_id"], "--html", page) == (0, f"written to {page}\n")
    assert alerts[0]["alert_id"] in page.read_text(encoding="utf-8")
    assert explain(job.conf, "--event", "nobody", "--rule", "payer-sum")[0] == 1


def test_from_the_list_of_alerts_to_an_explanation_and_a_verdict(spark, tmp_path, monkeypatch, capsys):
    """The way of the README, by the ids that are shown."""
    job = JobFolder(tmp_path, archive={"path": "archive"})
    job.add_events(payments(120), files=2)
    job.run(spark)

    def ran(*words: object) -> str:
        monkeypatch.setattr(sys, "argv", ["buckets", *map(str, words)])
        capsys.readouterr()
        assert exit_code() == 0
        return capsys.readouterr().out

    monkeypatch.setenv("COLUMNS", "80")
    (alert,) = json.loads(ran("alerts", job.tables, "--rule", "payer-sum", "--limit", 1, "--json"))
    shown = ran("alerts", job.tables, "--rule", "payer-sum", "--limit", 1)
    (short,) = re.findall(r"\balert ([0-9a-f]{8,})\b", shown)
    assert len(short) < len(alert["alert_id"])
    assert alert["alert_id"].startswith(short)

    assert f"Alert {alert['alert_id']} of rule payer-sum: raised" in ran("explain", job.conf, short)
    said = ran("verdict", short, "fraud", "--by", "ann", "--conf", job.conf)
    assert said == f"alert {alert['alert_id']} of payer-sum, event {alert['event_id']}: fraud, by ann\n"
    assert f"alert {short}" in ran("verdicts", job.conf)
