"""Explanations: what is computed again equals what the engine computed, and reasons are those that applied."""

import tempfile
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from buckets.aggregates.component import PAIRS, PERCENTILE
from buckets.aggregates.registry import AGGREGATES, SHORT_FUNCTIONS
from buckets.history.explain.explanation import Explanation, FeatureThen, as_json
from buckets.history.explain.maker import Explainer
from buckets.outputs import columns
from buckets.rules.completeness import stretches_of
from buckets.rules.rule import Rule
from tests.core.alert_rules import SCHEMA, Row
from tests.core.archived_job import ArchivedJob
from tests.core.past import explainer_of
from tests.laws import examples
from tests.oracle import COMPARE

pytestmark = pytest.mark.slow

START_MS = 1_700_000_000_000
OF_OTHERS: dict[str, tuple[str, ...]] = {
    "max": ("n",),
    "stddev": ("n",),
    "same_count": ("card", "amount", "n", "vip"),
    "count_distinct": ("kind",),
    "first": ("kind",),
    "last": ("n", "vip"),
    "mode": ("n", "kind", "vip"),
    "previous": ("amount", "card", "vip"),
    "entropy": ("kind",),
    "rank": ("kind", "amount"),
}
FUNCTIONS: dict[str, tuple[str | None, ...]] = {
    name: OF_OTHERS.get(name, ("amount",) if aggregate.takes else (None,)) for name, aggregate in AGGREGATES.items()
}
KINDS: Any = {"kind": "string", "card": "string", "vip": "boolean"}
WHERES = [None, "kind = 'a'", "amount > 2 OR vip", {"kind": "b", "amount": {"<=": "5"}}]
SEQUENCES: list[dict[str, Any]] = [
    {"steps": ["a", {"b": "amount > 1"}], "step_field": "kind"},
    {"steps": ["amount > 2", "n > 0 OR vip"], "without": "kind = 'b'"},
    {"steps": ["vip", {"small": "amount <= 5"}, "amount >= 1"]},
]
ABSENCES: list[dict[str, Any]] = [
    {"steps": ["amount > 1"], "without": "kind = 'b'", "within": "1s", "window": "20s"},
    {"steps": ["a"], "step_field": "kind", "without": {"b": "vip"}, "within": "600ms", "window": "5s"},
]
COMPARED = st.sampled_from([">", "<="])
LIMITS = ["0", "1", "2", "5.5", "12"]


def moment(time_ms: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)).isoformat()


