"""Rules and events to look for findings in: written short, and as hypothesis draws them."""

import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from buckets.aggregates.aggregate import ANY_FIELD
from buckets.aggregates.registry import AGGREGATES, SHORT_FUNCTIONS
from buckets.events.schema import EventSchema
from buckets.lint.lint import Report, look
from buckets.lint.subject import Subject
from buckets.rules.rule import Rule

NOW_MS = 1_800_000_000_000
SCHEMA = EventSchema.model_validate(
    {
        "event_id": "id",
        "event_time": "time",
        "attributes": {"k": "string", "kind": "string", "flag": "boolean", "n": "long"},
        "measures": {"amount": {"scale": 2}, "fee": {"scale": 0}},
    }
)


def looked_at(rules: list[dict[str, Any]], schema: EventSchema | None = SCHEMA, **known: Any) -> Report:
    read = tuple(Rule.model_validate({"rule_id": f"r{at}", **each}) for at, each in enumerate(rules))
    written = {rule.rule_id: frozenset(each) for rule, each in zip(read, rules, strict=True)}
    return look(Subject(read, NOW_MS, schema, written=written, **known))


def found(*rules: dict[str, Any], schema: EventSchema | None = SCHEMA, **known: Any) -> list[str]:
    return [finding.code.code for finding in looked_at(list(rules), schema, **known).findings]


def limited(function: str, operator: str, limit: Any, **more: Any) -> dict[str, Any]:
    """A rule of one aggregate; what it is of is called amount."""
    aggregate = {"function": function, **({} if function == "count" else {"measure": "amount"})}
    rule = {"group_by": ["k"], "aggregate": aggregate, "window": {"length": "1h"}}
    return rule | {"limit": {"operator": operator, "value": str(limit)}, **more}


def filtered(where: Any, **more: Any) -> dict[str, Any]:
    return limited("count", ">", 5, where=where, **more)


FEATURES: dict[str, dict[str, Any]] = {
    "events": {"function": "count", "window": "1h"},
    "total": {"function": "sum", "of": "amount", "window": "1h"},
    "other": {"function": "count", "window": "1h", "where": "kind = 'x'"},
    "gap": {"function": "time_since_previous", "window": "1m"},
    "open_gap": {"function": "time_since_first", "window": {"length": "1m", "left": "open"}},
    "flags": {"function": "count_distinct", "of": "flag", "window": "1h"},
    "kinds": {"function": "count_distinct", "of": "kind", "window": "1h"},
    "spread": {"function": "stddev", "of": "amount", "window": "1h"},
    "mean": {"function": "avg", "of": "amount", "window": "1h"},
    "before": {"function": "previous", "of": "amount", "window": "1h"},
    "new": {"function": "is_first", "window": "1h"},
    "top": {"function": "max", "of": "amount", "window": "1h"},
    "least": {"function": "min", "of": "amount", "window": "1h"},
    "day": {"function": "count", "window": "1d"},
    "day_total": {"function": "sum", "of": "amount", "window": "1d"},
    "all_total": {"function": "sum", "of": "amount", "window": "60m", "where": {}},
    "same": {"function": "count", "window": "60m"},
    "keys": {"function": "count_distinct", "of": "k", "window": "1h"},
}


def when(condition: str, **more: Any) -> dict[str, Any]:
    """A rule with the features that its condition names."""
    named = {name: feature for name, feature in FEATURES.items() if re.search(rf"\b{name}\b", condition)}
    return {"group_by": ["k"], "features": named, "when": condition, **more}


def of_features(condition: str, named: dict[str, Any]) -> dict[str, Any]:
    features = {name: feature for name, feature in named.items() if name in condition}
    return {"group_by": ["k"], "features": features, "when": condition}


AMOUNTS = ["-0.01", "0", "0.01", "0.02", "1", "60"]
WHERES: Any = st.sampled_from(
    [
        None, "amount > 0", "amount >= 0", {"amount": {">": 0, "<": "0.03"}}, "amount < 0", "kind = 'a'", "flag",
        "kind IN ('a', 'b')", "kind = 'a' AND amount > 0", "n = 1", "amount > 0 OR n = 1", "n > 0 AND n < 1",
    ]
)  # fmt: skip
OPERATORS: Any = st.sampled_from([">", ">=", "<", "<=", "=", "!="])
LENGTHS: Any = st.sampled_from(["1ms", "5ms", "20ms", "60s"])


@st.composite
def features(draw: st.DrawFn) -> dict[str, Any]:
    function = draw(st.sampled_from(list(AGGREGATES)))
    aggregate = AGGREGATES[function]
    feature: dict[str, Any] = {"function": function}
    if aggregate.takes == ANY_FIELD:
        feature["of"] = draw(st.sampled_from(["amount", "flag", "kind", "n"]))
    elif aggregate.takes:
        feature["of"] = draw(st.sampled_from(["amount", "amount", "n"]))
    if aggregate.parameter == "p":
        feature["p"] = 50
    if aggregate.parameter == "half_life":
        feature["half_life"] = "3ms"
    left = draw(st.sampled_from(["open", "closed"]))
    where = draw(WHERES)
    more = {} if where is None or draw(st.booleans()) else {"where": where}
    ends: list[dict[str, str]] = [{}, {}, {}, {"exclude": "current"}, {"offset": "4ms"}]
    beside = draw(st.sampled_from(ends if function != "rank" else ends[:1]))
    window = {"length": draw(LENGTHS), "left": left, **beside}
    if aggregate.parameter == "within":
        test = st.sampled_from(["kind = 'a'", "amount > 0", "flag", "n = 1"])
        absence = {
            "steps": [draw(test)],
            "without": draw(test),
            "within": draw(st.sampled_from(["1ms", "5ms", "20ms"])),
        }
        return {**feature, **absence, "window": draw(st.sampled_from(["21ms", "60s"]))}
    if aggregate.needs_steps:
        steps = {"steps": draw(st.lists(WHERES.filter(lambda where: isinstance(where, str)), min_size=2, max_size=3))}
        return {**feature, **steps, "window": {"length": draw(LENGTHS), "left": left}}
    last = {"last": draw(st.integers(1, 3)), "within": "60s"}
    return {**feature, **more, "window": draw(st.sampled_from([window, window, last]))}


