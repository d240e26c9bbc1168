"""`buckets backtest`: what it prints and writes, and what it refuses in one line."""

import json

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from tests.cli_unit.ran import one_line

SCHEMA = """
name: payment
event_id: id
event_time: {field: at, unit: iso8601}
attributes: {payer: string}
measures: {amount: {scale: 2}}
"""
RULES = """
rules:
  - rule_id: payer-1h
    group_by: [payer]
    aggregate: {function: sum, measure: amount}
    window: {length: 1h}
    limit: {operator: ">", value: "15"}
  - rule_id: quiet
    state: DRAFT
    group_by: [payer]
    aggregate: {function: count}
    window: {length: 1h}
    limit: {operator: ">", value: "100"}
"""


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A folder with payments of three days: of each day three, ten minutes apart."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    (tmp_path / "rules.yaml").write_text(RULES)
    lines = [
        {"id": f"d{day}-{number}", "at": f"2026-01-0{day}T10:{number}0:00Z", "payer": "p1", "amount": "10"}
        for day in (1, 2, 3)
        for number in (0, 1, 2)
    ]
    (tmp_path / "day.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (tmp_path / "fraud.csv").write_text("event_id\nd1-1\nd2-0\nelsewhere\n")
    return ("rules.yaml", "--events", "day.jsonl", "--schema", "schema.yaml")


def test_the_report_is_shown_and_written(buckets, files, tmp_path):
    options = ("--fraud", "fraud.csv", "--sweep", "limit=5,15,25", "--json", "out.json", "--html", "out.html")
    ran = buckets(
        "backtest", *files, *options, "--junit", "out.xml", "--expect", "alerts <= 6", "--expect", "recall > 0"
    )
    assert ran.code == 0
    for text in ("payer-1h", "Beside confirmed fraud", "With other values", "met: alerts <= 6 (it is 6)"):
        assert text in ran.out
    assert "1 of 3 events of confirmed fraud are not in what was read" in ran.out
    report = json.loads((tmp_path / "out.json").read_text())
    assert (report["total"]["alerts"], report["total"]["caught"], report["total"]["after_an_alert"]) == (6, 1, 1)
    assert [each["alerts"] for each in report["variants"]] == [9, 6, 3]
    assert [each["as_written"] for each in report["variants"]] == [False, True, False]
    assert 'failures="0"' in (tmp_path / "out.xml").read_text()
    assert "<svg" in (tmp_path / "out.html").read_text()


def test_json_on_standard_output_is_all_that_is_printed(buckets, files):
    ran = buckets("backtest", *files, "--from", "2026-01-02", "--to", "2026-01-03", "--json", "-")
    report = json.loads(ran.out)
    assert (report["arrivals"], report["days"], report["total"]["alerts"]) == (3, 1, 2)
    assert report["by_day"] == [{"day": "2026-01-02", "alerts": 2, "rules": {"payer-1h": 2}}]


def test_an_expectation_that_is_not_met_is_exit_code_1(buckets, files, tmp_path, as_worded):
    ran = buckets(
        "backtest", *files, "--expect", "alerts < 6", "--expect", "alerts of payer-1h < 7", "--junit", "out.xml"
    )
    assert ran.code == 1
    assert as_worded(ran.err)
    assert "not met: alerts < 6 (it is 6)" in ran.out
    assert 'failures="1"' in (tmp_path / "out.xml").read_text()


def test_drafts_are_tried_where_that_is_asked(buckets, files):
    report = json.loads(buckets("backtest", *files, "--json", "-").out)
    assert [rule["rule_id"] for rule in report["rules"]] == ["payer-1h"]
    active = json.loads(buckets("backtest", *files, "--json", "-", "--active", "--sweep", "quiet.limit=0,2").out)
    assert [rule["rule_id"] for rule in active["rules"]] == ["payer-1h", "quiet"]
    assert [each["alerts"] for each in active["variants"]] == [9, 3]


def test_recorded_alerts_are_those_of_a_folder(buckets, files, tmp_path):
    row = {"rule_id": "payer-1h", "event_id": "d1-1", "event_time": 1767262200000, "key": {"payer": "p1"}, "event": {}}
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "alerts.jsonl").write_text(json.dumps(row) + "\n" + json.dumps(row | {"event_id": "x"}) + "\n")
    ran = buckets("backtest", *files, "--recorded", "old", "--json", "-", "--expect", "only old = 1")
    overlap = json.loads(ran.out)["overlap"]
    assert {name: part["events"] for name, part in overlap.items()} == {"only_old": 1, "only_new": 5, "both": 1}


