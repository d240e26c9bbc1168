"""`buckets explain` on what a real job has left behind."""

import json
import sys

import pytest

from buckets.cli.main import exit_code
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