@st.composite
def rules(draw: st.DrawFn, rule_id: str) -> Rule:
    written: dict[str, Any] = {
        "rule_id": rule_id,
        "group_by": draw(st.sampled_from([["payer"], ["payer"], ["kind"], []])),
    }
    written["state"] = draw(st.sampled_from(["ACTIVE", "ACTIVE", "ACTIVE", "SHADOW", "PAUSE", "DRAFT"]))
    where = draw(st.sampled_from([None, *WHERES]))
    written |= {"where": where} if where else {}
    window = st.sampled_from(["1s", "5s", "20s"])
    left = st.sampled_from(["closed", "open"])
    writes = True
    if draw(st.booleans()):
        function = draw(st.sampled_from(SHORT_FUNCTIONS))
        aggregate = {"function": function} | ({"measure": "amount"} if function != "count" else {})
        limit = {"operator": draw(st.sampled_from([">", ">=", "<", "=", "!="])), "value": draw(st.sampled_from(LIMITS))}
        written |= {"aggregate": aggregate, "limit": limit}
        written["window"] = {"length": draw(window), "left": draw(left)}
        written["reset_on_alert"] = draw(st.integers(0, 3)) == 0
        written["score"] = draw(st.sampled_from([0, 40, "n * 3 + 5", "7 * value - n", "value / 3"]))
    else:
        features = {}
        for name in ("one", "two")[: draw(st.sampled_from([0, 1, 1, 2, 2, 2]))]:
            function = draw(st.sampled_from(list(FUNCTIONS)))
            of = draw(st.sampled_from(FUNCTIONS[function]))
            end = draw(
                st.sampled_from([{}, {}, {"exclude": "current"}, {"offset": "1s"}] if function != "rank" else [{}])
            )
            features[name] = {"function": function, "window": {"length": draw(window), "left": draw(left), **end}}
            if draw(st.integers(0, 3)) == 0:
                features[name]["window"] = {"last": draw(st.integers(1, 3)), "within": draw(window)}
            features[name] |= {"of": of} if of else {}
            features[name] |= {"p": 75} if AGGREGATES[function].parameter == "p" else {}
            features[name] |= {"half_life": "700ms"} if AGGREGATES[function].parameter == "half_life" else {}
            if draw(st.integers(0, 4)) == 0:
                features[name] = draw(over_periods())
                function = features[name]["function"]
            is_of_periods = isinstance(features[name].get("of"), dict)
            counted = draw(st.sampled_from([None, *WHERES, {}]))
            components = AGGREGATES[function].components(counts_all=False)
            may_compare = not is_of_periods and "last" not in features[name]["window"]
            if may_compare and all(each.operation < PERCENTILE or each.operation > PAIRS for each in components):
                counted = draw(st.sampled_from([counted, counted, "n >= this.n", "kind <> this.kind AND n > -1"]))
            features[name] |= {} if counted is None or AGGREGATES[function].needs_steps else {"where": counted}
            if AGGREGATES[function].parameter == "within":
                features[name] |= draw(st.sampled_from(ABSENCES))
            elif AGGREGATES[function].needs_steps:
                features[name] |= draw(st.sampled_from(SEQUENCES)) | {"window": draw(window)}
            fields = draw(st.sampled_from([None, None, ["payer"], ["kind"], ["kind AS payer"], []]))
            features[name] |= {} if fields is None else {"group_by": fields}
            if draw(st.integers(0, 5)) == 0:
                of_alerts = draw(st.sampled_from([{"function": "count"}, {"function": "sum", "of": "alert_score"}]))
                fields = draw(st.sampled_from([["payer"], ["kind"], ["kind AS payer"]]))
                features[name] = {**of_alerts, "window": draw(window), "on": "alerts", "group_by": fields}
        kinds = {
            name: AGGREGATES[each["function"]].kind(KINDS.get(str(each.get("of", ""))))
            for name, each in features.items()
        }
        tests = [
            {"number": f"{name} {draw(COMPARED)} {draw(st.sampled_from(LIMITS))}", "text": f"{name} = 'a'"}.get(
                kind, name
            )
            for name, kind in kinds.items()
        ]
        named = next((name for name, kind in kinds.items() if kind == "number"), "n")
        written["score"] = draw(st.sampled_from([0, 40, "n * 3 + 5", f"7 * {named} - n", f"{named} / 3"]))
        looks = draw(st.sampled_from([[]] * 4 + [["payer IN LIST rules.seen"], ["kind NOT IN LIST rules.seen"]]))
        when = draw(st.sampled_from([" AND ", " OR "])).join([*tests, *looks, "n > -2"])
        written |= {"features": features, "when": when}
        writes = not looks and all("on" not in feature for feature in features.values())
    if writes and draw(st.integers(0, 2)) == 0:
        key, until = draw(st.sampled_from(["payer", "kind"])), draw(st.sampled_from(["1ms", "5s", "20s"]))
        written["then"] = {"put": "seen", "key": key, "until": until}
    return Rule.model_validate(written | draw(policies()))


@st.composite
def over_periods(draw: st.DrawFn) -> dict[str, Any]:
    """A feature of what each of some seconds comes to."""
    function, of = draw(st.sampled_from([("count", None), ("sum", "amount"), ("min", "n"), ("avg", "amount")]))
    periods = {"function": function, "every": draw(st.sampled_from(["1s", "2s"]))} | ({"of": of} if of else {})
    over = draw(st.sampled_from(["avg", "max", "median", "percentile", "stddev", "sum"]))
    window = draw(st.sampled_from(["2s", "4s", "20s"]))
    return {"function": over, "of": periods, "window": window} | ({"p": 75} if over == "percentile" else {})


@st.composite
def policies(draw: st.DrawFn) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if draw(st.integers(0, 2)) == 0:
        found["cooldown"] = draw(st.sampled_from(["1ms", "600ms", "5s", "60s"]))
    if draw(st.integers(0, 4)) == 0:
        found["require_warm"] = True
    if draw(st.integers(0, 4)) == 0:
        found["rollout"] = "50%"
    if draw(st.integers(0, 5)) == 0:
        found["effective"] = {"from": moment(START_MS + 1000), "until": moment(START_MS + 20_000)}
    if draw(st.integers(0, 4)) == 0:
        until = moment(START_MS + draw(st.sampled_from([1000, 4000, 30_000])))
        found["snoozes"] = [{"until": until, "reason": "known", "author": "ann"}]
    return found


