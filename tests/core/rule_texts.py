"""Texts of rule files as hypothesis draws them: plausible rules with features, what has been spoilt in them, and rows.

A file is drawn as data, some of which is exchanged for something that does not belong there, and written as YAML, of
which some letters may be exchanged too. So many files are rules, and many just are not.
"""

import copy
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from buckets.aggregates.aggregate import ANY_FIELD, NUMBERS
from buckets.aggregates.registry import AGGREGATES
from buckets.events.schema import EventSchema
from buckets.yaml_dialect import write_yaml

SCHEMA = EventSchema.model_validate(
    {
        "event_id": "id",
        "event_time": "time",
        "attributes": {
            "payer": "string",
            "bene": "string",
            "kind of it": "string",
            "select": "string",
            "flag": "boolean",
            "n": "long",
        },
        "measures": {"amount": {"scale": 2}, "fee": {"scale": 0}, "latitude": {"scale": 12}},
    }
)
FIELDS = {
    (): (),
    NUMBERS: ("amount", "fee", "latitude", "n"),
    ANY_FIELD: ("amount", "fee", "n", "bene", "kind of it", "select", "flag"),
}
FUNCTIONS = {name: FIELDS[aggregate.takes] for name, aggregate in AGGREGATES.items() if aggregate.parameter != "p"}
GROUPINGS: Any = st.sampled_from([["payer"], ["bene", "payer"], ["flag", "n"], ["kind of it"], ["select"], []])
FILTERS: Any = st.sampled_from(
    [
        {}, {"payer": "p"}, {"amount": {">": "0", "<=": "92233720368547758.07"}}, {"n": {"not_in": [0, "1"]}},
        {"flag": True}, {"select": ["a", "b"]}, "flag", "amount > 0 OR n IS NULL", "`kind of it` LIKE '%a_'",
        "abs(amount) / fee > 0.3", "n * n * n > 5 AND NOT flag", "length(`select`) = 0", "hour(time) BETWEEN 3 AND 21",
        "payer = bene", "coalesce(n, fee, 0) % 7 = 0", "payer > 'b' AND payer < 'a'", "bene REGEXP '^[a-p]' OR flag",
        "substring(payer || bene, 1, 2) = 'pb'", "CASE WHEN flag THEN n WHEN fee > 1 THEN fee ELSE amount END > 1.5",
        "round(sqrt(abs(amount)), 1) >= 1.4 OR ln(n) < greatest(fee, 0)", "NOT payer ILIKE 'P%'",
        "jaro_winkler(payer, bene) BETWEEN 0.5 AND 2 AND levenshtein(payer, 'p') < 3",
    ]
)  # fmt: skip
DURATIONS: Any = st.sampled_from(["1ms", "1s", "5s", "10m", "1h", "30d", "3660d", " 7d "])
WINDOWS: Any = st.one_of(
    st.fixed_dictionaries({"last": st.sampled_from([1, 10, 1_000_000]), "within": DURATIONS}),
    DURATIONS,
    st.fixed_dictionaries({"length": DURATIONS, "left": st.sampled_from(["open", "closed"])}),
)
WRITTEN_NUMBERS: Any = st.sampled_from(
    ["0", "1", "-1", "2.5", "1e3", "0.000000000000000000001", "9223372036854775807", "-9223372036854775808", "1e37"]
)
TEXTS: Any = st.sampled_from(["login", "it's", "a b", "-- x", "%", "é"])
NAMES: Any = st.one_of(
    st.sampled_from(["recent", "usual", "f0", "f1", "_", "Sum", "order", "select", "when", "flag", "amount", "time"]),
    st.sampled_from(["from", "case", "true", "null", "not", "end", "group", "interval", "date", "a" * 100, "a" * 101]),
    st.sampled_from(["", "1a", "a b", "a-b", "é", "a.b", "`a`", "ratio", "abs", "count", "hour", "x:y", "terms"]),
)


@st.composite
def features(draw: st.DrawFn) -> dict[str, Any]:
    function = draw(st.sampled_from(sorted(FUNCTIONS)))
    found: dict[str, Any] = {"function": function, "window": draw(WINDOWS)}
    if AGGREGATES[function].needs_steps:
        values = st.one_of(TEXTS, TEXTS.map(lambda text: {text: "amount > 0 OR `kind of it` = 'a'"}))
        filters = FILTERS.filter(lambda where: isinstance(where, str))
        field = draw(st.sampled_from([None, "kind of it"]))
        steps = filters if field is None else values
        found |= {"steps": draw(st.lists(steps, min_size=2, max_size=10))}
        found |= {} if field is None else {"step_field": field}
        if AGGREGATES[function].parameter == "within":
            absence = {
                "steps": found["steps"][:1],
                "without": draw(steps),
                "within": draw(st.sampled_from(["1ms", "5m"])),
            }
            return found | absence | {"window": draw(st.sampled_from(["6m", {"length": "1d", "left": "open"}]))}
        return found | draw(st.sampled_from([{}, {"without": draw(steps)}]))
    if FUNCTIONS[function]:
        found["of"] = draw(st.sampled_from(FUNCTIONS[function]))
    if AGGREGATES[function].parameter == "half_life":
        found["half_life"] = draw(DURATIONS)
    if draw(st.integers(0, 2)) == 0:
        found["where"] = draw(FILTERS)
    if draw(st.integers(0, 3)) == 0:
        found["group_by"] = draw(st.one_of(GROUPINGS, st.sampled_from([["bene AS payer"], ["n", "payer AS bene"]])))
    return found


