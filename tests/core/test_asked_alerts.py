"""Features over alerts in rules over events, against loops over lists of the alerts that others have raised."""

import json
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import buckets
from buckets.engine.stages.alert_stage import complete_batch, fired_parts
from buckets.engine.stages.cross_group import PARTS
from buckets.engine.stages.in_memory import InMemoryJob, OutputDecoder, memory_store, memory_stores
from buckets.engine.stages.shard import Scorer
from buckets.events.parquet_rows import table_arrivals
from buckets.outputs.columns import ALERTS
from buckets.rules.feature import Feature
from buckets.rules.rule_set import first_rule_set, next_rule_set
from tests.core.aggregates.oracle import Seen, oracles
from tests.core.streams import START_MS, Row, schema_of, streams, table_of
from tests.laws import examples

SCHEMA = schema_of(payer="string", bene="string", kind="string")
ORACLES = oracles()
ALERTING: list[Row] = [
    {"rule_id": "large", "group_by": ["payer"], "score": "40 + amount", "when": "amount > 2 AND n > 0"},
    {"rule_id": "often", "group_by": ["bene"], "score": 7, "severity": "high", "when": "n > 1"},
    {"rule_id": "trial", "group_by": ["payer"], "state": "SHADOW", "when": "n > 0"},
    {"rule_id": "over", "on": "alerts", "group_by": ["payer"], "when": "n > 1"},
]
for each in ALERTING:
    each["features"] = {"n": {"function": "count", "window": "3s"}}
FUNCTIONS = {
    "count": None, "sum": "alert_score", "max": "alert_score", "count_distinct": "alert_rule", "last": "alert_rule",
    "previous": "alert_severity", "first": "kind", "is_first": None, "time_since_previous": None, "median": "amount",
}  # fmt: skip
FILTERS = {
    "alert_rule = 'large'": lambda alert, this: alert["alert_rule"] == "large",
    "amount >= this.amount": lambda alert, this: (
        None not in (alert["amount"], this["amount"]) and alert["amount"] >= this["amount"]
    ),
}
GROUPINGS = (None, ["payer"], ["bene"], ["bene AS payer"], ["kind", "payer"])
STEPS_MS = [0, 1, 500, 500, 1000, 2000, 10_000, -1, -700]
FIELDS = {
    **dict.fromkeys(("payer", "bene", "kind"), st.sampled_from(["a", "a", "b", None])),
    "amount": st.sampled_from([*map(Decimal, ("1.00", "2.50", "7.25")), None]),
}


@st.composite
def features(draw: st.DrawFn) -> Row:
    function = draw(st.sampled_from(list(FUNCTIONS)))
    window = draw(st.sampled_from([{"length": "2s"}, {"length": "30s"}, {"last": 2, "within": "20s"}]))
    found: Row = {"function": function, "window": window, "on": "alerts"}
    found |= {} if FUNCTIONS[function] is None else {"of": FUNCTIONS[function]}
    grouping = draw(st.sampled_from(GROUPINGS))
    found |= {} if grouping is None else {"group_by": grouping}
    where = draw(st.sampled_from([None, *FILTERS]))
    if where is not None and ("this" not in where or ("last" not in window and function != "median")):
        found["where"] = where
    return found


def raised_by(rules: list[buckets.Rule], rows: list[Row], engine: buckets.EngineSettings) -> list[Row]:
    return buckets.Evaluator(rules, SCHEMA, engine).recorded(table_of(rows, SCHEMA)).alerts.to_pylist()


def alerts_of(rows: list[Row], engine: buckets.EngineSettings) -> list[Row]:
    """The alerts of rules that have no features over alerts, in their order, with where their event stands."""
    rules = [buckets.Rule.model_validate(each) for each in ALERTING[:2]]
    found = []
    for alert in raised_by(rules, rows, engine):
        own = {"alert_rule": alert["rule_id"], "alert_score": alert["score"], "at": alert["position"]}
        severity = "high" if alert["rule_id"] == "often" else None
        found.append(rows[alert["position"]] | own | {"alert_severity": severity})
    return sorted(found, key=lambda alert: (alert["at"], alert["alert_rule"] == "often"))


def value_of(feature: Feature, seen: list[Row], this: Row) -> Any:
    window = feature.window
    inside = [x for x in seen if this["time"] - window.reach_ms <= x["time"] <= this["time"]]
    passes = FILTERS[feature.where.text] if feature.where else lambda alert, this: True
    counted = [x for x in sorted(inside, key=lambda x: x["time"]) if passes(x, this)]
    counted = counted[-window.last :] if window.last else counted
    counted = [x for x in counted if feature.of is None or x[feature.of] is not None]
    whole = Seen(this, counted, counted, feature.of, feature.p)
    return ORACLES[feature.function].value(whole)


