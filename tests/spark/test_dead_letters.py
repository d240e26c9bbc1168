"""Lines that are no events go to the dead letters, with text, line number and reason, and the stream goes on."""

import json
from decimal import Decimal
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from buckets.config.engine import EngineSettings
from buckets.events.arrivals import shortened
from buckets.rules.rule import Rule
from tests.core import examples, written_rows
from tests.spark.evaluation import evaluate, evaluation_of
from tests.spark.job_folder import JobFolder
from tests.spark.payments import EVENT_SCHEMA

pytestmark = pytest.mark.spark

RULE = Rule.model_validate(
    {
        "rule_id": "count",
        "group_by": ["payer"],
        "where": {"kind": {"!=": "x"}},
        "aggregate": {"function": "sum", "measure": "amount"},
        "window": {"length": "1h"},
        "limit": {"operator": ">", "value": "0"},
    }
)
BROKEN_JSON, GOOD, SKIPPED, NO_KEY = "broken JSON", "good", "skipped", "no key"
NO_OBJECT = "and must be an object"


def event(**changes) -> bytes:
    written = {"id": "e", "t": 1, "payer": "ann", "kind": "CARD", "amount": "1.5"} | changes
    return json.dumps({name: value for name, value in written.items() if value is not ...}).encode()


def with_number(number: str, **changes) -> bytes:
    """A payment whose amount is a number, and so written."""
    return event(amount="PLACE", **changes).replace(b'"PLACE"', number.encode())


