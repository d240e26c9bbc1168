"""Verdicts: the latest counts in any order, a round trip through message and table, and quality against naive loops."""

import itertools
import json
import math
import multiprocessing
from decimal import Decimal
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

import buckets
from buckets.audit.tables import MessageReader, audit_tables, read_message
from buckets.audit.writer import AuditWriter
from buckets.errors import BucketsError
from buckets.outputs.columns import ALERTS, HELD_ALERTS, SHADOW_ALERTS, VERDICTS
from buckets.outputs.contract import schema_path
from buckets.verdicts.confirmed import Fraud, RecordedAlert
from buckets.verdicts.quality import RuleQuality, Thresholds, advise, quality
from buckets.verdicts.verdict import FINDINGS, TABLE, Verdict, findings, identity, wilson
from buckets.verdicts.verdict_table import append_verdicts, load_verdicts
from tests.core.test_contract import batch_of
from tests.laws import examples

MADE_MS = 1_767_225_600_000
EVENTS = [f"e{number}" for number in range(8)]
RULES = ["large", "often", "trial"]


def alert_id(rule_id: str, event_id: str) -> str:
    return f"{rule_id} on {event_id}"


# which verdict counts

verdict_lists = st.lists(
    st.builds(
        lambda number, finding, at, about: Verdict(f"v{number}", finding, "ann", MADE_MS + at, *about),
        st.integers(0, 10**6),
        st.sampled_from(FINDINGS),
        st.integers(0, 3),
        st.one_of(
            st.tuples(st.sampled_from(RULES), st.sampled_from(EVENTS)).map(lambda pair: (alert_id(*pair), pair[1])),
            st.tuples(st.none(), st.sampled_from(EVENTS)),
        ),
    ),
    max_size=25,
    unique_by=lambda verdict: verdict.id,
)


def naive_latest(verdicts: list[Verdict]) -> list[Verdict]:
    """Those verdicts on whose alert, or event without one, there is no later one."""
    return [
        one
        for one in verdicts
        if not any(
            other.alert_id == one.alert_id
            and (one.alert_id is not None or other.event_id == one.event_id)
            and (other.made_at_ms, other.id) > (one.made_at_ms, one.id)
            for other in verdicts
        )
    ]


def naive_of_event(verdicts: list[Verdict], event_id: str) -> str | None:
    of_event = [each for each in naive_latest(verdicts) if each.event_id == event_id]
    clear = [each for each in of_event if each.verdict != "unclear"]
    chosen = sorted(clear or of_event, key=lambda each: (each.made_at_ms, each.id))
    return chosen[-1].verdict if chosen else None


def naive_of_alert(verdicts: list[Verdict], one: RecordedAlert) -> str | None:
    own = [each.verdict for each in naive_latest(verdicts) if each.alert_id == one.alert_id]
    return own[0] if own else naive_of_event(verdicts, one.event_id)


@given(verdict_lists, st.randoms())
def test_the_latest_verdict_counts_in_whatever_order_they_come(verdicts, random):
    shuffled = list(verdicts)
    random.shuffle(shuffled)
    found = findings(shuffled)
    assert found == findings(verdicts)
    latest = {each.alert_id: each for each in naive_latest(verdicts) if each.alert_id is not None}
    assert found.by_alert == latest
    assert {name: each.verdict for name, each in found.by_event.items()} == {
        event_id: naive_of_event(verdicts, event_id)
        for event_id in EVENTS
        if any(verdict.event_id == event_id for verdict in verdicts)
    }


# the quality of rules

