"""The laws of the core, on random streams against the oracle."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine import Engine
from tests.oracle import Oracle
from tests.strategies import SCHEMA, rules, streams

MEASURES = {name: measure.scale for name, measure in SCHEMA.measures.items()}
LATENESS = st.sampled_from([0, 3, 100])
LATE = st.sampled_from(["add", "evaluate", "drop"])
COLLISION = st.sampled_from(["keep", "keep_first", "replace"])


def cut(events, places):
    """Events cut into micro-batches at the given places."""
    ends = sorted({min(place, len(events)) for place in places} | {0, len(events)})
    return [events[start:end] for start, end in pairwise(ends)]


@settings(max_examples=400)
@given(rules(), streams(), LATENESS, LATE, COLLISION)
def test_the_core_equals_a_loop_over_a_list(rules, events, lateness_ms, late, collision):
    engine = Engine(rules, allowed_lateness=f"{lateness_ms}ms", late=late, collision=collision)
    oracle = Oracle(rules, MEASURES, lateness_ms, late, collision)
    assert engine.run([events]) == [oracle.arrive(event) for event in events]


@settings(max_examples=200)
@given(rules(), streams(), LATENESS, LATE, COLLISION, st.lists(st.integers(0, 60), max_size=8))
def test_cutting_the_same_arrivals_into_other_batches_changes_nothing(
    rules, events, lateness_ms, late, collision, places
):
    settings = {"allowed_lateness": f"{lateness_ms}ms", "late": late, "collision": collision}
    whole, pieces, singles = Engine(rules, **settings), Engine(rules, **settings), Engine(rules, **settings)
    expected = whole.run([events])
    assert pieces.run(cut(events, places)) == expected
    assert singles.run([[event] for event in events]) == expected
    assert whole.store == pieces.store == singles.store


@settings(max_examples=100)
@given(rules(min_size=20, max_size=20), streams(max_size=40, overflowing=False))
def test_twenty_windows_at_once_are_each_exact(rules, events):
    oracle = Oracle(rules, MEASURES)
    assert Engine(rules, allowed_lateness="0ms").run([events]) == [oracle.arrive(event) for event in events]


@settings(max_examples=100)
@given(rules(), streams())
def test_rows_of_fired_rules_only_are_the_fired_ones_of_all_rows(rules, events):
    every, fired = Engine(rules), Engine(rules)
    expected = every.batch(events) if events else []
    for outcome in expected:
        outcome.results = {rule: result for rule, result in outcome.results.items() if result[2]}
    assert (fired.batch(events, emit_all=False) if events else []) == expected


@given(rules(), streams(overflowing=False))
def test_a_timeline_holds_nothing_older_than_its_horizon_once_visited(rules, events):
    engine = Engine(rules, allowed_lateness="3ms")
    oracle = Oracle(rules, MEASURES, 3)
    engine.run([events])
    for event in events:
        oracle.arrive(event)
    fresh = Engine(rules, allowed_lateness="3ms")
    for key, held in oracle.held.items():
        reach_ms = oracle.clock_ms.get(key, 0) - oracle.horizon_ms
        inside = sorted((event for event in held if event.time_ms >= reach_ms), key=lambda event: event.time_ms)
        if key in oracle.clock_ms and inside:
            fresh.run([[event] for event in inside])
            assert engine.store[key] == fresh.store[key]
