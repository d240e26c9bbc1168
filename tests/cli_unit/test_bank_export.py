"""One export of a bank, without ids, in each command that reads events: all see the same payments."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

SCHEMA = {
    "name": "booking",
    "event_id": {"hash": ["booked", "iban", "payee", "amount"]},
    "event_time": {"field": "booked", "unit": "iso8601"},
    "attributes": {"iban": "string", "payee": "string"},
    "measures": {"amount": {"scale": 2}},
    "csv": {"delimiter": ";", "decimal": ",", "thousands": ".", "encoding": "cp1252"},
}
RULE = {
    "rule_id": "iban-1h",
    "group_by": ["iban"],
    "aggregate": {"function": "sum", "measure": "amount"},
    "window": {"length": "1h"},
    "limit": {"operator": ">", "value": "1300"},
}
LINES = [
    "booked;iban;payee;amount;;",
    "2026-01-05T10:00:00Z;DE1;Müller;1.234,56;;",
    "2026-01-05T10:05:00Z;DE1;Grün;99,50;;",
    "2026-01-05T10:05:00Z;DE1;Grün;99,50;;",
    "2026-01-05T10:10:00Z;DE2;Müller;-5,00;;",
]


class Folder:
    """An export with its schema and a rule that has a test over it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.events, self.schema, self.rules = path / "day.csv", path / "schema.yaml", path / "rules.yaml"
        self.events.write_bytes("".join(f"{line}\r\n" for line in LINES).encode("cp1252"))
        self.schema.write_text(yaml.safe_dump(SCHEMA))
        of_file = {
            "name": "the second payment crosses it",
            "given": {"file": "day.csv"},
            "expect": {"alerts": [{"event": 2, "value": "1334.06"}], "duplicates": [3]},
        }
        of_list = {
            "name": "equal events of a test are two",
            "given": [{"at": "0s", "iban": "x", "amount": "700"}, {"at": "0s", "iban": "x", "amount": "700"}],
            "expect": {"alerts": [{"event": 2, "value": "1400"}]},
        }
        self.rules.write_text(yaml.safe_dump({"rules": [RULE], "tests": [of_file, of_list]}, sort_keys=False))


@pytest.fixture
def folder(tmp_path) -> Folder:
    return Folder(tmp_path)


def test_every_command_reads_the_export_as_its_schema_says(folder, buckets):
    common = ("--schema", folder.schema)
    ran = buckets("evaluate", "--events", folder.events, "--rules", folder.rules, *common, "--out", folder.path / "out")
    assert (ran.code, "no event" in ran.err) == (0, False)
    (alert,) = map(json.loads, (folder.path / "out" / "alerts.jsonl").read_text().splitlines())
    assert (alert["position"], alert["value"]) == (3, "1334.06")
    assert alert["event"]["payee"] == "Grün"
    assert alert["event"]["event_id"] == alert["event_id"]
    (duplicate,) = map(json.loads, (folder.path / "out" / "duplicates.jsonl").read_text().splitlines())
    assert (duplicate["position"], duplicate["event_id"]) == (4, alert["event_id"])

    out = folder.path / "features.parquet"
    assert buckets("features", folder.rules, "--events", folder.events, *common, "--out", out).code == 0
    assert pq.read_table(out)["event_id"].to_pylist()[1:3] == [alert["event_id"]] * 2

    ran = buckets("backtest", folder.rules, "--events", folder.events, *common, "--json", "-")
    assert ran.code == 0
    assert json.loads(ran.out)["rules"][0]["alerts"] == 1

    ran = buckets("rules", "check", folder.rules, *common, "--events", folder.events)
    assert (ran.code, "no event" in ran.out + ran.err) == (0, False)
    ran = buckets("rules", "test", folder.rules, *common)
    assert (ran.code, "2 passed" in ran.out) == (0, True)