alert_lists = st.lists(
    st.builds(
        lambda rule_id, event, output, payer, decided: RecordedAlert(
            output,
            alert_id(rule_id, event),
            rule_id,
            event,
            EVENTS.index(event) * 1000,
            {"payer": payer} if rule_id != "often" else {"payer": payer, "vip": True},
            decided,
        ),
        st.sampled_from(RULES),
        st.sampled_from(EVENTS),
        st.sampled_from([ALERTS, SHADOW_ALERTS, HELD_ALERTS]),
        st.sampled_from(["p1", "p2"]),
        st.none() | st.integers(0, 50_000),
    ),
    max_size=20,
    unique_by=lambda alert: alert.alert_id,
)
fraud_tables = st.dictionaries(
    st.sampled_from(EVENTS),
    st.tuples(
        st.booleans(),
        st.sampled_from([None, Decimal("1.50"), Decimal(20)]),
        st.sampled_from([{}, {"payer": "p1"}, {"payer": "p2", "vip": True}, {"payer": "p1", "vip": "true"}]),
    ),
)


@settings(max_examples=examples(300))
@given(alert_lists, verdict_lists, fraud_tables)
def test_the_quality_of_rules_is_that_of_loops_over_lists(alerts, verdicts, table):
    frauds = {
        event_id: Fraud(event_id, EVENTS.index(event_id) * 1000 if timed else None, amount, fields)
        for event_id, (timed, amount, fields) in table.items()
    }
    found = quality(alerts, findings(verdicts), frauds, {"large": "ACTIVE", "quiet": "SHADOW"})
    assert [each.rule_id for each in found] == sorted({"large", "quiet"} | {each.rule_id for each in alerts})
    for each in found:
        assert_naive(each, alerts, verdicts, frauds)


def assert_naive(
    found: RuleQuality, alerts: list[RecordedAlert], verdicts: list[Verdict], frauds: dict[str, Fraud]
) -> None:
    mine = [each for each in alerts if each.rule_id == found.rule_id]
    fired = [each for each in mine if each.output != HELD_ALERTS]
    assert [found.alerts, found.shadow_alerts, found.held_alerts] == [
        len([each for each in mine if each.output == output]) for output in (ALERTS, SHADOW_ALERTS, HELD_ALERTS)
    ]
    said = [naive_of_alert(verdicts, each) for each in fired]
    assert dict(found.verdicts) == {finding: said.count(finding) for finding in FINDINGS}
    own = {each.alert_id for each in verdicts}
    assert found.by_event == sum(
        word is not None and each.alert_id not in own for word, each in zip(said, fired, strict=True)
    )
    caught = {each.event_id for each in fired if each.event_id in frauds}
    assert (found.frauds, found.caught) == (len(frauds), len(caught))
    others = {each.event_id for each in alerts if each.output == ALERTS and each.rule_id != found.rule_id}
    assert found.caught_alone == len(caught - others)
    held = {each.event_id for each in mine if each.output == HELD_ALERTS and each.event_id in frauds}
    assert found.caught_held == len(held - caught)
    amounts = {event_id: each.amount or 0 for event_id, each in frauds.items()}
    assert found.amount_caught == sum(amount for event_id, amount in amounts.items() if event_id in caught)
    assert found.amount_missed == sum(amount for event_id, amount in amounts.items() if event_id not in caught)
    waits, keys = naive_waits(fired, frauds)
    assert (found.fraud_keys, found.detected_keys) == (len(keys), len(waits))
    assert found.detect_ms == (median(waits) if waits else None)
    decided = [each.decided_ms - each.event_time_ms for each in fired if each.decided_ms is not None]
    assert found.decide_ms == (median(decided) if decided else None)
    fraud, legitimate = said.count("fraud"), said.count("legitimate")
    if fraud + legitimate:
        assert found.fraud_of_judged is not None
        assert found.fraud_of_judged.share == fraud / (fraud + legitimate)
        assert found.false_positives == legitimate / (fraud + legitimate)
    else:
        assert found.fraud_of_judged is found.false_positives is None