JSON_LINES: list[tuple[bytes, str]] = [
    (b"\xef\xbb\xbf" + event(id="after a byte order mark"), GOOD),
    (event(id="good"), GOOD),
    (b'{"id": "cut", "t": 1', BROKEN_JSON),
    (b"[" + event(id="array") + b"]", NO_OBJECT),
    (b'"text"', NO_OBJECT),
    (b"17", NO_OBJECT),
    (b"null", NO_OBJECT),
    (b"{'id': 'quotes'}", BROKEN_JSON),
    (event(id="first of two") + b" " + event(id="second of two"), BROKEN_JSON),
    (event(id="text after") + b" and more", BROKEN_JSON),
    (event(id="comma")[:-1] + b",}", BROKEN_JSON),
    (event(id="NaN", amount=...)[:-1] + b', "amount": NaN}', BROKEN_JSON),
    (b"", SKIPPED),
    (b" \t ", SKIPPED),
    (event(id=...), "id: is missing or null"),
    (event(id=None), "id: is missing or null"),
    (event(id=""), "id: is empty"),
    (event(t=...), "t: is missing or null"),
    (event(t="soon"), "t: 'soon' is not a decimal number"),
    (event(t=10**15), "is an absurd time"),
    (event(id="no payer", payer=None), NO_KEY),
    (event(id="no amount", amount=...), GOOD),
    (event(amount="1.234"), "amount: 1.234 has more than 2 digits after the point"),
    (event(amount="12 EUR"), "amount: '12 EUR' is not a decimal number"),
    (event(amount=True), "amount: 'true' is not a decimal number"),
    (event(amount=[1]), "amount: is a list, and must be one value"),
    (event(amount={"EUR": 1}), "amount: is an object, and must be one value"),
    (event(payer=["ann"]), "payer: is a list, and must be one value"),
    (event(payer={"name": "ann"}), "payer: is an object, and must be one value"),
    (event(payer=False), "payer: is false, and must be text"),
    (event(id=True), "id: is true, and must be text"),
    (with_number("12345678901234567.89", id="largest digits"), GOOD),
    (with_number("92233720368547758.07", id="largest amount", payer="bob"), GOOD),
    (with_number("92233720368547758.08"), "amount: 92233720368547758.08 is too large"),
    (with_number("100.000000000000000001"), "amount: 100.000000000000000001 has more than 2 digits after the point"),
    (with_number("1.50E+3", id="exponent"), GOOD),
    (with_number("0.1e-5"), "amount: 0.1e-5 has more than 2 digits after the point"),
    (with_number("1" + "0" * 5000 + "e-5000", id="long number"), GOOD),
    (event(id=10000000000000001), GOOD),
    (event(id=10000000000000002), GOOD),
    (event(id="half \ud800"), "id: holds '\\ud800', which is half of a character"),
    (event(payer="\udc00 half"), "payer: holds '\\udc00', which is half of a character"),
    (event(id="half, not asked for", extra="cut \ud83d"), GOOD),
    (event(id="a whole one \U0001f600"), GOOD),
    (event(id="twice")[:-1] + b', "amount": "2.5"}', "amount: is given twice"),
    (event(id="twice in disguise")[:-1] + b', "\\u0061mount": "2.5"}', "amount: is given twice"),
    (event(id="twice, not asked for")[:-1] + b', "x": 1, "x": 2}', GOOD),
    (event(id="name in another case", Amount="x"), GOOD),
    (event(id="and a field after") + b',"foo":{"a":1}', BROKEN_JSON),
    (event(id="in disguise") + b',"__event__":' + event(id="another"), BROKEN_JSON),
    (event(id="closed twice") + b"}", BROKEN_JSON),
    (b"[" * 20_000 + b"]" * 20_000, "broken JSON: nested deeper than 500 levels"),
    (event(id="deep", extra=...)[:-1] + b', "x": ' + b"[" * 20_000, "broken JSON: nested deeper than 500 levels"),
    (event(id="not so deep")[:-1] + b', "x": ' + b"[" * 499 + b"]" * 499 + b"}", GOOD),
    (b"\t" + event(id="after a tab") + b"\t", GOOD),
    (event(id="around a carriage return").replace(b", ", b",\r"), GOOD),
    (event(id="carriage return PLACE").replace(b"PLACE", b"\r"), BROKEN_JSON),
    (event(id="before one") + b"\r" + event(id="after one"), BROKEN_JSON),
    ("\u3000".encode(), BROKEN_JSON),
    ("\u00a0 \u00a0".encode(), BROKEN_JSON),
    (b" \f\v ", SKIPPED),
    (event(amount="1e30"), "amount: 1e30 is too large"),
    (event(amount="99999999999999999999.00"), "is too large"),
    (event(id="e300", amount="1.5e2"), GOOD),
    (event(id="not utf-8 PLACE").replace(b"PLACE", b"\xff\xfe"), "UTF-8"),
    (event(id="zero PLACE").replace(b"PLACE", b"\x00"), BROKEN_JSON),
    (event(id="escaped zero \0"), GOOD),
    (event(id="carriage return") + b"\r", GOOD),
    (b"\r", SKIPPED),
    (b'{"id": "cut", "t": 1\r', BROKEN_JSON),
    (event(id="more fields", extra={"deep": [1, {"er": None}]}), GOOD),
    (event(id="long", extra="x" * 2_000_000), GOOD),
    (b"{" + b"y" * 2_000_000, BROKEN_JSON),
    (event(id="last"), GOOD),
]
HEADER = b"id,t,payer,kind,amount"
CSV_LINES: list[tuple[bytes, str]] = [
    (b"\xef\xbb\xbf" + HEADER + b"\r", SKIPPED),
    (b"good,1,ann,CARD,1.5", GOOD),
    (b"few,1,ann", "broken CSV: 3 fields where the header has 5"),
    (b"many,1,ann,CARD,1.5,6", "broken CSV: 6 fields where the header has 5"),
    (b'open,1,"ann,CARD,1.5', "broken CSV"),
    (b'after,1,"ann"x,CARD,1.5', "broken CSV"),
    (b'"with, comma",1,"an ""n""",CARD,1.5\r', GOOD),
    (b"", SKIPPED),
    (b"  ", SKIPPED),
    (b",1,ann,CARD,1.5", "id: is missing or null"),
    (b"empty,,ann,CARD,1.5", "t: is missing or null"),
    (b"digits,1,ann,CARD,1.234", "has more than 2 digits"),
    (b"not utf-8 \xff,1,ann,CARD,1.5", "UTF-8"),
    ("\u3000".encode(), "broken CSV: 1 fields where the header has 5"),
    (b"carriage\rreturn,1,ann,CARD,1.5", "broken CSV: a carriage return stands between its fields"),
    (b'"quoted\rreturn",1,ann,CARD,1.5', GOOD),
    (b"\ttab,1,ann,CARD,1.5", GOOD),
    (b"long number,1,ann,CARD,1" + b"0" * 5000 + b"e-5000", GOOD),
    (b"digits,1,ann,CARD,100.000000000000000001", "has more than 2 digits after the point"),
    (b"largest,1,bob,CARD,92233720368547758.07", GOOD),
    (b"long,1,ann," + b"x" * 100_000 + b",1.5", GOOD),
    (b"last,1,ann,CARD,1.5", GOOD),
]


def raw(line: bytes) -> str:
    return shortened(line.decode("utf-8", errors="backslashreplace").rstrip("\r"))


def expected(lines: list[tuple[bytes, str]]) -> list[tuple[int, str, str]]:
    """Line number, reason and text of what should be a dead letter."""
    numbered = enumerate(lines, 1)
    return [(number, reason, raw(line)) for number, (line, reason) in numbered if reason not in (GOOD, SKIPPED, NO_KEY)]


def faults(dead_letters: list[dict], lines: list[tuple[bytes, str]]) -> list[str]:
    """How the dead letters differ from those that should be there, in a few words each."""
    found = {dead_letter["position"]: dead_letter for dead_letter in dead_letters}
    wanted = {number: (reason, text) for number, reason, text in expected(lines)}
    said = [f"line {number} is a dead letter: {found[number]['reason']}" for number in found.keys() - wanted.keys()]
    said += [f"line {number} is none: {wanted[number][1][:60]}" for number in wanted.keys() - found.keys()]
    for number in found.keys() & wanted.keys():
        reason, text = wanted[number]
        if reason not in found[number]["reason"]:
            said.append(f"line {number}: {found[number]['reason']!r}, not {reason!r}")
        if text != found[number]["raw"]:
            said.append(f"line {number}: raw is {found[number]['raw'][:60]!r}, not {text[:60]!r}")
    return sorted(said)


