"""Rules over events and over alerts, streams, and what a loop over lists makes of them."""

import itertools
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from buckets.events.schema import EventSchema
from buckets.rules.change import changes_between
from buckets.rules.revision import revise
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet

SCHEMA = EventSchema.model_validate(
    {
        "event_id": "id",
        "event_time": "t",
        "attributes": {"payer": "string", "card": "string", "kind": "string", "vip": "boolean", "n": "long"},
        "measures": {"amount": {"scale": 2}},
    }
)
ENGINE = {"allowed_lateness": "1h", "shards": 3}
Row = dict[str, Any]
FILTERS: dict[str, Callable[[Row], bool]] = {
    "": lambda row: True,
    "kind = 'a'": lambda row: row["kind"] == "a",
    "alert_score >= 20": lambda row: row["alert_score"] >= 20,
    "alert_rule <> 'e0' AND amount > 1": lambda row: row["alert_rule"] != "e0" and row["amount"] > 1,
}
SCORES: dict[str, Callable[[Row, Any], Any]] = {
    "10 * amount - 20": lambda row, first: 10 * row["amount"] - 20,
    "n / 2 + 4": lambda row, first: Fraction(row["n"], 2) + 4,
    "7 * FIRST": lambda row, first: None if first is None else 7 * first,
    "1000000000 * amount": lambda row, first: 10**9 * row["amount"],
}
"""Scores that are computed, with the name of the first feature in capitals."""
OF_EVENTS, OF_ALERTS = list(FILTERS)[:2], list(FILTERS)


def rule_set(rules: list[Rule]) -> RuleSet:
    """The first version of a job's rules."""
    return revise(RuleSet(0, (), (), {}), changes_between((), rules), SCHEMA, (), 3_600_000).rule_set


@st.composite
def rules(draw: st.DrawFn) -> list[Rule]:
    """Some rules over events and over alerts, in any order."""
    found = [draw(_rule(f"e{number}", "events")) for number in range(draw(st.integers(1, 3)))]
    found += [draw(_rule(f"a{number}", "alerts")) for number in range(draw(st.integers(1, 3)))]
    return draw(st.permutations(found))


@st.composite
def _rule(draw: st.DrawFn, rule_id: str, on: str) -> Rule:
    over_alerts = on == "alerts"
    groupings: Any = [["payer"], ["kind"], []] if not over_alerts else [["card"], ["payer"], ["alert_rule", "vip"], []]
    written: Row = {"rule_id": rule_id, "on": on, "group_by": draw(st.sampled_from(groupings))}
    written["state"] = draw(st.sampled_from(["ACTIVE", "ACTIVE", "ACTIVE", "SHADOW", "PAUSE"]))
    score = draw(st.sampled_from([0, 10, 40, *SCORES]))
    where = draw(st.sampled_from(OF_ALERTS if over_alerts else OF_EVENTS))
    written |= {"where": where} if where else {}
    numbers, any_field = ["amount", "n"], ["amount", "kind"]
    if over_alerts:
        numbers, any_field = ["alert_score", "amount"], ["alert_rule", "kind"]
    window = st.sampled_from(["1s", "5s", "1h"])
    if draw(st.booleans()):
        function = draw(st.sampled_from(["count", "sum"]))
        aggregate = {"function": function} | ({"measure": numbers[0]} if function == "sum" else {})
        limit = {"operator": ">", "value": draw(st.sampled_from(["0", "1", "2.5", "30"]))}
        written["score"] = score if isinstance(score, int) else score.replace("FIRST", "value")
        return Rule.model_validate(
            written | {"aggregate": aggregate, "window": {"length": draw(window)}, "limit": limit}
        )
    features = {}
    for name in ("one", "two")[: draw(st.integers(1, 2))]:
        function = draw(st.sampled_from(["count", "sum", "count_distinct"]))
        of = {"sum": numbers, "count_distinct": any_field}.get(function)
        features[name] = {"function": function, "window": draw(window)} | (
            {"of": draw(st.sampled_from(of))} if of else {}
        )
        fields = draw(st.sampled_from([None, *groupings]))
        features[name] |= {} if fields is None else {"group_by": fields}
    written["score"] = score if isinstance(score, int) else score.replace("FIRST", "one")
    tests = [f"{name} > {draw(st.sampled_from(['0', '1', '2']))}" for name in features]
    return Rule.model_validate(written | {"features": features, "when": " AND ".join(tests)})


@st.composite
def streams(draw: st.DrawFn) -> list[Row]:
    """Events in arrival order; some are late, some come again, and some have no card."""
    rows: list[Row] = []
    time_ms = 1_700_000_000_000
    for number in range(draw(st.integers(1, 20))):
        again = draw(st.sampled_from([0] * 9 + [1]))
        if again and rows:
            rows.append(rows[-1] | {"position": number})
            continue
        time_ms += draw(st.sampled_from([0, 1, 500, 500, 2000, 6000, -1500]))
        rows.append(
            {
                "position": number,
                "id": f"e{number}",
                "t": time_ms,
                "payer": draw(st.sampled_from("pq")),
                "card": draw(st.sampled_from(["c", "c", "d", None])),
                "kind": draw(st.sampled_from("ab")),
                "vip": draw(st.booleans()),
                "n": draw(st.integers(-3, 3)),
                "amount": Decimal(draw(st.sampled_from(["1.00", "2.50", "7.25"]))),
            }
        )
    return rows


