"""Rules with features: values, conditions and alerts as a loop over lists has them, however the stream is cut."""

import json
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import buckets
from buckets.aggregates.aggregate import ANY_FIELD, NUMBERS
from buckets.aggregates.registry import AGGREGATES
from buckets.engine.stages.in_memory import BatchResults, InMemoryJob, OutputDecoder
from buckets.engine.stages.shard import Scorer
from buckets.events.parquet_rows import table_arrivals
from buckets.events.schema import EventSchema
from buckets.expressions.parser import parse_expression
from buckets.numbers.fixed_point import format_scaled
from buckets.outputs.columns import EVALUATIONS
from buckets.rules.change import changes_between
from buckets.rules.revision import revise
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet
from tests.core.aggregates.oracle import Seen, oracles
from tests.core.conditions import value as plain_value
from tests.laws import examples

SCHEMA = EventSchema.model_validate(
    {
        "event_id": "id",
        "event_time": "time",
        "attributes": {"payer": "string", "bene": "string", "kind": "string", "flag": "boolean", "n": "long"},
        "measures": {"amount": {"scale": 2}},
    }
)
START_MS = 1_700_000_000_000
ORACLES = oracles()
FILTERS: dict[Any, Any] = {
    None: None,
    "": lambda row: True,
    "kind = 'a'": lambda row: row["kind"] == "a",
    "flag OR amount > 5": lambda row: row["flag"] or row["amount"] > 5,
    "kind = 'z'": lambda row: False,
}
"""Filters as they are written, and the same in Python."""


class Group:
    """The events of a set of fields, by key."""

    def __init__(self, fields: frozenset[str], longest_ms: int, lateness_ms: int) -> None:
        self.fields, self.longest_ms, self.lateness_ms = sorted(fields), longest_ms, lateness_ms
        self.events: dict[Any, list[dict[str, Any]]] = {}
        self.clock_ms: dict[Any, int] = {}

    def arrive(self, row: dict[str, Any], late: str) -> tuple[list[dict[str, Any]], int] | None:
        """The events of its key, in the order of the timeline, and by how much it is late; None if not evaluated."""
        key = tuple(row[field] for field in self.fields)
        events, clock_ms = self.events.setdefault(key, []), self.clock_ms.get(key)
        if clock_ms is not None and row["time"] < clock_ms - self.longest_ms - self.lateness_ms:
            return None
        if any(each["id"] == row["id"] and each["time"] == row["time"] for each in events):
            return None
        late_by_ms = 0 if clock_ms is None else max(clock_ms - row["time"], 0)
        at = sum(each["time"] <= row["time"] for each in events)
        events.insert(at, row)
        self.clock_ms[key] = row["time"] if clock_ms is None else max(clock_ms, row["time"])
        return None if late_by_ms and late == "add" else (list(events), late_by_ms)