@pytest.mark.parametrize("option", ["--json", "--junit", "--html"])
@pytest.mark.parametrize("read", ["rules.yaml", "day.jsonl", "schema.yaml", "fraud.csv"])
def test_nothing_that_is_read_is_replaced_by_a_report(buckets, files, tmp_path, option, read, as_worded):
    before = (tmp_path / read).read_bytes()
    error = one_line(buckets("backtest", *files, "--fraud", "fraud.csv", option, f"./{read}"), 1)
    assert as_worded(error)
    assert (tmp_path / read).read_bytes() == before


@pytest.mark.parametrize(
    "options",
    [
        ("rules.yaml",),
        ("rules.yaml", "--events", "nothing.jsonl", "--schema", "schema.yaml"),
        ("rules.yaml", "--events", "day.jsonl", "--schema", "schema.yaml", "--master", "local[2]"),
        ("rules.yaml", "--conf", "a.yaml", "--schema", "schema.yaml"),
    ],
)
def test_options_that_do_not_go_together_are_refused(buckets, files, options, as_worded):
    assert as_worded(one_line(buckets("backtest", *options), 1))


@pytest.mark.parametrize(
    "options",
    [
        ("--from", "2027-01-01"),
        ("--from", "2026-01-02", "--to", "2026-01-02"),
        ("--from", "soon"),
        ("--history", "1h"),
        ("--from", "2026-01-02", "--history", "59m"),
        ("--from", "2026-01-02", "--history", "long"),
        ("--amount", "fee"),
        ("--sweep", "payer-2h.limit=1,2"),
        ("--sweep", "payer-1h.limit=1..2000:1000", "--sweep", "window=1h,2h"),
        ("--expect", "alerts"),
        ("--expect", "precision > 0.5"),
        ("--expect", "only new < 5"),
        ("--fraud", "rules.yaml"),
        ("--recorded", "."),
        ("--list", "known"),
    ],
)
def test_what_cannot_be_answered_is_one_line(buckets, files, options, as_worded):
    assert as_worded(one_line(buckets("backtest", *files, *options), 1))


def test_a_list_that_is_not_given_is_named(buckets, files, tmp_path, as_worded):
    (tmp_path / "rules.yaml").write_text(
        RULES.replace("group_by: [payer]", "group_by: [payer]\n    where: payer IN LIST known", 1)
    )
    assert as_worded(one_line(buckets("backtest", *files), 1))
    (tmp_path / "known.csv").write_text("key\np1\n")
    assert (
        json.loads(buckets("backtest", *files, "--list", "known=known.csv", "--json", "-").out)["total"]["alerts"] == 6
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["file", "folder of JSON", "folder of CSV", "folder of Parquet", "table"])
def test_history_is_scored_whatever_it_lies_in(buckets, files, tmp_path, kind):
    rows = [json.loads(line) for line in (tmp_path / "day.jsonl").read_text().splitlines()]
    table = pa.Table.from_pylist(rows)
    folder = tmp_path / "history"
    folder.mkdir()
    match kind:
        case "file":
            folder = tmp_path / "day.jsonl"
        case "folder of JSON":
            (folder / "a.jsonl").write_bytes((tmp_path / "day.jsonl").read_bytes())
        case "folder of CSV":
            pc.write_csv(table, folder / "a.csv")
        case "folder of Parquet":
            pq.write_table(table, folder / "a.parquet")
        case "table":
            write_deltalake(folder, table.append_column("number", pa.array(range(len(rows)))))
    options = ("rules.yaml", "--events", folder, "--schema", "schema.yaml", "--json", "-")
    options += ("--arrival", "number") if kind == "table" else ()
    alone = json.loads(buckets("backtest", *options).out)
    assert alone["total"]["alerts"] == 6
