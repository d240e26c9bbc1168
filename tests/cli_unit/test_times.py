"""Every command that reads events tells of times in another unit than the declared, and of times without a zone."""

import json
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import buckets as library
from buckets.events.schema import EventSchema
from buckets.rule_files.yaml_rules import load_rule_file
from tests.cli_unit.ran import one_line

SCHEMA = "event_id: id\nevent_time: {}\nattributes: {{card: string}}\nmeasures: {{amount: {{scale: 2}}}}\n"
RULES = """rules:
  - rule_id: five
    group_by: [card]
    aggregate: {function: count}
    window: {length: 5s}
    limit: {operator: ">=", value: 5}
tests:
  - {name: from a file, given: {file: day.jsonl}, expect: {alerts: []}}
"""
SECONDS = [1_763_000_000 + 300 * number for number in range(10)]
"""Ten payments five minutes apart: five in five seconds where they are taken for milliseconds."""
AUTUMN = [datetime(2026, 10, 25, 1, 0) + timedelta(minutes=20 * number) for number in range(10)]  # noqa: DTZ001
IN_MS, ISO = "{field: at, unit: ms}", "{field: at, unit: iso8601}"
BERLIN = "{field: at, unit: iso8601, zone: Europe/Berlin}"

COMMANDS = {
    "evaluate": ("evaluate", "--rules", "rules.yaml", "--out", "out"),
    "backtest": ("backtest", "rules.yaml"),
    "features": ("features", "rules.yaml", "--out", "out.parquet", "--overwrite"),
    "check": ("rules", "check", "rules.yaml"),
}
OF_FOLDERS = ("backtest", "features")


def rows(times: list) -> list[dict]:
    return [{"id": f"e{number}", "at": at, "card": "c", "amount": "1.00"} for number, at in enumerate(times)]


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write events, and the event schema by which they are read; returns the name of the file or table."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules.yaml").write_text(RULES)

    def written(kind: str, times: list, event_time: str) -> str:
        (tmp_path / "schema.yaml").write_text(SCHEMA.format(event_time))
        table, name = pa.Table.from_pylist(rows(times)), f"day.{kind}"
        if kind == "jsonl":
            lines = (json.dumps(row, default=lambda at: at.isoformat()) for row in rows(times))
            (tmp_path / name).write_text("\n".join(lines))
        elif kind == "csv":
            pacsv.write_csv(table, tmp_path / name)
        elif kind == "parquet":
            pq.write_table(table, tmp_path / name)
        else:
            write_deltalake(tmp_path / name, table)
        return name

    return written


def run(buckets, command: str, events: str):
    return buckets(*COMMANDS[command], "--events", events, "--schema", "schema.yaml")


def last_line(ran) -> str:
    return ran.err.splitlines()[-1]


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet", "delta"])
@pytest.mark.parametrize("command", COMMANDS)
def test_seconds_that_are_declared_as_milliseconds_are_an_error_that_names_the_unit(buckets, write, command, kind):
    if kind == "delta" and command not in OF_FOLDERS:
        pytest.skip("takes files alone")
    ran = run(buckets, command, write(kind, SECONDS, IN_MS))
    assert "all 10 times are in 1970 with `unit: ms`, and with `unit: s` they are from 2025-11-13 02:13:20" in one_line(
        ran, 1
    )
    for right in ("{field: at, unit: s}", "{field: at, unit: ms, earliest: 1970-01-01}"):
        Path("schema.yaml").write_text(SCHEMA.format(right))
        assert run(buckets, command, f"day.{kind}").code == 0


def test_what_is_said_of_a_unit(buckets, write, as_worded):
    assert as_worded(last_line(run(buckets, "evaluate", write("csv", SECONDS, IN_MS))))
    assert as_worded(last_line(run(buckets, "evaluate", write("csv", SECONDS[:1], IN_MS))))
    milliseconds = [second * 1000 for second in SECONDS]
    assert as_worded(last_line(run(buckets, "evaluate", write("csv", milliseconds, "{field: at, unit: s}"))))
    assert as_worded(last_line(run(buckets, "evaluate", write("csv", AUTUMN, IN_MS))))


def test_a_test_of_rules_that_reads_a_file_says_it_too(buckets, write):
    write("jsonl", SECONDS, IN_MS)
    ran = buckets("rules", "test", "rules.yaml", "--schema", "schema.yaml")
    assert ran.code != 0
    assert "with `unit: s` they are from 2025-11-13" in ran.out + ran.err


