"""Every command that takes a file of events reads it as jobs do: compressed, one JSON value, in folders with values."""

import gzip
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

SCHEMA = {
    "event_id": "id",
    "event_time": "t",
    "attributes": {"payer": "string", "channel": "string"},
    "measures": {"amount": {"scale": 2}},
}
RULE = {
    "rule_id": "r",
    "group_by": ["payer"],
    "where": {"channel": "web/app"},
    "aggregate": {"function": "sum", "measure": "amount"},
    "window": {"length": "1h"},
    "limit": {"operator": ">", "value": 40},
}
EVENTS = [
    {"id": f"e{n}", "t": 1_700_000_000_000 + n * 1000, "payer": f"p{n % 2}", "channel": "web/app", "amount": f"{n}.50"}
    for n in range(20)
]
WITHOUT = [{name: value for name, value in event.items() if name != "channel"} for event in EVENTS]
FOLDER = "channel=web%2Fapp"
LINES = "".join(json.dumps(event) + "\n" for event in WITHOUT).encode()
CSV = "".join(",".join(map(str, row)) + "\n" for row in [WITHOUT[0], *(row.values() for row in WITHOUT)]).encode()
RECORDS = json.dumps({"data": {"items": WITHOUT}, "items": [1]}, indent=2).encode()
LAYOUTS: dict[str, tuple[bytes, str | None]] = {
    "day.jsonl": (LINES, None),
    "day.jsonl.gz": (gzip.compress(LINES), None),
    "day.json.zst": (pa.compress(LINES, "zstd", asbytes=True), None),
    "day.csv.gz": (gzip.compress(CSV), None),
    "day.csv.zst": (pa.compress(CSV, "zstd", asbytes=True), None),
    "day.json": (RECORDS, "data.items[]"),
    "day.json.gz": (gzip.compress(json.dumps(WITHOUT).encode()), "[]"),
}
COMMANDS = {
    "evaluate": ("evaluate", "--rules", "rules.yaml", "--out", "out", "--events"),
    "backtest": ("backtest", "rules.yaml", "--json", "-", "--events"),
    "features": ("features", "rules.yaml", "--out", "out.parquet", "--overwrite", "--events"),
    "check": ("rules", "check", "rules.yaml", "--json", "--events"),
}


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / FOLDER).mkdir()
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"rules": [RULE]}))
    (tmp_path / "plain.jsonl").write_text("".join(json.dumps(event) + "\n" for event in EVENTS))
    return tmp_path


def write_schema(folder: Path, records: str | None) -> None:
    (folder / "schema.yaml").write_text(yaml.safe_dump(SCHEMA | ({"records": records} if records else {})))


def result_of(buckets, folder: Path, command: str, file: object) -> list[object]:
    """What a command made of a file, without what differs from one run to the next."""
    ran = buckets(*COMMANDS[command], file, "--schema", "schema.yaml")
    assert ran.code == 0, ran.err
    if command == "evaluate":
        names = ("evaluations", "alerts", "dead_letters")
        lines = [line for name in names for line in (folder / "out" / f"{name}.jsonl").read_text().splitlines()]
        return [{k: v for k, v in json.loads(line).items() if k not in ("source", "position")} for line in lines]
    if command == "features":
        return list(pq.read_table(folder / "out.parquet").to_pylist())
    if command == "backtest":
        return list(json.loads(ran.out)["rules"])
    return [re.sub(r"\S*day\S*|\S*plain\S*", "", ran.out)]


@pytest.mark.parametrize("command", COMMANDS)
def test_each_layout_gives_what_plain_lines_give(buckets, folder, command):
    write_schema(folder, None)
    expected = result_of(buckets, folder, command, "plain.jsonl")
    assert expected != [""] or command == "check"
    for name, (content, records) in LAYOUTS.items():
        (folder / FOLDER / name).write_bytes(content)
        write_schema(folder, records)
        assert result_of(buckets, folder, command, Path(FOLDER) / name) == expected, name
        (folder / FOLDER / name).unlink()


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_test_of_a_rule_takes_its_events_from_such_a_file(buckets, folder, name):
    content, records = LAYOUTS[name]
    (folder / FOLDER / name).write_bytes(content)
    write_schema(folder, records)
    alerts = [{"event": f"e{number}"} for number in range(12, 20)]
    cases = [{"name": "many", "given": {"file": f"{FOLDER}/{name}"}, "expect": {"alerts": alerts}}]
    (folder / "rules.yaml").write_text(yaml.safe_dump({"rules": [RULE], "tests": cases}))
    ran = buckets("rules", "test", "rules.yaml", "--schema", "schema.yaml")
    assert (ran.code, "1 passed" in ran.out) == (0, True), ran.out


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ["day.json", "day.json.gz"])
def test_a_file_that_is_one_value_says_once_what_to_write_into_the_schema(buckets, folder, command, name, as_worded):
    content, _ = LAYOUTS[name]
    (folder / name).write_bytes(content)
    write_schema(folder, None)
    ran = buckets(*COMMANDS[command], name, "--schema", "schema.yaml")
    assert ran.code == 1
    assert as_worded(ran.err)
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_is_cut_off_is_one_line(buckets, folder, command):
    write_schema(folder, None)
    (folder / "day.jsonl.gz").write_bytes(gzip.compress(LINES)[:-30])
    ran = buckets(*COMMANDS[command], "day.jsonl.gz", "--schema", "schema.yaml")
    assert ran.code == 1
    assert ran.err.splitlines()[-1].startswith(
        "error: events day.jsonl.gz: cannot be read (Truncated compressed stream)"
    )
    assert "Traceback" not in ran.err
