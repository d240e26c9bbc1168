"""Drafted rules: whatever events they are drafted from, their own tests pass, and the limit is just crossed."""

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import assume, given
from hypothesis import strategies as st

import buckets
from buckets.config.engine import EngineSettings
from buckets.config.job import Job, load_job
from buckets.errors import BucketsError
from buckets.events.schema import EventSchema, load_event_schema
from buckets.resources import DEFAULT_SCHEMA
from buckets.rule_files.yaml_rules import RuleFile, load_rule_file
from buckets.rule_tests.draft import RuleForm, draft, events_of_alert, past_alert
from buckets.rule_tests.given_events import EventRow
from buckets.rule_tests.tester import RuleTester, untested
from buckets.rules.feature import Aggregation, Window

PAYMENTS = load_event_schema(DEFAULT_SCHEMA)
BEGIN_MS = 1_768_291_200_000


def form(function: str, window: str, left: str = "closed", group_by: tuple[str, ...] = ("payerId",)) -> RuleForm:
    measure = {} if function == "count" else {"measure": "paymentAmount"}
    aggregate = Aggregation.model_validate({"function": function} | measure)
    return RuleForm("drafted", "Drafted", group_by, aggregate, Window.model_validate({"length": window, "left": left}))


def row(number: int, payer: str, cents: int, time: str) -> EventRow:
    amount = f"{'-' if cents < 0 else ''}{abs(cents) // 100}.{abs(cents) % 100:02}"
    return {"transactionId": f"t{number}", "payerId": payer, "paymentAmount": amount, "eventTime": time}


@st.composite
def streams(draw: st.DrawFn, schema: EventSchema) -> list[EventRow]:
    """Events of two payers, also late, repeated, at one time, and with negative amounts."""
    steps = st.tuples(st.sampled_from(["p1", "p2"]), st.integers(-300, 300), st.integers(0, 12), st.booleans())
    rows = []
    for number, (payer, cents, step, again) in enumerate(draw(st.lists(steps, min_size=1, max_size=12))):
        time_ms = BEGIN_MS + step * 1000
        time = {"ms": str(time_ms), "s": f"{time_ms / 1000:.3f}", "iso8601": f"2026-01-13T08:00:{step:02}.000Z"}
        rows.append(row(number, payer, cents, time[schema.event_time.unit]))
        if again:
            rows.append(rows[0])
    return rows


def read(folder: Path, text: str, schema: EventSchema) -> RuleFile:
    path = folder / "drafted.yaml"
    path.write_text(text, encoding="utf-8")
    return load_rule_file(path, schema)


def drafted(folder: Path, of: RuleForm, rows: list[EventRow], schema: EventSchema, engine: EngineSettings) -> RuleFile:
    """A draft that was read again, and whose tests have been run."""
    file = read(folder, draft(of, rows, schema, engine), schema)
    tester = RuleTester(file, schema, engine)
    assert [tester.run(index).failures for index in range(len(file.tests))] == [(), ()]
    fires, less = file.tests
    assert fires.expect.alerts
    assert less.expect.alerts == ()
    assert untested(file) == []
    return file


@pytest.mark.slow
@given(
    st.data(),
    st.sampled_from(["ms", "s", "iso8601"]),
    st.sampled_from(["sum", "count", "avg", "min", "max"]),
    st.integers(1, 9000),
    st.sampled_from(["closed", "open"]),
    st.sampled_from(["add", "drop", "evaluate"]),
    st.sampled_from(["keep", "keep_first", "replace"]),
)
def test_what_is_drafted_from_any_events_passes_its_own_tests(
    tmp_path_factory, data, unit, function, length_ms, left, late, collision
):
    schema = PAYMENTS.model_copy(update={"event_time": PAYMENTS.event_time.model_copy(update={"unit": unit})})
    rows = data.draw(streams(schema))
    of, engine = form(function, f"{length_ms}ms", left), EngineSettings(late=late, collision=collision)
    folder = tmp_path_factory.mktemp("drafted")
    if function == "count" and most_at_once(of, rows, schema, engine) == 1:
        with pytest.raises(BucketsError, match="a count of one is no limit"):
            draft(of, rows, schema, engine)
        return
    drafted(folder, of, rows, schema, engine)


def most_at_once(of: RuleForm, rows: list[EventRow], schema: EventSchema, engine: EngineSettings) -> int:
    rule = of.rule(Decimal(0), schema).model_copy(update={"state": "ACTIVE"})
    table = pa.Table.from_pylist([{**each} for each in rows])
    values = buckets.evaluate(table, [rule], schema, engine).evaluations["value"].to_pylist()
    assume(values)
    return int(max(values))


STREAM = [row(n, "p1", cents, str(BEGIN_MS + n * 60_000)) for n, cents in enumerate([1000, 1007, 9901, 1])]


@pytest.mark.parametrize(
    ("function", "limit", "fires", "less"),
    [
        ("sum", "119.09", ["t3"], ["10.00", "10.07", "99.01", "0.00"]),
        ("count", "4", ["t3"], 3),
        ("avg", "39.69333333", ["t2"], ["10.00", "10.07", "99.00", "0.01"]),
        ("max", "99.01", ["t2", "t3"], ["10.00", "10.07", "99.00", "0.01"]),
        ("min", "10", ["t0", "t1", "t2"], ["9.99", "9.99", "9.99", "0.01"]),
    ],
)
def test_the_limit_is_what_the_events_just_cross(tmp_path, function, limit, fires, less):
    file = drafted(tmp_path, form(function, "1h"), STREAM, PAYMENTS, EngineSettings())
    (rule,) = file.rules
    assert rule.limit is not None
    assert (rule.state, rule.limit.operator, str(rule.limit.value)) == ("DRAFT", ">=", limit)
    crossing, below = file.tests
    assert [alert.event for alert in crossing.expect.alerts or ()] == fires
    given_below: Any = below.given
    amounts = [each.__pydantic_extra__.get("paymentAmount") for each in given_below]
    assert amounts == less if isinstance(less, list) else len(amounts) == less