@st.composite
def streams(draw: st.DrawFn) -> list[Row]:
    rows: list[Row] = []
    time_ms = START_MS
    for number in range(draw(st.integers(5, 40))):
        step_ms = draw(st.sampled_from([0, 1, 500, 500, 1000, 2000, -700, -1500, -6000, "again"]))
        if step_ms == "again":
            if rows:
                again_ms = draw(st.sampled_from([0, 0, 1, 3000]))
                repeated = rows[-min(len(rows), draw(st.integers(1, 3)))]
                rows.append(repeated | {"position": number + 1, "t": repeated["t"] + again_ms})
            continue
        event_ms = time_ms + step_ms
        time_ms = max(time_ms, event_ms)
        rows.append(
            {
                "position": number + 1,
                "id": f"é{number}",
                "t": event_ms,
                "payer": draw(st.sampled_from("ppqa")),
                "card": draw(st.sampled_from(["c", "d", "c", "d", None])),
                "kind": draw(st.sampled_from(["a", "b", "a", "b", None])),
                "vip": "true" if draw(st.booleans()) else "false",
                "n": draw(st.integers(-3, 3)),
                "amount": Decimal(draw(st.sampled_from(["1.00", "2.50", "7.25", "-3.10"]))),
            }
        )
    return rows


@st.composite
def engines(draw: st.DrawFn) -> dict[str, Any]:
    found: dict[str, Any] = {"allowed_lateness": draw(st.sampled_from(["0ms", "2s", "60s"])), "shards": 2}
    found["late"] = draw(st.sampled_from(["add", "evaluate", "drop"]))
    found["collision"] = draw(st.sampled_from(["keep", "keep", "keep_first", "replace"]))
    if draw(st.sampled_from([False, False, True])):
        found["duplicates"] = {"by": "id", "within": draw(st.sampled_from(["1ms", "2s", "30s"]))}
    return found