def naive_waits(fired: list[RecordedAlert], frauds: dict[str, Fraud]) -> tuple[list[int], set[str]]:
    """How long each key waited for its first alert since its first fraud, and the keys that have one."""
    waits, keys = [], set()
    for payer, fields in itertools.product(["p1", "p2"], sorted({tuple(sorted(each.key)) for each in fired})):
        times = [
            each.event_time_ms
            for each in frauds.values()
            if each.event_time_ms is not None
            and each.fields.get("payer") == payer
            and (fields == ("payer",) or each.fields.get("vip") in (True, "true"))
        ]
        if times:
            keys.add((payer, fields))
            later = [
                each.event_time_ms
                for each in fired
                if each.key["payer"] == payer and tuple(sorted(each.key)) == fields and each.event_time_ms >= min(times)
            ]
            waits += [min(later) - min(times)] if later else []
    return waits, keys


@given(st.integers(0, 400), st.integers(1, 400))
def test_the_ends_of_an_interval_are_where_the_share_is_as_far_as_95_percent_allow(hits, count):
    """Which is how Wilson's interval is defined."""
    hits = min(hits, count)
    found = wilson(hits, count)
    assert found is not None
    assert 0 <= found.low <= found.share <= found.high <= 1
    for end in (found.low, found.high):
        if end not in (0, 1):
            distance = 1.959963984540054 * math.sqrt(end * (1 - end) / count)
            assert math.isclose(abs(found.share - end), distance, rel_tol=1e-9)
    assert wilson(0, 0) is None


def rule(fraud: int, legitimate: int, alone: int = 0) -> RuleQuality:
    counts = {"fraud": fraud, "legitimate": legitimate, "unclear": 3}
    zero = Decimal(0)
    alerts = fraud + legitimate + 5
    return RuleQuality("r", "ACTIVE", alerts, 0, 0, counts, 0, 50, fraud, alone, 0, zero, zero, 0, 0, None, None)


ADVICE = [
    (rule(19, 0), "not enough verdicts"),
    (rule(0, 0), "not enough verdicts"),
    (rule(36, 4), "keep"),
    (rule(0, 40), "retire"),
    (rule(0, 40, 2), "tune"),
    (rule(10, 30, 1), "tune"),
    (rule(0, 30), "tune"),
]


@pytest.mark.parametrize(("found", "what"), ADVICE)
def test_advice_goes_by_the_ends_of_the_interval_and_says_why(found, what, as_worded):
    advice = advise(found, Thresholds())
    assert advice.what == what
    assert as_worded(advice.reason)


# message and table

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=50)
verdict_values = st.builds(
    Verdict,
    id=texts,
    verdict=st.sampled_from(FINDINGS),
    by=texts,
    made_at_ms=st.integers(-62_135_596_800_000, 253_402_300_799_999),
    alert_id=texts,
    event_id=st.none() | texts,
    note=st.none() | texts,
    rule_id=st.none() | texts,
    event_time_ms=st.none() | st.integers(-62_135_596_800_000, 253_402_300_799_999),
    key=st.none() | st.dictionaries(texts, texts | st.integers(-(2**63), 2**63 - 1) | st.booleans(), max_size=3),
    amount=st.none() | st.decimals(-(10**15), 10**15, places=2).map(lambda amount: amount.normalize()),
)
SCHEMA = json.loads(schema_path("verdict-v1").read_text(encoding="utf-8"))
CHECK = Draft202012Validator(SCHEMA | {"additionalProperties": False})


@given(verdict_values)
def test_a_verdict_fits_its_schema_and_what_is_read_is_what_was_said(verdict):
    said = json.loads(verdict.message())
    CHECK.validate(said)
    row = read_message(TABLE, verdict.message().encode())
    assert row.pop("other_fields") is None
    assert row.keys() == said.keys() == SCHEMA["properties"].keys()
    for name, value in row.items():
        if name in ("made_at", "event_time") and value is not None:
            assert value == said[name] * 1000
        elif name == "key" and value is not None:
            assert json.loads(value) == said[name]
        elif name == "amount" and value is not None:
            assert value == Decimal(said[name])
        else:
            assert value == said[name]