def test_the_filter_stays_and_only_fields_that_the_rule_needs_are_written(tmp_path):
    rule = buckets.Rule.model_validate(
        {
            "rule_id": "old",
            "group_by": ["payerId"],
            "where": "paymentType = 'CRD' AND paymentAmount >= 10.07",
            "aggregate": {"function": "sum", "measure": "paymentAmount"},
            "window": {"length": "1h"},
            "limit": {"operator": ">", "value": 1},
        }
    )
    of = RuleForm("new", "Drafted", rule.group_by, rule.aggregate, rule.window, rule.where)
    rows = [each | {"paymentType": "CRD", "cardId": "c1"} for each in STREAM]
    file = drafted(tmp_path, of, rows, PAYMENTS, EngineSettings())
    assert file.rules[0].where == rule.where
    assert set(file.tests[0].defaults) == {"payerId", "paymentType"}


@pytest.mark.parametrize(
    ("of", "rows"),
    [
        (form("count", "1ms"), STREAM),
        (form("sum", "1h", group_by=("payer",)), STREAM),
        (form("sum", "1h"), [STREAM[0] | {"paymentAmount": "much"}]),
        (form("sum", "1h"), [{"transactionId": "a", "eventTime": "1"}]),
    ],
)
def test_what_cannot_be_drafted_is_said_in_one_line(of, rows, as_worded):
    with pytest.raises(BucketsError, check=as_worded):
        draft(of, rows, PAYMENTS, EngineSettings())


RULES = """\
rules:
  - rule_id: payer-1h
    group_by: [payerId]
    aggregate: {function: sum, measure: paymentAmount}
    window: {length: 2m}
    limit: {operator: ">", value: "20"}
"""


def a_job(folder: Path, lines: list[str]) -> Job:
    """A job as it stands after it has read these lines."""
    (folder / "source").mkdir()
    (folder / "rules.yaml").write_text(RULES)
    (folder / "source" / "day.jsonl").write_text("\n".join(lines) + "\n")
    settings = {
        "source": {"kind": "json", "path": "source"},
        "schema": str(DEFAULT_SCHEMA),
        "rules": {"path": "rules.yaml"},
        "checkpoint": "checkpoint",
        "output": {"path": "tables"},
        "trigger": {"available_now": True},
    }
    (folder / "conf.yaml").write_text(json.dumps(settings))
    job = load_job(folder / "conf.yaml")
    rows = pa.Table.from_pylist([json.loads(line) for line in lines if line.startswith("{")])
    write_deltalake(folder / "tables" / "alerts", buckets.Evaluator(job.rules, PAYMENTS).recorded(rows).alerts)
    return job


def test_the_events_of_an_alert_are_those_of_its_key_and_window_up_to_its_own(tmp_path, as_worded):
    others = [each | {"transactionId": f"other-{each['transactionId']}", "payerId": "p2"} for each in STREAM[:2]]
    later = row(9, "p1", 5, str(BEGIN_MS + 3 * 60_000))
    job = a_job(tmp_path, ["no event", *map(json.dumps, [*others, *STREAM, later])])
    alerts = [
        each
        for each in buckets.read_output(tmp_path / "tables", "alerts").to_pylist()
        if each["key"] == {"payerId": "p1"}
    ]
    assert [alert["event_id"] for alert in alerts] == ["t1", "t2", "t3", "t9"]
    alert = past_alert(job, alerts[2]["alert_id"])
    assert [each["transactionId"] for each in events_of_alert(alert, job, None)] == ["t1", "t2", "t3"]
    file = tmp_path / "these.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in STREAM))
    assert events_of_alert(alert, job, file) == events_of_alert(alert, job, None)
    file.write_text(json.dumps(STREAM[0]) + "\n")
    with pytest.raises(BucketsError, check=as_worded):
        events_of_alert(alert, job, file)
    with pytest.raises(BucketsError, check=as_worded):
        past_alert(job, "nobody")


def test_the_events_of_an_alert_are_found_in_files_of_any_layout(tmp_path):
    job = a_job(tmp_path, list(map(json.dumps, STREAM)))
    alerts = buckets.read_output(tmp_path / "tables", "alerts").to_pylist()
    alert = past_alert(job, alerts[-1]["alert_id"])
    expected = events_of_alert(alert, job, None)
    (tmp_path / "source" / "day.jsonl").unlink()
    (tmp_path / "source" / "day.json.gz").write_bytes(gzip.compress(json.dumps(STREAM, indent=1).encode()))
    (tmp_path / "source" / "broken.json").write_text("[{")
    schema = job.event_schema.model_copy(update={"records": "[]"})
    assert events_of_alert(alert, job.model_copy(update={"event_schema": schema}), None) == expected


@pytest.mark.filterwarnings("error")
def test_what_is_drafted_of_events_in_local_times_says_nothing_of_zones(tmp_path):
    time = {"field": "eventTime", "format": "%d.%m.%Y %H:%M"}
    schema = EventSchema.model_validate(PAYMENTS.model_dump() | {"event_time": time})
    rows = [row(number, "p1", 100, f"05.01.2026 09:0{number}") for number in range(3)]
    assert drafted(tmp_path, form("count", "1h"), rows, schema, EngineSettings()).rules[0].rule_id == "drafted"
