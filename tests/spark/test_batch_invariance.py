"""Batch invariance on the real engine: however the arrivals are cut, sharded or interrupted, the bytes are the same."""

import json
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from buckets.config.engine import EngineSettings
from buckets.events.schema import EventSchema
from buckets.rules.rule import Rule
from buckets.rules.rule_set import first_rule_set
from tests.oracle import Event, Oracle, Outcome
from tests.spark.evaluation import evaluate, evaluation_of

pytestmark = pytest.mark.spark

SCHEMA = EventSchema.model_validate(
    {
        "event_id": "id",
        "event_time": "t",
        "attributes": {"account": "string", "city": "string", "kind": "string"},
        "measures": {"amount": {"scale": 2}, "fee": {"scale": 0}},
    }
)
SCALES = {name: measure.scale for name, measure in SCHEMA.measures.items()}
LATENESS_MS = 20
MALFORMED = [
    '{"id": "m1", "t": 5, "account"',
    '{"id": "m2", "t": 5, "account": "a", "city": "x", "kind": "CARD", "amount": "much", "fee": 1}',
    '{"id": "m3", "t": 5, "account": "a", "city": "x", "kind": "CARD", "amount": "1.234", "fee": 1}',
]
PREFIX = 14


def rows(text: bytes) -> list[dict]:
    return [json.loads(line) for line in text.decode().splitlines()]


def rule(rule_id: str, group_by: list[str], function: str, measure: str, length_ms: int, **more) -> Rule:
    return Rule.model_validate(
        {
            "rule_id": rule_id,
            "group_by": group_by,
            "aggregate": {"function": function, "measure": measure},
            "window": {"length": f"{length_ms}ms", "left": more.pop("left", "closed")},
            "limit": {"operator": ">", "value": "20.5"},
        }
        | more
    )


RULES = [
    rule("account-sum", ["account"], "sum", "amount", 50),
    rule("pair-average", ["account", "city"], "avg", "amount", 40, state="SHADOW"),
    rule("all-count", [], "count", "fee", 10, left="open", limit={"operator": ">=", "value": "3"}),
    rule("account-smallest", ["account"], "min", "amount", 10, limit={"operator": "<", "value": "-1"}),
    rule("card-largest", ["city"], "max", "fee", 30, where={"kind": "CARD"}),
    rule("all-fees", [], "sum", "fee", 30),
    rule("pair-fees", ["account", "city"], "sum", "fee", 40, state="SHADOW"),
    rule("card-fees", ["city"], "avg", "fee", 20, where={"kind": "CARD"}),
    rule("pair-paused", ["city", "account"], "sum", "fee", 60, state="PAUSE"),
    rule("account-average", ["account"], "avg", "fee", 100, left="open", limit={"operator": "!=", "value": "0"}),
]


def stream() -> list[str]:
    """75 lines: late, too late, repeated and colliding events, sums past 64 bits, nulls, broken lines, around 1970."""
    dice = random.Random(19)
    lines: list[str] = []
    clock_ms = -150
    for number in range(72):
        if number in (7, 23, 50):
            lines.append(MALFORMED[(7, 23, 50).index(number)])
        if number in (9, 10, 31, 60):
            lines.append(lines[dice.randrange(max(0, len(lines) - 6), len(lines))])
            continue
        step_ms = dice.choice([0, 0, 0, 1, 3, 5, 10, 10, 30, 49, -1, -10, -60, -200])
        time_ms = clock_ms + step_ms
        clock_ms = max(clock_ms, time_ms)
        event = {
            "id": f"é{number}" if number % 5 == 0 else f"e{number}",
            "t": time_ms,
            "account": dice.choice("ab"),
            "city": dice.choice("xyz"),
            "kind": "CARD" if number in (40, 41) else dice.choice(["CARD", "CASH"]),
            "amount": str(Decimal(dice.randrange(-2000, 4000)).scaleb(-2)),
            "fee": 2**63 - 1 if number in (40, 41) else dice.randrange(-3, 9),
        }
        if number in (5, 12, 44):
            del event["amount"]
        if number in (19, 45):
            event["city"] = None
        lines.append(json.dumps(event, ensure_ascii=False))
    return lines


LINES = stream()