@settings(max_examples=examples(10))
@given(st.lists(verdict_values, max_size=6, unique_by=lambda verdict: verdict.id))
def test_what_was_written_into_a_table_is_read_from_it_each_id_once(tmp_path_factory, verdicts):
    table = tmp_path_factory.mktemp("verdicts") / "t"
    assert load_verdicts(table) == []
    assert append_verdicts(table, verdicts[:4]) == len(verdicts[:4])
    assert append_verdicts(table, [*verdicts, *verdicts]) == len(verdicts[4:])
    if verdicts:
        rows = pa.table(DeltaTable(table).to_pyarrow_table())
        write_deltalake(table, rows.slice(0, 1), mode="append")
    in_order = sorted(verdicts, key=lambda verdict: (verdict.made_at_ms, verdict.id))
    assert load_verdicts(table) == in_order
    read = buckets.read_verdicts(table)
    assert [(row["id"], row["key"], row["amount"]) for row in read] == [(v.id, v.key, v.amount) for v in in_order]


def test_python_reads_all_verdicts_or_the_latest_of_each_alert(tmp_path):
    def said(number: int, finding: str, at_ms: int, **about: Any) -> Verdict:
        return Verdict(f"v{number}", finding, "ann", at_ms, **about)

    verdicts = [
        said(1, "unclear", 5, alert_id="a"),
        said(2, "fraud", 3, alert_id="a"),
        said(3, "fraud", 1, event_id="e"),
    ]
    append_verdicts(tmp_path / "t", verdicts)
    assert [row["id"] for row in buckets.read_verdicts(tmp_path / "t")] == ["v3", "v2", "v1"]
    assert [row["id"] for row in buckets.read_verdicts(str(tmp_path / "t"), latest=True)] == ["v3", "v1"]
    assert buckets.read_verdicts(tmp_path / "none") == []


GOOD = {"version": 1, "id": "c-7", "alert_id": "a1", "verdict": "fraud", "by": "ann", "made_at": MADE_MS}
BAD = [
    {"verdict": "Fraud"},
    {"by": ""},
    {"by": None},
    {"made_at": "2026-01-01"},
    {"version": 2},
    {"note": "x" * 10_001},
    {"amount": "1e5"},
    {"key": "p1"},
]


@pytest.mark.parametrize("fields", BAD, ids=[next(iter(fields)) for fields in BAD])
def test_what_case_tools_write_is_held_to_the_schema(fields, as_worded):
    assert read_message(TABLE, json.dumps(GOOD).encode())["event_id"] is None
    with pytest.raises(ValueError, check=as_worded):
        read_message(TABLE, json.dumps(GOOD | fields).encode())
    assert not CHECK.is_valid(GOOD | fields)


def test_a_verdict_is_about_an_alert_or_an_event(as_worded):
    about_nothing = {name: value for name, value in GOOD.items() if name != "alert_id"}
    with pytest.raises(ValueError, check=as_worded):
        read_message(TABLE, json.dumps(about_nothing).encode())
    assert not CHECK.is_valid(about_nothing)
    about_event = about_nothing | {"event_id": "e1", "alert_id": None}
    assert read_message(TABLE, json.dumps(about_event).encode())["event_id"] == "e1"
    CHECK.validate(about_event)