@st.composite
def lint_rules(draw: st.DrawFn, number: int) -> dict[str, Any]:
    """Rules whose limits are near what their values can be."""
    rule: dict[str, Any] = {"rule_id": f"r{number}", "group_by": draw(st.sampled_from([["k"], ["k"], []]))}
    where = draw(WHERES)
    rule |= {} if where is None else {"where": where}
    if draw(st.integers(0, 2)) == 0:
        limit = {"operator": draw(OPERATORS), "value": draw(st.sampled_from(AMOUNTS))}
        function = draw(st.sampled_from(SHORT_FUNCTIONS))
        aggregate = {"function": function, **({} if function == "count" else {"measure": "amount"})}
        return rule | {"aggregate": aggregate, "window": {"length": draw(LENGTHS)}, "limit": limit}
    rule["features"] = {f"f{at}": draw(features()) for at in range(draw(st.integers(1, 3)))}
    if draw(st.booleans()):  # Features of one field, which are in some relation.
        for feature in rule["features"].values():
            feature.pop("where", None)
            feature |= {"of": "amount"} if "of" in feature else {}
    numbers = [name for name, feature in rule["features"].items() if kind_of(feature) == "number"]
    parts = [draw(tests_of(name, feature, numbers)) for name, feature in rule["features"].items()]
    if draw(st.booleans()):
        parts.append(draw(st.sampled_from(["amount > 0", "amount < 0", "kind = 'c'", "n = 2", "flag"])))
    return rule | {"when": draw(st.sampled_from([" AND ", " OR "])).join(parts)}


KINDS: Any = {"flag": "boolean", "kind": "string"}


def kind_of(feature: dict[str, Any]) -> str:
    """What the values of a feature are."""
    return AGGREGATES[feature["function"]].kind(KINDS.get(feature.get("of", "")))


@st.composite
def tests_of(draw: st.DrawFn, name: str, feature: dict[str, Any], others: list[str]) -> str:
    """A comparison of a feature."""
    kind = kind_of(feature)
    if kind == "text":
        return draw(st.sampled_from([f"{name} = 'a'", f"{name} <> kind", f"{name} IS NULL", f"{name} IN ('a', 'z')"]))
    if kind == "boolean":
        return draw(st.sampled_from([name, f"NOT {name}"]))
    return f"{name} {draw(OPERATORS)} {draw(st.sampled_from([*AMOUNTS, 'amount', f'{name} + 0', *others * 2]))}"


@st.composite
def event_tables(draw: st.DrawFn) -> pa.Table:
    rows, clock_ms = [], 1_700_000_000_000
    for at in range(draw(st.integers(1, 12))):
        clock_ms += draw(st.sampled_from([0, 1, 4, 5, 6, 20, 21, 59_999, 60_000]))
        rows.append(
            {
                "id": f"e{at}",
                "time": clock_ms + draw(st.sampled_from([0, 0, 0, -3])),
                "k": draw(st.sampled_from(["x", "x", "y"])),
                "kind": draw(st.sampled_from(["a", "a", "b", "c", None])),
                "flag": draw(st.booleans()),
                "n": draw(st.sampled_from([0, 1, 1, 2])),
                "amount": Decimal(draw(st.sampled_from(AMOUNTS))),
                "fee": Decimal(0),
            }
        )
    kinds = {"time": pa.int64(), "n": pa.int64(), "flag": pa.bool_()}
    kinds |= dict.fromkeys(("amount", "fee"), pa.decimal128(20, 2))
    return pa.table({name: pa.array([row[name] for row in rows], kinds.get(name, pa.string())) for name in rows[0]})


ENGINES: Any = st.sampled_from(
    [
        {},
        {"late": "evaluate"},
        {"allowed_lateness": "0ms", "precision": {"tail": "60s", "resolution": "1ms"}},
        {"allowed_lateness": "0ms", "precision": {"tail": "2ms", "resolution": "4ms", "edge": "exclude"}},
        {"allowed_lateness": "0ms", "precision": {"tail": "0ms", "resolution": "1h", "edge": "prorate"}},
        {"allowed_lateness": "0ms", "precision": {"tail": "0ms", "resolution": "30ms", "edge": "include"}},
    ]
)


def payment(at: int) -> dict[str, Any]:
    """One of many card payments, a second apart."""
    return {
        "transactionId": f"t{at}", "eventTime": NOW_MS + 1000 * at, "payerId": f"p{at % 20}", "beneficiaryId": "b",
        "cardId": f"c{at % 20}", "paymentType": ("CRD", "TRF")[at % 2], "status": "APPROVED",
        "country": ("FR", "DE", "IT")[at % 3], "paymentAmount": "10.00",
    }  # fmt: skip
