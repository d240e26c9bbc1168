"""Lists that rules write, against a loop over the events that keeps each list as a dictionary."""

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import buckets
from buckets.engine.stages.in_memory import InMemoryJob, OutputDecoder
from buckets.engine.stages.shard import Scorer
from buckets.events.parquet_rows import table_arrivals
from buckets.outputs.columns import ALERTS
from buckets.rules.completeness import stretches_of
from buckets.rules.renaming import renamed_rule
from buckets.rules.rule_set import RuleSet, next_rule_set
from buckets.rules.warmth import rules_warmth
from tests.core.streams import START_MS, Row, streams, table_of
from tests.core.test_asked_alerts import FIELDS, SCHEMA, STEPS_MS, raised_by
from tests.laws import examples

COUNTED: Row = {"features": {"n": {"function": "count", "window": "3s"}}}
WRITERS: list[Row] = [
    {"rule_id": "large", "group_by": ["payer"], "when": "amount > 2 AND n > 0"} | COUNTED,
    {"rule_id": "often", "group_by": ["bene"], "when": "n > 1"} | COUNTED,
    {"rule_id": "trial", "group_by": ["payer"], "state": "SHADOW", "when": "n > 0"} | COUNTED,
]
CONDITIONS = {
    "bene IN LIST rules.a": lambda row, lists: is_in(row, lists, "a"),
    "bene NOT IN LIST rules.a": lambda row, lists: None if row["bene"] is None else not is_in(row, lists, "a"),
    "bene IN LIST rules.b OR amount > 7": lambda row, lists: bool(is_in(row, lists, "b")) or (row["amount"] or 0) > 7,
    "bene IN LIST rules.a AND bene NOT IN LIST rules.b": lambda row, lists: (
        is_in(row, lists, "a") and not is_in(row, lists, "b")
    ),
    "bene NOT IN LIST rules.nobody": lambda row, lists: row["bene"] is not None,
}
Lists = dict[str, list[tuple[Row, int]]]  # By name the entries, each the row that put it there and until when it counts


def is_in(row: Row, lists: Lists, name: str) -> bool | None:
    if row["bene"] is None:
        return None
    return any(put["key"] == row["bene"] and row["time"] < until_ms for put, until_ms in lists.get(name, ()))


def rule_of(written: Row) -> buckets.Rule:
    return buckets.Rule.model_validate(written)


puts = st.fixed_dictionaries(
    {"put": st.sampled_from(["a", "a", "b"]), "key": st.sampled_from(["payer", "bene"])}
    | {"until": st.sampled_from(["1ms", "500ms", "2s", "1h"])}
)


@settings(max_examples=examples(1500))
@given(
    st.lists(puts, min_size=3, max_size=3),
    st.sampled_from([*CONDITIONS]),
    streams(STEPS_MS, FIELDS),
    st.lists(st.integers(1, 40), max_size=5),
    st.sampled_from(["payer", "bene", "kind"]),
    st.booleans(),
)
def test_an_event_sees_the_entries_that_earlier_ones_have_written(written, when, rows, cuts, key, counts):
    engine = buckets.EngineSettings.model_validate({"allowed_lateness": "1h", "shards": 2})
    writers = [rule_of(each | {"then": then}) for each, then in zip(WRITERS, written, strict=True)]
    own = {"features": {"mine": {"function": "count", "window": "5s"}}} if counts else {}
    reader = rule_of({"rule_id": "r", "group_by": [key], "when": when} | own)
    raised = {(each["position"], each["rule_id"]) for each in raised_by([*map(rule_of, WRITERS)], rows, engine)}
    evaluator, begin = buckets.Evaluator([reader, *writers], SCHEMA, engine), 0
    found: dict[int, Row] = {}
    for end in sorted({min(cut, len(rows)) for cut in cuts} | {len(rows)}):
        results = evaluator.recorded(table_of(rows[begin:end], SCHEMA)) if begin < end else None
        of_reader = [] if results is None else results.evaluations.to_pylist()
        found |= {begin + row["position"]: row for row in of_reader if row["rule_id"] == "r"}
        begin = end
    lists: Lists = {}
    times: dict[tuple[str, str], list[int]] = {}  # By writer and key, the times of its entries
    for at, row in enumerate(rows):
        clocks = [x["time"] for x in rows[:at] if x[key] == row[key]]
        on_time = row[key] is not None and row["time"] >= max(clocks, default=row["time"])
        for then in (writer.then for writer in writers if f"rules.{writer.then.put}" in when):
            on_time &= row["time"] >= max(times.get((then.key, row["bene"]), ()), default=row["time"])
        assert (at in found) == on_time, (at, row)
        if on_time:
            assert found[at]["fired"] == bool(CONDITIONS[when](row, lists)), (at, row, found[at])
        for writer in writers[:2]:  # The third one is on trial.
            then = writer.then
            if (at, writer.rule_id) in raised and row[then.key] is not None:
                entry = {"key": row[then.key]}, row["time"] + then.until_ms
                lists.setdefault(then.put, []).append(entry)
        for name in ("payer", "bene"):
            if row[name] is not None and any((at, writer.rule_id) in raised for writer in writers):
                times.setdefault((name, row[name]), []).append(row["time"])


PUT = {"put": "a", "key": "payer", "until": "1h"}
READER: Row = {"rule_id": "r", "group_by": ["bene"], "when": "bene IN LIST rules.a"}


