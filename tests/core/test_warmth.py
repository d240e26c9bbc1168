"""Since when a rule is complete: exactly the event times whose evaluations are warm, and what is said of them."""

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import buckets
from buckets.checkpoint.batch_records import BatchRecord
from buckets.checkpoint.driver_state import Checkpoint
from buckets.config.engine import EngineSettings
from buckets.duration import DAY_MS
from buckets.engine.stages.shard import Scorer
from buckets.rules.completeness import Stretch, Stretches, joined
from buckets.rules.rule import Rule
from buckets.rules.rule_set import first_rule_set, next_rule_set
from buckets.rules.warmth import Warm, Warmth, rules_warmth
from tests.core.checkpoints import book_of, ran
from tests.core.examples import SCHEMA, rule
from tests.core.pipeline import Pipeline

HOUR_MS = 3_600_000
NOW_MS = 400 * DAY_MS
WITH_FEATURES = Rule.model_validate(
    {
        "rule_id": "features",
        "group_by": ["payer"],
        "features": {
            "recent": {"function": "sum", "of": "amount", "window": "1h"},
            "kinds": {"function": "count", "window": "2h", "group_by": ["kind"]},
            "largest": {"function": "max", "of": "fee", "window": "30m", "where": "fee > 1"},
        },
        "when": "recent >= 0 AND kinds >= 0 AND (largest IS NULL OR largest >= 0)",
    }
)
CANDIDATES = (
    rule("sum"),
    rule("long", length="3h"),
    rule("open", window={"length": "2h", "left": "open"}),
    rule("fee", "fee", length="2h"),
    rule("count", None, group_by=["kind"]),
    rule("paused", length="5h", state="PAUSE"),
    rule("trial", group_by=["payer", "kind"], state="SHADOW"),
    rule("draft", length="9h", state="DRAFT"),
    WITH_FEATURES,
)
rule_lists = st.lists(st.sampled_from(CANDIDATES), min_size=1, max_size=5, unique_by=lambda each: each.rule_id)
stretch_times = st.lists(
    st.one_of(st.integers(0, 6 * HOUR_MS), st.integers(300 * DAY_MS, 300 * DAY_MS + HOUR_MS)), min_size=1, max_size=4
)


def payment(number: int, at: int, payer: str) -> dict:
    return {
        "id": f"e{number}",
        "at": at,
        "payer": payer,
        "kind": payer,
        "account": 5,
        "vip": "true",
        "amount": 1,
        "fee": 2,
        "position": number,
    }


def is_warm(warmth: Warmth, at_ms: int) -> bool:
    return any(
        (each.from_ms is None or each.from_ms <= at_ms) and (each.until_ms is None or at_ms < each.until_ms)
        for each in warmth.warm
    )


def stretches(times_ms: list[int]) -> Stretches:
    return joined(Stretch(at, at) for at in times_ms)


@settings(deadline=None)
@given(st.lists(st.tuples(rule_lists, stretch_times), min_size=1, max_size=3), rule_lists)
@example([([rule("sum")], [1000])], [rule("sum"), rule("long", length="3h")])
@example([([rule("sum")], [0, 300 * DAY_MS])], [WITH_FEATURES])
def test_evaluations_are_warm_exactly_when_the_rule_is_said_to_be_complete(history, last):
    arrived: Stretches = ()
    rule_set = first_rule_set([])
    for rules, times in history:
        rule_set = next_rule_set(rule_set, rules, arrived, 0)
        arrived = joined([*arrived, *stretches(times)])
    rule_set = next_rule_set(rule_set, last, arrived, 0)
    warmth = rules_warmth(rule_set, arrived, NOW_MS)
    edges = {edge for each in warmth.values() for stretch in each.warm for edge in stretch if edge is not None}
    moments = sorted({at + by for at in (*edges, 0, arrived[-1].last_ms) for by in (-1, 0, 1)})
    job = Pipeline(rule_set, SCHEMA)
    job.scorer = Scorer(SCHEMA, EngineSettings(allowed_lateness="0ms"), evaluations=True)
    # Each event has a key of its own, so that none is late.
    job.batch([[payment(number, at, f"p{number}") for number, at in enumerate(moments)]])
    evaluated = job.output("evaluations")
    assert len(evaluated) == len(moments) * sum(each.is_evaluated for each in last)
    for row in evaluated:
        assert row["warm"] == is_warm(warmth[row["rule_id"]], row["event_time"])


