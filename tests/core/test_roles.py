"""Features that read the timeline of another field's value, against loops over lists."""

import json
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import buckets
from buckets.engine.stages.in_memory import InMemoryJob, OutputDecoder
from buckets.engine.stages.shard import Scorer
from buckets.events.arrivals import JUDGED
from buckets.events.parquet_rows import table_arrivals
from buckets.lint.lint import look
from buckets.lint.subject import Subject
from buckets.outputs.columns import EVALUATIONS
from buckets.rules.feature import Feature
from buckets.rules.group import group_id
from buckets.rules.renaming import renamed_rules
from buckets.rules.rule_set import first_rule_set
from tests.core.aggregates.oracle import Seen, oracles, rounded
from tests.core.streams import START_MS, Row, schema_of, streams, table_of
from tests.laws import examples

SCHEMA = schema_of(payer="string", bene="string", kind="string", n="long")
ORACLES = oracles()
LATENESS_MS = 3_000
GROUPINGS = (
    ["bene AS payer"],
    ["payer AS bene"],
    ["bene AS payer", "payer AS bene"],
    ["kind", "bene AS payer"],
    ["n AS n2", "bene AS payer"],
    None,
)
FUNCTIONS = {
    "count": None, "sum": "amount", "avg": "amount", "min": "n", "max": "amount", "is_first": None,
    "count_distinct": "kind", "first": "n", "previous": "kind", "last": "amount", "time_since_first": None,
    "time_since_previous": None, "stddev": "amount", "median": "amount", "mode": "kind", "percentile": "amount",
    "decayed_count": None, "decayed_sum": "amount", "entropy": "kind",
}  # fmt: skip
WINDOWS: tuple[dict[str, Any], ...] = (
    {"length": "2s"},
    {"length": "30s", "left": "open"},
    {"length": "30s"},
    {"length": "30s", "exclude": "current"},
    {"length": "5s", "offset": "1s"},
    {"last": 2, "within": "20s"},
    {"session": "1s", "within": "20s"},
    {"session": "1s", "within": "20s", "exclude": "current"},
)
FILTERS = {
    "kind = 'a'": lambda x, this: x["kind"] == "a",
    "amount > this.amount": lambda x, this: None not in (x["amount"], this["amount"]) and x["amount"] > this["amount"],
}


@st.composite
def features(draw: st.DrawFn) -> dict[str, Any]:
    function = draw(st.sampled_from(list(FUNCTIONS)))
    window = draw(st.sampled_from(WINDOWS))
    found: dict[str, Any] = {"function": function, "window": window}
    grouping = draw(st.sampled_from([each for each in GROUPINGS if each is None or "n AS n2" not in each]))
    found |= {} if grouping is None else {"group_by": grouping}
    found |= {} if FUNCTIONS[function] is None else {"of": FUNCTIONS[function]}
    found |= {"p": 40} if function == "percentile" else {}
    found |= {"half_life": "700ms"} if function.startswith("decayed") else {}
    where = draw(st.sampled_from([None, None, *FILTERS]))
    if where is not None and ("this" not in where or ("last" not in window and function not in RANKED)):
        found["where"] = where
    return found


RANKED = ("median", "mode", "percentile")
STEPS_MS = [0, 1, 1, 500, 500, 1000, 2000, 10_000, -1, -700, -2500, -60_000]
FIELDS = {
    **dict.fromkeys(("payer", "bene"), st.sampled_from(["a", "a", "b", "c", None])),
    "kind": st.sampled_from(["a", "b", None]),
    "n": st.sampled_from([-1, 0, 3, None]),
    "amount": st.sampled_from([*map(Decimal, ("1.00", "1.05", "2.50", "7.25", "-3.10")), None]),
}


