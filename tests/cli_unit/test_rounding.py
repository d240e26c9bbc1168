"""Values with more digits than their measure: a dead letter, or rounded where the measure says so, and counted."""

import json
from decimal import Decimal

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from deltalake import write_deltalake

SCHEMA = """event_id: id
event_time: t
attributes: {payer: string}
measures: {amount: {scale: 2, round: half_even}}
"""
RULES = """rules:
  - rule_id: r
    group_by: [payer]
    aggregate: {function: sum, measure: amount}
    window: {length: 1h}
    limit: {operator: ">", value: -1000}
"""
AMOUNTS = ["-115.18646199999999", "1.005", "2", "0.125"]
SUMS = ["-115.19", "-114.19", "-112.19", "-112.07"]
SAID = "3 values rounded half-even to the scale of the measure: 3 of amount"
START_MS = 1_700_000_000_000


def columns(amounts: pa.Array) -> pa.Table:
    times = [START_MS + row for row in range(len(AMOUNTS))]
    return pa.table(
        {"id": [f"e{row}" for row in range(len(AMOUNTS))], "t": times, "payer": ["p"] * 4, "amount": amounts}
    )


def write_json(path):
    rows = [{"id": f"e{row}", "t": START_MS + row, "payer": "p", "amount": 0} for row in range(4)]
    lines = [
        json.dumps(row).replace('"amount": 0', f'"amount": {amount}') for row, amount in zip(rows, AMOUNTS, strict=True)
    ]
    path.write_text("\n".join(lines))


WRITERS = {
    "day.jsonl": write_json,
    "day.csv": lambda path: pyarrow.csv.write_csv(columns(pa.array(AMOUNTS)), path),
    "double.parquet": lambda path: pyarrow.parquet.write_table(columns(pa.array(map(float, AMOUNTS))), path),
    "decimal.parquet": lambda path: pyarrow.parquet.write_table(
        columns(pa.array(map(Decimal, AMOUNTS), pa.decimal128(20, 14))), path
    ),
    "table": lambda path: write_deltalake(path, columns(pa.array(map(float, AMOUNTS)))),
}
COMMANDS = {
    "evaluate": ("evaluate", "--rules", "rules.yaml", "--out", "results"),
    "backtest": ("backtest", "rules.yaml"),
    "features": ("features", "rules.yaml", "--out", "out.parquet"),
    "check": ("rules", "check", "rules.yaml"),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    (tmp_path / "rules.yaml").write_text(RULES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("events", WRITERS)
def test_values_of_every_kind_of_file_are_rounded_and_counted_by_every_command(buckets, folder, events, command):
    if events == "table" and command in ("evaluate", "check"):
        pytest.skip("reads no tables")
    WRITERS[events](folder / events)
    ran = buckets(*COMMANDS[command], "--schema", "schema.yaml", "--events", events)
    assert ran.code == 0, ran.err
    assert SAID in " ".join(f"{ran.out}{ran.err}".split())
    if command == "evaluate":
        lines = (folder / "results" / "evaluations.jsonl").read_text().splitlines()
        assert [json.loads(line)["value"] for line in lines] == SUMS
    if command == "features":
        found = pyarrow.parquet.read_table(folder / "out.parquet")
        assert found["r.value"].to_pylist() == list(map(Decimal, SUMS))


def test_without_rounding_such_a_value_loses_its_event(buckets, folder):
    (folder / "schema.yaml").write_text(SCHEMA.replace(", round: half_even", ""))
    write_json(folder / "day.jsonl")
    ran = buckets(*COMMANDS["evaluate"], "--schema", "schema.yaml", "--events", "day.jsonl")
    assert ran.code == 1
    assert '3 of "amount: -115.18646199999999 has more than 2 digits after the point"' in ran.err


def test_a_report_for_programs_says_how_many_values_were_rounded(buckets, folder):
    write_json(folder / "day.jsonl")
    ran = buckets("backtest", "rules.yaml", "--schema", "schema.yaml", "--events", "day.jsonl", "--json", "-")
    assert json.loads(ran.out)["rounded"] == {"amount": 3}