@settings(max_examples=examples(1500))
@given(
    st.lists(features(), min_size=1, max_size=4),
    streams(STEPS_MS, FIELDS),
    st.lists(st.integers(1, 40), max_size=5),
    st.sampled_from(["payer", "kind"]),
    st.booleans(),
    st.integers(0, 9),
)
def test_events_see_the_alerts_that_earlier_ones_have_raised(written, rows, cuts, key, has_other, piece):
    named = {f"f{index}": feature for index, feature in enumerate(written)}
    if has_other:
        named["mine"] = {"function": "count", "window": "5s", "group_by": ["bene"]}
    when = " OR ".join(f"{name} IS NULL" for name in named)
    asking = buckets.Rule.model_validate(
        {"rule_id": "r", "group_by": [key], "features": named, "when": f"NOT ({when})"}
    )
    again = asking.model_copy(update={"rule_id": "again", "group_by": ("bene",)})
    rules = [asking, *map(buckets.Rule.model_validate, ALERTING), again]
    engine = buckets.EngineSettings.model_validate({"allowed_lateness": "1h", "shards": 2})
    evaluator, alerts, begin = buckets.Evaluator(rules, SCHEMA, engine), alerts_of(rows, engine), 0
    of_features = {each.name: each for each in asking.named_features() if each.feature.on}
    fired: list[str] = []
    alone = [buckets.Rule.model_validate(each) for each in ALERTING]
    over = {
        (alert["event_id"], alert["rule_id"]) for alert in raised_by(alone, rows, engine) if "over" in alert["rule_id"]
    }
    found_over = set()
    for end in sorted({min(cut, len(rows)) for cut in cuts} | {len(rows)}):
        if begin == end:
            continue
        results = evaluator.recorded(table_of(rows[begin:end], SCHEMA, piece))
        results.account.check()
        fired += [row["rule_id"] for row in results.alerts.to_pylist() if row["rule_id"] in ("large", "often")]
        found_over |= {(row["event_id"], "over") for row in results.alerts.to_pylist() if row["rule_id"] == "over"}
        found = {row["position"]: row for row in results.evaluations.to_pylist() if row["rule_id"] == "r"}
        raised = {row["position"] for row in results.alerts.to_pylist() if row["rule_id"] == "r"}
        for at in range(begin, end):
            check(rows, at, alerts, key, found.get(at - begin), of_features, has_other)
        assert raised == {position for position, row in found.items() if row["fired"]}
        begin = end
    assert sorted(fired) == sorted(alert["alert_rule"] for alert in alerts)
    assert found_over == over  # alerts of rules with features over alerts do not count


def check(rows, at, alerts, key, found, of_features, has_other) -> None:
    """Compare the features of a row with what the alerts before it say."""
    this, earlier = rows[at], [alert for alert in alerts if alert["at"] < at]
    clocks = [x["time"] for x in rows[:at] if x[key] == this[key]]
    on_time = this[key] is not None and this["time"] >= max(clocks, default=this["time"])
    values: Row = {}
    if has_other and this["bene"] is not None:
        on_time &= all(x["time"] <= this["time"] for x in rows[:at] if x["bene"] == this["bene"])
    for each in of_features.values():
        pairs = [(pair[0], pair[-1]) for pair in (name.split(" AS ") for name in each.feature.group_by or [key])]
        if None in [this[asked] for asked, _ in pairs]:
            values[each.name] = None
            continue
        seen = [x for x in earlier if all(x[counted] == this[asked] for asked, counted in pairs)]
        on_time &= this["time"] >= max((x["time"] for x in seen), default=this["time"])
        values[each.name] = value_of(each.feature, seen, this)
    assert (found is not None) == on_time, this
    for term in json.loads(found["terms"]) if found is not None else ():
        if term["name"] in values:
            value = values[term["name"]]
            is_plain = value is None or isinstance(value, bool | str)
            assert term["value"] == value if is_plain else Fraction(term["value"]) == value, (term, this)


def rule_with(**feature: Any) -> Row:
    written = {"function": "count", "window": "1h", "on": "alerts"} | feature
    return {"rule_id": "r", "group_by": ["payer"], "where": "kind = 'a'", "features": {"f": written}, "when": "f > 1"}