@given(rule_lists)
def test_before_the_first_event_all_rules_are_complete_but_drafts(rules):
    for rule_id, each in rules_warmth(first_rule_set(rules), (), NOW_MS).items():
        assert each.sentence() == ("keeps nothing yet" if rule_id == "draft" else "complete")


@given(rule_lists, stretch_times)
def test_the_moment_that_is_told_is_the_first_complete_one_after_the_latest_event(rules, times):
    arrived = stretches(times)
    rule_set = next_rule_set(first_rule_set([]), rules, arrived, 0)
    for each in rules_warmth(rule_set, arrived, NOW_MS).values():
        assert each.latest_ms == arrived[-1].last_ms
        assert is_warm(each, each.latest_ms) == (each.current is not None)
        ahead = each.complete_from_ms
        if ahead is not None:
            assert each.current is None
            assert is_warm(each, ahead)
            assert not any(is_warm(each, at) for at in (each.latest_ms, ahead - 1))


def test_a_date_in_the_future_says_nothing_of_how_far_the_stream_is():
    arrived = (Stretch(0, HOUR_MS), Stretch(NOW_MS + 2 * DAY_MS, NOW_MS + 2 * DAY_MS))
    (each,) = rules_warmth(next_rule_set(first_rule_set([]), [rule()], arrived, 0), arrived, NOW_MS).values()
    assert each.latest_ms == HOUR_MS
    assert each.complete_from_ms == HOUR_MS + 1 + HOUR_MS
    assert each.warm[0].until_ms == NOW_MS + 2 * DAY_MS


@pytest.mark.parametrize(
    ("latest_ms", "warm", "said"),
    [
        (None, (Warm(None, None),), "complete"),
        (5, (Warm(None, None),), "complete"),
        (20 * DAY_MS, (Warm(10 * DAY_MS, None),), "complete since 1970-01-11 00:00"),
        (
            5 * DAY_MS,
            (Warm(17 * DAY_MS - 1, None),),
            "complete from 1970-01-18 00:00 (in event time), 12 d to go",
        ),
        (0, (Warm(90_000, None),), "complete from 1970-01-01 00:02 (in event time), 2 min to go"),
        (0, (), "keeps nothing yet"),
        (9, (Warm(None, 5),), "not complete"),
    ],
)
def test_what_is_said(latest_ms, warm, said):
    assert Warmth("r", warm, latest_ms).sentence() == said


def test_a_checkpoint_says_it_of_the_newest_version_and_the_last_finished_batch(tmp_path):
    assert buckets.read_warmth(tmp_path / "none") == {}
    checkpoint = Checkpoint(tmp_path)
    ran(book_of(checkpoint, [rule("a")]), 0, latest_ms=HOUR_MS)
    ran(book_of(checkpoint, [rule("a"), rule("b", group_by=["kind"])]), 1, latest_ms=2 * HOUR_MS)
    checkpoint.batches.keep(2, BatchRecord(2, (), done=False))
    found = buckets.read_warmth(Path(tmp_path))
    assert found["a"] == Warmth("a", (Warm(None, None),), 2 * HOUR_MS)
    assert found["b"] == Warmth("b", (Warm(2 * HOUR_MS + 1, None),), 2 * HOUR_MS)
    assert found["b"].sentence() == "complete from 1970-01-01 02:01 (in event time), 1 ms to go"
