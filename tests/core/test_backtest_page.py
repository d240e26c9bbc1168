"""The page of a backtest: everything is escaped, nothing comes from elsewhere, and every figure is on it."""

import json
import re
from xml.etree import ElementTree

import pytest

from buckets.history.backtest.page import backtest_page
from buckets.history.backtest.report import check_expectation, parse_expectation, report_json
from buckets.history.backtest.sweep import parse_sweeps, swept_rules
from tests.core.backtests import backtest, rule, run

EVIL = '<script>alert("x")</script>'
ROWS = [
    {
        "id": f"{EVIL}{index}",
        "t": 1_700_000_000_000 + index * 43_200_000,
        "payer": f"p<b>{index % 2}",
        "card": "c&",
        "amount": "5.25",
        "position": index + 1,
    }
    for index in range(6)
]


@pytest.fixture
def recorded(tmp_path):
    lines = [
        {"rule_id": name, "event_id": row["id"], "event_time": row["t"], "key": {"payer": row["payer"]}, "event": row}
        for name, row in ((f"{EVIL}rule", ROWS[0]), (f"{EVIL}gone", ROWS[1]))
    ]
    (tmp_path / "alerts.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return tmp_path


@pytest.fixture
def answered(recorded):
    rules = [rule(f"{EVIL}rule"), rule("other", 3, state="SHADOW", description=EVIL)]
    swept = swept_rules(parse_sweeps(["limit=0..10:5"], rules), rules)
    fraud = {ROWS[0]["id"]: None, EVIL: None}
    asked = backtest(rules, swept=swept, confirmed=fraud, recorded=recorded)
    report = run(asked, ROWS)
    return report, [check_expectation(parse_expectation(f"alerts of {EVIL}rule < 3", asked.known), report)]


def test_nothing_of_rules_and_events_is_markup_and_nothing_comes_from_elsewhere(answered):
    page = backtest_page(*answered, f"{EVIL}.yaml")
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert re.findall(r"(?:https?:|//)[^\s\"']+", page) == []
    assert "src=" not in page
    assert "href=" not in page


def test_the_page_is_well_formed_and_shows_every_figure(answered):
    page = backtest_page(*answered, "rules.yaml")
    body = re.search(r"<body>.*</body>", page, re.DOTALL)
    tree = ElementTree.fromstring(body[0])
    text = " ".join("".join(tree.itertext()).split())
    report, _ = answered
    for figure in ("not met", "16.7 %", "100.0 %", "5.25", "31.50", "(on trial)", "(not among the rules)"):
        assert figure in text, figure
    # Five of recall; where nothing has alerted, there is no precision.
    assert len(tree.findall(".//circle/title")) == 5 + 3
    titles = [each.text for each in tree.iter("title")]
    assert len([each for each in titles if each.endswith("alerts")]) == len(report.days_with_alerts)
    assert any("recall 100.0 %" in each for each in titles)


def test_a_page_without_alerts_fraud_or_recorded_alerts_is_a_page_too():
    report = run(backtest([rule("r", limit={"operator": ">", "value": "1000"})], measure=None), ROWS)
    page = backtest_page(report, [], "rules.yaml")
    assert "Alerts by day" not in page
    assert "What the rules would have raised" in page


def test_the_report_is_json(answered):
    found = json.loads(json.dumps(report_json(*answered)))
    assert found["total"]["alerts"] == 6
    assert found["rules"][0]["overlap"]["both"]["events"] == 1
    assert found["rules"][0]["top_keys"] == [{"key": {"payer": f"p<b>{each}"}, "alerts": 3} for each in (0, 1)]
    assert found["rules_gone"] == {f"{EVIL}gone": 1}
    assert [each["values"] for each in found["variants"]][:2] == [
        {f"{EVIL}rule.limit": "0.0"},
        {f"{EVIL}rule.limit": "2.5"},
    ]
    assert found["expectations"] == [{"expect": f"alerts of {EVIL}rule < 3", "value": 6, "met": False}]
    assert found["total"]["amount"] == "31.50"
    assert sum(day["alerts"] for day in found["by_day"]) == 6