class Runs:
    """Evaluations of the stream, each made once."""

    def __init__(self, spark, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._made: dict[tuple, dict[str, bytes]] = {}

    def run(
        self, lines: int, batch_rows: int | None, shards: int = 16, stops: tuple[int, ...] = ()
    ) -> dict[str, bytes]:
        what = (lines, batch_rows, shards, stops)
        if what not in self._made:
            work = self._folder / f"run-{len(self._made)}"
            work.mkdir()
            events = self._folder / f"events-{lines}" / "events.jsonl"
            events.parent.mkdir(exist_ok=True)
            events.write_text("\n".join(LINES[:lines]) + "\n", encoding="utf-8")
            engine = EngineSettings.model_validate({"shards": shards, "allowed_lateness": f"{LATENESS_MS}ms"})
            evaluation = evaluation_of(events, SCHEMA, RULES, engine, batch_rows)
            self._made[what] = evaluate(self._spark, evaluation, work, stops)
        return self._made[what]


@pytest.fixture(scope="module")
def runs(spark, tmp_path_factory) -> Runs:
    return Runs(spark, tmp_path_factory.mktemp("invariance"))


@pytest.mark.parametrize(
    ("batch_rows", "shards", "stops"),
    [(1000, 16, ()), (None, 1, ()), (11, 1, ()), (11, 16, (4,)), (20, 1, (0, 2))],
    ids=[
        "batches of 1000",
        "one shard",
        "one shard, batches of 11",
        "batches of 11, stopped after the fifth",
        "one shard, stopped twice",
    ],
)
def test_cutting_sharding_and_stopping_change_no_byte(runs, batch_rows, shards, stops):
    assert runs.run(len(LINES), batch_rows, shards, stops) == runs.run(len(LINES), None)


def test_batches_of_one_event_change_no_byte(runs):
    assert runs.run(PREFIX, 1) == runs.run(PREFIX, None)


def evaluated_events() -> Iterator[tuple[Event, str, Outcome]]:
    """What the oracle says of each event in each of its groups, in arrival order."""
    groups = first_rule_set(RULES).groups
    oracles = [Oracle(list(group.rules), SCALES, LATENESS_MS) for group in groups]
    for line in LINES:
        if line in MALFORMED:
            continue
        written = json.loads(line)
        measures = tuple(Decimal(str(written[name])) if name in written else None for name in SCALES)
        for group, oracle in zip(groups, oracles, strict=True):
            has_key = all(written[field] is not None for field in group.fields)
            if has_key and (not group.where or written["kind"] == "CARD"):
                key = json.dumps({field: written[field] for field in group.fields})
                event = Event(written["id"], written["t"], key, measures)
                yield event, group.name, oracle.arrive(event)


def test_values_are_those_of_a_loop_over_a_list(runs):
    expected = [
        (event.event_id, rule_id, event.time_ms, json.loads(event.key), value, count, fired)
        for event, _, outcome in evaluated_events()
        for rule_id, (value, count, fired) in outcome.results.items()
    ]
    fields = ("event_id", "rule_id", "event_time", "key", "value", "count", "fired")
    evaluations = rows(runs.run(len(LINES), None)["evaluations.jsonl"])
    found = [
        tuple(Decimal(row[name]) if name == "value" and row[name] else row[name] for name in fields)
        for row in evaluations
    ]
    assert sorted(found, key=str) == sorted(expected, key=str)
    fired = [row for row in evaluations if row["fired"]]
    states = {rule.rule_id: rule.state for rule in RULES}
    for name, state in (("alerts", "ACTIVE"), ("shadow_alerts", "SHADOW")):
        alerts = rows(runs.run(len(LINES), None)[f"{name}.jsonl"])
        of_state = [row for row in fired if states[row["rule_id"]] == state]
        assert [[row[field] for field in fields[:5]] for row in alerts] == [
            [row[field] for field in fields[:5]] for row in of_state
        ]
        assert alerts


def test_evaluations_stand_in_arrival_order_and_rules_in_the_order_of_the_file(runs):
    arrival: dict[str, int] = {}
    for number, line in enumerate(LINES):
        if line not in MALFORMED:
            arrival.setdefault(json.loads(line)["id"], number)
    rank = {rule.rule_id: number for number, rule in enumerate(RULES)}
    evaluations = rows(runs.run(len(LINES), None)["evaluations.jsonl"])
    order = [(arrival[row["event_id"]], rank[row["rule_id"]]) for row in evaluations]
    assert order == sorted(order)


def test_side_outputs_are_those_of_a_loop_over_a_list(runs):
    expected: dict[str, list[tuple]] = {"late_events": [], "collisions": [], "duplicates": [], "overflows": []}
    for event, group, outcome in evaluated_events():
        who = (event.event_id, group, json.loads(event.key), event.time_ms)
        # One line an event, in however many groups and for however many rules it fails.
        is_told = (event.event_id,) in expected["overflows"]
        if (outcome.outcome == "overflow" or outcome.beyond) and not is_told:
            expected["overflows"].append((event.event_id,))
        if outcome.outcome in ("late", "too_late"):
            late = (outcome.clock_ms, outcome.applied, outcome.outcome == "too_late", outcome.other_event_id)
            expected["late_events"].append(who + late)
        elif outcome.outcome == "duplicate":
            expected["duplicates"].append(who)
        elif outcome.outcome != "overflow" and outcome.other_event_id is not None:
            expected["collisions"].append((*who, outcome.applied, outcome.other_event_id))
    results = runs.run(len(LINES), None)
    dead_letters = rows(results["dead_letters.jsonl"])
    who = ("event_id", "group", "key", "event_time")
    columns = {
        "late_events": (*who, "clock", "applied", "too_late", "other_event_id"),
        "collisions": (*who, "kept", "other_event_id"),
        "duplicates": who,
    }
    for name, fields in columns.items():
        found = [tuple(row[field] for field in fields) for row in rows(results[f"{name}.jsonl"])]
        assert found == expected[name], name
        assert found, name
    assert [dead_letter["raw"] for dead_letter in dead_letters if dead_letter["raw"] in MALFORMED] == MALFORMED
    overflows = [(json.loads(row["raw"])["id"],) for row in dead_letters if "64 bits" in row["reason"]]
    assert overflows == expected["overflows"]
    assert len(overflows) > 1
    assert len(dead_letters) == len(MALFORMED) + len(overflows)