@pytest.mark.parametrize(
    "written",
    [
        rule_with(on="events"),
        rule_with(group_by=[]),
        rule_with() | {"group_by": []},
        rule_with() | {"on": "alerts"},
        rule_with(function="sum", of="score"),
        rule_with(group_by=["payer AS alerts.payer"]),
        rule_with(group_by=["alert_rule"]),
        rule_with(function="same_count", of="alert_rule"),
        rule_with(where="alert_rul = 'large'"),
        rule_with(function="last", of="alert_rule") | {"when": "f > 1"},
    ],
)
def test_what_cannot_be_said_of_alerts_is_refused(written, as_worded):
    def read() -> None:
        buckets.Evaluator([buckets.Rule.model_validate(written)], SCHEMA)

    with pytest.raises((ValueError, buckets.BucketsError), check=as_worded):
        read()


def test_a_schema_with_a_field_of_alerts_has_no_features_over_them(as_worded):
    schema = SCHEMA.model_copy(update={"attributes": {**SCHEMA.attributes, "alert_rule": "string"}})
    with pytest.raises(buckets.BucketsError, check=as_worded):
        buckets.Evaluator([buckets.Rule.model_validate(rule_with())], schema)


def test_features_over_alerts_are_read_in_english_and_written_as_they_came():
    rule = buckets.Rule.model_validate(rule_with(group_by=["bene AS payer"], where="alert_score > 5"))
    assert rule.sentence() == (
        "For events of the same payer where kind = 'a': f is above 1; f is the number of alerts whose payer is this "
        "event's bene where alert_score > 5 over the last 1h"
    )
    assert buckets.Rule.model_validate(rule.model_dump(mode="json", by_alias=True)) == rule


def test_a_rule_that_is_changed_and_a_restart_go_on_with_the_alerts_so_far():
    large = {"rule_id": "large", "group_by": ["payer"], "features": {"n": {"function": "count", "window": "1h"}}}
    rules = [buckets.Rule.model_validate(each) for each in (large | {"when": "amount > 2 AND n > 0"}, rule_with())]
    first = first_rule_set(rules)
    job = InMemoryJob(Scorer(SCHEMA, buckets.EngineSettings(shards=2), evaluations=True))
    rows = [
        {"id": f"e{at}", "time": START_MS + at, "payer": "a", "bene": "b", "kind": "a", "amount": Decimal(3)}
        for at in range(4)
    ]
    fired = []
    second = next_rule_set(first, [rules[0], rules[1].model_copy(update={"severity": "high"})], (), 0)
    for row, rule_set in zip(rows, (first, first, second, second), strict=True):
        job = InMemoryJob(job.scorer, stores=job.stores, driver=job.driver, batches=job.batches)
        results = job.score_batch(table_arrivals(table_of([row], SCHEMA), SCHEMA), rule_set)
        decoder = OutputDecoder(rule_set, SCHEMA, job.scorer.engine)
        fired.append(sorted(decoder.table(ALERTS, results.payloads[ALERTS])["rule_id"].to_pylist()))
    # Each event sees the alerts of those before it, also those that came under earlier rules.
    assert fired == [["large"], ["large"], ["large", "r"], ["large", "r"]]


def test_events_of_such_rules_stay_where_tasks_thin_out_parts():
    rules = [buckets.Rule.model_validate(each) for each in (*ALERTING, rule_with(group_by=["bene"]))]
    rule_set, scorer = first_rule_set(rules), Scorer(SCHEMA, buckets.EngineSettings(shards=1), evaluations=False)
    rows = [
        {"id": f"e{at}", "time": START_MS + at, "payer": "a", "bene": "b", "kind": "a", "amount": Decimal(3)}
        for at in range(6)
    ]
    driver, whole, thinned = (memory_stores(), memory_stores()), [], []
    messages = [
        each.payload
        for piece in table_arrivals(table_of(rows, SCHEMA), SCHEMA)
        for each in scorer.fan_out(piece, rule_set).messages()
    ]
    produced = list(scorer.score(messages, rule_set, memory_store()))
    parts = [each.payload for each in produced if each.output == PARTS]
    left = [*(each for each in produced if each.output != PARTS), *fired_parts(scorer, parts, rule_set)]
    for stores, found, given_produced in zip(driver, (whole, thinned), (produced, left), strict=True):
        besides, account = complete_batch(0, given_produced, scorer, rule_set, stores, given_produced is left)
        account.check()
        found += [each.payload for each in besides if each.output == ALERTS]
    assert whole
    assert whole == thinned
