"""Backfill: a rule that got its history while the job ran is as one that was there from the start, to the digit."""

import copy
import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.archive.arrived_rows import ARRIVAL
from buckets.backfill.backfills import Builder
from buckets.engine.stages.cross_group import OVERVIEW
from buckets.events.arrivals import JUDGED
from buckets.lists.index import NO_LISTS
from buckets.rules.backfill import Wanted, begun, completed, refitted
from buckets.rules.change import changes_between
from buckets.rules.completeness import Piece, fill_identity, joined
from buckets.rules.revision import revise
from buckets.rules.rule import Rule
from buckets.rules.rule_set import RuleSet
from tests.core.archived_job import archived
from tests.core.examples import SCHEMA, rule
from tests.core.pipeline import Pipeline, Row, arrivals
from tests.laws import examples

MINUTE_MS = 60_000
LATENESS_MS = 10 * MINUTE_MS
ENGINE = {"shards": 2, "allowed_lateness": "10m"}
BEFORE = [
    rule("before", length="1h"),
    rule("cooled", length="30m", cooldown="20m", limit={"operator": ">", "value": "50"}),
    Rule.model_validate(
        {
            "rule_id": "warned",
            "group_by": ["payer"],
            "features": {"n": {"on": "alerts", "function": "count", "window": "1h", "where": "alert_rule = 'before'"}},
            "when": "n >= 2",
        }
    ),
]
CONDITION = {
    "rule_id": "asked",
    "group_by": ["payer"],
    "features": {
        "mine": {"function": "count", "window": "1h"},
        "kinds": {"function": "count_distinct", "of": "kind", "window": "2h"},
    },
    "when": "mine >= 2 AND kinds >= 1",
}
SPANNING = {
    "rule_id": "asked",
    "group_by": ["payer"],
    "features": {
        "mine": {"function": "count", "window": "1h"},
        "of_kind": {"function": "sum", "of": "amount", "window": "2h", "group_by": ["kind"]},
    },
    "when": "mine >= 2 AND of_kind > 100",
}
MIRRORED = {**SPANNING, "when": "mine >= 2 AND (of_kind > 30 OR of_other > 30)"}
MIRRORED["features"] = SPANNING["features"] | {
    "of_other": {"function": "sum", "of": "amount", "window": "2h", "group_by": ["kind AS payer"]}
}
HABITS = {
    "rule_id": "asked",
    "group_by": ["payer"],
    "features": {
        "faded": {"function": "decayed_sum", "of": "amount", "half_life": "20m", "window": "2h"},
        "place": {"function": "rank", "of": "fee", "window": "2h"},
        "spread": {"function": "entropy", "of": "kind", "window": "1h", "group_by": ["account"]},
        "usual": {"function": "avg", "of": {"function": "count", "every": "20m"}, "window": "2h", "group_by": ["kind"]},
        "days": {"function": "sum", "of": {"function": "max", "of": "amount", "every": "1d"}, "window": "2d"},
        "moved": {
            "function": "sequence",
            "steps": ["amount > 20", {"small": "amount < 20"}],
            "without": "fee = 60",
            "window": "1h",
        },
        "alone_s": {
            "function": "absence",
            "steps": ["fee > 0"],
            "without": "fee = 0",
            "within": "10m",
            "window": "2h",
        },
    },
    "when": "faded > 60 OR place > 2 OR spread > 1 OR usual > 1 OR days > 80 OR moved OR alone_s > 0",
}
ASKED = [
    Rule.model_validate(HABITS),
    rule("asked", group_by=["kind"], length="2h"),
    rule("asked", group_by=["payer", "kind"], length="1h"),
    rule("asked", where="amount > 20", length="1h"),
    rule("asked", measure="fee", length="30m"),
    rule("asked", length="3h"),
    rule("asked", group_by=["kind"], length="2h", require_warm=True, cooldown="1h"),
    rule("asked", group_by=["kind"], length="1h", reset_on_alert=True),
    rule("asked", measure="fee", length="2h", state="SHADOW", cooldown="10m"),
    Rule.model_validate(CONDITION),
    Rule.model_validate(SPANNING),
    Rule.model_validate(MIRRORED),
]


def stream(rng: random.Random, count: int) -> list[Row]:
    """Payments in arrival order, some of them late, repeated, at one time with others, not judged, or no events."""
    rows: list[Row] = []
    clock_ms = 1_700_000_000_000
    for index in range(count):
        clock_ms += rng.choice([0, 1, MINUTE_MS, 3 * MINUTE_MS, 9 * MINUTE_MS])
        late_ms = rng.choice([0, 0, 0, 0, 0, 1, MINUTE_MS, LATENESS_MS])
        row: Row = {
            "id": f"e{index}",
            "at": clock_ms - late_ms,
            "payer": f"p{rng.randrange(40) if rng.random() < 0.7 else rng.randrange(3)}",
            "kind": rng.choice([*"abc", *map(str, range(30)), "p0", "p1", "p2"]),
            "account": 1,
            "vip": "true",
            "amount": f"{rng.randint(-50, 90)}.{rng.randrange(10)}",
            "fee": rng.choice([0, 1, 2, 60]),
            JUDGED: index % 7 != 3,
        }
        if rng.random() < 0.05 and rows:
            row = dict(rng.choice(rows[-5:]))
        if rng.random() < 0.03:
            row["payer"] = None
        rows.append(row)
    return rows