@st.composite
def terms(draw: st.DrawFn, numbers: list[str], depth: int) -> str:
    """What is a number."""
    kind = draw(st.integers(0, 9)) if depth else draw(st.integers(0, 3))
    if kind < 3:
        return draw(st.sampled_from(numbers))
    if kind == 3:
        return draw(WRITTEN_NUMBERS)
    one, two, three = (draw(terms(numbers, depth - 1)) for _ in range(3))
    if kind < 7:
        return f"({one} {draw(st.sampled_from('+-*/%'))} {two})"
    return draw(
        st.sampled_from(
            [
                f"ratio({one}, {two})", f"zscore({one}, {two}, {three})", f"abs({one})", f"coalesce({one}, {two})",
                f"geo_speed_kmh({one}, {two}, {three}, {one}, {two})", f"-{one}", f"length(bene) * {one}",
                f"round({one}, 1)", f"sqrt({one})", f"ln({one})", f"greatest({one}, {two})",
                f"CASE WHEN flag OR {one} > 1 THEN {two} ELSE {three} END", f"levenshtein(bene, payer) - {one}",
            ]
        )
    )  # fmt: skip


@st.composite
def conditions(draw: st.DrawFn, numbers: list[str], booleans: list[str], depth: int = 2) -> str:
    kind = draw(st.integers(0, 6)) if depth else draw(st.integers(2, 6))
    if kind == 0:
        return f"NOT ({draw(conditions(numbers, booleans, depth - 1))})"
    if kind == 1:
        parts = (draw(conditions(numbers, booleans, depth - 1)) for _ in range(2))
        return f"({draw(st.sampled_from([' AND ', ' OR '])).join(parts)})"
    if kind == 2:
        return draw(st.sampled_from(booleans))
    if kind == 3:
        return f"{draw(st.sampled_from([*numbers, *booleans]))} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
    one, two = draw(terms(numbers, depth)), draw(terms(numbers, depth))
    if kind == 4:
        return f"{one} BETWEEN {two} AND {draw(WRITTEN_NUMBERS)}"
    return f"{one} {draw(st.sampled_from(['>', '>=', '<', '<=', '=', '!=', '<>']))} {two}"


@st.composite
def written_rules(draw: st.DrawFn, number: int) -> dict[str, Any]:
    rule: dict[str, Any] = {"rule_id": f"r{number}", "group_by": draw(GROUPINGS)}
    if draw(st.integers(0, 2)) == 0:
        rule["where"] = draw(FILTERS)
    if draw(st.integers(0, 3)) == 0:
        rule["state"] = draw(st.sampled_from(["ACTIVE", "SHADOW", "PAUSE", "DELETE"]))
    if draw(st.integers(0, 9)) == 0:
        limit = {"operator": draw(st.sampled_from([">", "=", "<="])), "value": draw(WRITTEN_NUMBERS)}
        aggregate = {"function": draw(st.sampled_from(["sum", "avg", "max"])), "measure": "amount"}
        return rule | {"aggregate": aggregate, "window": {"length": draw(DURATIONS)}, "limit": limit}
    names = [f"f{at}" for at in range(draw(st.integers(1, 3)))]
    if draw(st.integers(0, 5)) == 0:
        names[-1] = draw(NAMES)
    rule["features"] = {name: draw(features()) for name in names}
    booleans = [name for name, each in rule["features"].items() if each["function"] == "is_first"]
    numbers = [name for name in rule["features"] if name not in booleans] + ["amount", "n", "latitude"]
    if draw(st.integers(0, 9)) == 0:
        numbers.append(draw(st.one_of(NAMES, st.sampled_from(["payer", "nobody", "`kind of it`", "flag"]))))
    rule |= {"score": draw(terms(numbers, 2))} if draw(st.integers(0, 3)) == 0 else {}
    return rule | {"when": draw(conditions(numbers, [*booleans, "flag", "payer = 'p'"]))}


DEEP: Any = []
for _ in range(40):
    DEEP = [DEEP]