def test_events_of_tests_are_written_in_the_format_and_zone_of_the_schema(buckets, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    event_time = '{field: when, format: "%d/%m/%Y %H:%M", zone: Europe/Berlin}'
    Path("schema.yaml").write_text(SCHEMA.format(event_time))
    test = """tests:
  - name: as they are written and from the start
    start: {}
    given:
      - {{id: a, card: c, at: 0s}}
      - {{id: b, card: c, when: "03/07/2026 10:01"}}
      - {{id: c, card: c, at: {}}}
    expect: {{alerts: []}}
"""
    for start in ("03/07/2026 10:00", "2026-07-03T08:00Z"):
        Path("rules.yaml").write_text(RULES.partition("tests:")[0] + test.format(f'"{start}"', "2m"))
        ran = buckets("rules", "test", "rules.yaml", "--schema", "schema.yaml")
        assert ran.code == 0, ran.out + ran.err
    Path("rules.yaml").write_text(RULES.partition("tests:")[0] + test.format('"03/07/2026 10:00"', "2m + 1ms"))
    ran = buckets("rules", "test", "rules.yaml", "--schema", "schema.yaml")
    assert ran.code != 0
    assert "2026-07-03T08:02:00.001Z cannot be written as %d/%m/%Y %H:%M in Europe/Berlin" in ran.out + ran.err


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet", "delta"])
@pytest.mark.parametrize("command", COMMANDS)
def test_times_without_a_zone_are_told_and_those_that_clocks_show_twice(buckets, write, command, kind):
    if kind == "delta" and command not in OF_FOLDERS:
        pytest.skip("takes files alone")
    events = write(kind, AUTUMN, ISO)
    ran = run(buckets, command, events)
    assert ran.code == 0, ran.err
    assert "10 of 10 times have no time zone and are read as UTC; write `zone: Europe/Berlin`" in ran.err
    for zone, told in (("UTC", False), ("Europe/Berlin", True)):
        Path("schema.yaml").write_text(SCHEMA.format(f"{{field: at, unit: iso8601, zone: {zone}}}"))
        ran = run(buckets, command, events)
        assert ran.code == 0, ran.err
        assert "no time zone" not in ran.err
        assert ("3 of 10 times lie in an hour that clocks of Europe/Berlin show twice" in ran.err) == told


def test_hours_that_clocks_skip_are_told(buckets, write, as_worded):
    spring = [datetime(2026, 3, 29, 1, 30), datetime(2026, 3, 29, 2, 30)]  # noqa: DTZ001
    assert as_worded(last_line(run(buckets, "evaluate", write("csv", spring, BERLIN))))


def test_a_table_in_python_is_an_error_or_a_warning(tmp_path):
    (tmp_path / "rules.yaml").write_text(RULES.partition("tests:")[0])
    schema = EventSchema.model_validate(
        {"event_id": "id", "event_time": "at", "attributes": {"card": "string"}, "measures": {"amount": {"scale": 2}}}
    )
    rules = load_rule_file(tmp_path / "rules.yaml", schema).rules
    for call in (library.evaluate, library.features, library.backtest):
        with pytest.raises(library.BucketsError, match="write `unit: s` in event_time"):
            call(pa.Table.from_pylist(rows(SECONDS)), rules, schema)
        with pytest.warns(UserWarning, match="10 of 10 times have no time zone"):
            call(pa.Table.from_pylist(rows(AUTUMN)), rules, schema)


@pytest.mark.parametrize(
    ("times", "event_time"),
    [(SECONDS, IN_MS), ([second * 1000 for second in SECONDS], "{field: at, unit: s}")],
    ids=["too coarse", "too fine"],
)
@pytest.mark.parametrize("kind", ["json", "csv", "parquet", "delta"])
def test_check_looks_at_the_first_rows_of_a_source(buckets, tmp_path, times, event_time, kind):
    ran = buckets("check", _conf(tmp_path, kind, times, event_time), "--json")
    (source,) = [thing for thing in json.loads(ran.out)["things"] if thing["thing"] == "source"]
    assert ran.code == 1
    assert "`unit: " in source["faults"][0]


def test_check_says_that_times_have_no_zone(buckets, tmp_path):
    ran = buckets("check", _conf(tmp_path, "parquet", AUTUMN, ISO), "--json")
    (source,) = [thing for thing in json.loads(ran.out)["things"] if thing["thing"] == "source"]
    assert (ran.code, source["faults"]) == (0, [])
    assert source["note"].startswith("1 file; 10 of 10 times have no time zone and are read as UTC")


def _conf(folder, kind: str, times: list, event_time: str):
    """A job that reads a folder or a table, as far as `check` looks at it."""
    source = folder / "source"
    table = pa.Table.from_pylist(rows(times))
    if kind == "delta":
        write_deltalake(source, table)
    else:
        source.mkdir()
        if kind == "json":
            (source / "a.jsonl").write_text("\n".join(json.dumps(row) for row in rows(times)))
        elif kind == "csv":
            pacsv.write_csv(table, source / "a.csv")
        else:
            pq.write_table(table, source / "a.parquet")
    (folder / "rules.yaml").write_text(RULES.partition("tests:")[0])
    (folder / "schema.yaml").write_text(SCHEMA.format(event_time))
    conf = folder / "conf.yaml"
    arrival = ", arrival: at" if kind == "delta" else ""
    conf.write_text(
        f"source: {{kind: {kind}, path: source{arrival}}}\nschema: schema.yaml\nrules: rules.yaml\n"
        "checkpoint: checkpoint\noutput: {path: tables}\n"
    )
    return conf