class Timelines:
    """A grouping: the events of each key as they have arrived, and its clock."""

    def __init__(self, fields: tuple[str, ...], horizon_ms: int) -> None:
        pairs = [field.split(" AS ") for field in fields]
        self.asked, self.counted = [pair[0] for pair in pairs], [pair[-1] for pair in pairs]
        self.horizon_ms, self.keys = horizon_ms, dict[Any, list[Row]]()
        self.clocks = dict[Any, int]()

    def take(self, row: Row) -> bool:
        """Let an event in where it counts; return whether it is on time for what it asks, or asks nothing."""
        asks, counts = (tuple(row[name] for name in names) for names in (self.asked, self.counted))
        is_asked = None not in asks
        on_time = not is_asked or row["time"] >= self.clocks.get(asks, row["time"])
        if None not in counts:
            clock_ms, events = self.clocks.get(counts, row["time"]), self.keys.setdefault(counts, [])
            is_again = any((x["id"], x["time"]) == (row["id"], row["time"]) for x in events)
            if row["time"] >= clock_ms - self.horizon_ms and not is_again:
                events.append(row)
                self.clocks[counts] = max(clock_ms, row["time"])
        return on_time

    def seen(self, row: Row) -> list[Row] | None:
        """The events of what an event asks, in order; None where it asks nothing."""
        asks = tuple(row[name] for name in self.asked)
        if None in asks:
            return None
        return sorted((x for x in self.keys.get(asks, ()) if x["time"] <= row["time"]), key=lambda x: x["time"])


def value_of(feature: Feature, seen: list[Row], this: Row) -> Any:
    """A feature at an event, of the events of a key in order."""
    window = feature.window
    first_ms, last_ms = this["time"] - window.reach_ms, this["time"] - window.offset_ms
    others = [x for x in seen if x is not this]
    if window.session_ms:
        begins_ms = this["time"]
        for x in reversed(others):
            if begins_ms - x["time"] > window.session_ms:
                break
            begins_ms = x["time"]
        first_ms = max(first_ms, begins_ms)
    passes = FILTERS[feature.where.text] if feature.where else lambda x, this: True
    inside = [x for x in seen if first_ms <= x["time"] <= last_ms and (window.exclude is None or x is not this)]
    counted = [x for x in inside if passes(x, this)]
    counted = counted[-window.last :] if window.last else counted
    if feature.of is not None:
        counted = [x for x in counted if x[feature.of] is not None]
    before = [x for x in counted if x is not this]
    exact = [x | {"amount": None if x["amount"] is None else Fraction(x["amount"])} for x in (this, *counted, *before)]
    whole = Seen(
        exact[0], exact[1 : 1 + len(counted)], exact[1 + len(counted) :], feature.of, feature.p, feature.half_life or 1
    )
    value = ORACLES[feature.function].value(whole)
    if value is None or isinstance(value, bool | str):
        return value
    return rounded(value, ORACLES[feature.function].digits(whole.scale))


def batches(rows: list[Row], cuts: list[int]) -> Iterator[list[Row]]:
    begin = 0
    for end in sorted({min(cut, len(rows)) for cut in cuts} | {len(rows)}):
        if begin < end:
            yield rows[begin:end]
        begin = end