JUNK: Any = st.one_of(
    st.sampled_from([None, True, False, 0, -1, 10**400, 2**63, 0.1, "", " ", [], {}, [[]], {"": None}, DEEP, [None]]),
    st.sampled_from(["0ms", "-1h", "99999d", "1", "1h 2m", "1H", "median", "SUM", "ACTIVE", "payer", "amount"]),
    st.sampled_from(["f0", "nobody", "\u202e", "\x00", "\n", "\x85", "x" * 20_000, "é" * 300, "!x", "\u3164", "="]),
    st.sampled_from(["f0 >", "SELECT 1", "f0 > 1; f1 > 2", "(((", "'", "f0 = 'a", "-- x", "1 = 1", "TRUE", "f0", "`"]),
    st.sampled_from(["NOT " * 80 + "flag", "(" * 200 + "f0" + ")" * 200, " AND ".join(["f0 > 1"] * 200), "f0.f1 > 2"]),
    st.sampled_from([["payer", "payer"], ["amount"], ["n", "n"], {"length": "1h", "hop": "1m"}, {"length": 5}, ["f0"]]),
    st.sampled_from([{"payer": []}, {"payer": {}}, {"amount": {">": "x"}}, {"amount": {">": 0.001}}, {"f0": 1}]),
    st.text(max_size=20),
    st.integers(),
)
KEYS: Any = st.sampled_from(
    [
        "features",
        "when",
        "where",
        "group_by",
        "of",
        "function",
        "window",
        "length",
        "left",
        "aggregate",
        "limit",
        "x",
        "",
    ]
)


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to everything in nested lists and mappings."""
    found = [path] if path else []
    steps = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for step, value in steps:
        found += places(value, (*path, step))
    return found


@st.composite
def spoilt(draw: st.DrawFn, data: Any) -> Any:
    """Data of which something has been exchanged, taken away, added, or moved."""
    data = copy.deepcopy(data)
    path = draw(st.sampled_from(places(data)))
    parent = data
    for step in path[:-1]:
        parent = parent[step]
    kind = draw(st.integers(0, 6))
    if kind < 3:
        parent[path[-1]] = draw(JUNK)
    elif kind == 3:
        del parent[path[-1]]
    elif kind == 4:
        other: Any = data
        for step in draw(st.sampled_from(places(data))):
            other = other[step]
        parent[path[-1]] = copy.deepcopy(other)
    elif kind == 5 and isinstance(parent, dict):
        parent[draw(st.one_of(KEYS, NAMES))] = parent.pop(path[-1])
    elif isinstance(parent, list):
        parent.append(copy.deepcopy(parent[path[-1]]))
    else:
        parent[draw(st.one_of(KEYS, NAMES))] = draw(JUNK)
    return data


@st.composite
def rule_texts(draw: st.DrawFn) -> str:
    """Rule files, many of which are not."""
    data: Any = {"rules": [draw(written_rules(number)) for number in range(draw(st.integers(1, 2)))]}
    for _ in range(draw(st.sampled_from([0, 0, 0, 0, 1, 1, 2]))):
        if places(data):
            data = draw(spoilt(data))
    style = draw(st.integers(0, 3))
    text = json.dumps(data, ensure_ascii=style == 0)
    if style == 2 and "\\ud" not in text:
        text = write_yaml(data)
    for _ in range(draw(st.sampled_from([*[0] * 12, 1, 3]))):
        at = draw(st.integers(0, len(text)))
        signs = st.sampled_from([*"{}[]:,'\"&*!|>%@#\n\t -", "\n- ", ": ", "<<: "])
        letters = draw(st.one_of(signs, st.text(max_size=2)))
        text = text[:at] + letters + text[at + draw(st.integers(0, 3)) :]
    return text


INT64: Any = st.sampled_from([-(2**63), -(2**63) + 1, -1, 0, 1, 7, 500, 2**63 - 1])
TEXTS: Any = st.sampled_from(["", "", "p", "p", "p", "a", "ß", "\x00", "é" * 30, None])
TIMES: Any = st.sampled_from([0, 1, -1, 1000, 5000, 1_700_000_000_000, 1_700_000_000_001, 1_702_592_000_000])


@st.composite
def row_tables(draw: st.DrawFn) -> pa.Table:
    """Events at the ends of what there can be."""
    rows = [
        {
            "id": f"e{draw(st.integers(0, 5))}",
            "time": draw(TIMES),
            **{name: draw(TEXTS) for name in ("payer", "bene", "kind of it", "select")},
            "flag": draw(st.sampled_from([True, True, False, False, None])),
            "n": draw(st.one_of(INT64, INT64, INT64, st.none())),
            "amount": Decimal(draw(INT64)).scaleb(-2),
            "fee": Decimal(draw(INT64)),
            "latitude": Decimal(draw(INT64)).scaleb(-12),
        }
        for _ in range(draw(st.integers(1, 6)))
    ]
    kinds = {"time": pa.int64(), "n": pa.int64(), "flag": pa.bool_(), "amount": pa.decimal128(38, 2)}
    kinds |= {"fee": pa.decimal128(38, 0), "latitude": pa.decimal128(38, 12)}
    return pa.table({name: pa.array([row[name] for row in rows], kinds.get(name, pa.string())) for name in rows[0]})


ENGINES: Any = st.one_of(
    st.just({}),
    st.just({"shards": 3, "late": "evaluate", "collision": "replace"}),
    st.just({"allowed_lateness": "0ms", "precision": {"tail": "1s", "resolution": "4s", "edge": "prorate"}}),
    st.just({"allowed_lateness": "0ms", "precision": {"tail": "0ms", "resolution": "1h", "edge": "exclude"}}),
)
"""Engine settings as they are written."""