class Oracle:
    """Rules over lists."""

    def __init__(self, rules: list[Rule], late: str, lateness_ms: int) -> None:
        self.rules, self.late, self.lateness_ms = rules, late, lateness_ms
        longest: dict[frozenset[str], int] = {}
        for rule in rules:
            home = frozenset(rule.group_by)
            all_ms = [each.feature.window.begins_ms for each in rule.named_features()]
            mine = [each for each in rule.named_features() if frozenset(each.fields) == home]
            if not mine:
                longest[home] = max(longest.get(home, 0), *all_ms)
            for each in rule.named_features():
                fields = frozenset(each.fields)
                longest[fields] = max(longest.get(fields, 0), each.feature.window.begins_ms)
        self.groups = {fields: Group(fields, length_ms, lateness_ms) for fields, length_ms in longest.items()}

    def arrive(self, row: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """By rule that is evaluated at the event, its features."""
        seen = {fields: group.arrive(row, self.late) for fields, group in self.groups.items()}
        found = {}
        for rule in self.rules:
            needed = {frozenset(each.fields) for each in rule.named_features()} | {frozenset(rule.group_by)}
            if any(seen[fields] is None for fields in needed) or not FILTERS[_text(rule.where)](row):
                continue
            values = {
                each.name: self.feature(rule, each, row, seen[frozenset(each.fields)]) for each in rule.named_features()
            }
            is_in_time = seen[frozenset(rule.group_by)][1] <= self.lateness_ms
            if None not in values.values() and is_in_time:
                found[rule.rule_id] = {name: value[0] for name, value in values.items()}
        return found

    def feature(self, rule: Rule, named: Any, row: dict[str, Any], seen: Any) -> tuple[Any] | None:
        """A feature; None where the event is too late for it, whatever the windows of other rules are."""
        events, late_by_ms = seen
        window = named.feature.window
        if late_by_ms > self.lateness_ms:
            return None
        counts = FILTERS[_text(named.where)]
        first_ms = row["time"] - window.reach_ms
        inside = [each for each in events if first_ms <= each["time"] <= row["time"] - window.offset_ms]
        inside = [each for each in inside if window.exclude is None or each is not row]
        counted = [each for each in inside if counts(each)][-window.last :]
        inside = inside[next((i for i, x in enumerate(inside) if counted and x is counted[0]), len(inside)) :]
        before = [each for each in inside[: next((i for i, x in enumerate(inside) if x is row), None)] if counts(each)]
        feature = named.feature
        return (
            ORACLES[feature.function].value(Seen(row, counted, before, feature.of, feature.p, feature.half_life or 1)),
        )


def _text(where: Any) -> str:
    return where.text if where else ""


def shown(function: str, of: str | None, number: Any) -> Any:
    """A value as a term has it."""
    if number is None or isinstance(number, bool | str):
        return number
    scale = ORACLES[function].digits(2 if of == "amount" else 0)
    return format_scaled(int(number * 10**scale), scale)


FIELDS = {(): (), NUMBERS: ("amount", "n"), ANY_FIELD: ("amount", "n", "kind", "flag", "bene")}
FUNCTIONS = {name: FIELDS[aggregate.takes] for name, aggregate in AGGREGATES.items() if not aggregate.needs_steps}


@st.composite
def features(draw: st.DrawFn, functions: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    function = draw(st.sampled_from(sorted(functions)))
    found: dict[str, Any] = {"function": function, "window": draw(st.sampled_from(["2s", "5s", "30s"]))}
    if functions[function]:
        found["of"] = draw(st.sampled_from(functions[function]))
    if AGGREGATES[function].parameter == "p":
        found["p"] = draw(st.sampled_from([50, "95", 0.01, "99.99", 100, "33.3"]))
    if AGGREGATES[function].parameter == "half_life":
        found["half_life"] = draw(st.sampled_from(["1s", "700ms"]))
    if draw(st.booleans()):
        end = draw(st.sampled_from([{}, {"exclude": "current"}, {"offset": "1s"}, {"offset": "5s"}]))
        found["window"] = {"length": found["window"], "left": draw(st.sampled_from(["open", "closed"]))} | end
    elif "previous" in functions and draw(st.booleans()):  # Functions with bounds have windows beyond the tail.
        found["window"] = {"last": draw(st.integers(1, 4)), "within": found["window"]}
        found["window"] |= draw(st.sampled_from([{}, {}, {"exclude": "current"}]))
    if function == "rank" and isinstance(found["window"], dict):  # It leaves its own event out anyway.
        found["window"] = {name: end for name, end in found["window"].items() if name not in ("exclude", "offset")}
    where = draw(st.sampled_from([None, *(text for text in FILTERS if text)]))
    found |= {} if where is None else {"where": where}
    group_by = draw(st.sampled_from([None, None, ["bene"], ["payer", "bene"], []]))
    return found | ({} if group_by is None else {"group_by": group_by})


TESTS = {
    "number": ("{0} > 3", "{0} * 2 <= 9.5", "{0} IS NULL"),
    "boolean": ("{0}", "NOT {0}", "{0} <> flag", "{0} IS NULL"),
    "text": ("{0} <> kind", "bene = {0}", "{0} IN ('a', 'c')", "{0} IS NULL", "length(coalesce({0}, 'x')) = 1"),
}


@st.composite
def rules(draw: st.DrawFn, functions: dict[str, tuple[str, ...]] = FUNCTIONS) -> list[Rule]:
    found = []
    for number in range(draw(st.integers(1, 3))):
        named = {f"f{index}": draw(features(functions)) for index in range(draw(st.integers(1, 3)))}
        tests = []
        for name, feature in named.items():
            kind = AGGREGATES[feature["function"]].kind(SCHEMA.attributes.get(feature.get("of")))
            tests.append(draw(st.sampled_from(TESTS[kind])).format(name))
        when = draw(st.sampled_from([" AND ", " OR "])).join([*tests, "NOT (amount < 2 AND kind = 'a')"])
        rule = {"rule_id": f"r{number}", "group_by": draw(st.sampled_from([["payer"], ["payer", "kind"], []]))}
        where = draw(st.sampled_from([text for text in FILTERS if text is not None]))
        rule |= {"where": where} if where else {}
        found.append(Rule.model_validate(rule | {"features": named, "when": when}))
    return found


@st.composite
def streams(draw: st.DrawFn) -> list[dict[str, Any]]:
    rows, time_ms = [], START_MS
    for number in range(draw(st.integers(1, 25))):
        time_ms += draw(st.sampled_from([0, 1, 500, 2000, 5000, -1500, 40_000]))
        rows.append(
            {
                "id": f"e{draw(st.integers(0, number))}",
                "time": time_ms,
                "payer": draw(st.sampled_from(["p", "q"])),
                "bene": draw(st.sampled_from(["b", "c", "", "Łódź 銀行" + 40 * "b"])),
                "kind": draw(st.sampled_from(["a", "b"])),
                "flag": draw(st.booleans()),
                "n": draw(st.integers(-3, 3)),
                "amount": Decimal(draw(st.sampled_from(["1.00", "2.50", "7.25", "-3.10"]))),
            }
        )
    return rows


def table(rows: list[dict[str, Any]]) -> pa.Table:
    kinds = {"time": pa.int64(), "n": pa.int64(), "amount": pa.decimal128(10, 2), "flag": pa.bool_()}
    return pa.table({name: pa.array([row[name] for row in rows], kinds.get(name, pa.string())) for name in rows[0]})


def scored(rules: list[Rule], rows: list[dict[str, Any]], cuts: list[int], **engine: Any) -> dict[Any, Any]:
    """By position of the event and rule: features, whether it fired, and whether there is an alert."""
    evaluator = buckets.Evaluator(rules, SCHEMA, buckets.EngineSettings.model_validate(engine))
    found: dict[Any, Any] = {}
    ends = sorted({min(cut, len(rows)) for cut in cuts} | {len(rows)})
    begin = 0
    for end in ends:
        if begin == end:
            continue
        results = evaluator.recorded(table(rows[begin:end]))
        alerts = [*results.alerts.to_pylist(), *results.shadow_alerts.to_pylist()]
        alerts = {(row["position"], row["rule_id"]) for row in alerts}
        for row in results.evaluations.to_pylist():
            terms = {term["name"]: term["value"] for term in json.loads(row["terms"])}
            at = row["position"], row["rule_id"]
            assert row["fired"] == (at in alerts)
            found[row["position"] + begin, row["rule_id"]] = terms, row["fired"]
        begin = end
    return found


def expected(rules: list[Rule], rows: list[dict[str, Any]], late: str, lateness_ms: int) -> dict[Any, Any]:
    oracle, found = Oracle(rules, late, lateness_ms), {}
    for position, row in enumerate(rows):
        for rule_id, values in oracle.arrive(row).items():
            rule = next(each for each in rules if each.rule_id == rule_id)
            of = {name: (each.function, each.of) for name, each in rule.features.items()}
            fired = plain_value(parse_expression(rule.when.text), row | values | {"amount": Fraction(row["amount"])})
            terms = {name: shown(*of[name], number) for name, number in values.items()}
            found[position, rule_id] = terms, fired is True
    return found


@settings(max_examples=examples(60))
@given(rules(), streams(), st.lists(st.integers(1, 25), max_size=3), st.sampled_from(["add", "evaluate"]))
def test_features_and_conditions_as_a_loop_over_lists_has_them(rules, rows, cuts, late):
    found = scored(rules, rows, cuts, late=late, allowed_lateness="3s", shards=3)
    assert found == expected(rules, rows, late, 3000)


def test_a_rule_without_its_condition_is_refused(as_worded):
    for missing in ({}, {"features": {"a": {"function": "count", "window": "1h"}}}):
        with pytest.raises(ValueError, check=as_worded):
            Rule.model_validate({"rule_id": "r", "group_by": []} | missing)


def test_the_order_of_features_is_that_of_each_rule_though_rules_are_the_same():
    of_bene = {"window": "1h", "group_by": ["bene"]}
    features = {"all": {"function": "count"} | of_bene, "sum": {"function": "sum", "of": "n"} | of_bene}
    rows = [{"id": f"e{at}", "time": START_MS + at, "payer": "p", "bene": "b", "n": 5} for at in range(3)]
    found = []
    for names in (["all", "sum"], ["sum", "all"]):
        written = {"rule_id": "r", "group_by": ["payer"], "features": {name: features[name] for name in names}}
        rule = Rule.model_validate(written | {"when": "`all` > 0"})
        evaluations = buckets.Evaluator([rule], SCHEMA).recorded(pa.Table.from_pylist(rows)).evaluations
        found.append({term["name"]: term["value"] for term in json.loads(evaluations["terms"][2].as_py())})
    assert found[0] == found[1] == {"all": "3", "sum": "15"}


WITH_BOUNDS = {name: kinds for name, kinds in FUNCTIONS.items() if not AGGREGATES[name].needs_raw_events}


def in_bounds(term: dict[str, Any], exact: Any) -> bool:
    """Whether the value that `tail: all` has can be, by what a term says."""
    if term["exact"]:
        return term["value"] == exact
    if exact is None:
        return term.get("may_be_null", False)
    if isinstance(exact, bool):
        return exact in (term["lower"], term["upper"])
    return Decimal(term["lower"]) <= Decimal(exact) <= Decimal(term["upper"])


@settings(max_examples=examples(60))
@given(
    rules(WITH_BOUNDS),
    streams(),
    st.lists(st.integers(1, 25), max_size=3),
    st.sampled_from(["include", "exclude", "prorate"]),
)
def test_what_is_exact_lies_between_the_bounds_and_a_certain_alert_is_one(rules, rows, cuts, edge):
    exact = scored(rules, rows, [], allowed_lateness="0ms")
    precision = {"tail": "1s", "resolution": "4s", "edge": edge}
    evaluator = buckets.Evaluator(rules, SCHEMA, buckets.EngineSettings(allowed_lateness="0ms", precision=precision))
    begin = 0
    for end in sorted({min(cut, len(rows)) for cut in cuts} | {len(rows)}):
        if begin == end:
            continue
        results = evaluator.recorded(table(rows[begin:end]))
        for row in results.evaluations.to_pylist():
            terms, _ = exact[row["position"] + begin, row["rule_id"]]
            for term in json.loads(row["terms"]):
                assert in_bounds(term, terms[term["name"]]), (term, terms)
        for row in results.alerts.to_pylist():
            assert not row["certain"] or exact[row["position"] + begin, row["rule_id"]][1]
        begin = end


def test_a_feature_that_looks_at_single_events_has_its_window_in_the_tail(as_worded):
    feature = {"function": "previous", "of": "amount", "window": "2h"}
    rule = Rule.model_validate({"rule_id": "r", "group_by": ["payer"], "features": {"a": feature}, "when": "a > 1"})
    engine = buckets.EngineSettings.model_validate({"precision": {"tail": "1h"}})
    with pytest.raises(buckets.BucketsError, check=as_worded):
        buckets.Evaluator([rule], SCHEMA, engine)


def test_a_rule_that_is_reset_has_its_window_in_the_tail(as_worded):
    written = {"aggregate": {"function": "count"}, "window": {"length": "2h"}, "limit": {"operator": ">", "value": 3}}
    rule = Rule.model_validate({"rule_id": "r", "group_by": ["payer"], "reset_on_alert": True} | written)
    engine = buckets.EngineSettings.model_validate({"precision": {"tail": "1h"}})
    with pytest.raises(buckets.BucketsError, check=as_worded):
        buckets.Evaluator([rule], SCHEMA, engine)


def test_an_alert_says_what_was_found_in_english():
    written = {
        "rule_id": "spike",
        "group_by": ["payer"],
        "features": {
            "recent": {"function": "sum", "of": "amount", "window": "1h"},
            "usual": {"function": "avg", "of": "amount", "window": "30d"},
        },
        "when": "recent > 1.5 * usual AND amount >= 2",
    }
    rows = [{"id": f"e{n}", "time": START_MS + n, "payer": "p", "amount": Decimal("1234.50")} for n in range(2)]
    events = pa.table({name: [row[name] for row in rows] for name in rows[0]})
    (alert,) = buckets.evaluate(events, [Rule.model_validate(written)], SCHEMA).alerts.to_pylist()
    assert alert["condition"] == (
        "recent (2,469) is above 1.5 times usual (1,234.50) and amount (1,234.50) is at least 2"
    )
    assert alert["rule"] == (
        "For events of the same payer: recent is above 1.5 times usual and amount is at least 2; recent is the sum of "
        "amount over the last 1h; usual is the average of amount over the last 30d"
    )
    assert (alert["value"], alert["limit"], alert["certain"], alert["window_start"]) == (
        None, None, True, alert["window_end"] - timedelta(days=30)
    )  # fmt: skip


def test_what_meets_from_several_groups_leaves_nothing_on_the_terminal(capfd):
    features = {name: {"function": "count", "window": "1h", "group_by": [name]} for name in ("bene", "kind")}
    rule = {"rule_id": "r", "group_by": ["payer"], "features": {f"of_{name}": each for name, each in features.items()}}
    rules = [Rule.model_validate(rule | {"when": "of_bene + of_kind > 0"})]
    for size in range(1, 9):
        rows = [
            {"id": f"e{n}" * size, "time": START_MS + n, "payer": "p", "bene": "b", "kind": "k" * n}
            for n in range(size)
        ]
        events = pa.table({name: [row[name] for row in rows] for name in rows[0]})
        assert buckets.evaluate(events, rules, SCHEMA).alerts.num_rows == size
    assert capfd.readouterr().err == ""


@settings(max_examples=examples(60))
@given(rules(), rules(), streams(), st.integers(1, 24))
def test_what_is_warm_is_as_if_the_rule_had_been_there_from_the_start(first, then, rows, cut):
    """Rules change in the middle of a stream: tracks, windows and groups that are new have no history yet."""
    then = [rule.model_copy(update={"rule_id": f"new-{rule.rule_id}"}) for rule in then]
    engine = buckets.EngineSettings.model_validate({"allowed_lateness": "0ms", "shards": 2})
    job = InMemoryJob(Scorer(SCHEMA, engine, evaluations=True))
    rule_set = revise(RuleSet(0, (), (), {}), changes_between((), first), SCHEMA, (), 0).rule_set
    exact = scored([*first, *then], rows, [], allowed_lateness="0ms")
    for begin, end in ((0, cut), (cut, len(rows))):
        if begin >= min(end, len(rows)):
            continue
        arrivals = table_arrivals(table(rows[begin:end]), SCHEMA)
        results = job.score_batch(arrivals, rule_set)
        for row in evaluated(results, rule_set, engine):
            for term in json.loads(row["terms"]):
                at = row["position"] + begin, row["rule_id"]
                if term["warm"] and at in exact:
                    assert term["value"] == exact[at][0][term["name"]], (term, exact[at])
        asked = changes_between(rule_set.rules, [*first, *then])
        rule_set = revise(rule_set, asked, SCHEMA, results.account.arrived, 0).rule_set


def evaluated(results: BatchResults, rule_set: RuleSet, engine: buckets.EngineSettings) -> list[dict[str, Any]]:
    packed = results.payloads.get(EVALUATIONS)
    return OutputDecoder(rule_set, SCHEMA, engine).table(EVALUATIONS, packed).to_pylist() if packed else []


LEAST, GREATEST = -(2**63), 2**63 - 1


@pytest.mark.parametrize(
    ("function", "where", "extreme"),
    [
        ("avg", None, LEAST),
        ("avg", "flag", LEAST),
        ("avg", None, GREATEST),
        ("min", "flag", GREATEST),
        ("max", "flag", LEAST),
    ],
)
def test_values_at_the_ends_of_64_bits_are_exact_whatever_else_is_in_the_batch(function, where, extreme):
    feature = {"function": function, "of": "n", "window": "100ms"} | ({"where": where} if where else {})
    written = {"rule_id": "r", "group_by": ["payer"], "features": {"x": feature}, "when": "x IS NOT NULL"}
    rows = [
        {"id": f"e{n}", "time": START_MS + 500 * n, "payer": "p", "flag": True, "n": [extreme, 5][n]} for n in (0, 1)
    ]
    events = pa.table({name: [row[name] for row in rows] for name in rows[0]})
    first, second = buckets.features(events, [Rule.model_validate(written)], SCHEMA)["r.x"].to_pylist()
    assert (first, second) == (extreme, 5)


def test_the_last_event_counts_itself_and_booleans_are_yes_or_no():
    features = {"x": {"function": "last", "of": "amount", "window": "1h"}}
    written = {"rule_id": "r", "group_by": ["payer"], "features": features, "when": "flag AND x > 1"}
    events = pa.table({"id": ["e"], "time": [START_MS], "payer": ["p"], "flag": [True], "amount": ["2.00"]})
    (alert,) = buckets.Evaluator([Rule.model_validate(written)], SCHEMA).recorded(events).alerts.to_pylist()
    assert json.loads(alert["terms"])[0]["count"] == 1
    assert alert["condition"] == "flag (yes) is true and x (2) is above 1"


def test_the_key_of_a_rule_does_not_depend_on_how_other_rules_order_their_fields():
    def rule(rule_id: str, group_by: list[str]) -> Rule:
        features = {"x": {"function": "count", "window": "1h"}}
        return Rule.model_validate({"rule_id": rule_id, "group_by": group_by, "features": features, "when": "x > 0"})

    events = pa.table({"id": ["e"], "time": [START_MS], "payer": ["p"], "bene": ["b"]})
    mine, other = rule("mine", ["payer", "bene"]), rule("other", ["bene", "payer"])
    (alone,) = buckets.Evaluator([mine], SCHEMA).recorded(events).alerts.to_pylist()
    beside = buckets.Evaluator([other, mine], SCHEMA).recorded(events).alerts.to_pylist()
    assert alone["key"] == '{"payer": "p", "bene": "b"}'
    assert {alert["alert_id"] for alert in beside if alert["rule_id"] == "mine"} == {alone["alert_id"]}