@settings(max_examples=examples(1500))
@given(
    st.lists(features(), min_size=1, max_size=5),
    streams(STEPS_MS, FIELDS, may_repeat=True),
    st.lists(st.integers(1, 40), max_size=5),
    st.sampled_from(["all", "1h", "31s"]),
    st.sampled_from(["add", "evaluate"]),
    st.sampled_from([1, 3]),
    st.integers(0, 9),
)
def test_features_read_the_timeline_of_the_value_that_they_name(written, rows, cuts, tail, late, shards, piece):
    named = {f"f{index}": feature for index, feature in enumerate(written)}
    when = " OR ".join(f"{name} IS NULL" for name in named)
    rule = buckets.Rule.model_validate({"rule_id": "r", "group_by": ["payer"], "features": named, "when": when})
    of_features = {each.name: each for each in rule.named_features()}
    horizons = {frozenset(fields): fields for fields, _ in rule.groupings()}
    timelines = {
        key: Timelines(fields, LATENESS_MS + max(part.window.begins_ms for part in rule.parts(fields)))
        for key, fields in horizons.items()
    }
    written_engine = {"precision": {"tail": tail}, "allowed_lateness": "3s", "late": late, "shards": shards}
    if tail == "31s":
        written_engine["precision"] |= {"resolution": "1s", "tail": "34s"}
    evaluator = buckets.Evaluator([rule], SCHEMA, buckets.EngineSettings.model_validate(written_engine))
    for batch in batches(rows, cuts):
        results = evaluator.recorded(table_of(batch, SCHEMA, piece))
        results.account.check()
        found = {each["position"]: each for each in results.evaluations.to_pylist()}
        for at, row in enumerate(batch):
            home = timelines[frozenset({"payer"})]
            known = [x["id"] for x in home.keys.get((row["payer"],), ())]
            is_new = row["payer"] is not None and row["id"] not in known
            on_time = min([each.take(row) for each in timelines.values()])
            assert (at in found) <= is_new, row
            if is_new and (on_time or late == "add"):
                assert (at in found) == on_time, row
            for term in json.loads(found[at]["terms"]) if at in found else ():
                each = of_features[term["name"]]
                seen = timelines[frozenset(each.fields)].seen(row)
                value = None if seen is None else value_of(each.feature, seen, row)
                is_plain = value is None or isinstance(value, bool | str)
                assert term["value"] == value if is_plain else Fraction(term["value"]) == value, (term, row)
                assert term["exact"]


