"""The golden cases, facts from other systems, through the query of a job.

All cases run as one stream: each is a group of its own, selected by a filter on the field `case`.
"""

import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from statistics import mean

import pytest
import yaml

from buckets.events.schema import EventSchema
from buckets.rules.rule import Rule
from tests.spark.evaluation import evaluate, evaluation_of

pytestmark = pytest.mark.spark

CASES = json.loads(Path(__file__).with_name("windows.json").read_text(encoding="utf-8"))
NAMES = [case["case"] for case in CASES]
FUNCTIONS = ("sum", "count", "avg", "min", "max")
EXPECTATIONS = {"expect", "expect_members", "expect_avg", "expect_alerts", "expect_late"}
SCHEMA = {
    "event_id": "id",
    "event_time": "t",
    "attributes": {"case": "string", "key": "string"},
    "measures": {"v": {"scale": 0}},
}


def rules_of(number: int, case: dict) -> list[dict]:
    """A rule for every function, and the rule of the case if it has one."""

    def rule(name: str, state: str, function: str, operator: str, limit: int) -> dict:
        return {
            "rule_id": f"{number} {name}",
            "state": state,
            "group_by": ["key"],
            "where": {"case": str(number)},
            "aggregate": {"function": function, "measure": "v"},
            "window": {"length": f"{case['window_ms']}ms", "left": case["left"]},
            "limit": {"operator": operator, "value": str(limit)},
        }

    rules = [rule(function, "SHADOW", function, ">", 0) for function in FUNCTIONS]
    if "rule" in case:
        wanted = case["rule"]
        rules.append(rule("alert", "ACTIVE", wanted["aggregate"], wanted["operator"], wanted["limit"]))
    return rules


def event_lines(number: int, case: dict) -> list[str]:
    return [
        json.dumps({"id": f"{number}-{index}", "case": str(number), "key": "one"} | event)
        for index, event in enumerate(case["events"])
    ]


def rows(text: bytes, number: int) -> list[dict]:
    """The rows of an output that belong to a case."""
    parsed = map(json.loads, text.decode().splitlines())
    return [row for row in parsed if row["event_id"].startswith(f"{number}-")]


@pytest.fixture(scope="module")
def results(spark, tmp_path_factory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("golden")
    numbered = list(enumerate(CASES))
    events = folder / "events.jsonl"
    events.write_text("\n".join(line for number, case in numbered for line in event_lines(number, case)) + "\n")
    rules = [Rule.model_validate(rule) for number, case in numbered for rule in rules_of(number, case)]
    return evaluate(spark, evaluation_of(events, EventSchema.model_validate(SCHEMA), rules), folder / "work")


def values(results: dict[str, bytes], number: int, function: str) -> list[tuple[int, Decimal]]:
    """Time and value of each evaluated event, in arrival order."""
    found = [row for row in rows(results["evaluations.jsonl"], number) if row["rule_id"] == f"{number} {function}"]
    assert all(row["exact"] and row["lower"] == row["value"] == row["upper"] for row in found)
    return [(row["event_time"], Decimal(row["value"])) for row in found]


def check_expect(results, number, case):
    for function in {name for expected in case["expect"] for name in expected if name != "t"}:
        expected = [(each["t"], Decimal(each[function])) for each in case["expect"]]
        assert values(results, number, function) == expected, function


def check_expect_members(results, number, case):
    times = [event["t"] for event in case["events"]]
    loops = {"sum": sum, "count": len, "min": min, "max": max}
    for function, loop in loops.items():
        expected = [(t, Decimal(loop(members))) for t, members in zip(times, case["expect_members"], strict=True)]
        assert values(results, number, function) == expected, function
    averages = [value for _, value in values(results, number, "avg")]
    assert averages == [round(Decimal(mean(map(Decimal, members))), 6) for members in case["expect_members"]]


def check_expect_avg(results, number, case):
    times = [event["t"] for event in case["events"]]
    expected = [(t, Decimal(average)) for t, average in zip(times, case["expect_avg"], strict=True)]
    assert values(results, number, "avg") == expected


def check_expect_alerts(results, number, case):
    alerts = rows(results["alerts.jsonl"], number)
    found = [(row["event_time"], row["key"]["key"], Decimal(row["value"])) for row in alerts]
    assert found == [(each["t"], each.get("key", "one"), Decimal(each["value"])) for each in case["expect_alerts"]]


def check_expect_late(results, number, case):
    late = rows(results["late_events.jsonl"], number)
    assert [row["event_time"] for row in late] == case["expect_late"]
    assert all(row["applied"] for row in late)


@pytest.mark.parametrize(("number", "case"), list(enumerate(CASES)), ids=NAMES)
def test_golden_case(results, number, case):
    expectations = [name for name in case if name.startswith("expect")]
    assert expectations, "the case expects nothing"
    assert set(expectations) <= EXPECTATIONS, "the case expects something that is not checked"
    for name in expectations:
        globals()[f"check_{name}"](results, number, case)
    if "expect_late" not in case:
        assert rows(results["late_events.jsonl"], number) == []


def test_the_command_line_gives_what_the_query_gives(results, tmp_path):
    number, case = next((number, case) for number, case in enumerate(CASES) if "expect_late" in case)
    (tmp_path / "events.jsonl").write_text("\n".join(event_lines(number, case)) + "\n")
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"rules": rules_of(number, case)}))
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump(SCHEMA))
    command = [str(Path(sys.executable).with_name("buckets")), "evaluate"]
    options = ["--events", "events.jsonl", "--rules", "rules.yaml", "--schema", "schema.yaml", "--out", "out"]
    subprocess.run([*command, *options], cwd=tmp_path, check=True, capture_output=True)
    for name, whole in results.items():
        written = rows((tmp_path / "out" / name).read_bytes(), number)
        for row in (expected := rows(whole, number)):
            if "position" in row:
                row["position"] -= sum(len(earlier["events"]) for earlier in CASES[:number])
        assert written == expected, name
    assert rows(results["late_events.jsonl"], number)