def test_the_audit_keeps_verdicts_by_the_day_of_their_message_and_each_id_once_on_any_day(tmp_path):
    tables = audit_tables([VERDICTS])
    for name, table in tables.items():
        columns = pa.schema([pa.field(column.name, column.type, column.nullable) for column in table.columns])
        DeltaTable.create(tmp_path / name, columns, partition_by=["day"])
    reader = MessageReader({"found": tables[VERDICTS]})
    values = [json.dumps(GOOD | {"event_time": 0}), json.dumps(GOOD | {"id": "c-8"}), "{", json.dumps(GOOD)]
    batch = batch_of([("found", value.encode()) for value in values])
    written = AuditWriter(tmp_path, "i", tables.values()).write(pa.Table.from_batches(reader([batch])), 0)
    assert (written.repeats, written.unreadable) == (1, 1)
    days = pa.array([moment.as_py().replace(year=2025) for moment in batch.column("published_at")])
    later = batch.set_column(3, "published_at", days.cast(batch.schema.field("published_at").type))
    again = AuditWriter(tmp_path, "i", tables.values()).write(pa.Table.from_batches(reader([later])), 1)
    assert (again.repeats, again.unreadable) == (3, 1)
    rows = DeltaTable(tmp_path / VERDICTS).to_pyarrow_table().to_pylist()
    assert sorted(row["id"] for row in rows) == ["c-7", "c-8"]
    assert {str(row["day"]) for row in rows} == {"2024-10-04"}
    assert [each.id for each in load_verdicts(tmp_path / VERDICTS)] == ["c-7", "c-8"]


def append_some(table: Path, author: str, ready: Any, count: int) -> None:
    """What one of several processes does: wait for the others, and write."""
    ready.wait()
    for number in range(count):
        append_verdicts(table, [Verdict(f"{author}-{number}", "fraud", author, number, alert_id=f"a{number}")])


@pytest.mark.slow
def test_of_several_processes_that_write_at_once_none_loses_anything(tmp_path):
    context = multiprocessing.get_context("spawn")
    authors, count = ("ann", "ben", "cho"), 6
    ready = context.Barrier(len(authors))
    processes = [context.Process(target=append_some, args=(tmp_path / "t", each, ready, count)) for each in authors]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * len(authors)
    written = {verdict.id for verdict in load_verdicts(tmp_path / "t")}
    assert written == {f"{author}-{number}" for author in authors for number in range(count)}


OTHERS: list[dict[str, Any]] = [
    {"id": "1", "verdict": "fraud"},
    {**GOOD, "verdict": "Fraud", "event_id": "e"},
    {**GOOD, "by": "", "event_id": "e"},
    {**GOOD, "alert_id": None, "event_id": None},
    {**GOOD, "event_id": "e", "key": "p1"},
]


@pytest.mark.parametrize("other", OTHERS)
def test_a_table_that_is_none_of_verdicts_is_refused_in_one_line_that_says_why(tmp_path, other, as_worded):
    row = {"alert_id": None, **other} if "made_at" in other else other
    types = {"made_at": pa.timestamp("us", "UTC"), "version": pa.int32()}
    columns = {name: pa.array([value], types.get(name, pa.string())) for name, value in row.items()}
    write_deltalake(tmp_path / "t", pa.table(columns))
    with pytest.raises(BucketsError, check=as_worded):
        load_verdicts(tmp_path / "t")
    with pytest.raises(BucketsError, check=as_worded):
        append_verdicts(tmp_path / "t", [Verdict("1", "fraud", "ann", 0, "a")])
    assert DeltaTable(tmp_path / "t").version() == 0


def test_a_folder_that_is_no_table_is_refused_and_one_whose_table_is_being_made_has_no_verdicts(tmp_path, as_worded):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("mine")
    (tmp_path / "made" / "_delta_log").mkdir(parents=True)
    for path in (tmp_path / "other", tmp_path / "other" / "letter.txt"):
        with pytest.raises(BucketsError, check=as_worded):
            load_verdicts(path)
    assert load_verdicts(tmp_path / "made") == []
    assert append_verdicts(tmp_path / "made", [Verdict("1", "fraud", "ann", 0, "a")]) == 1


def test_a_verdict_that_says_the_same_has_the_same_id_and_any_difference_another():
    base = (("a", None), "fraud", "ann", 5, "n")
    assert identity(*base) == identity(*base)
    others = [(("b", None), *base[1:]), ((None, "a"), *base[1:]), (base[0], "unclear", *base[2:])]
    others += [(*base[:2], "bob", *base[3:]), (*base[:3], 6, "n"), (*base[:4], None)]
    assert len({identity(*each) for each in [base, *others]}) == len(others) + 1