def cut(rng: random.Random, rows: list[Row]) -> list[list[Row]]:
    batches: list[list[Row]] = []
    at = 0
    while at < len(rows):
        size = rng.choice([1, 3, 6, 10])
        batches.append([row | {"position": at + index} for index, row in enumerate(rows[at : at + size])])
        at += size
    return batches


class Job:
    """A job in memory whose rules change, and whose batches may be run again."""

    def __init__(self, rules: list[Rule]) -> None:
        self.pipeline = Pipeline(RuleSet(0, (), (), {}), SCHEMA, **ENGINE)
        self.arrived = ()
        self.change(rules)

    def change(self, rules: list[Rule]) -> None:
        before = self.pipeline.rule_set
        asked = changes_between(before.rules, rules)
        after = revise(before, asked, SCHEMA, self.arrived, LATENESS_MS).rule_set
        self.pipeline.rule_set = refitted(before, after, self.pipeline.batches)

    def batch(self, rows: list[Row], sources=None) -> tuple[dict, list, list]:
        """What comes out of a batch, its accounts, and how far its fills are."""
        pipeline = self.pipeline
        fills: list[bytes] = []
        scored = pipeline.score_batch

        def score_batch(batches, rule_set):
            results = scored(batches, rule_set, sources) if sources is not None else scored(batches, rule_set)
            fills.extend(results.fills)
            return results

        pipeline.found = {}
        pipeline.score_batch = score_batch
        try:
            pipeline.batch([rows])
        finally:
            del pipeline.score_batch
        account = pipeline.accounts[-1]
        self.arrived = joined([*self.arrived, *account.arrived])
        found = {name: sorted(map(_shown, pipeline.output(name)), key=repr) for name in pipeline.found}
        counts = [vars(each) for each in account.groups]
        return found, counts, [json.loads(each) for each in fills]


def _shown(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in ("ruleset_version",)}


class Feed:
    """Chunks in memory; a batch sees some of them."""

    def __init__(self, chunks, ready: int, rows: int, shard: int) -> None:
        self._chunks, self._shard = chunks, shard
        self.ready, self.rows, self.lists = ready, rows, "{}"
        self.total = len(chunks) if ready == len(chunks) else None

    def chunk(self, number: int) -> Piece:
        chunk = self._chunks[number]
        return Piece(chunk.packed.get(self._shard), chunk.rows, "{}")

    def lists_of(self, versions: str):
        assert versions == "{}"
        return NO_LISTS


def more_ready(
    chunks: dict[int, list], ready: dict[int, int], rng: random.Random, hurries: bool
) -> dict[int, tuple[list, int, int]]:
    """By fill its chunks, how many of them are ready by now, which are some more, and how many rows a batch takes."""
    chosen = {}
    for number, each in chunks.items():
        more, rows = rng.randrange(4), rng.choice([0, 1, 7, 30])
        if hurries:
            more, rows = len(each), 10_000
        ready[number] = min(len(each), ready[number] + more)
        chosen[number] = (each, ready[number], rows)
    return chosen