Grouping = tuple[str, tuple[str, ...], str]
NO_KEY: list[Row] = []
"""Stands for the events of a group to which an event does not belong."""


class Loop:
    """All rules over lists: what has come of each group, looked through for every event and every alert."""

    def __init__(self, rules: list[Rule], late: str) -> None:
        self.rules, self.late = list(rules), late
        self.came: dict[Any, list[Row]] = {}
        self.missing = 0
        found = (grouping for rule in rules for grouping, _ in _needed(rule))
        self.groupings = list(dict.fromkeys(found))

    def arrive(self, row: Row) -> Iterator[tuple[Rule, Row, list[Any], bool]]:
        """Each rule that is evaluated, the event or alert at which it is, its values, and whether it fires."""
        alerts = []
        for result in self._evaluated(row, "events"):
            yield result
            rule, _, values, fired = result
            if fired and rule.state == "ACTIVE":
                own = {"alert_rule": rule.rule_id, "alert_score": score_of(rule, row, values)}
                alerts.append(row | own | {"alert_key": _key(row, rule.group_by)})
        for alert in alerts:
            yield from self._evaluated(alert, "alerts")

    def _evaluated(self, row: Row, on: str) -> Iterator[tuple[Rule, Row, list[Any], bool]]:
        there = {grouping: self._take(row, grouping) for grouping in self.groupings if grouping[0] == on}
        for rule in self.rules:
            needed = _needed(rule)
            where = _text(rule.where)
            if rule.on != on or rule.state == "PAUSE" or not FILTERS[where](row):
                continue
            home, _ = needed[-1]
            if there[home] is NO_KEY or any(there[grouping] is None for grouping, _ in needed):
                continue
            windows = [] if rule.window is None else [(rule.aggregate.function, rule.measure, rule.window.length_ms)]
            windows += [(each.function, each.of, each.window.length_ms) for each in rule.features.values()]
            values = []
            for (function, of, length_ms), (grouping, counts) in zip(windows, needed, strict=False):
                if there[grouping] is NO_KEY:
                    values.append(None)
                    continue
                inside = [each for each in there[grouping] if row["t"] - length_ms <= each["t"] <= row["t"]]
                values.append(_computed(function, [each.get(of) for each in inside if FILTERS[counts](each)]))
            yield rule, row, values, _fires(rule, values)

    def _take(self, row: Row, grouping: Grouping) -> list[Row] | None:
        """The events of its key, if it is evaluated in a group."""
        _, fields, where = grouping
        if any(row[field] is None for field in fields):
            self.missing += 1
            return NO_KEY
        if not FILTERS[where](row):
            return None
        came = self.came.setdefault((grouping, _key(row, fields)), [])
        same = ("id", "t", "alert_rule", "alert_key")
        if any(all(each.get(name) == row.get(name) for name in same) for each in came):
            return None
        is_late = any(each["t"] > row["t"] for each in came)
        came.append(row)
        return None if is_late and self.late == "add" else list(came)


def score_of(rule: Rule, row: Row, values: list[Any]) -> int:
    """The score of an alert."""
    if isinstance(rule.score, int):
        return rule.score
    text = rule.score.text.replace("value" if rule.is_short else "one", "FIRST")
    found = SCORES[text](row, values[0])
    return 0 if found is None else min(max(round(Fraction(found)), 0), 10**9)


def _needed(rule: Rule) -> list[tuple[Grouping, str]]:
    """The groups that a rule needs, those of its features first, and which events each feature counts."""
    if rule.is_short:
        return [((rule.on, tuple(sorted(rule.group_by)), _text(rule.where)), _text(rule.where))]
    fields = [tuple(sorted(each.fields)) for each in rule.named_features()]
    return [((rule.on, each, ""), _text(rule.where)) for each in [*fields, tuple(sorted(rule.group_by))]]


def _text(where: Any) -> str:
    return "" if not where else next(text for text in FILTERS if text and _same(text, where.text))


def _same(one: str, other: str) -> bool:
    return one.replace(" ", "").lower() == other.replace(" ", "").lower()


def _key(row: Row, fields: Any) -> tuple[Any, ...]:
    return tuple(row[field] for field in fields)


def _computed(function: str, values: list[Any]) -> Any:
    return {"count": len, "sum": sum, "count_distinct": lambda found: len(set(found))}[function](values)


def _fires(rule: Rule, values: list[Any]) -> bool:
    if rule.limit is not None:
        return bool(values[0] > rule.limit.value)
    limits = [int(test.rpartition(" ")[2]) for test in rule.when.text.replace("(", "").replace(")", "").split(" AND ")]
    return all(value is not None and value > limit for value, limit in zip(values, limits, strict=True))


def cut(rows: list[Row], at: list[int]) -> list[list[Row]]:
    """Rows cut into batches."""
    ends = sorted({min(each, len(rows)) for each in at} | {0, len(rows)})
    return [rows[begin:end] for begin, end in itertools.pairwise(ends)]