def good_positions(lines: list[tuple[bytes, str]]) -> list[int]:
    return [number for number, (_, reason) in enumerate(lines, 1) if reason == GOOD]


@pytest.mark.parametrize(("kind", "lines"), [("jsonl", JSON_LINES), ("csv", CSV_LINES)], ids=["json", "csv"])
def test_evaluate_sets_aside_each_line_that_is_no_event(spark, tmp_path, kind, lines):
    path = tmp_path / f"events.{kind}"
    path.write_bytes(b"\n".join(line for line, _ in lines) + b"\n")
    results = evaluate(spark, evaluation_of(path, EVENT_SCHEMA, [RULE]), tmp_path / "work")
    dead_letters = [json.loads(line) for line in results["dead_letters.jsonl"].decode().splitlines()]
    assert faults(dead_letters, lines) == []
    assert [dead_letter["position"] for dead_letter in dead_letters] == [number for number, _, _ in expected(lines)]
    alerts = [json.loads(line) for line in results["alerts.jsonl"].decode().splitlines()]
    assert [alert["position"] for alert in alerts] == good_positions(lines)


@pytest.mark.parametrize(("kind", "lines"), [("json", JSON_LINES), ("csv", CSV_LINES)], ids=["json", "csv"])
def test_a_job_sets_aside_each_line_that_is_no_event(spark, tmp_path: Path, kind, lines):
    job = JobFolder(tmp_path, source={"kind": kind, "path": "source"})
    job.write_rules([RULE.model_dump(by_alias=True, mode="json")])
    (job.source / f"lines.{kind}").write_bytes(b"\n".join(line for line, _ in lines) + b"\n")
    job.run(spark)
    assert faults(job.rows("dead_letters"), lines) == []
    assert sorted(row["position"] for row in job.rows("alerts")) == good_positions(lines)
    (account,) = job.rows("batches")
    assert account["dead_letters"] == len(expected(lines))
    assert account["evaluated"] == len(good_positions(lines))
    assert account["no_key"] == sum(reason == NO_KEY for _, reason in lines)


def test_evaluate_takes_typed_columns_to_the_digit_and_sets_aside_what_does_not_fit(spark, tmp_path: Path):
    amounts = [Decimal("1.5"), Decimal("1.234"), Decimal("12345678901234567.89"), Decimal("1e40")]
    columns = {
        "id": pa.array(["a", "b", "c", "d"], pa.large_string()),
        "t": pa.array([999_999, 1, 2_000_000, 1], pa.timestamp("ns", "Europe/Oslo")),
        "payer": pa.array(["ann"] * 4).dictionary_encode(),
        "kind": pa.array([1, 1, 2, 2], pa.uint8()),
        "amount": pa.array(amounts, pa.decimal256(70, 20)),
        "more": pa.array([[{"a`b": 1}]] * 4),
    }
    pq.write_table(pa.table(columns), tmp_path / "events.parquet")
    results = evaluate(spark, evaluation_of(tmp_path / "events.parquet", EVENT_SCHEMA, [RULE]), tmp_path / "work")
    dead_letters = [json.loads(line) for line in results["dead_letters.jsonl"].decode().splitlines()]
    assert [(dead_letter["position"], dead_letter["reason"].split(" (")[0][:30]) for dead_letter in dead_letters] == [
        (2, "amount: 1.23400000000000000000"),
        (4, "amount: 1000000000000000000000"),
    ]
    alerts = [json.loads(line) for line in results["alerts.jsonl"].decode().splitlines()]
    assert [(alert["event_id"], alert["event_time"], alert["value"]) for alert in alerts] == [
        ("a", 0, "1.50"),
        ("c", 2, "12345678901234569.39"),
    ]


def test_a_job_and_an_evaluation_make_of_any_lines_what_python_makes_of_them(spark, tmp_path: Path):
    dice = Random(5)
    lines = [written_rows.json_line(dice) for _ in range(2000)]
    wanted = [written_rows.expected_of_json(line) for line in lines]
    dead = [number for number, event in enumerate(wanted, 1) if event == written_rows.DEAD]
    most = examples.rule("most", aggregate={"function": "max", "measure": "amount"})
    strict = {"shards": 4, "allowed_lateness": "100ms", "nulls": "strict"}
    job = JobFolder(tmp_path / "job", source={"kind": "json", "path": "source"}, engine=strict)
    job.write_schema(examples.SCHEMA.model_dump(mode="json"))
    job.write_rules([most.model_dump(by_alias=True, mode="json")])
    path = job.source / "lines.jsonl"
    path.write_bytes(b"\n".join(lines))
    job.run(spark)
    assert sorted(row["position"] for row in job.rows("dead_letters")) == dead
    (account,) = job.rows("batches")
    assert account["events_in"] == len(wanted) - wanted.count(written_rows.SKIPPED)
    settings = EngineSettings.model_validate(strict)
    results = evaluate(spark, evaluation_of(path, examples.SCHEMA, [most], settings), tmp_path / "work")
    assert [json.loads(row)["position"] for row in results["dead_letters.jsonl"].splitlines()] == dead