def test_hours_of_another_role_are_those_before_the_event_that_asks():
    random, hour_ms = Random(11), 3_600_000
    rows = [payment(at, 700_000 * at, random.choice("abc"), random.choice("abc")) for at in range(120)]
    of = {"function": "count", "every": "1h"}
    features = {"usual": {"function": "avg", "of": of, "window": "5h", "group_by": ["bene AS payer"]}}
    written = {"rule_id": "r", "group_by": ["payer"], "features": features, "when": "usual > 0"}
    evaluator, values = buckets.Evaluator([buckets.Rule.model_validate(written)], SCHEMA), list[Any]()
    for batch in batches(rows, [1, 7, 50, 51]):
        found = evaluator.recorded(table_of(batch, SCHEMA)).evaluations.to_pylist()
        values += [json.loads(each["terms"])[0]["value"] for each in sorted(found, key=lambda each: each["position"])]
    for at, (row, value) in enumerate(zip(rows, values, strict=True)):
        hours = [x["time"] // hour_ms - row["time"] // hour_ms for x in rows[:at] if x["payer"] == row["bene"]]
        inside = [hour for hour in hours if -5 <= hour < 0]
        expected = rounded(Fraction(len(inside), -min(inside)), 6) if inside else None
        assert (None if value is None else Fraction(value)) == expected


def rule_with(**feature: Any) -> dict[str, Any]:
    written = {"function": "count", "window": "1h"} | feature
    return {"rule_id": "r", "group_by": ["payer"], "features": {"f": written}, "when": "f > 1"}


@pytest.mark.parametrize(
    "written",
    [
        rule_with(group_by=["bene AS nobody"]),
        rule_with(group_by=["amount AS payer"]),
        rule_with(group_by=["n AS payer"]),
        rule_with(group_by=["payer AS payer"]),
        rule_with(group_by=["bene AS payer", "payer"]),
        rule_with(group_by=["bene AS payer AS kind"]),
        rule_with(group_by=["bene as payer"]),
        rule_with(group_by=[" AS payer"]),
        rule_with(group_by=["bene AS payer"], function="same_count", of="payer"),
        rule_with(group_by=["bene AS payer"], function="rank", of="kind"),
        rule_with(on="alerts", function="sequence", steps=["n = 1", "n = 2"]),
        rule_with(group_by=["bene AS payer"], function="absence", steps=["n = 1"], without="n = 2", within="5m"),
        rule_with() | {"group_by": ["bene AS payer"]},
    ],
)
def test_what_cannot_be_read_of_another_role_is_refused(written, as_worded):
    def read() -> None:
        buckets.Evaluator([buckets.Rule.model_validate(written)], SCHEMA)

    with pytest.raises((ValueError, buckets.BucketsError), check=as_worded):
        read()


def test_roles_are_read_in_english_and_written_as_they_came():
    written = rule_with(group_by=["bene AS payer", "kind"], where="n > 1")
    rule = buckets.Rule.model_validate(written)
    assert rule.sentence() == (
        "For events of the same payer: f is above 1; f is the number of events whose payer is this event's bene "
        "and kind is this event's kind where n > 1 over the last 1h"
    )
    assert rule.model_dump(mode="json", by_alias=True)["features"]["f"]["group_by"] == ["bene AS payer", "kind"]


def test_roles_tell_groups_apart_and_keep_them_where_fields_get_other_names():
    before = first_rule_set([buckets.Rule.model_validate(rule_with(group_by=["bene AS payer"]))])
    plain, asked = before.groups
    assert plain.group_id == group_id(["payer"], ()) != asked.group_id
    after = renamed_rules(before, {"payer": "zahler", "bene": "empfaenger"})
    assert after.rules[0].features["f"].group_by == ("empfaenger AS zahler",)
    assert [each.group_id for each in after.groups] == [each.group_id for each in before.groups]


def test_features_over_alerts_keep_their_groups_where_fields_get_other_names():
    before = first_rule_set([buckets.Rule.model_validate(rule_with(on="alerts", group_by=["bene AS payer"]))])
    after = renamed_rules(before, {"payer": "zahler", "bene": "empfaenger"})
    assert after.rules[0].features["f"].group_by == ("empfaenger AS zahler",)
    assert [each.fields for each in after.alert_groups] == [("empfaenger AS alerts.zahler",)]
    assert [each.group_id for each in after.alert_groups] == [each.group_id for each in before.alert_groups]


def payment(number: int, time_ms: int, payer: str | None, bene: str | None) -> Row:
    row = {"id": f"e{number}", "time": START_MS + time_ms, "payer": payer, "bene": bene}
    return row | {"kind": None, "n": None, "amount": Decimal(1)}


def test_an_account_counts_an_event_once_for_each_timeline_that_it_enters():
    rows = [payment(0, 0, "a", "b"), payment(1, 1, "b", "b"), payment(2, 2, None, "a"), payment(3, 3, "a", None)]
    rows += [payment(4, 4, None, None), payment(5, 0, "c", "a"), rows[0]]
    rule = buckets.Rule.model_validate(rule_with(group_by=["bene AS payer"]))
    account = buckets.Evaluator([rule], SCHEMA).recorded(table_of(rows, SCHEMA)).account
    account.check()
    (asked,) = (each for each in account.groups if "AS" in each.group)
    assert (asked.events_in, asked.no_key, asked.unjudged, asked.duplicates) == (7 + 4, 2, 3, 1)
    # Of those that ask, the last two are older than what has arrived of the payer that they ask for.
    assert (asked.evaluated, asked.late) == (3, 2)


def test_an_event_that_asks_leaves_no_state():
    rule = buckets.Rule.model_validate(rule_with(group_by=["bene AS payer"]))
    job = InMemoryJob(Scorer(SCHEMA, buckets.EngineSettings(shards=1), evaluations=True))
    rule_set = first_rule_set([rule])
    job.score_batch(
        table_arrivals(table_of([payment(n, n, "a", f"b{n}") for n in range(20)], SCHEMA), SCHEMA), rule_set
    )
    assert sorted(map(len, job.stores[0].heads.list_keys())) == [len("a") + 8] * 2
    kept = {key: job.stores[0].heads.get([key]) for key in job.stores[0].heads.list_keys()}
    job.score_batch(table_arrivals(table_of([payment(99, 10**7, None, "a")], SCHEMA), SCHEMA), rule_set)
    assert kept == {key: job.stores[0].heads.get([key]) for key in job.stores[0].heads.list_keys()}


def test_an_event_that_is_not_judged_does_not_ask():
    rule = buckets.Rule.model_validate(rule_with(group_by=["bene AS payer"]) | {"when": "f >= 0"})
    job = InMemoryJob(Scorer(SCHEMA, buckets.EngineSettings(shards=1), evaluations=False))
    rows = table_of([payment(0, 0, "a", "b"), payment(1, 1, "b", "a"), payment(2, 2, "b", "b")], SCHEMA)
    pieces = [piece.append_column(JUDGED, pa.array([False] * len(piece))) for piece in table_arrivals(rows, SCHEMA)]
    account = job.score_batch(pieces, first_rule_set([rule])).account
    assert [(each.evaluated, each.unjudged) for each in account.groups] == [(0, 3), (0, 3)]


def test_duckdb_says_the_same_of_what_one_has_received():
    random = Random(7)
    rows = [
        payment(at, 400 * at, random.choice("abcd"), random.choice(["a", "b", "c", "d", None])) for at in range(300)
    ]
    for row in rows:
        row["amount"] = Decimal(random.randint(-500, 500)).scaleb(-2)
    features = {
        "received": {"function": "sum", "of": "amount", "window": "30s", "group_by": ["payer AS bene"]},
        "back": {"function": "count", "window": "20s", "group_by": ["payer AS bene", "bene AS payer"]},
    }
    rule = buckets.Rule.model_validate(
        {"rule_id": "r", "group_by": ["payer"], "features": features, "when": "back > 0"}
    )
    found = buckets.features(table_of(rows, SCHEMA), [rule], SCHEMA)
    events = table_of(rows, SCHEMA).append_column("at", pa.array(range(len(rows))))
    asked = """
        select
            (select sum(x.amount) from events x where x.bene = e.payer and x.at <= e.at and x.time >= e.time - 30000),
            case when e.bene is not null then
                (select count(*) from events x
                 where x.bene = e.payer and x.payer = e.bene and x.at <= e.at and x.time >= e.time - 20000)
            end
        from events e order by e.at
    """
    said = duckdb.connect().register("events", events).sql(asked).fetchall()
    assert list(zip(found["r.received"].to_pylist(), found["r.back"].to_pylist(), strict=True)) == said


def test_events_that_are_only_tried_see_what_each_would_see_alone():
    random = Random(3)
    rows = [payment(at, 400 * at, random.choice("abc"), random.choice("abc")) for at in range(60)]
    rule = buckets.Rule.model_validate(rule_with(group_by=["bene AS payer"]) | {"when": "f >= 0"})
    rule_set, engine = first_rule_set([rule]), buckets.EngineSettings(shards=2)
    job = InMemoryJob(Scorer(SCHEMA, engine, evaluations=True))
    job.score_batch(table_arrivals(table_of(rows[:40], SCHEMA), SCHEMA), rule_set)
    job.scorer = replace(job.scorer, keeps=False)
    decoder = OutputDecoder(rule_set, SCHEMA, engine)

    def tried(some: list[Row]) -> dict[str, Any]:
        payloads = job.score_batch(table_arrivals(table_of(some, SCHEMA), SCHEMA), rule_set).payloads[EVALUATIONS]
        return {row["event_id"]: row["terms"] for row in decoder.table(EVALUATIONS, payloads).to_pylist()}

    together, alone = tried(rows[40:]), dict[str, Any]()
    for row in rows[40:]:
        alone |= tried([row])
    assert together == alone
    assert len(together) == 20


def test_lint_does_not_take_the_event_for_one_of_the_other_role():
    features = {
        "most": {"function": "max", "of": "amount", "window": "1h", "group_by": ["bene AS payer"]},
        "first": {"function": "is_first", "window": "1h", "group_by": ["bene AS payer"]},
    }
    written = {"rule_id": "r", "group_by": ["payer"], "features": features, "when": "amount > most OR NOT first"}
    report = look(Subject((buckets.Rule.model_validate(written),), 0, SCHEMA, buckets.EngineSettings(), None, {}))
    assert [finding.code.code for finding in report.findings if finding.code.code.startswith("B1")] == []