class Filled(Job):
    """A job that backfills a rule from what it has seen, some of it in each batch; batches are run again at random."""

    def __init__(self, rules: list[Rule], rng: random.Random) -> None:
        super().__init__(rules)
        self.rng = rng
        self.seen: list = []
        self.chunks: dict[int, list] = {}
        self.ready: dict[int, int] = {}
        self.done: set[int] = set()
        self.whole_from: int | None = None
        self.hurries = False

    def ask(self, rules: list[Rule], asked: Rule) -> None:
        self.change([*rules, asked])
        wanted = Wanted(self.pipeline.rule_set.rules[-1], None, "ann", "", 0)
        self.pipeline.rule_set = begun(self.pipeline.rule_set, wanted, self.pipeline.batches)

    def batch(self, rows: list[Row]) -> tuple[dict, list, list]:
        pipeline, rng = self.pipeline, self.rng
        if self.done:
            pipeline.rule_set = completed(pipeline.rule_set, self.done)
            self.done = set()
            if not pipeline.rule_set.fills:
                self.whole_from = pipeline.batches
        if pipeline.rule_set.fills_begun:
            pipeline.rule_set = RuleSet.from_json(pipeline.rule_set.to_json())
        for fill in pipeline.rule_set.fills:
            if fill.number not in self.chunks:
                self.chunks[fill.number] = self._chunks(fill)
                self.ready[fill.number] = 0
        while rng.random() < 0.2:
            before = copy.deepcopy((pipeline.stores, pipeline.driver)), self.arrived
            super().batch(rows, self._feeds())
            (pipeline.stores, pipeline.driver), self.arrived = before
            pipeline.batches -= 1
            pipeline.accounts.pop()
        found = super().batch(rows, self._feeds())
        by_fill: dict[int, list[bool]] = {}
        for each in found[2]:
            by_fill.setdefault(each["fill"], []).append(each["done"])
        assert by_fill.keys() == {fill.number for fill in pipeline.rule_set.fills}
        assert all(len(each) == ENGINE["shards"] for each in by_fill.values())
        self.done = {number for number, each in by_fill.items() if all(each)}
        rows_before = sum(map(len, self.seen))
        table = archived(arrivals(rows, SCHEMA), SCHEMA, pipeline.batches - 1)
        numbers = range(rows_before, rows_before + len(table))
        self.seen.append(table.append_column(ARRIVAL, [list(numbers)]))
        return found

    def _feeds(self):
        chosen = more_ready(self.chunks, self.ready, self.rng, self.hurries)
        missing = not self.hurries and self.rng.random() < 0.1
        return lambda shard: {} if missing else {number: Feed(*each, shard) for number, each in chosen.items()}

    def _chunks(self, fill) -> list:
        rule_set = self.pipeline.rule_set
        builder = Builder(
            rule_set.filling[fill.number], frozenset(), SCHEMA, ENGINE["shards"], self.rng.choice([1, 5, 16])
        )
        return list(builder.chunks(self.seen[: fill.first_batch], {}, lambda pinned: NO_LISTS))


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(st.integers(0, 2**32), st.sampled_from(ASKED))
def test_from_completion_on_a_rule_is_as_one_that_was_there_from_the_start(seed, asked):
    """Before that the job is as one that got the rule without a backfill; repeated batches make no difference."""
    rng = random.Random(seed)
    batches = cut(rng, stream(rng, 110))
    applied = rng.randrange(1, len(batches) // 2)
    whole, cold, filled = Job([*BEFORE, asked]), Job(BEFORE), Filled(BEFORE, rng)
    for number, rows in enumerate(batches):
        if number == applied:
            cold.change([*BEFORE, asked])
            filled.ask(BEFORE, asked)
        filled.hurries = number > len(batches) * 2 // 3
        found, of_whole, of_cold = filled.batch(rows), whole.batch(rows), cold.batch(rows)
        fills, begun_fills = filled.pipeline.rule_set.fills, filled.pipeline.rule_set.fills_begun
        if not fills and begun_fills:
            assert found[:2] == of_whole[:2]
        elif len(fills) == begun_fills:  # of several groups one may be complete before the others
            assert found[:2] == of_cold[:2]
    assert filled.whole_from is not None
    assert not filled.pipeline.rule_set.fills


@settings(max_examples=examples(15))
@given(st.integers(0, 2**32), st.booleans())
def test_a_fill_that_begins_again_or_ends_leaves_nothing_behind(seed, begins_again):
    """Another rule of its group needs more than it takes in, or the rule that asked for it goes."""
    rng = random.Random(seed)
    batches = cut(rng, stream(rng, 110))
    asked, other = (
        rule("asked", group_by=["kind"], length="2h"),
        rule("other", group_by=["kind"], measure="fee", length="30m"),
    )
    applied = rng.randrange(1, len(batches) // 2)
    changed = applied + rng.choice([1, 2, 4])
    rules = [*BEFORE, asked, other] if begins_again else BEFORE
    whole, filled = Job([*BEFORE, asked]), Filled(BEFORE, rng)
    begun_fills = []
    for number, rows in enumerate(batches):
        if number == applied:
            filled.ask(BEFORE, asked)
        if number == changed:
            begun_fills += filled.pipeline.rule_set.fills
            filled.change(rules)
            whole.change(rules)
        filled.hurries = number > len(batches) * 2 // 3
        found, of_whole = filled.batch(rows), whole.batch(rows)
        if not filled.pipeline.rule_set.fills and number > changed:
            assert _without(found[0], "other") == _without(of_whole[0], "other")
    if begun_fills:
        assert filled.pipeline.rule_set.fills_begun == 1 + begins_again
    waiting = tuple(bytes.fromhex(fill_identity(fill.group_id, fill.number, "waiting")) for fill in begun_fills)
    pages = [key for store in filled.pipeline.stores.values() for key in store.pages.data]
    assert not [key for key in pages if key.startswith(waiting)]
    assert not any(OVERVIEW in store.schedule.data for store in filled.pipeline.stores.values())


def _without(found: dict[str, list[Row]], rule_id: str) -> dict[str, list[Row]]:
    """What has come out, but for one rule."""
    kept = {name: [row for row in rows if row.get("rule_id") != rule_id] for name, rows in found.items()}
    return {name: rows for name, rows in kept.items() if rows}