def job_of(
    folder: Path, first: list[Rule], more: list[Rule], rows: list[Row], cut: int, goes: bool = False, **engine: Any
) -> ArchivedJob:
    """A job whose rules are joined by more of them before a batch, and whose first one goes before the last batch."""
    job = ArchivedJob(folder, SCHEMA, **engine)
    job.take(first)
    job.batch(rows[: cut // 2])
    job.batch(rows[cut // 2 : cut])
    if more:
        job.take([*first, *more], stretches_of(np.array([row["t"] for row in rows[:cut]], np.int64)))
    last = (cut + len(rows)) // 2 if goes else cut
    job.batch(rows[cut:last])
    if goes:
        job.take([*first[1:], *more], stretches_of(np.array([row["t"] for row in rows[:last]], np.int64)))
    job.batch(rows[last:])
    return job


def check_windows(found: Explanation, rows: list[Row]) -> None:
    """The events of each window are those that a loop finds: of the key, and with a time in the window.

    A feature that groups by a field which is null has no key, and so no window.
    """
    assert found.event is not None
    own = found.event.position
    written = {} if found.rule is None else found.rule.written.get("features", {})
    for feature in found.features:
        if written.get(feature.name, {}).get("on") or feature.name.startswith("seen_"):
            continue  # of alerts
        begin_ms = feature.start_ms + (feature.left == "open")
        inside = [
            (row["t"], row["position"])
            for row in rows
            if begin_ms <= row["t"] <= feature.end_ms
            and (not feature.window.endswith(" before") or row["position"] != own)
            and None not in feature.key.values()
            and all(str(row[name]).lower() == str(feature.key[name]).lower() for name in feature.key)
        ]
        entries = [(entry.time_ms, entry.position) for entry in feature.entries]
        if feature.window.startswith("last "):
            assert feature.count <= int(feature.window.split()[1])
            inside = [each for each in inside if not entries or each >= entries[0]]
        assert sorted(inside) == entries or (not entries and feature.window.startswith("last "))
        assert sum(feature.fates.values()) == len(entries)
        assert sum(entry.counts for entry in feature.entries) == feature.count
        assert all(entry.position <= own for entry in feature.entries if entry.counts)
        assert all((entry.fate == "not yet") == (entry.position > own) for entry in feature.entries)
        check_sums(found, feature)


def check_sums(found: Explanation, feature: FeatureThen) -> None:
    """What a sum or a count comes to at each event ends with its value, and lies over the limit from one event on."""
    adding = [entry for entry in feature.entries if entry.so_far is not None]
    assert [entry for entry in adding if entry.counts] == adding
    if adding:
        assert len(adding) == feature.count
        assert Decimal(adding[-1].so_far) == feature.value
    limit = found.rule.written.get("limit")
    if limit is None or limit["operator"] not in (">", ">="):
        assert feature.over is None
        return
    is_over = COMPARE[limit["operator"]]
    over = [*takewhile(lambda entry: is_over(Decimal(entry.so_far), Decimal(limit["value"])), reversed(adding))]
    assert feature.over == (over[-1] if over else None)


OUTPUTS = {columns.ALERTS: "alert", columns.SHADOW_ALERTS: "shadow alert", columns.HELD_ALERTS: "held back"}
CODES = {
    columns.LATE_EVENTS: {"late", "too late", "dropped"},
    columns.DUPLICATES: {"repeat"},
    columns.COLLISIONS: {"not kept"},
}
OF_RULE = {"paused", "draft", "not effective", "filter", "reset"}
QUICK = settings(max_examples=examples(20), deadline=None, derandomize=True, phases=[Phase.generate])


class Outcomes:
    """What came out of a job, by event and rule."""

    def __init__(self, job: ArchivedJob) -> None:
        self.job = job
        self.evaluated = {_what(row): row for row in job.pipeline.output(columns.EVALUATIONS)}
        self.out = {_what(row): (output, row) for output in OUTPUTS for row in job.pipeline.output(output)}

    def check(self, found: Explanation, what: tuple[int, str], explainer: Explainer) -> None:
        """See that an explanation says what came out."""
        evaluation = self.evaluated.get(what)
        if evaluation is None:
            assert found.outcome == "not evaluated"
            assert found.reasons
            return
        assert not found.is_faulty, [feature.comparison for feature in found.features]
        assert found.outcome != "not evaluated", found.reasons
        if found.warm:
            assert (found.condition.truth == "true") == evaluation["fired"]
            assert all(each.comparison.equal or each.comparison.within for each in found.features)
            if evaluation["exact"] and evaluation["count"] is not None:
                assert found.features[0].comparison.equal
                assert found.features[0].count == evaluation["count"]
        if what not in self.out:
            assert found.outcome == "did not fire"
            return
        output, alert = self.out[what]
        assert found.outcome == OUTPUTS[output]
        if output == columns.HELD_ALERTS:
            assert found.reasons[0].code == alert["held_by"]
        else:
            assert not {"warm", "snooze", "cooldown"} & {reason.code for reason in found.policy}
        said = [
            int(note.split(":")[0].removeprefix("score ").replace(",", ""))
            for note in found.notes
            if note.startswith("score ")
        ]
        assert len(said) == isinstance(found.rule.written.get("score"), str)
        assert not found.warm or set(said) <= {alert["score"]}
        of_alert = explainer.alert(alert["alert_id"])
        assert of_alert.features == found.features
        assert of_alert.alert_id == alert["alert_id"]


def _what(row: Row) -> tuple[int, str]:
    return row["position"], row["rule_id"]


@QUICK
@given(
    st.tuples(rules("r0"), rules("r1")),
    st.lists(rules("late"), max_size=1),
    streams(),
    engines(),
    st.integers(0, 40),
    st.booleans(),
    st.booleans(),
    st.data(),
)
def test_what_is_computed_again_is_what_the_engine_computed(first, more, rows, engine, cut, goes, recorded, data):
    with tempfile.TemporaryDirectory() as folder:
        job = job_of(Path(folder), list(first), more, rows, min(cut, len(rows)), goes, **engine)
        explainer, outcomes = explainer_of(job, Path(folder) / "results", recorded), Outcomes(job)
        fired = [what for what in outcomes.out if what in outcomes.evaluated]
        by_position = {row["position"]: row for row in reversed(rows)}
        asked = data.draw(st.lists(st.sampled_from(fired), max_size=3, unique=True)) if fired else []
        firsts = {(row["id"], row["t"]): row["position"] for row in reversed(rows)}
        chosen = data.draw(st.lists(st.sampled_from(sorted(firsts.values())), max_size=2, unique=True))
        asked += [(position, rule.rule_id) for position in chosen for rule in [*first, *more]]
        for position, rule_id in asked:
            row = by_position[position]
            if firsts[row["id"], row["t"]] != position:
                continue
            found = explainer.event(row["id"], rule_id, row["t"])
            as_json(found)
            check_windows(found, rows)
            outcomes.check(found, (position, rule_id), explainer)
        for output, codes in CODES.items():
            for row in job.pipeline.output(output)[:2]:
                is_first = firsts[row["event_id"], row["event_time"]] == row["position"]
                for rule in first if is_first and not row.get("kept") else ():
                    is_evaluated = (row["position"], rule.rule_id) in outcomes.evaluated
                    if rule.is_short and list(rule.group_by) == row["group_by"] and not is_evaluated:
                        found = explainer.event(row["event_id"], rule.rule_id, row["event_time"])
                        assert {reason.code for reason in found.reasons} & (codes | OF_RULE)


@QUICK
@given(
    rules("r0").filter(lambda rule: rule.aggregate is not None and not rule.reset_on_alert),
    streams(),
    st.sampled_from(["include", "exclude", "prorate"]),
    st.sampled_from(["0ms", "1s", "3s"]),
    st.data(),
)
def test_an_exact_value_lies_within_the_bounds_of_buckets(rule, rows, edge, tail, data):
    precision = {"tail": tail, "resolution": "2s", "tiers": [{"after": "9s", "resolution": "6s"}], "edge": edge}
    with tempfile.TemporaryDirectory() as folder:
        job = job_of(Path(folder), [rule], [], rows, len(rows), allowed_lateness="60s", shards=2, precision=precision)
        explainer, outcomes = explainer_of(job, Path(folder) / "results"), Outcomes(job)
        if outcomes.evaluated:
            by_position = {row["position"]: row for row in rows}
            uncertain = [what for what, row in outcomes.evaluated.items() if not row["exact"]]
            for what in data.draw(st.lists(st.sampled_from(uncertain or list(outcomes.evaluated)), max_size=4)):
                row = by_position[what[0]]
                if sum((each["id"], each["t"]) == (row["id"], row["t"]) for each in rows) == 1:
                    outcomes.check(explainer.event(row["id"], "r0", row["t"]), what, explainer)


@QUICK
@given(streams(), st.sampled_from([None, *WHERES]), st.sampled_from(["2s", "20s"]), st.data())
def test_every_function_is_computed_again(rows, where, window, data):
    features = {}
    for function, of in ((function, of) for function, fields in FUNCTIONS.items() for of in fields):
        name = f"{function}_" if len(FUNCTIONS[function]) == 1 else f"{function}_{of}"
        features[name] = {"function": function, "window": window} | ({"of": of} if of else {})
        features[name] |= {"p": "37.5"} if AGGREGATES[function].parameter == "p" else {}
        features[name] |= {"half_life": "3s"} if AGGREGATES[function].parameter == "half_life" else {}
        features[name] |= {"where": where} if where and not AGGREGATES[function].needs_steps else {}
        features[name] |= SEQUENCES[1] if AGGREGATES[function].needs_steps else {}
        features[name] |= ABSENCES[0] if AGGREGATES[function].parameter == "within" else {}
    when = "is_first_ OR sum_ > 3 OR stddev_ IS NULL"
    every = Rule.model_validate({"rule_id": "r0", "group_by": ["payer"], "features": features, "when": when})
    with tempfile.TemporaryDirectory() as folder:
        job = job_of(Path(folder), [every], [], rows, len(rows), allowed_lateness="60s", shards=2, late="evaluate")
        explainer, outcomes = explainer_of(job, Path(folder) / "results"), Outcomes(job)
        by_position = {row["position"]: row for row in rows}
        for what in data.draw(st.lists(st.sampled_from(sorted(outcomes.evaluated)), min_size=1, max_size=3)):
            row = by_position[what[0]]
            found = explainer.event(row["id"], "r0", row["t"])
            assert [feature.name for feature in found.features] == list(features)
            assert all(feature.comparison.equal for feature in found.features)
            outcomes.check(found, what, explainer)
