"""The rules of conf/rules on small streams: one that fires, and others that just do not.

A stream whose name begins with `one` differs from the one that fires in a single cell or payment: by a cent, by a
millisecond, by a country.
"""

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from jsonschema import Draft202012Validator

import buckets
from buckets.resources import resource
from buckets.rule_files.rule_tests import rule_file_schema
from buckets.rule_files.yaml_editor import rules_text
from buckets.rule_files.yaml_rules import load_rule_files
from buckets.yaml_dialect import read_yaml
from tests.docs.blocks import section

STREAMS = Path(__file__).parent / "data" / "rules"
RULES = resource("conf/rules")
NAMES = sorted(path.stem for path in RULES.glob("*.yaml"))
SCHEMA = buckets.load_event_schema(resource("schemas/card-payment.yaml"))
JUST_NOT = [(path.parent.name, path.stem) for path in sorted(STREAMS.glob("*/*.csv")) if path.stem != "fires"]
FIRES: dict[str, tuple[str, dict[str, Any], str]] = {
    "many-countries": ("t06", {"countries": "4"}, "countries (4) is above 3"),
    "spike-over-own-average": (
        "t12",
        {"recent": "80.01", "usual": "16.00100000", "payments": "10", "declined": "1"},
        "recent (80.01) is above 5 times usual (16.001) and payments (10) is at least 10",
    ),
    "first-payment-large": (
        "t03",
        {"new_beneficiary": True},
        "new_beneficiary (yes) is true and paymentAmount (5,000.01) is above 5,000",
    ),
    "declined-then-approved": ("t08", {"declined": "5"}, "declined (5) is above 4"),
    "same-amount": ("t05", {"times": "3"}, "times (3) is at least 3"),
    "faster-than-an-aeroplane": (
        "t04",
        {"earlier_latitude": "52.520008", "earlier_longitude": "13.404954", "seconds": "2017.204"},
        "geo_speed_kmh(latitude (48.137154), longitude (11.576124), earlier_latitude (52.520008), "
        "earlier_longitude (13.404954), seconds (2,017.204)) is above 900",
    ),
    "hour-against-month": (
        "t06",
        {"sent": "250.01", "received": "500.01", "payments": "5"},
        "sent (250.01) is above 0.5 times received (500.01) and payments (5) is at least 5",
    ),
    "small-then-large": ("t06", {"tiny": "3"}, "tiny (3) is at least 3"),
}
"""By rule file: the only event with an alert, the values of its terms, and its condition."""


def rows_of(name: str, stream: str) -> list[dict[str, str]]:
    with (STREAMS / name / f"{stream}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def evaluated(name: str, stream: str) -> buckets.Results:
    rules = buckets.load_rules(RULES / f"{name}.yaml", SCHEMA)
    results = buckets.Evaluator(rules, SCHEMA).recorded(pa.Table.from_pylist(rows_of(name, stream)))
    assert results.dead_letters.num_rows == results.late_events.num_rows == 0
    return results


@pytest.mark.parametrize("name", NAMES)
def test_a_rule_fires_at_one_event_and_says_why(name):
    event_id, terms, condition = FIRES[name]
    (alert,) = evaluated(name, "fires").alerts.to_pylist()
    assert alert["event_id"] == event_id
    assert {term["name"]: term["value"] for term in json.loads(alert["terms"])} == terms
    assert alert["condition"] == condition
    assert (alert["certain"], alert["exact"], alert["warm"]) == (True, True, True)


@pytest.mark.parametrize(("name", "stream"), JUST_NOT)
def test_it_just_does_not_fire(name, stream):
    assert evaluated(name, stream).alerts.num_rows == 0


@pytest.mark.parametrize(("name", "stream"), [each for each in JUST_NOT if each[1].startswith("one")])
def test_a_stream_that_just_does_not_fire_differs_in_one_cell_or_payment(name, stream):
    def payments(stream: str) -> list[tuple[str, ...]]:
        return [tuple(row[field] for field in row if field != "transactionId") for row in rows_of(name, stream)]

    fires, other = payments("fires"), payments(stream)
    if len(fires) == len(other):
        cells = [(ours, theirs) for pair in zip(fires, other, strict=True) for ours, theirs in zip(*pair, strict=True)]
        assert sum(ours != theirs for ours, theirs in cells) == 1
    else:
        assert other in [fires[:at] + fires[at + 1 :] for at in range(len(fires))]


@pytest.mark.parametrize("name", NAMES)
def test_a_rule_file_says_what_it_catches_and_what_it_costs_and_fits_its_schemas(name):
    file = RULES / f"{name}.yaml"
    text = file.read_text(encoding="utf-8")
    assert text.startswith("# Catches ")
    assert text.splitlines()[1].startswith("# Costs ")
    Draft202012Validator(rule_file_schema(SCHEMA)).validate(read_yaml(text)[0])
    assert len([stream for of, stream in JUST_NOT if of == name]) > 1


def test_all_of_them_are_one_set_of_rules_that_can_be_written_and_read_again(tmp_path):
    rules = load_rule_files(RULES, SCHEMA)
    (tmp_path / "again.yaml").write_text(rules_text(rules), encoding="utf-8")
    assert buckets.load_rules(tmp_path / "again.yaml", SCHEMA) == rules
    assert len(rules) == len(NAMES) == len(FIRES)
    buckets.Evaluator(rules, SCHEMA)


def test_the_example_in_the_guide_is_a_rule(tmp_path):
    example = (
        section("guides/write-rules.md", "## Features and a condition").partition("```yaml\n")[2].partition("```")[0]
    )
    (tmp_path / "rules.yaml").write_text(f"rules:\n{example}", encoding="utf-8")
    (rule,) = buckets.load_rules(tmp_path / "rules.yaml", SCHEMA)
    assert rule.sentence().endswith("; received is the sum of paymentAmount by beneficiaryId over the last 30d")