@pytest.mark.parametrize(
    "written",
    [
        READER | {"when": "n > 0", "where": "bene IN LIST rules.a"} | COUNTED,
        READER | {"when": "n > 0", "features": {"n": {**COUNTED["features"]["n"], "where": "bene IN LIST rules.a"}}},
        READER | {"when": "lower(bene) IN LIST rules.a"},
        READER | {"when": "lookup(rules.a, bene, 'x') = 'y'"},
        READER | {"when": "amount IN LIST rules.a"},
        READER | {"when": "bene IN LIST other.a"},
        READER | {"on": "alerts"},
        READER | {"then": PUT},
        WRITERS[0] | {"on": "alerts", "then": PUT},
        WRITERS[0] | {"then": PUT | {"key": "amount"}},
        WRITERS[0] | {"then": PUT | {"key": "nobody"}},
        WRITERS[0] | {"then": PUT | {"put": "a b"}},
        WRITERS[0] | {"then": PUT | {"until": "0s"}},
        WRITERS[0] | {"then": {"put": "a", "key": "payer"}},
        WRITERS[0] | {"then": "a"},
    ],
)
def test_what_cannot_be_said_of_lists_that_rules_write_is_refused(written, as_worded):
    def read() -> None:
        buckets.Evaluator([rule_of(written)], SCHEMA)

    with pytest.raises((ValueError, buckets.BucketsError), check=as_worded):
        read()


def test_a_rule_is_written_as_it_came_and_says_what_it_writes():
    rule = rule_of(WRITERS[0] | {"then": PUT})
    assert rule_of(rule.model_dump(mode="json", by_alias=True)) == rule
    assert renamed_rule(rule, {"payer": "debtor"}).then.key == "debtor"
    assert rule_of(READER).sentence() == "For events of the same bene: bene is in the list rules.a"


def rows_of(*pairs: tuple[str, str]) -> list[Row]:
    shared = {"kind": "a", "amount": Decimal(3)}
    return [
        {"id": f"e{at}", "time": START_MS + at, "payer": payer, "bene": bene} | shared
        for at, (payer, bene) in enumerate(pairs)
    ]


def test_entries_stay_while_rules_change_and_go_with_the_rule_that_wrote_them():
    large, often = (rule_of(each | {"then": PUT}) for each in WRITERS[:2])
    reader = rule_of(READER)
    sets: list[RuleSet] = []
    for rules in ([reader, large], [reader, large, often], [reader, often], [reader]):
        before = sets[-1] if sets else RuleSet(0, (), (), {})
        sets.append(RuleSet.from_json(next_rule_set(before, rules, (), 0).to_json()))
    job = InMemoryJob(Scorer(SCHEMA, buckets.EngineSettings(shards=2), evaluations=True))
    fired: list[Any] = []
    # p is in the list of `large` after the first event; `often` is new with the second, and alone with the third
    for row, rule_set in zip(rows_of(("p", "q"), ("x", "p"), ("y", "p"), ("y", "p")), sets, strict=True):
        job = InMemoryJob(job.scorer, stores=job.stores, driver=job.driver, batches=job.batches)
        results = job.score_batch(table_arrivals(table_of([row], SCHEMA), SCHEMA), rule_set)
        decoder = OutputDecoder(rule_set, SCHEMA, job.scorer.engine)
        alerts = [decoder.table(ALERTS, payload) for payload in [results.payloads.get(ALERTS)] if payload]
        fired.append(sorted(rule_id for each in alerts for rule_id in each["rule_id"].to_pylist()))
    assert fired == [["large"], ["large", "r"], ["often"], []]


def test_a_score_looks_into_a_list():
    score = "CASE WHEN bene IN LIST rules.a THEN 10 * amount ELSE amount END"
    reader = rule_of({"rule_id": "r", "group_by": ["bene"], "when": "amount > 0", "score": score})
    rows = rows_of(("p", "q"), ("x", "p"), ("p", "y"))
    results = buckets.Evaluator([reader, rule_of(WRITERS[0] | {"then": PUT})], SCHEMA).recorded(table_of(rows, SCHEMA))
    assert [row["score"] for row in results.alerts.to_pylist() if row["rule_id"] == "r"] == [3, 30, 3]


def test_windows_are_complete_where_alerts_that_write_are_known():
    def first(*rules: buckets.Rule) -> RuleSet:
        return next_rule_set(RuleSet(0, (), (), {}), rules, stretches_of(np.array([START_MS])), 0)

    alone = rule_of(READER | {"when": "amount > 3"})
    assert rules_warmth(first(alone), (), 0)["r"].sentence() == "complete"
    reader, large = rule_of(READER), rule_of(WRITERS[0] | {"then": PUT})
    warmth = rules_warmth(first(reader, large), stretches_of(np.array([START_MS])), START_MS)["r"]
    assert warmth.complete_from_ms == START_MS + 1 + 3_600_000 - 1  # a millisecond behind what had arrived


def test_a_rule_without_features_is_about_its_event_alone():
    rule = rule_of({"rule_id": "r", "group_by": ["payer"], "when": "amount > 3 AND bene <> 'x'", "score": "amount + 1"})
    rows = [row | {"amount": Decimal(at)} for at, row in enumerate(rows_of(*[("p", "q")] * 6, (None, "q"), ("p", "x")))]
    results = buckets.Evaluator([rule], SCHEMA).recorded(table_of(rows, SCHEMA))
    assert [(row["event_id"], row["fired"]) for row in results.evaluations.to_pylist()] == [
        *((f"e{at}", at > 3) for at in range(6)),
        ("e7", False),
    ]
    alerts = results.alerts.to_pylist()
    assert [(row["event_id"], row["score"], row["terms"], row["warm"]) for row in alerts] == [
        ("e4", 5, "[]", True),
        ("e5", 6, "[]", True),
    ]
