"""The generated stream: exact windows find what is planted, and disorder is as much as asked for."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner

from buckets.cli.generate import generate as generate_command
from buckets.errors import BucketsError
from buckets.events.schema import load_event_schema
from buckets.generator import PATTERNS, GeneratorSettings, PlantedCase, Stream, generate, write
from buckets.rule_files.yaml_rules import load_rules
from buckets.rules.rule import Rule

REPOSITORY = Path(__file__).parents[2]
MESSY = GeneratorSettings(
    transactions=20_000,
    fraud_cases=4,
    late_rate=0.02,
    duplicate_rate=0.01,
    collision_rate=0.005,
    malformed_rate=0.003,
)
SMALL = GeneratorSettings(transactions=1_000, days=2, fraud_cases=1, rows_per_file=300)
MINUTE_MS = 60_000
COMPARE: dict[str, Callable[[Decimal, Decimal], bool]] = {
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "<": lambda a, b: a < b,
}
Event = dict[str, Any]


@pytest.fixture(scope="module")
def rules() -> dict[str, Rule]:
    schema = load_event_schema(REPOSITORY / "schemas" / "transaction.yaml")
    return {rule.rule_id: rule for rule in load_rules(REPOSITORY / "conf" / "demo-rules.yaml", schema)}


@pytest.fixture(scope="module", params=[7, 8, 9])
def stream(request: pytest.FixtureRequest) -> Stream:
    return generate(GeneratorSettings(**{**vars(MESSY), "seed": request.param}))


def broken(stream: Stream) -> set[str]:
    return {line for _, line in stream.malformed}


@pytest.fixture(scope="module")
def arrivals(stream: Stream) -> list[Event]:
    malformed = broken(stream)
    return [json.loads(line) for line in stream.json_lines() if line not in malformed]


def in_group(event: Event, rule: Rule, key: dict[str, str]) -> bool:
    return all(event[field] == value for field, value in key.items()) and all(
        COMPARE[test.operator](Decimal(event[test.field]), Decimal(test.operands[0])) for test in rule.where
    )


def fired_events(events: list[Event], rule: Rule) -> Iterator[str]:
    """Ids of the events of one key at which the rule fires: a list of what has arrived, and a loop over it."""
    seen: list[Event] = []
    for event in events:
        if any(other["transactionId"] == event["transactionId"] for other in seen):
            continue
        is_late = any(other["eventTime"] > event["eventTime"] for other in seen)
        seen.append(event)
        start = event["eventTime"] - rule.window.begins_ms
        amounts = [Decimal(x["paymentAmount"]) for x in seen if start <= x["eventTime"] <= event["eventTime"]]
        value = sum(amounts, Decimal(0)) if rule.aggregate.function == "sum" else Decimal(len(amounts))
        if not is_late and COMPARE[rule.limit.operator](value, rule.limit.value):
            yield event["transactionId"]


def only(cases: tuple[PlantedCase, ...], pattern: str) -> list[PlantedCase]:
    return [case for case in cases if case.pattern == pattern]


def test_every_case_is_caught_by_its_rule_at_the_detecting_event_or_earlier(
    stream: Stream, arrivals: list[Event], rules: dict[str, Rule]
) -> None:
    position = {event["transactionId"]: row for row, event in reversed(list(enumerate(arrivals)))}
    assert Counter(case.pattern for case in stream.truth) == dict.fromkeys(PATTERNS, 4)
    for case in stream.truth:
        rule = rules[case.rule_id]
        assert rule.state == "ACTIVE"
        assert tuple(case.key) == rule.group_by
        fired = list(fired_events([event for event in arrivals if in_group(event, rule, case.key)], rule))
        assert case.detect_event_id in fired, case
        assert position[fired[0]] <= position[case.detect_event_id], case


def test_planted_events_alone_first_cross_the_limit_at_the_detecting_event(
    stream: Stream, arrivals: list[Event], rules: dict[str, Rule]
) -> None:
    for case in stream.truth:
        planted = [event for event in arrivals if event["transactionId"] in case.event_ids]
        assert [event["transactionId"] for event in planted] == list(case.event_ids)
        assert all(in_group(event, rules[case.rule_id], case.key) for event in planted)
        assert next(fired_events(planted, rules[case.rule_id])) == case.detect_event_id
        times = {event["transactionId"]: event["eventTime"] for event in planted}
        assert (min(times.values()), max(times.values())) == (case.first_time, case.last_time)
        assert times[case.detect_event_id] == case.detect_by_time


def test_five_in_five_is_in_no_window_that_hops_by_a_minute(stream: Stream, arrivals: list[Event]) -> None:
    for case in only(stream.truth, "five-in-five"):
        card = [event for event in arrivals if event["cardId"] == case.key["cardId"]]
        near = [x["eventTime"] for x in card if abs(x["eventTime"] - case.first_time) < 10 * MINUTE_MS]
        assert len(near) == len(case.event_ids) == 5
        assert max(near) - min(near) < 5 * MINUTE_MS
        for k in range(min(near) // MINUTE_MS - 5, max(near) // MINUTE_MS + 1):
            inside = [time for time in near if k * MINUTE_MS <= time < k * MINUTE_MS + 5 * MINUTE_MS]
            assert len(inside) < 5


def test_false_alarms_are_few(stream: Stream, arrivals: list[Event], rules: dict[str, Rule]) -> None:
    planted = {event_id for case in stream.truth for event_id in case.event_ids}
    for case in stream.truth[:: MESSY.fraud_cases]:
        rule = rules[case.rule_id]
        by_key: dict[tuple[str, ...], list[Event]] = {}
        for event in arrivals:
            if in_group(event, rule, {}):
                by_key.setdefault(tuple(event[field] for field in rule.group_by), []).append(event)
        fired = {event_id for events in by_key.values() for event_id in fired_events(events, rule)}
        assert len(fired - planted) < len(arrivals) * 0.003


def test_planted_events_come_once_and_on_time(stream: Stream, arrivals: list[Event]) -> None:
    planted = {event_id for case in stream.truth for event_id in case.event_ids}
    clock = 0
    seen = []
    for event in arrivals:
        if event["transactionId"] in planted:
            seen.append(event["transactionId"])
            assert event["eventTime"] >= clock
        clock = max(clock, event["eventTime"])
    assert sorted(seen) == sorted(planted)


def test_disorder_is_as_much_as_asked_for(stream: Stream, arrivals: list[Event]) -> None:
    lines = [json.dumps(event) for event in arrivals]
    by_id = Counter(event["transactionId"] for event in arrivals)
    repeated = {event_id for event_id, count in by_id.items() if count > 1}
    assert len(arrivals) - len(set(lines)) == len(repeated) == stream.counts.duplicates == 200

    first_of: dict[str, Event] = {}
    for event in arrivals:
        first_of.setdefault(event["transactionId"], event)
    first_arrivals = list(first_of.values())
    assert len(first_arrivals) == 20_000 + stream.counts.collisions
    whole_key = ("payerId", "beneficiaryId", "cardId", "eventTime")
    sharing = Counter(tuple(event[field] for field in whole_key) for event in first_arrivals)
    assert sum(count - 1 for count in sharing.values()) == stream.counts.collisions == 100

    clock, late = 0, 0
    for event in first_arrivals:
        late += event["eventTime"] < clock
        assert clock - event["eventTime"] <= MESSY.max_delay_ms
        clock = max(clock, event["eventTime"])
    assert late == stream.counts.late
    assert late == pytest.approx(400, rel=0.05)
    assert len(stream.malformed) == stream.counts.malformed == 60


def test_many_late_events_are_late_for_their_card(stream: Stream, arrivals: list[Event]) -> None:
    clocks: dict[str, int] = {}
    seen: set[str] = set()
    late = 0
    for event in arrivals:
        if event["transactionId"] not in seen:
            seen.add(event["transactionId"])
            late += event["eventTime"] < clocks.get(event["cardId"], 0)
            clocks[event["cardId"]] = max(clocks.get(event["cardId"], 0), event["eventTime"])
    assert late > stream.counts.late * 0.05


def test_malformed_lines_are_malformed(stream: Stream) -> None:
    fields = {
        "transactionId",
        "eventTime",
        "payerId",
        "beneficiaryId",
        "cardId",
        "paymentType",
        "paymentAmount",
    }
    for _, line in stream.malformed:
        try:
            event = json.loads(line)
        except json.JSONDecodeError:
            continue
        whole, _, cents = event.get("paymentAmount", "").partition(".")
        is_amount = whole.isdigit() and cents.isdigit() and len(cents) == 2
        is_time = 0 < event.get("eventTime", 0) < 4_000_000_000_000
        assert set(event) != fields or not is_amount or not is_time, line


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["out", "out.jsonl", "out.csv", "out.parquet"])
def test_same_seed_same_bytes(tmp_path: Path, name: str) -> None:
    for run in ("first", "second"):
        write(generate(SMALL), tmp_path / run / name)
    assert contents(tmp_path / "first") == contents(tmp_path / "second")
    other = GeneratorSettings(**{**vars(SMALL), "seed": 8})
    write(generate(other), tmp_path / "other" / name)
    assert contents(tmp_path / "other") != contents(tmp_path / "first")


def test_other_disorder_leaves_transactions_and_truth_as_they_were() -> None:
    calm = GeneratorSettings(**{**vars(MESSY), "late_rate": 0, "duplicate_rate": 0, "collision_rate": 0})
    messy, calm_stream = generate(MESSY), generate(calm)
    assert messy.truth == calm_stream.truth
    kept = {line for line in messy.json_lines() if json_id(line) < "t000020000"} - broken(messy)
    assert kept == set(calm_stream.json_lines()) - broken(calm_stream)


def json_id(line: str) -> str:
    return line.removeprefix('{"transactionId":"')[:10]


def test_a_folder_holds_full_files_in_arrival_order_and_of_ascending_age(tmp_path: Path) -> None:
    stream = generate(SMALL)
    progress: list[int] = []
    written = write(stream, tmp_path / "out", progress.append)
    files = sorted((tmp_path / "out").iterdir())
    assert [path.name for path in files] == [f"transactions-{n:05d}.jsonl" for n in range(4)]
    assert written.files == tuple(files)
    lines = [path.read_text().splitlines() for path in files]
    assert [len(part) for part in lines] == [300, 300, 300, stream.line_count - 900]
    assert [line for part in lines for line in part] == list(stream.json_lines())
    ages = [path.stat().st_mtime_ns for path in files]
    assert ages == sorted(set(ages))
    assert progress[-1] == stream.line_count == written.line_count
    truth = (tmp_path / "out.truth.jsonl").read_text().splitlines()
    assert [json.loads(line)["case_id"] for line in truth] == [case.case_id for case in stream.truth]


def test_csv_and_parquet_hold_the_same_rows_as_json(tmp_path: Path) -> None:
    stream = generate(SMALL)
    expected = [json.loads(line) for line in stream.json_lines()]
    write(stream, tmp_path / "a.csv")
    header, *rows = (tmp_path / "a.csv").read_text().splitlines()
    assert header.split(",") == list(expected[0])
    assert [row.split(",") for row in rows] == [[str(value) for value in event.values()] for event in expected]
    write(stream, tmp_path / "b.parquet")
    table = pq.read_table(tmp_path / "b.parquet")
    assert table.schema.field("paymentAmount").type == pa.decimal128(18, 2)
    assert table.schema.field("eventTime").type == pa.int64()
    as_text = [{**row, "paymentAmount": str(row["paymentAmount"])} for row in table.to_pylist()]
    assert as_text == expected
    assert {path.name for path in tmp_path.glob("*.truth.jsonl")} == {"a.truth.jsonl", "b.truth.jsonl"}


def test_a_stream_may_be_tiny_and_without_fraud() -> None:
    stream = generate(GeneratorSettings(transactions=1, fraud_cases=0, days=1))
    assert (len(stream.transactions), stream.truth) == (1, ())


@pytest.mark.parametrize(
    "wrong",
    [
        {"late_rate": 1.5},
        {"duplicate_rate": -0.1},
        {"collision_rate": float("nan")},
        {"malformed_rate": 0.9},
        {"late_rate": 0.3, "duplicate_rate": 0.3},
        {"transactions": 999},
        {"payers": 100, "fraud_cases": 6},
        {"cards": 10},
        {"days": 0},
        {"seed": -1},
        {"fraud_cases": -1},
        {"rows_per_file": 0},
        {"max_delay_ms": 0},
        {"start_time": "soon"},
        {"start_time": "2199-12-31"},
    ],
)
def test_settings_that_cannot_be_met_are_refused(wrong: dict[str, Any], as_worded) -> None:
    with pytest.raises(BucketsError, check=as_worded):
        GeneratorSettings(**wrong)


def test_a_taken_output_is_refused_unless_it_may_be_replaced(tmp_path: Path, as_worded) -> None:
    many = GeneratorSettings(**{**vars(SMALL), "rows_per_file": 100})
    for name in ("out", "out.jsonl"):
        folder = tmp_path / name.replace(".", "-")
        write(generate(many), folder / name)
        with pytest.raises(BucketsError, check=as_worded):
            write(generate(SMALL), folder / name)
        write(generate(SMALL), folder / name, overwrite=True)
        write(generate(SMALL), tmp_path / "fresh" / folder.name / name)
        assert contents(folder) == contents(tmp_path / "fresh" / folder.name)


def test_what_is_no_generated_stream_is_never_removed(tmp_path: Path, as_worded) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(BucketsError, check=as_worded):
        write(generate(SMALL), tmp_path, overwrite=True)
    assert contents(tmp_path) == {"notes.txt": b"mine"}


@pytest.mark.parametrize("name", ["x.csv", "x.parquet"])
def test_malformed_lines_need_json(tmp_path: Path, name: str, as_worded) -> None:
    with pytest.raises(BucketsError, check=as_worded):
        write(generate(MESSY), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_an_ending_that_is_not_written_is_refused(tmp_path: Path, as_worded) -> None:
    with pytest.raises(BucketsError, check=as_worded):
        write(generate(SMALL), tmp_path / "x.json")


def test_the_command_writes_a_stream_and_says_what_is_in_it(tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(generate_command)
    out = tmp_path / "out"
    options = [
        "--out",
        str(out),
        "--transactions",
        "2000",
        "--malformed-rate",
        "0.01",
        "--rows-per-file",
        "1000",
    ]
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 0, result.output
    assert len(list(out.iterdir())) == 3
    assert (tmp_path / "out.truth.jsonl").exists()
    for word in ("structuring", "five-in-five", "late", "duplicates", "collisions", "malformed"):
        assert word in result.output
    assert isinstance(CliRunner().invoke(app, options).exception, BucketsError)
    assert CliRunner().invoke(app, [*options, "--overwrite"]).exit_code == 0


def test_help_shows_examples_as_they_are_typed() -> None:
    app = typer.Typer()
    app.command()(generate_command)
    text = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80", "TERM": "dumb"}).output
    lines = [line.strip() for line in text.splitlines()]
    first = lines.index("Examples:") + 1
    assert lines[first : first + 2] == [
        "buckets generate --out stream",
        "buckets generate --out week.parquet --days 7 --transactions 50000",
    ]
